"""Searches from several clients while workers are killed and stopped."""

import pytest

from tests.cluster.limits import within

pytest.importorskip("distributed")
pytest.importorskip("psutil")


@pytest.mark.parametrize(
    ("seen", "waited", "expected"),
    [
        ([(6, 1.0, 1.0, 1, 2), (5, 0.9, 0.9, 11, 13), (6, 1.0, 1.0, 13, 15)], 0.0, 3.0),
        ([(6, 1.0, 1.0, 11, 12), (6, 1.0, 0.9, 12, 14), (6, 1.0, 1.0, 14, 15)], 0.0, 4.0),
        ([(5, 0.9, 1.0, 1, 9), (6, 1.0, 1.0, 9, 15)], 0.0, 0.0),
        ([(5, 0.9, 1.0, 9, 15)], 2.5, 7.5),
        ([], float("inf"), float("inf")),
    ],
)
def test_everything_is_back_after_the_last_incomplete_answer(seen, waited, expected):
    from benchmarks.cluster_soak import seconds_until_back

    assert seconds_until_back(seen, since=10.0, n_modules=6, waited=waited) == expected


@within(280)
def test_searches_go_on_while_workers_die_and_stop():
    from benchmarks.cluster_soak import soak

    for seed in (0, 1):  # once more if other programs took the cores from the workers that were left
        report = soak(seconds=15.0, workers=3, clients=2, n_modules=6, seed=seed)
        if not report.problems():
            break
    assert not report.problems()
    assert report.kills + report.stops > 0
    assert report.searches > 0
