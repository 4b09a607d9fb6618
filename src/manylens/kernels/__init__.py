"""Kernels, rules for their bandwidths, and feature maps."""

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
    from manylens.kernels.kernels import (
        RBF,
        Cosine,
        FromCallable,
        Kernel,
        Laplacian,
        Linear,
        Polynomial,
        Precomputed,
        make_kernel,
    )
    from manylens.kernels.manifold_kernels import IsomapKernel, LaplacianEigenmapKernel, LocallyLinearKernel

__all__ = [
    "RBF",
    "Cosine",
    "CountSketchMap",
    "ExactMap",
    "FeatureMap",
    "FourierMap",
    "FromCallable",
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
    "bandwidth",
    "make_feature_map",
    "make_kernel",
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
        "manylens.kernels.manifold_kernels": [
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
            "make_kernel",
        ],
    },
)
