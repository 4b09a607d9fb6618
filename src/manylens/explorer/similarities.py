"""Similarity of modules with each other, for the heat map: CKA and distance correlation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from manylens.alignment.cka_and_hsic import cka_matrix
from manylens.alignment.distance_correlations import distance_correlation_matrix
from manylens.typing import FloatArray

MOST_ROWS = 500  # of a sample; enough for two digits
MOST_MODULES = 60


def module_similarities(stops: Sequence[Sequence[FloatArray]]) -> dict[str, Any] | None:
    """CKA and distance correlation of every pair of modules (n, H) at each stop, as nested lists."""
    if len(stops[0]) > MOST_MODULES or len(stops[0][0]) < 4:
        return None
    measures = {"CKA": linear_cka, "distance correlation": distance_correlations}
    return {
        name: [similarity_matrix(views, None, measure) for views in stops]
        for name, measure in measures.items()
    }


def distance_correlations(views: Sequence[FloatArray], _: Sequence[FloatArray] | None) -> FloatArray:
    """Distance correlation of every pair."""
    return distance_correlation_matrix(views)


def linear_cka(views: Sequence[FloatArray], others: Sequence[FloatArray] | None) -> FloatArray:
    """Unbiased CKA of every pair."""
    return np.asarray(cka_matrix(views, others, estimator="unbiased"))


def similarity_matrix(
    views: Sequence[FloatArray], others: Sequence[FloatArray] | None, measure: Any
) -> list[list[float | None]]:
    """A measure of every pair of views as lists, None if a view is constant, rounded to four digits."""
    varying = [m for m, view in enumerate(views) if np.ptp(view, axis=0).any()]
    columns = views if others is None else others
    among = [m for m, view in enumerate(columns) if np.ptp(view, axis=0).any()]
    scores = np.full((len(views), len(columns)), np.nan)
    if varying and among:
        chosen = None if others is None else [columns[m] for m in among]
        scores[np.ix_(varying, among)] = measure([views[m] for m in varying], chosen)
    return [[float(round(s, 4)) if np.isfinite(s) else None for s in line] for line in scores]
