"""Many small, diverse views of the same data: learn them, compare them, keep the few that matter."""

from manylens.modules.autoencoder import BaggingAutoencoder, ModularAutoencoder
from manylens.modules.baselines import (
    BootstrapKernelPCA,
    MonolithicKernelPCA,
    PartitionKernelPCA,
    RandomKernelProjection,
)
from manylens.modules.kernel_pca import ModularKernelPCA
from manylens.persistence import load, save
from manylens.streaming.count_sketch import CountSketch

__version__ = "0.1.0.dev0"

__all__ = [
    "BaggingAutoencoder",
    "BootstrapKernelPCA",
    "CountSketch",
    "ModularAutoencoder",
    "ModularKernelPCA",
    "MonolithicKernelPCA",
    "PartitionKernelPCA",
    "RandomKernelProjection",
    "__version__",
    "load",
    "save",
]
