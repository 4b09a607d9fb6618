"""Many small, diverse views of the same data: learn them, compare them, keep the few that matter."""

from typing import TYPE_CHECKING

from manylens._lazy import attach

if TYPE_CHECKING:
    from manylens.alignment.cka import cka, cka_matrix
    from manylens.alignment.distance_correlation import distance_correlation, distance_correlation_matrix
    from manylens.alignment.hsic import hsic, hsic_test
    from manylens.alignment.kernel_alignment import KernelAlignment
    from manylens.alignment.kernel_weights import align_bandwidths, align_kernels
    from manylens.alignment.sketched import sketched_cka
    from manylens.alignment.stable_rank import stable_rank
    from manylens.alignment.streaming_cka import StreamingCKA
    from manylens.alignment.transferability import rank_models
    from manylens.baselines.kernel_pca import (
        BootstrapKernelPCA,
        MonolithicKernelPCA,
        PartitionKernelPCA,
        RandomKernelProjection,
    )
    from manylens.ensembles.diversity_search import DiversitySearchCV
    from manylens.ensembles.neighbors import ModuleNeighbors
    from manylens.ensembles.retrieval import retrieval_precision
    from manylens.ensembles.voting import (
        ModuleVotingClassifier,
        ModuleVotingRegressor,
        ScanNeighborsClassifier,
    )
    from manylens.metric.nca import NCA
    from manylens.modules.autoencoder import ModularAutoencoder
    from manylens.modules.kernel_pca import ModularKernelPCA
    from manylens.modules.linear_autoencoders import BaggingAutoencoder
    from manylens.modules.negative_correlation import (
        NegativeCorrelationClassifier,
        NegativeCorrelationRegressor,
    )
    from manylens.persistence import load, save
    from manylens.plotting.alignment import AlignmentDisplay, LayerWeightsDisplay, StableRankDisplay
    from manylens.plotting.alignment_estimates import SketchedAlignmentDisplay, TransferabilityDisplay
    from manylens.plotting.densities import ModuleDensityDisplay
    from manylens.plotting.ensembles import DistanceCorrelationDisplay, VotingBoundaryDisplay
    from manylens.plotting.gallery import RetrievalGalleryDisplay
    from manylens.plotting.metric import NeighborProbabilitiesDisplay, ProjectionDisplay, TreeBoxesDisplay
    from manylens.plotting.modules import CoverageDisplay, DiversityPathDisplay
    from manylens.plotting.pruning import KeptPredictorsDisplay, PruningCurveDisplay
    from manylens.plotting.transfer import FittedLayerWeightsDisplay, ReliabilityDisplay
    from manylens.plotting.transfer_shares import CalibrationErrorDisplay, LabelShareDisplay
    from manylens.pruning.choice import prune_predictions
    from manylens.pruning.pruner import AlignmentPruner
    from manylens.summaries.count_sketch import CountSketch
    from manylens.transfer.calibration import expected_calibration_error
    from manylens.transfer.layer_regressor import LayerRidgeRegressor
    from manylens.transfer.layer_ridge import LayerRidgeClassifier
    from manylens.transfer.layers import collect_layers
    from manylens.transfer.temperature import TemperatureScaler
    from manylens.transfer.transduction import TransductiveRidgeClassifier

__version__ = "0.1.0.dev0"

__all__ = [
    "NCA",
    "AlignmentDisplay",
    "AlignmentPruner",
    "BaggingAutoencoder",
    "BootstrapKernelPCA",
    "CalibrationErrorDisplay",
    "CountSketch",
    "CoverageDisplay",
    "DistanceCorrelationDisplay",
    "DiversityPathDisplay",
    "DiversitySearchCV",
    "FittedLayerWeightsDisplay",
    "KeptPredictorsDisplay",
    "KernelAlignment",
    "LabelShareDisplay",
    "LayerRidgeClassifier",
    "LayerRidgeRegressor",
    "LayerWeightsDisplay",
    "ModularAutoencoder",
    "ModularKernelPCA",
    "ModuleDensityDisplay",
    "ModuleNeighbors",
    "ModuleVotingClassifier",
    "ModuleVotingRegressor",
    "MonolithicKernelPCA",
    "NegativeCorrelationClassifier",
    "NegativeCorrelationRegressor",
    "NeighborProbabilitiesDisplay",
    "PartitionKernelPCA",
    "ProjectionDisplay",
    "PruningCurveDisplay",
    "RandomKernelProjection",
    "ReliabilityDisplay",
    "RetrievalGalleryDisplay",
    "ScanNeighborsClassifier",
    "SketchedAlignmentDisplay",
    "StableRankDisplay",
    "StreamingCKA",
    "TemperatureScaler",
    "TransductiveRidgeClassifier",
    "TransferabilityDisplay",
    "TreeBoxesDisplay",
    "VotingBoundaryDisplay",
    "__version__",
    "align_bandwidths",
    "align_kernels",
    "cka",
    "cka_matrix",
    "collect_layers",
    "distance_correlation",
    "distance_correlation_matrix",
    "expected_calibration_error",
    "hsic",
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
        "manylens.alignment.cka": ["cka", "cka_matrix"],
        "manylens.alignment.hsic": ["hsic", "hsic_test"],
        "manylens.alignment.kernel_alignment": ["KernelAlignment"],
        "manylens.alignment.kernel_weights": ["align_bandwidths", "align_kernels"],
        "manylens.alignment.sketched": ["sketched_cka"],
        "manylens.alignment.stable_rank": ["stable_rank"],
        "manylens.alignment.streaming_cka": ["StreamingCKA"],
        "manylens.alignment.transferability": ["rank_models"],
        "manylens.alignment.distance_correlation": ["distance_correlation", "distance_correlation_matrix"],
        "manylens.ensembles.diversity_search": ["DiversitySearchCV"],
        "manylens.ensembles.neighbors": ["ModuleNeighbors"],
        "manylens.ensembles.retrieval": ["retrieval_precision"],
        "manylens.ensembles.voting": [
            "ModuleVotingClassifier",
            "ModuleVotingRegressor",
            "ScanNeighborsClassifier",
        ],
        "manylens.metric.nca": ["NCA"],
        "manylens.modules.autoencoder": ["ModularAutoencoder"],
        "manylens.baselines.kernel_pca": [
            "BootstrapKernelPCA",
            "MonolithicKernelPCA",
            "PartitionKernelPCA",
            "RandomKernelProjection",
        ],
        "manylens.modules.kernel_pca": ["ModularKernelPCA"],
        "manylens.modules.linear_autoencoders": ["BaggingAutoencoder"],
        "manylens.modules.negative_correlation": [
            "NegativeCorrelationClassifier",
            "NegativeCorrelationRegressor",
        ],
        "manylens.persistence": ["load", "save"],
        "manylens.plotting.alignment": ["AlignmentDisplay", "LayerWeightsDisplay", "StableRankDisplay"],
        "manylens.plotting.alignment_estimates": ["SketchedAlignmentDisplay", "TransferabilityDisplay"],
        "manylens.plotting.densities": ["ModuleDensityDisplay"],
        "manylens.plotting.ensembles": ["DistanceCorrelationDisplay", "VotingBoundaryDisplay"],
        "manylens.plotting.gallery": ["RetrievalGalleryDisplay"],
        "manylens.plotting.metric": ["NeighborProbabilitiesDisplay", "ProjectionDisplay", "TreeBoxesDisplay"],
        "manylens.plotting.modules": ["CoverageDisplay", "DiversityPathDisplay"],
        "manylens.plotting.pruning": ["KeptPredictorsDisplay", "PruningCurveDisplay"],
        "manylens.plotting.transfer": ["FittedLayerWeightsDisplay", "ReliabilityDisplay"],
        "manylens.plotting.transfer_shares": ["CalibrationErrorDisplay", "LabelShareDisplay"],
        "manylens.pruning.choice": ["prune_predictions"],
        "manylens.pruning.pruner": ["AlignmentPruner"],
        "manylens.summaries.count_sketch": ["CountSketch"],
        "manylens.transfer.calibration": ["expected_calibration_error"],
        "manylens.transfer.layer_regressor": ["LayerRidgeRegressor"],
        "manylens.transfer.layer_ridge": ["LayerRidgeClassifier"],
        "manylens.transfer.layers": ["collect_layers"],
        "manylens.transfer.temperature": ["TemperatureScaler"],
        "manylens.transfer.transduction": ["TransductiveRidgeClassifier"],
    },
    subpackages=[
        "alignment",
        "baselines",
        "datasets",
        "ensembles",
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
