"""Layers of a pretrained network on new image tasks, compared with models on its top layer."""

import numpy as np

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
from benchmarks.harness import Claim, Comparison, gain, ratio, result
from benchmarks.peers.transfer.network_comparison import NetworkComparison
from manylens import (
    CountSketch,
    LayerRidgeClassifier,
    TransductiveRidgeClassifier,
    collect_layers,
)
from manylens.datasets import load_dataset

CONTENDERS = ("ours", "thesis", "stacked", "logistic_top", "ridge_top", "rbf_pixels", "rbf_ensemble_pixels")


class TransferObjects(NetworkComparison):
    """CIFAR-10 (re-encoded as JPEG), 6,000 training and 2,000 test rows, enlarged to 128 pixels; 17
    layers of EfficientNet-Lite0, flattened to 512 sketched dimensions and (ours) also averaged over
    positions. Against logistic regression (cross-validated C) and ridge on the top layer, kernel ridge
    with a Gaussian kernel on pixels, and with kernels of thirteen widths weighted by alignment. Seconds
    include fit and prediction, but not the collection of features."""

    alone = False
    contenders = CONTENDERS
    needs = ("cifar10_jpg_12k",)
    task = OBJECTS
    quick_task = FEW_OBJECTS
    claims = (
        Claim(
            "default: gain in accuracy over logistic regression", gain("ours", "logistic_top"), at_least=0.07
        ),
        Claim(
            "thesis: gain in accuracy over logistic regression",
            gain("thesis", "logistic_top"),
            at_least=0.045,
        ),
        Claim(
            "default: gain in accuracy over ridge on the top layer", gain("ours", "ridge_top"), at_least=0.07
        ),
        Claim(
            "default: gain in accuracy over a Gaussian kernel on pixels",
            gain("ours", "rbf_pixels"),
            at_least=0.2,
        ),
        Claim(
            "default: gain in accuracy over kernels of many widths on pixels",
            gain("ours", "rbf_ensemble_pixels"),
            at_least=0.2,
        ),
        Claim("default: calibration error", result("ours", "ece"), at_most=0.05),
        Claim("thesis: calibration error", result("thesis", "ece"), at_most=0.05),
        Claim("default: time relative to logistic regression", ratio("ours", "logistic_top"), at_most=10),
    )


class TransferDigits(NetworkComparison):
    """MNIST as RGB at 64 pixels, 3,000 training and 1,500 test rows: far from the network's training
    data. Contenders as in TransferObjects."""

    contenders = CONTENDERS
    alone = False
    needs = ("mnist",)
    task = DIGITS
    quick_task = FEW_DIGITS
    claims = (
        Claim(
            "default: error relative to logistic regression",
            ratio("ours", "logistic_top", "error"),
            at_most=0.25,
        ),
        Claim(
            "thesis: error relative to logistic regression",
            ratio("thesis", "logistic_top", "error"),
            at_most=0.25,
        ),
        Claim("default: calibration error", result("ours", "ece"), at_most=0.05),
    )


class TransferFewLabels(NetworkComparison):
    """CIFAR-10 (JPEG) with 10 labels per class and the rest of 6,000 rows unlabeled, mean of three draws
    of the labels: the labeled rows alone, one transductive step with hard pseudo-labels (as in the
    literature) and with class-balanced ones, and ten steps with balanced pseudo-labels (ours). All weight
    layers by alignment."""

    contenders = ("ours", "one_step", "one_balanced_step", "labeled_alone")
    alone = False
    needs = ("cifar10_jpg_12k",)
    task = OBJECTS
    quick_task = FEW_OBJECTS
    claims = (
        Claim(
            "one step: gain in accuracy over labeled rows alone",
            gain("one_step", "labeled_alone"),
            at_least=0.015,
        ),
        Claim(
            "default: gain in accuracy over labeled rows alone", gain("ours", "labeled_alone"), at_least=0.05
        ),
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
        return self.transductive(data, pseudo_labels="hard", n_steps=1)

    def one_balanced_step(self, data):
        return self.transductive(data, n_steps=1)

    def labeled_alone(self, data):
        def fit(train, y, known):
            few = {name: rows[known] for name, rows in train.items()}
            model = LayerRidgeClassifier(weights="alignment", random_state=0)  # weights as in transduction
            return model.fit(few, y[known])

        return self.over_draws(data, fit)

    def score(self, data, accuracy):
        return {"accuracy": accuracy}


class LayerCollectionMemory(Comparison):
    """Collecting the features of 2,000 and of 10,000 images (CIFAR-10 as JPEG, 32 pixels) from
    EfficientNet-Lite0, 17 flattened layers, CountSketch of 256 buckets: memory grows with the widths of
    the layers, not with the rows."""

    alone = False
    contenders = ("many_rows", "few_rows")
    scores = ()
    needs = ("cifar10_jpg_12k",)
    repeats = 1
    warm_up = False
    claims = (
        Claim(
            "peak memory for 10,000 rows, relative to 2,000",
            ratio("many_rows", "few_rows", "peak_mb"),
            at_most=1.2,
        ),
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
