"""The measures of similarity by name."""

from __future__ import annotations

from collections.abc import Callable

from manylens.alignment.measure_base import Measure
from manylens.alignment.row_pair_measures import CKA, RSA, DistanceCorrelation, NeighborOverlap
from manylens.alignment.subspace_measures import CCA, Procrustes
from manylens.validation import shown

MEASURES: dict[str, Callable[[], Measure]] = {
    "cka": CKA,
    "biased-cka": lambda: CKA(estimator="biased"),
    "feature-cka": lambda: CKA(estimator="features"),
    "rbf-cka": lambda: CKA("rbf"),
    "biased-rbf-cka": lambda: CKA("rbf", "biased"),
    "mutual-knn": NeighborOverlap,
    "jaccard": lambda: NeighborOverlap(index="jaccard"),
    "procrustes": Procrustes,
    "mean-cca": CCA,
    "svcca": lambda: CCA(variance=0.99),
    "pwcca": lambda: CCA("projection"),
    "rsa": RSA,
    "distance-correlation": DistanceCorrelation,
}


def make_measure(measure: str | Measure) -> Measure:
    """The measure of this name, or the measure itself."""
    if isinstance(measure, Measure):
        return measure
    if isinstance(measure, str) and measure in MEASURES:
        return MEASURES[measure]()
    raise ValueError(
        f"measure={shown(measure)} is unknown: give one of {', '.join(MEASURES)}, or a measure of "
        "manylens.alignment such as CKA('rbf')."
    )
