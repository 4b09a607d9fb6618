"""What "similar" means: kernels, bandwidth rules and feature maps."""

from manylens.kernels.bandwidth import bandwidth
from manylens.kernels.choice import make_feature_map
from manylens.kernels.feature_maps import ExactMap, FeatureMap, LinearMap, NystroemMap
from manylens.kernels.fourier import FourierMap
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
    make_kernel,
)
from manylens.kernels.sketched import CountSketchMap
from manylens.kernels.spectrum import Spectrum, feature_moments, principal_spectrum

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
    "make_feature_map",
    "make_kernel",
    "principal_spectrum",
]
