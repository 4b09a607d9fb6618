"""Growth of every estimator's cost with rows n, features d, modules M, their width H and the rank R."""

import warnings
from importlib.util import find_spec

import numpy as np
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.neighbors import NearestCentroid

from benchmarks.harness import Growth
from manylens import (
    NCA,
    AlignmentPruner,
    CountSketch,
    DiversitySearchCV,
    KernelAlignment,
    LayerRidgeClassifier,
    LayerRidgeRegressor,
    ModularAutoencoder,
    ModularKernelPCA,
    ModuleNeighbors,
    ModuleVotingClassifier,
    ModuleVotingRegressor,
    NegativeCorrelationRegressor,
    ScanNeighborsClassifier,
    StreamingCKA,
    TemperatureScaler,
    TransductiveRidgeClassifier,
    align_kernels,
    cka,
    distance_correlation,
    hsic_test,
    prune_predictions,
    rank_models,
    stable_rank,
)
from manylens.baselines import (
    BaggingAutoencoder,
    BootstrapKernelPCA,
    MonolithicKernelPCA,
    PartitionKernelPCA,
    RandomKernelProjection,
)

warnings.filterwarnings("ignore", message="NCA stopped after|Training did not come to rest")

ROWS = (1_000, 5_000, 20_000, 100_000)
FEWER_ROWS = (200, 1_000, 5_000, 20_000)
COLUMNS = (10, 50, 200, 1_000)
MODULES = (2, 10, 40, 200)
WIDTHS = (1, 5, 20, 100)


def drawn(n, d, n_classes=10):
    """Float32 rows of ten classes with about twenty directions that matter, and the classes."""
    rng = np.random.default_rng(0)
    y = rng.integers(n_classes, size=n)
    mixing = rng.standard_normal((20, d)).astype(np.float32)
    means = rng.standard_normal((n_classes, 20)).astype(np.float32)
    X = (means[y] + rng.standard_normal((n, 20), dtype=np.float32)) @ mixing
    return X + 0.5 * rng.standard_normal((n, d), dtype=np.float32), y


class KernelModules(Growth):
    """Base: fits of modules on a Nystroem map."""

    abstract = True
    make: type
    base = {"n": 5_000, "d": 50, "M": 10, "H": 10, "R": 500}
    quick_base = {"n": 300, "d": 10, "M": 3, "H": 3, "R": 30}
    axes = {"n": ROWS, "M": MODULES}
    beside = {"M": {"H": 2}}

    def prepare(self, n, d, M, H, R):
        X, _ = drawn(n, d)
        model = self.make(n_modules=M, n_components=H, rank=R, random_state=0)
        return lambda: model.fit(X)


class ModularKernelPCAScaling(KernelModules):
    """`ModularKernelPCA.fit` against rows, features, modules, their width and the rank."""

    estimator = "ModularKernelPCA.fit"
    make = ModularKernelPCA
    axes = {"n": ROWS, "d": COLUMNS, "M": MODULES, "H": WIDTHS, "R": (20, 100, 400, 2_000)}
    beside = {"M": {"H": 2}, "H": {"M": 4}, "R": {"M": 2, "H": 5}}


class PartitionKernelPCAScaling(KernelModules):
    """`PartitionKernelPCA.fit` against rows and modules."""

    estimator = "PartitionKernelPCA.fit"
    make = PartitionKernelPCA


class BootstrapKernelPCAScaling(KernelModules):
    """`BootstrapKernelPCA.fit` against rows and modules."""

    estimator = "BootstrapKernelPCA.fit"
    make = BootstrapKernelPCA
    axes = {"n": FEWER_ROWS, "M": (2, 10, 40, 200)}
    beside = {"M": {"n": 1_000, "H": 2, "R": 200}, "n": {"R": 200}}


class RandomKernelProjectionScaling(KernelModules):
    """`RandomKernelProjection.fit` against rows and modules."""

    estimator = "RandomKernelProjection.fit"
    make = RandomKernelProjection


class MonolithicKernelPCAScaling(Growth):
    """`MonolithicKernelPCA.fit` against rows, components and the rank."""

    estimator = "MonolithicKernelPCA.fit"
    base = {"n": 5_000, "d": 50, "H": 100, "R": 500}
    quick_base = {"n": 300, "d": 10, "H": 10, "R": 30}
    axes = {"n": ROWS, "H": (5, 20, 100, 500), "R": (20, 100, 400, 2_000)}
    beside = {"R": {"H": 10}}

    def prepare(self, n, d, H, R):
        X, _ = drawn(n, d)
        return lambda: MonolithicKernelPCA(H, rank=R, random_state=0).fit(X)


class Autoencoders(Growth):
    """Base: fits of linear autoencoders."""

    abstract = True
    make: type
    base = {"n": 5_000, "d": 200, "M": 10, "H": 10}
    quick_base = {"n": 300, "d": 30, "M": 3, "H": 3}
    axes = {"n": ROWS, "d": COLUMNS, "M": MODULES, "H": WIDTHS}
    beside = {"d": {"M": 2, "H": 5}, "M": {"H": 2}, "H": {"M": 2}}

    def prepare(self, n, d, M, H):
        X, _ = drawn(n, d)
        model = self.make(n_modules=M, n_components=H, random_state=0)
        return lambda: model.fit(X)


class ModularAutoencoderScaling(Autoencoders):
    """`ModularAutoencoder.fit` against rows, features, modules and their width."""

    estimator = "ModularAutoencoder.fit"
    make = ModularAutoencoder


class BaggingAutoencoderScaling(Autoencoders):
    """`BaggingAutoencoder.fit` against rows and modules."""

    estimator = "BaggingAutoencoder.fit"
    make = BaggingAutoencoder
    axes = {"n": FEWER_ROWS, "M": (1, 5, 20, 100)}


class ModuleNeighborsScaling(Growth):
    """`ModuleNeighbors`: 1,000 queries for ten neighbors, modules fitted beforehand."""

    estimator = "ModuleNeighbors.kneighbors"
    base = {"n": 20_000, "d": 50, "M": 10, "H": 10}
    quick_base = {"n": 300, "d": 10, "M": 3, "H": 3}
    axes = {"n": ROWS, "M": MODULES}
    beside = {"n": {}, "M": {"n": 5_000, "H": 2}}

    def prepare(self, n, d, M, H):
        X, _ = drawn(n, d)
        lenses = ModularKernelPCA(M, H, rank=M * H + 20, random_state=0).fit(X[:2_000])
        index = ModuleNeighbors(lenses).fit(X)
        return lambda: index.kneighbors(X[:1_000])


class ModuleVotingClassifierScaling(Growth):
    """`ModuleVotingClassifier`: fit and 500 predictions by five neighbors in each module."""

    estimator = "ModuleVotingClassifier.fit, predict"
    base = {"n": 5_000, "d": 50, "M": 10, "H": 10}
    quick_base = {"n": 300, "d": 10, "M": 3, "H": 3}
    axes = {"n": ROWS, "M": MODULES}
    beside = {"M": {"H": 2}}

    def prepare(self, n, d, M, H):
        X, y = drawn(n, d)
        lenses = ModularKernelPCA(M, H, rank=M * H + 20, random_state=0).fit(X[:2_000])
        model = ModuleVotingClassifier(lenses, ScanNeighborsClassifier(5))
        return lambda: model.fit(X, y).predict(X[:500])


class ExactNCAScaling(Growth):
    """`NCA(method="exact")`, ten iterations, against rows, features and dimensions of the map (H)."""

    estimator = 'NCA(method="exact").fit, 10 iterations'
    method = "exact"
    base = {"n": 3_000, "d": 50, "H": 5}
    quick_base = {"n": 300, "d": 10, "H": 2}
    axes = {"n": (100, 500, 2_000, 10_000), "d": COLUMNS, "H": (1, 5, 20, 100)}
    beside = {"d": {"n": 1_000}, "H": {"n": 1_000, "d": 100}}

    def prepare(self, n, d, H):
        X, y = drawn(n, d)
        model = NCA(H, method=self.method, max_iter=10, init="pca", random_state=0)
        return lambda: model.fit(X, y)


class MinibatchNCAScaling(ExactNCAScaling):
    """`NCA(method="minibatch")`, at most ten epochs, against rows, features and dimensions of the map (H)."""

    estimator = 'NCA(method="minibatch").fit, 10 sweeps'
    method = "minibatch"
    axes = {"n": ROWS, "d": COLUMNS, "H": (1, 5, 20, 100)}


class CKAScaling(Growth):
    """`cka` of two linear kernels against rows and features."""

    estimator = "cka, linear"
    kernel = "linear"
    base = {"n": 10_000, "d": 50}
    quick_base = {"n": 300, "d": 10}
    axes = {"n": ROWS, "d": COLUMNS}

    def prepare(self, n, d):
        (X, _), (Y, _) = drawn(n, d), drawn(n, d + 1)
        return lambda: cka(X, Y, kernel=self.kernel)


class GaussianCKAScaling(CKAScaling):
    """`cka` of two Gaussian kernels against rows."""

    estimator = "cka, rbf"
    kernel = "rbf"
    axes = {"n": FEWER_ROWS}


class StreamingCKAScaling(CKAScaling):
    """`StreamingCKA` in blocks of 1,000 rows against rows and features."""

    estimator = "StreamingCKA.update"

    def prepare(self, n, d):
        (X, _), (Y, _) = drawn(n, d), drawn(n, d + 1)

        def stream():
            scores = StreamingCKA()
            for first in range(0, n, 1_000):
                scores.update([X[first : first + 1_000], Y[first : first + 1_000]])

        return stream


class CountSketchScaling(CKAScaling):
    """`CountSketch` of rows in 512 buckets against rows and features."""

    estimator = "CountSketch.update"

    def prepare(self, n, d):
        X, _ = drawn(n, d)
        return lambda: CountSketch(512).update(X)


class StableRankScaling(CKAScaling):
    """`stable_rank` against rows and features."""

    estimator = "stable_rank"

    def prepare(self, n, d):
        X, _ = drawn(n, d)
        return lambda: stable_rank(X)


class ModelRankingScaling(CKAScaling):
    """`rank_models` of two feature sets against rows and features."""

    estimator = "rank_models"

    def prepare(self, n, d):
        X, y = drawn(n, d)
        models = {"all": X, "half": X[:, : d // 2]}
        return lambda: rank_models(models, y, n_groups=0)


class HSICTestScaling(CKAScaling):
    """`hsic_test` with 99 permutations against rows."""

    estimator = "hsic_test, 99 permutations"
    axes = {"n": (50, 200, 1_000, 5_000)}

    def prepare(self, n, d):
        (X, _), (Y, _) = drawn(n, d), drawn(n, d + 1)
        return lambda: hsic_test(X, Y, n_permutations=99, random_state=0)


class DistanceCorrelationScaling(CKAScaling):
    """`distance_correlation` of two modules against rows and features."""

    estimator = "distance_correlation"
    axes = {"n": FEWER_ROWS, "d": COLUMNS}
    beside = {"n": {"d": 10}, "d": {"n": 2_000}}

    def prepare(self, n, d):
        (X, _), (Y, _) = drawn(n, d), drawn(n, d + 1)
        return lambda: distance_correlation(X, Y)


class KernelWeightsScaling(Growth):
    """`align_kernels` against rows, and against the number of kernels (M) of ten features each."""

    estimator = "align_kernels"
    base = {"n": 5_000, "M": 20}
    quick_base = {"n": 300, "M": 3}
    axes = {"n": ROWS, "M": MODULES}

    def prepare(self, n, M):
        X, y = drawn(n, 10 * M)
        features = [X[:, 10 * m : 10 * (m + 1)] for m in range(M)]
        return lambda: align_kernels(features, y)


class LayerRidgeClassifierScaling(Growth):
    """`LayerRidgeClassifier` on three layers, 256 landmarks, against rows, features and the rank."""

    estimator = "LayerRidgeClassifier.fit"
    make = LayerRidgeClassifier
    base = {"n": 5_000, "d": 100, "R": 256}
    quick_base = {"n": 200, "d": 10, "R": 32}
    axes = {"n": ROWS, "d": COLUMNS, "R": (20, 100, 400, 2_000)}
    options = {"max_exact_rows": 0}

    def prepare(self, n, d, R):
        X, y = drawn(n, 3 * d)
        return lambda: self.make([d] * 3, rank=R, layer_rank=R, random_state=0, **self.options).fit(X, y)


class TransductiveRidgeScaling(LayerRidgeClassifierScaling):
    """`TransductiveRidgeClassifier` on three layers with 100 labeled rows, against all rows."""

    estimator = "TransductiveRidgeClassifier.fit"
    base = {"n": 1_000, "d": 30, "R": 100}
    axes = {"n": FEWER_ROWS}

    def prepare(self, n, d, R):
        X, y = drawn(n, 3 * d)
        known = np.where(np.arange(n) < 100, y, -1)
        model = TransductiveRidgeClassifier([d] * 3, rank=R, layer_rank=R, random_state=0)
        return lambda: model.fit(X, known)


class PredictionPruningScaling(Growth):
    """`prune_predictions` of a regression ensemble against rows and members (M)."""

    estimator = "prune_predictions"
    base = {"n": 5_000, "M": 100}
    quick_base = {"n": 300, "M": 10}
    axes = {"n": ROWS, "M": (20, 100, 400, 2_000)}

    def prepare(self, n, M):
        rng = np.random.default_rng(0)
        y = rng.standard_normal(n)
        P = y[:, np.newaxis] + rng.standard_normal((n, M))
        return lambda: prune_predictions(P, y)


class AlignmentPrunerScaling(Growth):
    """`AlignmentPruner` of a fitted forest, out-of-bag predictions included, against rows and trees (M)."""

    estimator = "AlignmentPruner.fit"
    base = {"n": 2_000, "M": 50}
    quick_base = {"n": 300, "M": 10}
    axes = {"n": FEWER_ROWS, "M": (5, 20, 100, 500)}

    def prepare(self, n, M):
        X, y = drawn(n, 10)
        forest = RandomForestRegressor(M, max_depth=8, n_jobs=2, random_state=0).fit(X, y)
        return lambda: AlignmentPruner(forest).fit(X, y)


class DiversitySearchScaling(Growth):
    """`DiversitySearchCV` with nine diversities, three folds and nearest centroids, against rows and M."""

    estimator = "DiversitySearchCV.fit"
    base = {"n": 2_000, "d": 50, "M": 10, "H": 5}
    quick_base = {"n": 300, "d": 10, "M": 3, "H": 3}
    axes = {"n": FEWER_ROWS, "M": (1, 4, 20, 100)}
    beside = {"M": {"H": 2}}

    def prepare(self, n, d, M, H):
        X, y = drawn(n, d)
        lenses = ModularKernelPCA(M, H, rank=M * H + 20, random_state=0)
        search = DiversitySearchCV(ModuleVotingClassifier(lenses, NearestCentroid()), cv=3)
        return lambda: search.fit(X, y)


class KernelAlignmentScaling(KernelWeightsScaling):
    """`KernelAlignment` on feature sets (M) of ten columns each, against rows and sets."""

    estimator = "KernelAlignment.fit_transform"

    def prepare(self, n, M):
        X, y = drawn(n, 10 * M)
        model = KernelAlignment(groups=[10] * M)
        return lambda: model.fit_transform(X, y)


class LayerRidgeRegressorScaling(LayerRidgeClassifierScaling):
    """`LayerRidgeRegressor` on three layers, 256 landmarks, against rows."""

    estimator = "LayerRidgeRegressor.fit"
    make = LayerRidgeRegressor
    axes = {"n": ROWS}


class ModuleVotingRegressorScaling(ModuleVotingClassifierScaling):
    """`ModuleVotingRegressor`: fit and 500 predictions by a ridge on each module, against rows and M."""

    estimator = "ModuleVotingRegressor.fit, predict"

    def prepare(self, n, d, M, H):
        X, y = drawn(n, d)
        lenses = ModularKernelPCA(M, H, rank=M * H + 20, random_state=0).fit(X[:2_000])
        model = ModuleVotingRegressor(lenses, Ridge())
        return lambda: model.fit(X, y).predict(X[:500])


class ScanNeighborsScaling(Growth):
    """`ScanNeighborsClassifier`: fit and 500 predictions against rows and features."""

    estimator = "ScanNeighborsClassifier.fit, predict"
    base = {"n": 20_000, "d": 50}
    quick_base = {"n": 300, "d": 10}
    axes = {"n": ROWS, "d": COLUMNS}

    def prepare(self, n, d):
        X, y = drawn(n, d)
        return lambda: ScanNeighborsClassifier(5).fit(X, y).predict(X[:500])


class TemperatureScalerScaling(Growth):
    """`TemperatureScaler` of ten classes' scores against rows."""

    estimator = "TemperatureScaler.fit"
    base = {"n": 5_000}
    quick_base = {"n": 300}
    axes = {"n": ROWS}

    def prepare(self, n):
        X, y = drawn(n, 10)
        return lambda: TemperatureScaler().fit(X, y)


class NegativeCorrelationScaling(Growth):
    """`NegativeCorrelationRegressor`, five epochs, 20 hidden units, against rows, features and
    networks (M)."""

    estimator = "NegativeCorrelationRegressor.fit, 5 passes"
    base = {"n": 2_000, "d": 20, "M": 10}
    quick_base = {"n": 300, "d": 10, "M": 3}
    axes = {"n": FEWER_ROWS, "d": COLUMNS, "M": MODULES}

    @classmethod
    def left_out(cls):
        return "" if find_spec("torch") else "torch is not installed"

    def prepare(self, n, d, M):
        X, y = drawn(n, d)
        model = NegativeCorrelationRegressor(M, 20, max_iter=5, random_state=0)
        return lambda: model.fit(X, y)
