"""The classes that a file may name: a fixed list, so that no file decides what is imported."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from manylens.validation import check_iterable

# The public classes of manylens and those that their fitted instances hold; tests/persistence compares the
# list with fitted estimators and prints what is missing.
OWN: dict[str, tuple[str, ...]] = {
    "manylens.alignment.comparing": ("Similarity", "SimilarityMatrix"),
    "manylens.alignment.kernel_weights": ("KernelAlignment",),
    "manylens.alignment.measure_base": ("Measure",),
    "manylens.alignment.ranking": ("ModelRanking", "ModelScore"),
    "manylens.alignment.row_pair_measures": ("CKA", "DistanceCorrelation", "NeighborOverlap", "RSA"),
    "manylens.alignment.sketches": ("Estimate", "FeatureSketch"),
    "manylens.alignment.streaming": ("StreamingCKA",),
    "manylens.alignment.subspace_measures": ("CCA", "Procrustes"),
    "manylens.baselines.autoencoder": ("BaggingAutoencoder",),
    "manylens.baselines.kernel_pca": (
        *("BootstrapKernelPCA", "MonolithicKernelPCA", "PartitionKernelPCA", "RandomKernelProjection"),
    ),
    "manylens.baselines.semi_supervised": ("LaplacianRidgeClassifier", "SelfTrainingLogisticRegression"),
    "manylens.cluster.blockwise": ("Blockwise",),
    "manylens.cluster.distributed_neighbors": ("ClusterNeighbors", "DistributedNeighbors"),
    "manylens.cluster.index_layout": ("Layout", "RowBlock", "RowFile", "SavedBlock", "Segment"),
    "manylens.cluster.parts": ("Columns",),
    "manylens.ensembles.diversity_search": ("DiversitySearchCV",),
    "manylens.ensembles.faiss_finder": ("FaissFinder",),
    "manylens.ensembles.finders": ("GrowingRows", "ScanFinder"),
    "manylens.ensembles.graph_finder": ("GraphFinder",),
    "manylens.ensembles.module_neighbors": ("ModuleNeighbors",),
    "manylens.ensembles.precision": ("RetrievalPrecision",),
    "manylens.ensembles.scan_classifier": ("ScanNeighborsClassifier",),
    "manylens.ensembles.search_coordinates": ("CompositeAxes", "Frame", "InputRows"),
    "manylens.ensembles.search_index": ("SearchIndex",),
    "manylens.ensembles.search_plans": ("MeasuredRecall", "SearchPlan"),
    "manylens.ensembles.split_storage": ("StoredSplit",),
    "manylens.ensembles.voting": ("ModuleVotingClassifier", "ModuleVotingRegressor"),
    "manylens.kernels.feature_maps": (
        *("CountSketchMap", "ExactMap", "FeatureMap", "FourierMap", "LinearMap", "NystroemMap"),
    ),
    "manylens.kernels.kernels": (
        *("Cosine", "Kernel", "Laplacian", "Linear", "Polynomial", "Precomputed", "RBF"),
    ),
    "manylens.kernels.manifold_kernels": ("IsomapKernel", "LaplacianEigenmapKernel", "LocallyLinearKernel"),
    "manylens.kernels.spectrum": ("Spectrum",),
    "manylens.metric.methods": (
        *("Compact", "CompactBackground", "Exact", "MiniBatch", "Stochastic", "Subsample", "Tree"),
    ),
    "manylens.metric.nca": ("NCA",),
    "manylens.metric.online": ("Online", "Reservoir"),
    "manylens.metric.optimizers": ("AdaGrad", "Adam", "Schedule"),
    "manylens.modules.autoencoder": ("ModularAutoencoder",),
    "manylens.modules.kernel_pca": ("ModularKernelPCA", "RidgePreimage"),
    "manylens.modules.negative_correlation": (
        *("NegativeCorrelationClassifier", "NegativeCorrelationRegressor"),
    ),
    "manylens.modules.network_autoencoder": ("NetworkAutoencoder",),
    "manylens.modules.networks": ("StackedNetworks",),
    "manylens.modules.solver": ("Ambiguity",),
    "manylens.native.trees": ("FlatTrees",),
    "manylens.pruning.alignment_pruner": ("AlignmentPruner",),
    "manylens.pruning.boosting_members": (
        *("GradientBoostingStages", "HistGradientBoostingStages", "LightGBMStages", "XGBoostStages"),
    ),
    "manylens.pruning.members": (
        *("AdaBoostMembers", "BaggingMembers", "ForestMembers", "ListMembers", "StackingMembers"),
        "VotingMembers",
    ),
    "manylens.pruning.pruned_ensemble": ("PrunedEnsemble",),
    "manylens.pruning.pruned_trees": ("PrunedTrees",),
    "manylens.pruning.selection": ("Alignment", "PruningResult"),
    "manylens.pruning.tree_ensembles": ("TreeEnsemble",),
    "manylens.pruning.tree_pruner": ("TreePruner",),
    "manylens.summaries.bootstrap": ("BootstrapMoments",),
    "manylens.summaries.count_sketch": ("CountSketch",),
    "manylens.summaries.cross_moments": ("CrossMoments",),
    "manylens.summaries.moments": ("Moments",),
    "manylens.transfer.calibration": ("TemperatureScaler",),
    "manylens.transfer.fine_tuning": ("FineTuningGain",),
    "manylens.transfer.kernel_ridge": ("KernelRidgeCV",),
    "manylens.transfer.layer_estimators": ("LayerMaps", "StackedLayers", "WeightedLayers"),
    "manylens.transfer.layer_ridge": ("LayerRidgeClassifier", "LayerRidgeRegressor"),
    "manylens.transfer.layer_rows": ("LayerRows",),
    "manylens.transfer.layer_transfer": ("LayerTransfer",),
    "manylens.transfer.network_layers": ("LayerSketches",),
    "manylens.transfer.ridge": ("KernelColumns", "RidgePredictor", "RidgeSearch"),
    "manylens.transfer.transduction": ("TransductionSearch", "TransductiveRidgeClassifier"),
}

SKLEARN = (
    *("calibration", "cluster", "compose", "covariance", "cross_decomposition", "decomposition"),
    *("discriminant_analysis", "dummy", "ensemble", "feature_extraction.text", "feature_selection"),
    *("gaussian_process", "impute", "kernel_approximation", "kernel_ridge", "linear_model", "manifold"),
    *("mixture", "model_selection", "multiclass", "multioutput", "naive_bayes", "neighbors"),
    *("neural_network", "pipeline", "preprocessing", "random_projection", "semi_supervised", "svm", "tree"),
)
UNCHECKED = ("SVC", "NuSVC", "SVR", "NuSVR", "OneClassSVM")  # libsvm does not check its arrays

# Other classes of scikit-learn and Python that estimators hold, all made of plain attributes.
HELPERS: dict[str, tuple[str, ...]] = {
    "collections": ("OrderedDict",),
    "sklearn._loss.link": (
        *("HalfLogitLink", "IdentityLink", "Interval", "LogLink", "LogitLink", "MultinomialLogit"),
    ),
    "sklearn._loss.loss": (
        *("AbsoluteError", "ExponentialLoss", "HalfBinomialLoss", "HalfGammaLoss", "HalfMultinomialLoss"),
        *("HalfPoissonLoss", "HalfSquaredError", "HuberLoss", "PinballLoss"),
    ),
    "sklearn.ensemble._hist_gradient_boosting.binning": ("_BinMapper",),
    "sklearn.ensemble._hist_gradient_boosting.predictor": ("TreePredictor",),
    "sklearn.metrics._scorer": ("_PassthroughScorer", "_Scorer"),
    "sklearn.utils._bunch": ("Bunch",),
    "sklearn.utils._metadata_requests": ("MetadataRequest", "MethodMetadataRequest"),
    "lightgbm.sklearn": ("LGBMClassifier", "LGBMRegressor"),
    "xgboost.sklearn": ("XGBClassifier", "XGBRegressor"),
}

# Compiled classes that are created again from a few numbers: module -> beginning of their names.
COMPILED = {"sklearn._loss._loss": "Cy", "sklearn.linear_model._sgd_fast": ""}


def class_name(kind: type) -> str:
    """The name of a class in a file; for estimators of scikit-learn their public name."""
    for package in (f"sklearn.{room}" for room in SKLEARN):
        inside = kind.__module__ == package or kind.__module__.startswith(f"{package}.")
        if inside and getattr(sys.modules.get(package), kind.__name__, None) is kind:
            return f"{package}.{kind.__name__}"
    for module in COMPILED:
        short = module.rpartition(".")[2]  # as compiled classes name their module in scikit-learn 1.6
        if kind.__module__ == short and getattr(sys.modules.get(module), kind.__name__, None) is kind:
            return f"{module}.{kind.__name__}"
    return f"{kind.__module__}.{kind.__qualname__}"


def find_class(name: str, trusted: Mapping[str, type]) -> type | None:
    """The class with this name, or None if it is neither trusted nor on the list."""
    if name in trusted:
        return trusted[name]
    module, _, attribute = name.rpartition(".")
    if attribute in OWN.get(module, ()) or attribute in HELPERS.get(module, ()):
        return getattr(importlib.import_module(module), attribute)
    if module.startswith("sklearn.") and module.removeprefix("sklearn.") in SKLEARN:
        kind = getattr(importlib.import_module(module), attribute, None)
        if not isinstance(kind, type) or attribute.startswith("_") or attribute in UNCHECKED:
            return None
        is_own = kind.__module__ == module or kind.__module__.startswith(f"{module}.")
        is_data = issubclass(kind, BaseEstimator) or module == "sklearn.model_selection"  # ways to split rows
        return kind if is_own and is_data else None
    return None


def find_compiled(name: str) -> type | None:
    """A compiled class of scikit-learn that numbers determine, or None."""
    module, _, attribute = name.rpartition(".")
    if module not in COMPILED or not attribute.startswith(COMPILED[module]):
        return None
    kind = getattr(importlib.import_module(module), attribute, None)
    own = (module, module.rpartition(".")[2])
    return kind if isinstance(kind, type) and kind.__module__ in own else None


def find_function(name: str) -> Any:
    """A universal function or scalar type of NumPy, or a metric of scikit-learn; None if it is neither."""
    module, _, attribute = name.rpartition(".")
    if module == "numpy":
        value = getattr(np, attribute, None)
        is_scalar = isinstance(value, type) and issubclass(value, np.generic)
        return value if isinstance(value, np.ufunc) or is_scalar else None
    if module == "sklearn.metrics":
        metrics = importlib.import_module(module)
        value = getattr(metrics, attribute, None) if attribute in metrics.__all__ else None
        return None if isinstance(value, type) else value
    return None


def trusted_classes(trusted: Iterable[type | str]) -> dict[str, type]:
    """The classes that the caller trusts, by name; names are imported, as the caller asks for them."""
    found: dict[str, type] = {}
    for each in check_iterable(trusted, "trusted", "a list: give a list of classes or of their names"):
        if isinstance(each, str):
            module, _, attribute = each.rpartition(".")
            value = getattr(importlib.import_module(module), attribute, None) if module else None
        else:
            value = each
        if not isinstance(value, type):
            raise TypeError(
                f"trusted contains {each!r}, which is not a class: give classes or their names, such as "
                "'package.module.Class'."
            )
        found[class_name(value)] = value
        found[f"{value.__module__}.{value.__qualname__}"] = value  # as skops names it
    return found
