"""Figures 2.3 to 2.8: alignment of layers with targets during training and fine-tuning."""

import numpy as np
from scipy.stats import spearmanr
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import f1_score
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import label_binarize

from benchmarks.data.image_sets import load_parts
from benchmarks.harness import Findings, Reproduction, Statement, curve, panel
from benchmarks.papers.alignment import PAPER
from manylens import CountSketch, cka_matrix, sketched_cka

TRACKING, LAYERS, CLASSES = (
    "Rank correlation of alignment and accuracy over passes",
    "Alignment of layers with the targets",
    "Rank correlation of alignment and F1 over classes",
)
PROBES = ("MNIST", "Rotations", "Rectangles")
UNITS = (256, 128, 64)


def hidden(network, X):
    """Outputs of the hidden layers, from first to last."""
    outputs = [X]
    for W, b in zip(network.coefs_[:-1], network.intercepts_[:-1], strict=True):
        outputs.append(np.maximum(outputs[-1] @ W + b, 0))
    return outputs[1:]


def alignment(features, targets):
    """Sketched CKA of features and targets, three sketches of 256 buckets."""
    sketches = [
        [CountSketch(256, random_state=r).update(np.asarray(rows, dtype=float)) for r in range(3)]
        for rows in (features, targets)
    ]
    return sketched_cka(*sketches).value


def one_hot(y):
    """One-hot targets; two columns for two classes."""
    columns = label_binarize(y, classes=np.unique(y)).astype(float)
    return np.hstack([1 - columns, columns]) if columns.shape[1] == 1 else columns


class Probe:
    """Data on which a network is probed: alignment of its layers, and a linear model on the last layer."""

    def __init__(self, parts):
        self.parts = parts
        self.targets = one_hot(parts.y)

    def layers(self, network):
        """Alignment of every hidden layer with the targets."""
        return [alignment(layer, self.targets) for layer in hidden(network, self.parts.X)]

    def predictions(self, network):
        top, top_test = hidden(network, self.parts.X)[-1], hidden(network, self.parts.X_test)[-1]
        return RidgeClassifier(1.0).fit(top, self.parts.y).predict(top_test)

    def accuracy(self, network):
        return float(np.mean(self.predictions(network) == self.parts.y_test))

    def by_class(self, network):
        """Alignment with each class against the rest, and its F1 score."""
        top = hidden(network, self.parts.X)[-1]
        scores = [alignment(top, one_hot(self.parts.y == c)) for c in np.unique(self.parts.y)]
        return scores, f1_score(self.parts.y_test, self.predictions(network), average=None)


class AlignmentInTraining(Reproduction):
    """A network with three hidden layers (256, 128 and 64 units), trained on 4,000 rows of MNIST for 20
    epochs: sketched CKA of its layers with the targets, and the accuracy of a ridge classifier on its
    last layer, for other rows of MNIST, rotated digits, and rectangles. Then the same for a network
    trained on the digits 0 to 4 and fine-tuned on 5 to 9."""

    paper = PAPER
    where = "Figures 2.3 to 2.8"
    needs = ("mnist", "rectangles")
    differs = """A small dense network on MNIST instead of ResNets on CIFAR-100, a constant learning rate,
    and probes of digits and rectangles instead of CIFAR-10, STL-10 and SVHN: only the statements are
    compared. Alignment is estimated from three sketches, without the bias of the thesis's one sketch."""
    reduced = "One network of three hidden layers, 4,000 rows and 20 epochs, to train on two cores."
    statements = (
        Statement(
            "the rank correlation of alignment and accuracy over epochs is at least 0.5",
            quote="""Sketched CKA ... actually tracks the change of performance of the top layer features
            on four tasks presented in the plots""",
            source="Section 2.3.4, Figures 2.3 and 2.7",
            ours=lambda found: {row: cells["correlation"] >= 0.5 for row, cells in found[TRACKING].items()},
        ),
        Statement(
            "at the end, higher layers are more aligned with the targets than lower ones",
            quote="""The general observation is that higher layers are more aligned with the targets than
            the lower layers are, but exceptions also exist.""",
            source="Section 2.4.1, Figure 2.4",
            share=2 / 3,
            ours=lambda found: {row: is_rising(list(cells.values())) for row, cells in found[LAYERS].items()},
        ),
        Statement(
            "the rank correlation of alignment and F1 score over classes is at least 0.5",
            quote="We can observe that, the higher the SCKA value is, the higher the F1 score is.",
            source="Figure 2.6",
            ours=lambda found: {row: cells["correlation"] >= 0.5 for row, cells in found[CLASSES].items()},
        ),
        Statement(
            "the first and the last layer become less similar",
            quote="""Both ResNet-18 and ResNet-34 models group layers in a certain fashion, and the
            grouping becomes prominent during the training.""",
            source="Section 2.4.1, Figure 2.5",
            ours=lambda found: {
                "first and last layer": found["Alignment of the first and last layer"]["MNIST"]["last pass"]
                < found["Alignment of the first and last layer"]["MNIST"]["first pass"]
            },
        ),
    )

    def compute(self):
        n_passes, n = (2, 300) if self.quick else (20, 4_000)
        names = PROBES[:1] if self.quick else PROBES
        sets = {name: load_parts(name, n, n // 4, n // 4, seed=self.seed) for name in names}
        train = sets["MNIST"]
        # Training rows are not part of any probe.
        probes = {
            name: Probe(parts._replace(X=parts.X_choose, y=parts.y_choose)) for name, parts in sets.items()
        }
        network = MLPClassifier(UNITS, batch_size=100, random_state=self.seed)
        paths, similar = {name: [] for name in probes}, []
        for _ in range(n_passes):
            network.partial_fit(train.X, train.y, classes=np.arange(10))
            for name, probe in probes.items():
                paths[name].append([probe.layers(network), probe.accuracy(network)])
            similar.append(cka_matrix(hidden(network, train.X[:1_000])))
        tuned = self.tuned(train, n_passes)
        tracking = {name: correlation([[s[-1], a] for s, a in path]) for name, path in paths.items()}
        tracking["tuned to 5-9"] = correlation(tuned)
        layers = {
            name: {f"layer {k + 1}": score for k, score in enumerate(path[-1][0])}
            for name, path in paths.items()
        }
        classes = {
            name: correlation(list(zip(*probe.by_class(network), strict=True)))
            for name, probe in probes.items()
            if len(np.unique(probe.parts.y)) > 2 or self.quick
        }
        apart = {"MNIST": {"first pass": similar[0][0, -1], "last pass": similar[-1][0, -1]}}
        tables = {
            TRACKING: tracking,
            LAYERS: layers,
            CLASSES: classes,
            "Alignment of the first and last layer": apart,
        }
        return Findings(tables, self.panels(paths, tuned, similar))

    def tuned(self, train, n_passes):
        """Alignment and accuracy on the digits 5 to 9 while a network trained on 0 to 4 is fine-tuned."""
        low = train.y < 5
        network = MLPClassifier(UNITS, batch_size=50, random_state=self.seed)
        for _ in range(n_passes // 2):
            network.partial_fit(train.X[low], train.y[low], classes=np.arange(10))
        X, y = train.X[~low], train.y[~low]
        half = len(X) // 2
        path = []
        for _ in range(n_passes):
            network.partial_fit(X[:half], y[:half])
            top = hidden(network, X)[-1]
            model = RidgeClassifier(1.0).fit(top[:half], y[:half])
            path.append([alignment(top[:half], one_hot(y[:half])), model.score(top[half:], y[half:])])
        return path

    def panels(self, paths, tuned, similar):
        """One panel per probe, one for fine-tuning, and the similarity of the layers at the end."""
        figures = {}
        for name, path in paths.items():
            passes = range(1, len(path) + 1)
            curves = {f"layer {k + 1}": curve(passes, [s[k] for s, _ in path]) for k in range(len(UNITS))}
            curves["accuracy"] = curve(passes, [accuracy for _, accuracy in path], style="k:")
            figures[name] = panel("pass", "alignment, accuracy", curves)
        passes = range(1, len(tuned) + 1)
        curves = {
            label: curve(passes, [point[k] for point in tuned])
            for k, label in enumerate(("alignment", "accuracy"))
        }
        figures["tuned to 5-9"] = panel("pass", "alignment, accuracy", curves)
        figures["layers at the end"] = panel(
            "layer", "layer", {}, image=similar[-1], extent=(0.5, 3.5, 0.5, 3.5)
        )
        return figures


def correlation(pairs):
    """Rank correlation of pairs of numbers."""
    first, second = np.array(pairs).T
    return {"correlation": float(np.nan_to_num(spearmanr(first, second).statistic))}


def is_rising(values):
    return bool(np.all(np.diff(values) > 0))
