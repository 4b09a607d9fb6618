"""Properties of the scores that the demo measures."""

import numpy as np
import pytest

from manylens.baselines import MonolithicKernelPCA
from manylens.cli.demo_experiment import Settings, run_experiment, score_modules, split_digits
from manylens.cli.demo_report import COLUMNS, gap_text, table_rows


@pytest.fixture(scope="module")
def experiment():
    return run_experiment(Settings.quick(seed=1))


def by_name(experiment):
    return {measured.name: measured.scores for measured in experiment.baselines}


def test_a_representation_that_preserves_distances_finds_all_neighbors():
    digits = split_digits(300, 100, 10, seed=0)
    whole = MonolithicKernelPCA(64, kernel="linear").fit(digits.base)
    # Pixels are integers: some neighbors tie, and either may be the tenth.
    assert score_modules(whole, digits, 10, 5).precision > 0.99


def test_base_and_queries_are_disjoint_and_balanced():
    digits = split_digits(500, 200, 10, seed=0)
    rows = {row.tobytes() for row in digits.base}
    assert not any(row.tobytes() in rows for row in digits.queries)
    assert np.ptp(np.bincount(digits.query_labels)) <= 2


def test_without_diversity_all_modules_together_score_like_one(experiment):
    same = experiment.path[0]
    assert same.model.diversity_ == 0
    assert same.scores.precision == pytest.approx(same.scores.module_precision, abs=1e-3)
    assert same.scores.accuracy == pytest.approx(same.scores.module_accuracy, abs=1e-9)


def test_at_full_diversity_modules_find_nearly_as_many_neighbors_as_one_kernel_pca(experiment):
    # Both rank by the same distances; modules only miss neighbors that none of them proposes.
    assert by_name(experiment)["monolithic"].precision >= experiment.path[-1].scores.precision
    assert experiment.path[-1].scores.precision > by_name(experiment)["monolithic"].precision - 0.05


@pytest.mark.parametrize("seed", [1, 2])
def test_modules_find_more_neighbors_than_partition_bootstrap_and_random(seed):
    found = run_experiment(Settings.quick(seed))
    for name in ("partition", "bootstrap", "random"):
        assert found.best.scores.precision > by_name(found)[name].precision + 0.02


def test_with_diversity_the_precision_of_all_modules_grows_and_that_of_one_module_falls(experiment):
    together = [measured.scores.precision for measured in experiment.path]
    single = [measured.scores.module_precision for measured in experiment.path]
    assert together == sorted(together)
    assert single == sorted(single, reverse=True)


def test_every_model_of_the_path_is_certified(experiment):
    assert max(measured.model.optimality_gap_ for measured in experiment.path) < 1e-9


def test_the_same_seed_gives_the_same_scores_and_another_seed_another_split(experiment):
    again = run_experiment(Settings.quick(seed=1))
    assert [measured.scores for measured in again.path] == [measured.scores for measured in experiment.path]
    other = split_digits(500, 200, 10, seed=2)
    assert not np.array_equal(other.base, experiment.digits.base)


def test_the_table_holds_the_scores_and_marks_the_best(experiment):
    rows = table_rows(experiment)
    assert len(rows) == 4 + len(experiment.path)
    for row, measured in zip(rows, [*experiment.baselines, *experiment.path], strict=True):
        assert len(row.cells) == len(COLUMNS)
        assert float(row.cells[2]) == pytest.approx(100 * measured.scores.precision, abs=0.051)
        assert float(row.cells[3]) == pytest.approx(100 * measured.scores.accuracy, abs=0.051)
    best = [float(row.cells[2]) for row in rows if 2 in row.best]
    assert best
    assert set(best) == {max(float(row.cells[2]) for row in rows)}


def test_a_gap_of_zero_is_written_as_0():
    assert gap_text(0.0) == "0"
    assert gap_text(3.2e-13) == "3e-13"


def test_every_step_is_reported():
    steps = []
    run_experiment(Settings(3, 2, (0.5,), n_base=100, n_queries=20), steps.append)
    assert steps == ["decomposition", "modular", "monolithic", "partition", "bootstrap", "random"]
