"""Representations that the papers compare modules with, behind the same interface."""

from typing import TYPE_CHECKING

from manylens._lazy import attach

if TYPE_CHECKING:
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

__getattr__, __dir__ = attach(
    __name__,
    {
        "manylens.baselines.autoencoder": ["BaggingAutoencoder"],
        "manylens.baselines.kernel_pca": [
            "BootstrapKernelPCA",
            "MonolithicKernelPCA",
            "PartitionKernelPCA",
            "RandomKernelProjection",
        ],
    },
)
