"""Chapters 2 and 3: ridge regression on sketched layers of a pretrained network."""

import time
import warnings

import numpy as np
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.data.network_features import Task, network_features, reason_to_leave_out
from benchmarks.harness import Findings, Reproduction, Statement, curve, panel
from benchmarks.papers.alignment import PAPER
from benchmarks.papers.alignment.training import alignment, one_hot
from benchmarks.peers.transfer.images import TransferDigits, TransferObjects
from manylens import (
    CountSketch,
    LayerRidgeClassifier,
    expected_calibration_error,
    stable_rank,
)
from manylens.papers.linear_kernel_alignment import alignment_weights, layer_ridge

TASKS = {"objects": TransferObjects, "digits": TransferDigits}
DIFFERS = """EfficientNet-Lite0 instead of ResNets; CIFAR-10 re-encoded as JPEG ("objects", close to its
training data) and MNIST ("digits", far from it) instead of six tasks."""
REDUCED = "Two tasks, at most 2,000 training rows and one trial instead of five: two cores collect features."
ACCURACY, CALIBRATION, WAYS = "Accuracy (%)", "Calibration error", "Ways to the same classifier"
MOST_ROWS = 2_000


class OnTheNetwork(Reproduction):
    """Base class of benchmarks on features of EfficientNet-Lite0, collected once."""

    abstract = True
    paper = PAPER
    needs = ("cifar10_jpg_12k", "mnist")
    differs = DIFFERS
    reduced = REDUCED

    @classmethod
    def left_out(cls):
        return reason_to_leave_out()

    def features(self, name):
        """Layers of a task, read from the temporary folder if they were collected before."""
        kind = TASKS[name]
        return network_features(kind.quick_task if self.quick else kind.task)


def some_rows(layers, rows):
    """Select the same rows of every layer."""
    return {name: features[rows] for name, features in layers.items()}


def logistic(quick):
    """Softmax regression on the top layer with a cross-validated penalty."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=20 if quick else 200))
    return GridSearchCV(model, {"logisticregression__C": [1e-4, 1e-3, 1e-2]}, cv=2 if quick else 3)


def layer_shares(layers, y):
    """Each layer's share in the trace of the kernel that equation 3.3 chooses."""
    rows = [features - features.mean(axis=0, dtype=np.float64) for features in layers.values()]
    traces = alignment_weights(rows, one_hot(y)) * [np.sum(np.square(part)) for part in rows]
    return dict(zip(layers, traces / traces.sum(), strict=True))


def hashed_features(layers, n_buckets=64):
    """Hash the features of each layer into buckets, if it has more features than buckets."""
    hashed = {}
    for seed, (name, rows) in enumerate(layers.items()):
        S = CountSketch(n_buckets, 4, seed).matrix(rows.shape[1])
        hashed[name] = rows @ S.T if rows.shape[1] > n_buckets else rows
    return hashed


class RidgeOnLayers(OnTheNetwork):
    """Ridge regression on the network's layers against softmax regression on its top layer, with 5, 20
    and 100 % of the training rows; calibration of both; a Gaussian kernel on pixels; all layers instead
    of the selected ones; random projections instead of the Nystroem map (both to 64 dimensions)."""

    where = "Tables 3.2, 3.4 and 3.5, Figures 3.1, 3.3, 3.4 and 3.6"
    printed = {
        "The thesis's accuracies (%), ResNet-18": {
            row: dict(
                zip(("CIFAR10", "CIFAR100", "STL10", "CUB200", "SVHN", "Kuzushiji49"), values, strict=True)
            )
            for row, *values in (
                ("LogReg", 87.45, 69.08, 95.08, 60.80, 64.36, 74.56),
                ("Ours", 90.77, 71.31, 96.30, 58.78, 88.76, 88.12),
                ("RBF on pixels", 51.40, 21.76, 43.58, None, None, None),
                ("All layers", 90.5, 71.2, 95.5, None, None, None),
                ("All layers, times as long", 3.8, 3.7, 1.4, None, None, None),
            )
        }
    }
    statements = (
        Statement(
            "ridge on layers is more accurate than softmax on the top layer, for any number of rows",
            quote="""our method with all three M 's generalises better than LogReg does ... when the
            portion of training samples varies from 2% to 100%""",
            source="Figure 3.1",
            cases=lambda found: {r: c["layers"] > c["top, softmax"] for r, c in found[ACCURACY].items()},
            ours=lambda found: {r: c["default"] > c["top, softmax"] for r, c in found[ACCURACY].items()},
        ),
        Statement(
            "a Gaussian kernel on pixels is less accurate than both for photographs",
            quote="""Since RBF kernels are directly operating on pixels of images without neural networks, the
            performance is worse than our method or fine-tuning the top layer (LogReg).""",
            source="Section 3.7.2, Table 3.5",
            cases=lambda found: {"objects": pixels_are_worse(found, "layers")},
            ours=lambda found: {"objects": pixels_are_worse(found, "default")},
        ),
        Statement(
            "accuracies of all layers and of the selected ones differ by at most a point",
            quote="using all layers provides similar performance as using a few selected layers",
            source="Section 3.5.2, Table 3.4",
            ours=lambda found: {
                t: abs(c["all layers"] - c["chosen layers"]) <= 1 for t, c in found[WAYS].items()
            },
        ),
        Statement(
            "all layers take more than 1.4 times as long, the thesis's smallest ratio",
            quote="accumulating all layers takes much longer to run",
            source="Table 3.4",
            ours=lambda found: {t: c["all layers, times as long"] > 1.4 for t, c in found[WAYS].items()},
        ),
        Statement(
            "the Nystroem map is more accurate than random projection",
            quote="""Overall, Nyström provides better accuracy across all six tasks than random
            projection.""",
            source="Section 3.4.2, Figure 3.3",
            ours=lambda found: {t: c["Nystroem, 64"] > c["projection, 64"] for t, c in found[WAYS].items()},
        ),
        Statement(
            "softmax regression is better calibrated than ridge without a temperature",
            quote="LogReg provides better calibrated models than ours does.",
            source="Figure 3.4",
            cases=lambda found: {
                r: c["top, softmax"] < c["layers, no temperature"] for r, c in found[CALIBRATION].items()
            },
        ),
        Statement(
            "with a temperature, the calibration error of ridge is at most 0.02 above that of softmax",
            quote="""a posthoc adjustment by Temperature Scaling helps our method to match the calibration
            performance with LogReg""",
            source="Figure 3.4",
            cases=lambda found: {
                r: c["layers"] <= c["top, softmax"] + 0.02 for r, c in found[CALIBRATION].items()
            },
            ours=lambda found: {
                r: c["default"] <= c["top, softmax"] + 0.02 for r, c in found[CALIBRATION].items()
            },
        ),
        Statement(
            "tasks close to the network's own give more weight to higher layers",
            quote="""In-domain transfer tasks assign higher values to top few layers, and out-of-domain
            ones prefer slightly lower layers.""",
            source="Figure 3.6",
            cases=lambda found: {
                "objects against digits": found["Mean position of the weight"]["objects"]["layer"]
                > found["Mean position of the weight"]["digits"]["layer"]
            },
        ),
    )

    def compute(self):
        accuracy, calibration, ways, places, figures = {}, {}, {}, {}, {}
        for task in TASKS:
            data = self.features(task)
            n = min(MOST_ROWS, len(data.y[0]))
            weights = {}
            shares = (1.0,) if self.quick else (0.05, 0.2, 1.0)
            for share in shares:
                rows = slice(0, int(share * n))
                row = f"{task}, {share:.0%}"
                accuracy[row], calibration[row], weights[f"{share:.0%}"] = self.at(data, rows)
            ways[task] = self.ways(data, slice(0, n))
            final = weights["100%"]
            places[task] = {"layer": float(np.sum(final * np.arange(1, len(final) + 1)))}
            layers = range(1, len(final) + 1)
            curves = {label: curve(layers, values, style="o-") for label, values in weights.items()}
            figures[f"{task}: weights"] = panel("layer", "weight", curves)
            rows = [f"{task}, {share:.0%}" for share in shares]
            for title, table in ((ACCURACY, accuracy), (CALIBRATION, calibration)):
                curves = {
                    key: curve(np.array(shares) * n, [table[r][key] for r in rows], style="o-")
                    for key in table[rows[0]]
                }
                figures[f"{task}: {title}"] = panel("rows", title, curves, log="x")
        tables = {
            ACCURACY: accuracy,
            CALIBRATION: calibration,
            WAYS: ways,
            "Mean position of the weight": places,
        }
        return Findings(tables, figures)

    def at(self, data, rows):
        """Accuracy and calibration with part of the rows, and the weights of the layers."""
        y, truth = data.y[0][rows], data.y[1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a strong penalty needs few steps
            top = logistic(self.quick).fit(data.top[0][rows], y)
        train = some_rows(data.flat[0], rows)
        ridge = layer_ridge(train, y, data.flat[1])
        shares = {
            "top, softmax": top.predict_proba(data.top[1]),
            "layers": ridge.proba,
            "layers, no temperature": softmax(ridge.scores, axis=1),
            "default": LayerRidgeClassifier(random_state=0).fit(train, y).predict_proba(data.flat[1]),
        }
        classes = ridge.classes
        accuracy = {key: 100 * np.mean(classes[p.argmax(axis=1)] == truth) for key, p in shares.items()}
        del accuracy["layers, no temperature"]  # the same labels
        calibration = {
            key: expected_calibration_error(truth, p, classes=classes) for key, p in shares.items()
        }
        return accuracy, calibration, np.array(list(layer_shares(train, y).values()))

    def ways(self, data, rows):
        """Accuracies (%) of other methods with all rows, and the time for all layers."""
        y, truth = data.y[0][rows], data.y[1]
        train = some_rows(data.flat[0], rows)
        pixels = [images.reshape(len(images), -1) / np.float32(255) for images in data.images]
        seconds, found = {}, {}
        chosen = [name for name, share in layer_shares(train, y).items() if share > 0]
        few = [{name: layers[name] for name in chosen} for layers in (train, data.flat[1])]
        equal = {"weights": "uniform", "random_state": 0}
        hashed = hashed_features(train), hashed_features(data.flat[1])
        for name, model, layers in (
            ("chosen layers", LayerRidgeClassifier(**equal), few),
            ("all layers", LayerRidgeClassifier(**equal), (train, data.flat[1])),
            ("Nystroem, 64", LayerRidgeClassifier(layer_rank=64, **equal), (train, data.flat[1])),
            ("projection, 64", LayerRidgeClassifier(**equal), hashed),
            ("pixels", LayerRidgeClassifier(gamma="median", layer_rank=None, random_state=0), None),
        ):
            fit_on, ask = layers or (pixels[0][rows], pixels[1])
            start = time.perf_counter()
            found[name] = 100 * np.mean(model.fit(fit_on, y).predict(ask) == truth)
            seconds[name] = time.perf_counter() - start
        found["all layers, times as long"] = seconds["all layers"] / seconds["chosen layers"]
        return found


def pixels_are_worse(found, ridge):
    """Whether a kernel on the pixels of photographs is less accurate than softmax and a ridge on layers."""
    cells = found[ACCURACY]["objects, 100%"]
    return found[WAYS]["objects"]["pixels"] < min(cells["top, softmax"], cells[ridge])


class AccumulatedLayers(OnTheNetwork):
    """Layers added one at a time, largest weight first, compared with each layer alone."""

    where = "Figure 3.7"
    reduced = REDUCED + " At most the six layers with the largest weights."
    statements = (
        Statement(
            "accumulated layers are more accurate than each layer alone",
            quote="""In-domain transfer tasks demonstrate increasing accuracy when blocks are accumulated
            gradually ... which validates that accumulating layers helps""",
            source="Figure 3.7",
            ours=lambda found: {
                task: cells["accumulated"] > cells["best alone"]
                for task, cells in found["Layers with a weight, accuracy (%)"].items()
            },
        ),
    )

    def compute(self):
        together, figures = {}, {}
        for task in TASKS:
            data = self.features(task)
            n = min(MOST_ROWS, len(data.y[0]))
            train, y = some_rows(data.flat[0], slice(0, n)), data.y[0][:n]
            shares = layer_shares(train, y)
            heaviest = [name for name in sorted(shares, key=shares.get, reverse=True) if shares[name] > 0][:6]
            accumulated = [self.accuracy(data, train, y, heaviest[:k]) for k in range(1, len(heaviest) + 1)]
            alone = [self.accuracy(data, train, y, [name]) for name in heaviest]
            together[task] = {
                "layers": len(heaviest),
                "accumulated": accumulated[-1],
                "best alone": max(alone),
            }
            curves = {
                "accumulated": curve(range(1, len(alone) + 1), accumulated, style="o-"),
                "alone": curve(range(1, len(alone) + 1), alone, style="s"),
            }
            figures[f"{task}: layers"] = panel("layers, the heaviest first", "accuracy (%)", curves)
        return Findings({"Layers with a weight, accuracy (%)": together}, figures)

    def accuracy(self, data, train, y, names):
        model = LayerRidgeClassifier(weights="uniform", random_state=0)
        model.fit({name: train[name] for name in names}, y)
        return 100 * np.mean(model.predict({name: data.flat[1][name] for name in names}) == data.y[1])


def largest_is_best(found, ridge):
    """Whether a ridge on the layers of the largest network is as accurate as on those of the smallest."""
    rows = found[ACCURACY]
    return {task: rows[f"{task}, Lite2"][ridge] >= rows[f"{task}, Lite0"][ridge] for task in TASKS}


class DeeperNetworks(OnTheNetwork):
    """Three networks of increasing size: ridge regression on their layers against softmax regression on
    their top layer."""

    where = "Figure 3.2"
    differs = """EfficientNet-Lite0, 1 and 2 (17, 22 and 22 layers, the last network wider) instead of
    ResNet, ResNeXt and Wide-ResNet; CIFAR-10 re-encoded as JPEG and MNIST instead of six tasks."""
    reduced = "1,000 training and 500 test rows at 64 pixels and one trial: two cores run three networks."
    depths = (0, 1, 2)
    statements = (
        Statement(
            "ridge on layers is more accurate than softmax regression on the top layer for every network",
            quote="Except for CUB200, our method outperforms LogReg significantly",
            source="Table 3.2",
            cases=lambda found: {r: c["layers"] > c["top, softmax"] for r, c in found[ACCURACY].items()},
            ours=lambda found: {r: c["default"] > c["top, softmax"] for r, c in found[ACCURACY].items()},
        ),
        Statement(
            "the largest network is at least as accurate as the smallest",
            quote="""Our method can leverage the generalisation ability of a pretrained neural network and
            scale well as the number of layers increases.""",
            source="Section 3.4.2, Figure 3.2",
            cases=lambda found: largest_is_best(found, "layers"),
            ours=lambda found: largest_is_best(found, "default"),
        ),
    )

    @classmethod
    def left_out(cls):
        return reason_to_leave_out(cls.depths)

    def compute(self):
        accuracy, figures = {}, {}
        n_train, n_test, pixels, n_buckets = (100, 50, 32, 32) if self.quick else (1000, 500, 64, 512)
        for task, kind in TASKS.items():
            for depth in self.depths:
                sizes = Task(kind.task.name, n_train, n_test, pixels, n_buckets, depth)
                data = network_features(sizes)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)  # as above
                    top = logistic(self.quick).fit(data.top[0], data.y[0])
                ridge = layer_ridge(data.flat[0], data.y[0], data.flat[1])
                default = LayerRidgeClassifier(random_state=0).fit(data.flat[0], data.y[0])
                accuracy[f"{task}, Lite{depth}"] = {
                    "top, softmax": 100 * top.score(data.top[1], data.y[1]),
                    "layers": 100 * np.mean(ridge.labels == data.y[1]),
                    "default": 100 * default.score(data.flat[1], data.y[1]),
                    "number of layers": len(data.flat[0]),
                }
            rows = [accuracy[f"{task}, Lite{depth}"] for depth in self.depths]
            curves = {
                key: curve(self.depths, [row[key] for row in rows], style="o-")
                for key in ("top, softmax", "layers", "default")
            }
            ticks = [f"Lite{depth}" for depth in self.depths]
            figures[f"{task}: networks"] = panel("EfficientNet", "accuracy (%)", curves, ticks=ticks)
        return Findings({ACCURACY: accuracy}, figures)


class StableRankAndTaskAccuracy(OnTheNetwork):
    """Stable rank of every layer; and, for 40 random tasks with two to ten classes of CIFAR-10, the
    logarithm of the top layer's sketched CKA with the targets against the accuracy of a ridge classifier
    on it."""

    where = "Figures 2.1 and 2.9"
    differs = (
        DIFFERS
        + """ Stable ranks are those of the layers' 512 sketched dimensions; tasks are drawn from
    CIFAR-10 alone."""
    )
    statements = (
        Statement(
            "the stable rank of every layer is below 40",
            quote="the maximum stable rank of all layers of two models is less than 40",
            source="Section 2.3.3, Figure 2.1",
            cases=lambda found: {task: cells["largest"] < 40 for task, cells in found["Stable rank"].items()},
        ),
        Statement(
            "the correlation of accuracy and the logarithm of alignment is at least 0.8",
            quote="It shows the linear relationship between the log of SCKA and the accuracy",
            source="Figure 2.9",
            ours=lambda found: {
                task: cells["with log alignment"] >= 0.8
                for task, cells in found["Correlation of accuracy"].items()
            },
        ),
    )

    def compute(self):
        ranks, figures = {}, {}
        curves = {}
        for task in TASKS:
            found = [stable_rank(layer) for layer in self.features(task).flat[0].values()]
            ranks[task] = {"largest": max(found), "mean": np.mean(found)}
            curves[task] = curve(range(1, len(found) + 1), found, style="o-")
        figures["stable rank"] = panel("layer", "stable rank", curves)
        scores, accuracies = np.array(self.random_tasks(self.features("objects"))).T
        figures["random tasks"] = panel(
            "log alignment", "accuracy (%)", {"a task": curve(np.log(scores), accuracies, style=".")}
        )
        correlation = np.corrcoef(np.log(scores), accuracies)[0, 1]
        return Findings(
            {
                "Stable rank": ranks,
                "Correlation of accuracy": {"objects": {"with log alignment": correlation}},
            },
            figures,
        )

    def random_tasks(self, data):
        """Alignment and accuracy (%) of random subtasks."""
        rng = np.random.default_rng(self.seed)
        X, y, X_test, y_test = data.top[0][:MOST_ROWS], data.y[0][:MOST_ROWS], data.top[1], data.y[1]
        found = []
        for _ in range(4 if self.quick else 40):
            classes = rng.permutation(10)[: rng.integers(2, 11)]
            train, test = np.isin(y, classes), np.isin(y_test, classes)
            model = make_pipeline(StandardScaler(), RidgeClassifier(1e3)).fit(X[train], y[train])
            score = max(alignment(X[train], one_hot(y[train])), 1e-3)
            found.append([score, 100 * model.score(X_test[test], y_test[test])])
        return found
