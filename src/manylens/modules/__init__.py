"""Many diverse representations of the same rows: kernel PCA, autoencoders and networks, trained together."""

from manylens.modules.autoencoder import ModularAutoencoder
from manylens.modules.kernel_pca import ModularKernelPCA
from manylens.modules.negative_correlation import NegativeCorrelationClassifier, NegativeCorrelationRegressor
from manylens.modules.network_autoencoder import NetworkAutoencoder
from manylens.modules.solver import Ambiguity

__all__ = [
    "Ambiguity",
    "ModularAutoencoder",
    "ModularKernelPCA",
    "NegativeCorrelationClassifier",
    "NegativeCorrelationRegressor",
    "NetworkAutoencoder",
]
