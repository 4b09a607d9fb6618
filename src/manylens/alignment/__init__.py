"""Compare representations: kernel alignment, kernel weights, and rankings of models."""

from typing import TYPE_CHECKING

from manylens._lazy import attach

if TYPE_CHECKING:
    from manylens.alignment.cka_and_hsic import cka, cka_matrix, hsic, hsic_test, stable_rank
    from manylens.alignment.comparing import Similarity, SimilarityMatrix, compare, compare_matrix
    from manylens.alignment.distance_correlations import distance_correlation, distance_correlation_matrix
    from manylens.alignment.kernel_weights import KernelAlignment, align_bandwidths, align_kernels
    from manylens.alignment.measure_base import Measure
    from manylens.alignment.ranking import ModelRanking, rank_models
    from manylens.alignment.row_pair_measures import CKA, RSA, DistanceCorrelation, NeighborOverlap
    from manylens.alignment.sketched_alignments import scka, sketched_cka
    from manylens.alignment.sketches import Estimate, FeatureSketch
    from manylens.alignment.streaming import StreamingCKA
    from manylens.alignment.subspace_measures import CCA, Procrustes

__all__ = [
    "CCA",
    "CKA",
    "RSA",
    "DistanceCorrelation",
    "Estimate",
    "FeatureSketch",
    "KernelAlignment",
    "Measure",
    "ModelRanking",
    "NeighborOverlap",
    "Procrustes",
    "Similarity",
    "SimilarityMatrix",
    "StreamingCKA",
    "align_bandwidths",
    "align_kernels",
    "cka",
    "cka_matrix",
    "compare",
    "compare_matrix",
    "distance_correlation",
    "distance_correlation_matrix",
    "hsic",
    "hsic_test",
    "rank_models",
    "scka",
    "sketched_cka",
    "stable_rank",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "manylens.alignment.comparing": ["Similarity", "SimilarityMatrix", "compare", "compare_matrix"],
        "manylens.alignment.distance_correlations": ["distance_correlation", "distance_correlation_matrix"],
        "manylens.alignment.kernel_weights": ["KernelAlignment", "align_bandwidths", "align_kernels"],
        "manylens.alignment.subspace_measures": ["CCA", "Procrustes"],
        "manylens.alignment.measure_base": ["Measure"],
        "manylens.alignment.row_pair_measures": ["CKA", "RSA", "DistanceCorrelation", "NeighborOverlap"],
        "manylens.alignment.cka_and_hsic": ["cka", "cka_matrix", "hsic", "hsic_test", "stable_rank"],
        "manylens.alignment.sketched_alignments": ["scka", "sketched_cka"],
        "manylens.alignment.sketches": ["Estimate", "FeatureSketch"],
        "manylens.alignment.streaming": ["StreamingCKA"],
        "manylens.alignment.ranking": ["ModelRanking", "rank_models"],
    },
)
