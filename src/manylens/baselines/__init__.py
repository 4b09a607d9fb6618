"""Methods that the papers compare against: other ways to obtain modules, and semi-supervised classifiers."""

from manylens.baselines.autoencoder import BaggingAutoencoder
from manylens.baselines.kernel_pca import (
    BootstrapKernelPCA,
    MonolithicKernelPCA,
    PartitionKernelPCA,
    RandomKernelProjection,
)
from manylens.baselines.semi_supervised import LaplacianRidgeClassifier, SelfTrainingLogisticRegression

__all__ = [
    "BaggingAutoencoder",
    "BootstrapKernelPCA",
    "LaplacianRidgeClassifier",
    "MonolithicKernelPCA",
    "PartitionKernelPCA",
    "RandomKernelProjection",
    "SelfTrainingLogisticRegression",
]
