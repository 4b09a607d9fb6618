"""The model behind the simulated tail latency, and precision by the workers that answer."""

import numpy as np
import pytest

from benchmarks.peers.cluster import answers, service

RNG = np.random.default_rng(0)


def test_service_times_have_the_median_the_spread_and_the_stalls_asked_for():
    calm = service.Calls(0.002, 0.4, stall_probability=0.0)
    seconds = service.service_times(calm, 400, 500, np.random.default_rng(1))
    assert np.median(seconds) == pytest.approx(0.002, rel=0.01)
    assert np.percentile(seconds, 99) == pytest.approx(0.002 * np.exp(0.4 * 2.3263), rel=0.03)
    assert service.fit_lognormal(seconds.ravel()) == pytest.approx((0.002, 0.4), rel=0.02)
    stalls = calm._replace(spread=0.0, stall_probability=0.05, stall_factor=7.0)
    seconds = service.service_times(stalls, 400, 500, np.random.default_rng(1))
    assert set(np.unique(np.round(seconds / 0.002, 6))) == {1.0, 7.0}
    assert (seconds > 0.01).mean() == pytest.approx(0.05, abs=0.003)


def test_workers_of_a_rack_fail_together():
    calls = service.Calls(1.0, 0.1, rack_down=0.3, n_racks=4)
    up = service.workers_up(calls, 5000, 12, np.random.default_rng(0))
    np.testing.assert_array_equal(up[:, :4], up[:, 4:8])
    assert up.mean() == pytest.approx(0.7, abs=0.02)
    assert np.corrcoef(up[:, 0], up[:, 1])[0, 1] == pytest.approx(0.0, abs=0.05)
    both = service.workers_up(calls._replace(worker_down=0.5), 5000, 12, np.random.default_rng(0))
    assert both.mean() == pytest.approx(0.35, abs=0.02)


def test_waiting_for_some_is_an_order_statistic():
    seconds, up = RNG.random((200, 12)), np.ones((200, 12), dtype=bool)
    for count in (1, 5, 12):
        outcome = service.wait(seconds, up, 12, count)
        np.testing.assert_array_equal(outcome.seconds, np.sort(seconds, axis=1)[:, count - 1])
        np.testing.assert_array_equal(outcome.answered, np.full((200, 1), count))
    by_group = service.wait(seconds, up, 4, 2)
    slowest = np.sort(seconds.reshape(200, 3, 4), axis=2)[:, :, 1].max(axis=1)
    np.testing.assert_array_equal(by_group.seconds, slowest)
    assert (by_group.answered >= 2).all()  # and what else came until then
    assert (by_group.answered > 2).any()


def test_a_query_does_not_wait_for_workers_that_are_down():
    seconds, up = RNG.random((50, 6)), np.ones((50, 6), dtype=bool)
    up[:, 0] = up[:, 3] = up[:, 4] = up[:, 5] = False
    outcome = service.wait(seconds, up, 3, 3)
    np.testing.assert_array_equal(outcome.seconds, seconds[:, 1:3].max(axis=1))
    np.testing.assert_array_equal(outcome.answered, np.tile([2, 0], (50, 1)))
    nobody = service.wait(seconds, np.zeros_like(up), 3, 3)
    assert not nobody.seconds.any()
    assert not nobody.answered.any()


def test_precision_of_modules_and_shards():
    curve = service.whole_curve({1: 0.4, 3: 0.8}, 3)
    np.testing.assert_allclose(curve, [0, 0.4, 0.6, 0.8])
    np.testing.assert_allclose(
        service.module_precision(curve, np.array([[3, 3], [3, 0], [2, 1]])), [0.8, 0.4, 0.5]
    )
    np.testing.assert_allclose(service.shard_precision(0.6, np.array([[1, 2, 1], [1, 0, 0]])), [0.6, 0.2])


def test_waiting_for_most_avoids_stalls():
    calls = service.Calls(1.0, 0.2, stall_probability=0.01, stall_factor=20.0)

    def run(at_least):
        return service.simulate(
            calls, 15, 15, at_least, lambda answered, workers: answered[:, 0] / workers, 20_000, seed=0
        )

    assert run(13) == run(13)
    # P(a call of 15 stalls) = 14 %, P(three of 15 do) = 0.04 %
    assert run(15)["p99"] > 15
    assert run(13)["p99"] < 3
    assert run(15)["precision"] == 1.0
    assert run(13)["precision"] == pytest.approx(13 / 15, abs=1e-9)


def test_precision_by_answering_workers():
    rows = RNG.standard_normal((300, 12)).astype(np.float32)
    base, queries = rows[:250], rows[250:]
    truth = answers.true_neighbors(queries, base, 10)
    distances = ((queries[:, None] - base) ** 2).sum(axis=2)
    np.testing.assert_array_equal(
        np.sort(truth, axis=1), np.sort(np.argsort(distances, axis=1)[:, :10], axis=1)
    )
    subsets = answers.random_subsets(4, (4, 2, 1), 20, seed=0)
    assert len(subsets[4]) == 1
    assert all(len(set(which)) == 2 for which in subsets[2])
    by_draw = answers.precision_of_modules(queries.reshape(50, 4, 3), base.reshape(250, 4, 3), truth, subsets)
    assert {size: len(values) for size, values in by_draw.items()} == {
        size: len(drawn) for size, drawn in subsets.items()
    }
    modules = answers.means(by_draw)
    errors = answers.standard_errors({1: np.array([0.1, 0.3]), 2: np.array([0.4])})
    assert errors == {1: pytest.approx(0.1), 2: 0.0}
    assert modules[4] == 1.0
    assert 1 > modules[2] > modules[1] > 0.1
    shards = answers.means(answers.precision_of_shards(queries, base, truth, subsets, 0, 4))
    assert shards[4] == 1.0
    # a neighbor is found if its shard answers
    assert shards[2] == pytest.approx(0.5, abs=0.05)
    assert shards[1] == pytest.approx(0.25, abs=0.05)
