"""A pretrained network's layers on tasks it was not trained for, against what one does with its top layer."""

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.data.network_features import (
    DIGITS,
    FEW_DIGITS,
    FEW_OBJECTS,
    OBJECTS,
    as_images,
    batches,
    is_block,
    network,
    reason_to_leave_out,
)
from benchmarks.harness import Claim, Comparison, ratio, result
from benchmarks.peers.network_comparison import NetworkComparison
from manylens import (
    CountSketch,
    LayerRidgeClassifier,
    TransductiveRidgeClassifier,
    collect_layers,
)
from manylens.datasets import load_dataset
from manylens.transfer.ridge import PrimalRidge, choose_alpha

CONTENDERS = ("ours", "thesis", "stacked", "logistic_top", "ridge_top", "rbf_pixels", "rbf_ensemble_pixels")


def gain(of, over, what="accuracy"):
    """By how much `what` of one contender exceeds that of another."""
    return lambda results: results[of][what] - results[over][what]


class TransferObjects(NetworkComparison):
    """CIFAR-10 re-encoded as JPEG, 6,000 rows to learn from and 2,000 to test, enlarged to 128 pixels; 17
    layers of EfficientNet-Lite0, flattened to 512 sketched dimensions and (ours) averaged over places as
    well. Against logistic regression (cross-validated C) and ridge on the top layer, a Gaussian kernel
    ridge on pixels, and one with kernels of thirteen widths, weighed by alignment. Seconds are those of fit
    and prediction after the features."""

    alone = False
    contenders = CONTENDERS
    needs = ("cifar10_jpg_12k",)
    task = OBJECTS
    quick_task = FEW_OBJECTS
    claims = (
        Claim("default: accuracy above logistic regression's", gain("ours", "logistic_top"), at_least=0.07),
        Claim("thesis: accuracy above logistic regression's", gain("thesis", "logistic_top"), at_least=0.045),
        Claim("default: accuracy above ridge on the top layer", gain("ours", "ridge_top"), at_least=0.07),
        Claim("default: accuracy above pixels'", gain("ours", "rbf_pixels"), at_least=0.2),
        Claim(
            "default: accuracy above pixels' with kernels of many widths",
            gain("ours", "rbf_ensemble_pixels"),
            at_least=0.2,
        ),
        Claim("default: calibration error", result("ours", "ece"), at_most=0.05),
        Claim("thesis: calibration error", result("thesis", "ece"), at_most=0.05),
        Claim("default: time over logistic regression's", ratio("ours", "logistic_top"), at_most=10),
    )


class TransferDigits(NetworkComparison):
    """MNIST as RGB at 64 pixels, 3,000 rows to learn from and 1,500 to test: far from what the network was
    trained on. Contenders as for TransferObjects."""

    contenders = CONTENDERS
    alone = False
    needs = ("mnist",)
    task = DIGITS
    quick_task = FEW_DIGITS
    claims = (
        Claim("default: error over logistic's", ratio("ours", "logistic_top", "error"), at_most=0.25),
        Claim("thesis: error over logistic's", ratio("thesis", "logistic_top", "error"), at_most=0.25),
        Claim("default: calibration error", result("ours", "ece"), at_most=0.05),
    )


class TransferFewLabels(NetworkComparison):
    """CIFAR-10 (JPEG) with 10 labels a class and the rest of 6,000 rows unlabeled, the mean of three draws
    of the labels: the labeled rows alone, one transductive step with hard guesses (the literature) and
    with class-balanced ones, ten steps with balanced guesses (ours). All weigh layers by alignment."""

    contenders = ("ours", "one_step", "one_balanced_step", "labeled_alone")
    alone = False
    needs = ("cifar10_jpg_12k",)
    task = OBJECTS
    quick_task = FEW_OBJECTS
    claims = (
        Claim("one step: accuracy gained", gain("one_step", "labeled_alone"), at_least=0.015),
        Claim("balanced: accuracy gained", gain("ours", "labeled_alone"), at_least=0.05),
    )

    def over_draws(self, data, fit):
        per_class, draws = (2, 1) if self.quick else (10, 3)
        (train, test), (y, truth) = data.all_layers, data.y
        found = []
        for draw in range(draws):
            rng = np.random.default_rng(draw)
            known = np.concatenate(
                [rng.permutation(np.flatnonzero(y == c))[:per_class] for c in np.unique(y)]
            )
            found.append(np.mean(fit(train, y, known).predict(test) == truth))
        return float(np.mean(found))

    def transductive(self, data, **settings):
        def fit(train, y, known):
            given = np.full(len(y), -1)
            given[known] = y[known]
            return TransductiveRidgeClassifier(random_state=0, **settings).fit(train, given)

        return self.over_draws(data, fit)

    def ours(self, data):
        return self.transductive(data)

    def one_step(self, data):
        return self.transductive(data, guesses="hard", n_steps=1)

    def one_balanced_step(self, data):
        return self.transductive(data, n_steps=1)

    def labeled_alone(self, data):
        def fit(train, y, known):
            few = {name: rows[known] for name, rows in train.items()}
            model = LayerRidgeClassifier(weights="alignment", random_state=0)  # as in transduction
            return model.fit(few, y[known])

        return self.over_draws(data, fit)

    def score(self, data, accuracy):
        return {"accuracy": accuracy}


class CollectingMemory(Comparison):
    """The collecting pass over 2,000 and over 10,000 images (CIFAR-10 as JPEG, 32 pixels) through
    EfficientNet-Lite0, 17 flattened layers, CountSketch of 256 buckets: what is held grows with the layers'
    widths, not with the rows."""

    alone = False
    contenders = ("many_rows", "few_rows")
    needs = ("cifar10_jpg_12k",)
    repeats = 1
    warm_up = False
    claims = (
        Claim("peak memory, 10,000 rows over 2,000", ratio("many_rows", "few_rows", "peak_mb"), at_most=1.2),
    )

    @classmethod
    def left_out(cls):
        return reason_to_leave_out()

    def make_data(self):
        data = load_dataset("cifar10_jpg_12k")
        return network(), as_images(data.X, data.image_shape)

    def collect(self, data, n_rows):
        model, images = data
        n_rows = n_rows // 100 if self.quick else n_rows
        sketch = CountSketch(256, 4)
        return collect_layers(model, batches(images[:n_rows], 32), is_block, sketch=sketch, pooling="flatten")

    def many_rows(self, data):
        return self.collect(data, 10_000)

    def few_rows(self, data):
        return self.collect(data, 2_000)

    def score(self, data, sketches):
        return {"rows": sketches.n_rows_}


class LayerRidgeRows(Comparison):
    """LayerRidgeClassifier on 512 landmarks, three layers of 100 random features, 10 classes: 32,000 rows
    against 16,000."""

    contenders = ("double", "single")
    memory = False
    claims = (Claim("time, 32,000 rows over 16,000", ratio("double", "single"), at_most=2.5),)

    def make_data(self):
        n = 400 if self.quick else 32_000
        rng = np.random.default_rng(0)
        y = rng.integers(10, size=n)
        means = rng.standard_normal((10, 300)).astype(np.float32) / 4
        return means[y] + rng.standard_normal((n, 300), dtype=np.float32), y

    def fitted(self, X, y):
        return LayerRidgeClassifier([100] * 3, max_exact_rows=0, rank=512, random_state=0).fit(X, y)

    def double(self, data):
        return self.fitted(*data)

    def single(self, data):
        X, y = data
        return self.fitted(X[: len(X) // 2], y[: len(y) // 2])


class RidgeThreads(Comparison):
    """Ridge with leave-one-out over 17 alphas, 1,000 rows of 200 features, where BLAS may use two threads and
    where it may use one: small decompositions keep to one by themselves."""

    contenders = ("two_threads", "one_thread")
    memory = False
    claims = (Claim("time, two threads over one", ratio("two_threads", "one_thread"), at_most=1.5),)

    def make_data(self):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((1_000, 200))
        return X, X[:, :10] + rng.standard_normal((1_000, 10))

    def chosen(self, data, threads):
        with threadpool_limits(threads, user_api="blas"):
            return choose_alpha(PrimalRidge(*data), np.logspace(-6, 2, 17))[0]

    def two_threads(self, data):
        return self.chosen(data, 2)

    def one_thread(self, data):
        return self.chosen(data, 1)

    def score(self, data, alpha):
        return {"alpha": alpha}
