"""Similarity of rows: kernels, bandwidth rules, feature maps and kernel principal components."""

from typing import TYPE_CHECKING

from manylens._lazy import attach

if TYPE_CHECKING:
    from manylens.kernels.bandwidths import bandwidth
    from manylens.kernels.feature_maps import (
        CountSketchMap,
        ExactMap,
        FeatureMap,
        FourierMap,
        LinearMap,
        NystroemMap,
        make_feature_map,
    )
    from manylens.kernels.graph import GraphKernel, IsomapKernel, LaplacianEigenmapKernel, LocallyLinearKernel
    from manylens.kernels.kernels import (
        RBF,
        Cosine,
        FromCallable,
        Kernel,
        Laplacian,
        Linear,
        Polynomial,
        Precomputed,
        fitted_kernel,
        make_kernel,
    )
    from manylens.kernels.spectrum import (
        Spectrum,
        feature_moments,
        inverse_root,
        leading_eigenpairs,
        principal_spectrum,
        rank_tolerance,
    )

__all__ = [
    "RBF",
    "Cosine",
    "CountSketchMap",
    "ExactMap",
    "FeatureMap",
    "FourierMap",
    "FromCallable",
    "GraphKernel",
    "IsomapKernel",
    "Kernel",
    "Laplacian",
    "LaplacianEigenmapKernel",
    "Linear",
    "LinearMap",
    "LocallyLinearKernel",
    "NystroemMap",
    "Polynomial",
    "Precomputed",
    "Spectrum",
    "bandwidth",
    "feature_moments",
    "fitted_kernel",
    "inverse_root",
    "leading_eigenpairs",
    "make_feature_map",
    "make_kernel",
    "principal_spectrum",
    "rank_tolerance",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "manylens.kernels.bandwidths": ["bandwidth"],
        "manylens.kernels.feature_maps": [
            "CountSketchMap",
            "ExactMap",
            "FeatureMap",
            "FourierMap",
            "LinearMap",
            "NystroemMap",
            "make_feature_map",
        ],
        "manylens.kernels.graph": [
            "GraphKernel",
            "IsomapKernel",
            "LaplacianEigenmapKernel",
            "LocallyLinearKernel",
        ],
        "manylens.kernels.kernels": [
            "RBF",
            "Cosine",
            "FromCallable",
            "Kernel",
            "Laplacian",
            "Linear",
            "Polynomial",
            "Precomputed",
            "fitted_kernel",
            "make_kernel",
        ],
        "manylens.kernels.spectrum": [
            "Spectrum",
            "feature_moments",
            "inverse_root",
            "leading_eigenpairs",
            "principal_spectrum",
            "rank_tolerance",
        ],
    },
)
