"""Many small, diverse views of the same data: learn them, compare them, keep the few that matter."""

from typing import TYPE_CHECKING

from manylens._lazy import attach

if TYPE_CHECKING:
    from manylens.alignment.cka_and_hsic import cka, cka_matrix, hsic_test, stable_rank
    from manylens.alignment.distance_correlations import distance_correlation
    from manylens.alignment.kernel_weights import KernelAlignment, align_kernels
    from manylens.alignment.ranking import rank_models
    from manylens.alignment.sketched_alignments import sketched_cka
    from manylens.alignment.streaming import StreamingCKA
    from manylens.ensembles.diversity_search import DiversitySearchCV
    from manylens.ensembles.module_neighbors import ModuleNeighbors
    from manylens.ensembles.precision import retrieval_precision
    from manylens.ensembles.scan_classifier import ScanNeighborsClassifier
    from manylens.ensembles.voting import ModuleVotingClassifier, ModuleVotingRegressor
    from manylens.explorer.page_hosts import explore
    from manylens.metric.nca import NCA
    from manylens.modules.autoencoder import ModularAutoencoder
    from manylens.modules.kernel_pca import ModularKernelPCA
    from manylens.modules.negative_correlation import (
        NegativeCorrelationClassifier,
        NegativeCorrelationRegressor,
    )
    from manylens.modules.network_autoencoder import NetworkAutoencoder
    from manylens.persistence.save_and_load import load, save
    from manylens.pruning.alignment_pruner import AlignmentPruner, prune_predictions
    from manylens.summaries.count_sketch import CountSketch
    from manylens.transfer.calibration import TemperatureScaler, expected_calibration_error
    from manylens.transfer.layer_ridge import LayerRidgeClassifier, LayerRidgeRegressor
    from manylens.transfer.network_layers import collect_layers
    from manylens.transfer.transduction import TransductiveRidgeClassifier

__version__ = "0.1.0.dev0"

__all__ = [
    "NCA",
    "AlignmentPruner",
    "CountSketch",
    "DiversitySearchCV",
    "KernelAlignment",
    "LayerRidgeClassifier",
    "LayerRidgeRegressor",
    "ModularAutoencoder",
    "ModularKernelPCA",
    "ModuleNeighbors",
    "ModuleVotingClassifier",
    "ModuleVotingRegressor",
    "NegativeCorrelationClassifier",
    "NegativeCorrelationRegressor",
    "NetworkAutoencoder",
    "ScanNeighborsClassifier",
    "StreamingCKA",
    "TemperatureScaler",
    "TransductiveRidgeClassifier",
    "__version__",
    "align_kernels",
    "cka",
    "cka_matrix",
    "collect_layers",
    "distance_correlation",
    "expected_calibration_error",
    "explore",
    "hsic_test",
    "load",
    "prune_predictions",
    "rank_models",
    "retrieval_precision",
    "save",
    "sketched_cka",
    "stable_rank",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "manylens.alignment.distance_correlations": ["distance_correlation"],
        "manylens.alignment.kernel_weights": ["KernelAlignment", "align_kernels"],
        "manylens.alignment.cka_and_hsic": ["cka", "cka_matrix", "hsic_test", "stable_rank"],
        "manylens.alignment.sketched_alignments": ["sketched_cka"],
        "manylens.alignment.streaming": ["StreamingCKA"],
        "manylens.alignment.ranking": ["rank_models"],
        "manylens.ensembles.diversity_search": ["DiversitySearchCV"],
        "manylens.ensembles.module_neighbors": ["ModuleNeighbors"],
        "manylens.ensembles.precision": ["retrieval_precision"],
        "manylens.ensembles.scan_classifier": ["ScanNeighborsClassifier"],
        "manylens.ensembles.voting": ["ModuleVotingClassifier", "ModuleVotingRegressor"],
        "manylens.explorer.page_hosts": ["explore"],
        "manylens.metric.nca": ["NCA"],
        "manylens.modules.autoencoder": ["ModularAutoencoder"],
        "manylens.modules.kernel_pca": ["ModularKernelPCA"],
        "manylens.modules.negative_correlation": [
            "NegativeCorrelationClassifier",
            "NegativeCorrelationRegressor",
        ],
        "manylens.modules.network_autoencoder": ["NetworkAutoencoder"],
        "manylens.persistence.save_and_load": ["load", "save"],
        "manylens.pruning.alignment_pruner": ["AlignmentPruner", "prune_predictions"],
        "manylens.summaries.count_sketch": ["CountSketch"],
        "manylens.transfer.calibration": ["TemperatureScaler", "expected_calibration_error"],
        "manylens.transfer.layer_ridge": ["LayerRidgeClassifier", "LayerRidgeRegressor"],
        "manylens.transfer.network_layers": ["collect_layers"],
        "manylens.transfer.transduction": ["TransductiveRidgeClassifier"],
    },
    subpackages=[
        "alignment",
        "baselines",
        "cluster",
        "datasets",
        "ensembles",
        "explorer",
        "kernels",
        "metric",
        "modules",
        "papers",
        "plotting",
        "pruning",
        "summaries",
        "transfer",
    ],
)
