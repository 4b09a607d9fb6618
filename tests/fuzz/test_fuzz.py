"""Some thousand hostile calls with a fresh seed in every run, and tests of the fuzzer itself."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

from tests.fuzz import targets
from tests.fuzz.__main__ import fuzz, is_bad, report
from tests.fuzz.calls import attempt, run_case

SEED = int(os.environ.get("MANYLENS_FUZZ_SEED") or time.time_ns() % 2**40)
CALLS = int(os.environ.get("MANYLENS_FUZZ_CALLS", "5000" if os.environ.get("CI") else "500"))


def test_hostile_calls_end_well():
    outcomes = fuzz(SEED, 60, CALLS, n_workers=1)
    unclear = sum(verdict.kind == "unclear" for _, verdict in outcomes)
    said = f"MANYLENS_FUZZ_SEED={SEED} repeats this run, --replay one of its cases.\n{report(outcomes)}"
    assert len(outcomes) > 20
    assert not any(is_bad(verdict) for _, verdict in outcomes), said
    assert unclear <= max(1, len(outcomes) // 1000), said


def test_every_public_estimator_is_a_target():
    import manylens

    names = targets.public_names()
    estimators = [name for name in manylens.__all__ if hasattr(getattr(manylens, name), "fit")]
    assert len(estimators) > 10
    assert {f"manylens.{name}" for name in estimators} <= set(names)


def test_a_case_can_be_replayed():
    seeds = range(50, 60)
    assert [run_case(seed) for seed in seeds] == [run_case(seed) for seed in seeds]


def leak(X):
    return np.ones((2, 3)) @ X


def overflow(X):
    return np.exp(X + 1e4)


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (leak, "unclear"),
        (overflow, "runtime warning"),
        (lambda X: {}[len(X)], "exception"),
        (lambda X: [X + np.nan], "nonfinite"),
        (lambda X: X, "ok"),
    ],
)
def test_verdicts_tell_faults_from_answers(function, kind):
    verdict, _ = attempt("call", function, {"X": np.zeros((2, 2))})
    assert verdict.kind == kind
