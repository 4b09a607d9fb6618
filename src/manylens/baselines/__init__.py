"""Representations that the papers compare modules with, with the same interface."""

from manylens.baselines.autoencoder import BaggingAutoencoder
from manylens.baselines.kernel_pca import (
    BootstrapKernelPCA,
    MonolithicKernelPCA,
    PartitionKernelPCA,
    RandomKernelProjection,
)

__all__ = [
    "BaggingAutoencoder",
    "BootstrapKernelPCA",
    "MonolithicKernelPCA",
    "PartitionKernelPCA",
    "RandomKernelProjection",
]
