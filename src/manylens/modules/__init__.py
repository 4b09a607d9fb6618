"""Many diverse representations of the same rows: kernel PCA, autoencoders and networks, trained together."""

from typing import TYPE_CHECKING

from manylens._lazy import attach

if TYPE_CHECKING:
    from manylens.modules.autoencoder import ModularAutoencoder
    from manylens.modules.kernel_pca import ModularKernelPCA
    from manylens.modules.negative_correlation import (
        NegativeCorrelationClassifier,
        NegativeCorrelationRegressor,
    )
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

__getattr__, __dir__ = attach(
    __name__,
    {
        "manylens.modules.autoencoder": ["ModularAutoencoder"],
        "manylens.modules.kernel_pca": ["ModularKernelPCA"],
        "manylens.modules.negative_correlation": [
            "NegativeCorrelationClassifier",
            "NegativeCorrelationRegressor",
        ],
        "manylens.modules.network_autoencoder": ["NetworkAutoencoder"],
        "manylens.modules.solver": ["Ambiguity"],
    },
)
