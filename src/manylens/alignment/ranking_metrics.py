"""The scores that `rank_models` knows by name, and what each of them takes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

from manylens.alignment.transferability import (
    alignment_score,
    h_score,
    log_evidence,
    log_expected_prediction,
    negative_conditional_entropy,
    neighbor_score,
    nleep,
    probe_scores,
    ridge_score,
    sfda,
    shrunk_h_score,
    trans_rate,
)


class Metric(NamedTuple):
    """A score and its requirements, which `rank_models` checks."""

    score: Callable[..., Any]
    target: Literal["columns", "classes", "either"] = "classes"  # columns (n, C), or class numbers (n,)
    takes: Literal["features", "probabilities"] = "features"
    scale_free: bool = True  # whether the score stays the same if features are multiplied by a number


METRICS = {
    "accuracy": Metric(probe_scores, target="either"),
    "ridge": Metric(ridge_score, target="either"),
    "knn": Metric(neighbor_score, target="either"),
    "cka": Metric(alignment_score, target="columns"),
    "biased-cka": Metric(partial(alignment_score, estimator="biased"), target="columns"),
    "logme": Metric(log_evidence, target="columns"),
    "h-score": Metric(h_score),
    "shrunk-h-score": Metric(shrunk_h_score),
    "sfda": Metric(sfda, scale_free=False),
    "nleep": Metric(nleep),
    "transrate": Metric(trans_rate, scale_free=False),
    "leep": Metric(log_expected_prediction, takes="probabilities"),
    "nce": Metric(negative_conditional_entropy, takes="probabilities"),
}
