"""Figure 3.5: what unlabeled rows add, all else being equal; and Figure 3.8, the widths of the layers."""

import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from benchmarks.harness import Findings, Statement, curve, panel
from benchmarks.papers.alignment.layers import DIFFERS, MOST_ROWS, TASKS, OnTheNetwork, some_rows
from manylens import TransductiveRidgeClassifier
from manylens.baselines import LaplacianRidgeClassifier, SelfTrainingLogisticRegression
from manylens.papers.linear_kernel_alignment import transductive_layer_ridge

ALONE, WITH, GAIN, ERROR, SECONDS = (
    "Labeled rows alone, accuracy (%)",
    "With unlabeled rows, accuracy (%)",
    "Gain from unlabeled rows (points)",
    "Standard error of the gain over draws (points)",
    "Seconds, with unlabeled rows",
)
METHODS = {
    "thesis": "the thesis's rule (alignment weights, one step, hard labels)",
    "one step": "our features and search, alignment weights, one step, hard labels",
    "default": "our default (alignment weights, ten steps, balanced labels)",
    "equal weights": "our default with equal weights",
    "softmax": "softmax on the top layer, self-training",
    "manifold": "manifold regularization on the top layer",
}
SETTINGS = {
    "one step": {"pseudo_labels": "hard", "n_steps": 1},
    "default": {},
    "equal weights": {"weights": "uniform"},
}


class FewLabels(OnTheNetwork):
    """2, 10 and 50 labeled rows per class and the rest of 2,000 unlabeled, mean of three draws. Each method
    is fitted twice, to the labeled rows alone and with the unlabeled rows, with the same weights and the same
    search; for the thesis's rule, also with the same features. Softmax regression and manifold regularization
    (Belkin, Niyogi and Sindhwani) use the top layer."""

    where = "Figure 3.5"
    differs = (
        DIFFERS
        + """ Candidates for the penalties, which the thesis does not print, are ours; its rule uses 512
    buckets. The thesis does not evaluate manifold regularization, because of its cost."""
    )
    statements = (
        Statement(
            "unlabeled rows help the thesis's rule",
            lambda found: {row: cells["thesis"] > 0 for row, cells in found[GAIN].items()},
        ),
        Statement(
            "unlabeled rows help our default",
            lambda found: {row: cells["default"] > 0 for row, cells in found[GAIN].items()},
        ),
        Statement(
            "with unlabeled rows, the thesis's rule is more accurate than self-trained softmax regression",
            lambda found: {row: cells["thesis"] > cells["softmax"] for row, cells in found[WITH].items()},
        ),
        Statement(
            "unlabeled rows help the thesis's rule more than softmax regression",
            lambda found: {row: cells["thesis"] > cells["softmax"] for row, cells in found[GAIN].items()},
        ),
        Statement(
            "unlabeled rows do not improve softmax regression on the top layer (by more than half a point)",
            lambda found: {row: cells["softmax"] <= 0.5 for row, cells in found[GAIN].items()},
        ),
    )

    def compute(self):
        tables, figures = {title: {} for title in (ALONE, WITH, GAIN, ERROR, SECONDS)}, {}
        counts = (2,) if self.quick else (2, 10, 50)
        for task in TASKS:
            data = self.features(task)
            for count in counts:
                row = f"{task}, {count} per class"
                draws = [self.draw(data, count, seed) for seed in range(1 if self.quick else 3)]
                alone, helped, seconds = (
                    {name: np.array([found[name][k] for found in draws]) for name in METHODS}
                    for k in range(3)
                )
                tables[ALONE][row] = {name: values.mean() for name, values in alone.items()}
                tables[WITH][row] = {name: values.mean() for name, values in helped.items()}
                tables[SECONDS][row] = {name: values.mean() for name, values in seconds.items()}
                gains = {name: helped[name] - alone[name] for name in METHODS}
                tables[GAIN][row] = {name: values.mean() for name, values in gains.items()}
                tables[ERROR][row] = {name: standard_error(values) for name, values in gains.items()}
            rows = [f"{task}, {count} per class" for count in counts]
            for label, title in (("accuracy (%) with unlabeled rows", WITH), ("gain (points)", GAIN)):
                curves = {
                    name: curve(counts, [tables[title][row][name] for row in rows], style="o-")
                    for name in METHODS
                }
                figures[f"{task}: {label}"] = panel("labeled rows per class", label, curves, log="x")
        return Findings(tables, figures)

    def draw(self, data, count, seed):
        """For each method, accuracies (%) without and with unlabeled rows, and seconds of the latter."""
        n = min(MOST_ROWS, len(data.y[0]))
        layers, top, y = some_rows(data.flat[0], slice(0, n)), data.top[0][:n], data.y[0][:n]
        rng = np.random.default_rng(seed)
        known = np.concatenate([rng.permutation(np.flatnonzero(y == c))[:count] for c in np.unique(y)])
        given = np.full(n, -1)
        given[known] = y[known]
        found = {}

        def accuracy(labels):
            return 100 * np.mean(labels == data.y[1])

        start = time.perf_counter()
        rule = transductive_layer_ridge(layers, given, data.flat[1], 32 if self.quick else 512)
        both = (accuracy(rule.classes[scores.argmax(axis=1)]) for scores in (rule.alone, rule.helped))
        found["thesis"] = [*both, time.perf_counter() - start]
        few = some_rows(layers, known)
        for name, settings in SETTINGS.items():
            alone = TransductiveRidgeClassifier(random_state=0, **settings).fit(few, y[known])
            start = time.perf_counter()
            helped = TransductiveRidgeClassifier(random_state=0, **settings).fit(layers, given)
            seconds = time.perf_counter() - start
            both = (accuracy(model.predict(data.flat[1])) for model in (alone, helped))
            found[name] = [*both, seconds]
        for name, model in (
            ("softmax", SelfTrainingLogisticRegression(cv=3)),
            ("manifold", LaplacianRidgeClassifier()),
        ):
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # a strong penalty needs few steps
                model.fit(top, given)
            seconds, helped = time.perf_counter() - start, accuracy(model.predict(data.top[1]))
            if name == "softmax":
                alone = accuracy(model.supervised_.predict(data.top[1]))
            else:
                without = LaplacianRidgeClassifier(strengths=(0.0,)).fit(top, given)  # the same kernel
                alone = accuracy(without.predict(data.top[1]))
            found[name] = [alone, helped, seconds]
        return found


def standard_error(values):
    """Standard error of a mean; 0 for a single value."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


class WidthsOfLayers(OnTheNetwork):
    """Numbers of features of each flattened layer of the network, and after the low-rank map."""

    where = "Figure 3.8"
    differs = "EfficientNet-Lite0 at 128 pixels (32 in quick mode) instead of ResNets at 224 pixels."
    statements = (
        Statement(
            "layers have many more features (ten times in the mean) than after the low-rank map",
            lambda found: {
                "mean": found["Features"]["mean"]["flattened"] > 10 * found["Features"]["mean"]["low rank"]
            },
        ),
        Statement(
            "the widest layers are the lowest",
            lambda found: {
                "first half against second": found["Features"]["first half"]["flattened"]
                > found["Features"]["second half"]["flattened"]
            },
        ),
    )

    def compute(self):
        import torch

        from benchmarks.data.network_features import is_block, network
        from manylens import collect_layers

        pixels = 32 if self.quick else 128
        image = torch.zeros(1, 3, pixels, pixels)
        layers = collect_layers(network(), [image], is_block, pooling="flatten")
        widths = np.array([rows.shape[1] for rows in layers.values()])
        low = np.minimum(widths, 512)
        half = len(widths) // 2
        rows = {"mean": slice(None), "first half": slice(0, half), "second half": slice(half, None)}
        table = {
            row: {"flattened": widths[part].mean(), "low rank": low[part].mean()}
            for row, part in rows.items()
        }
        positions = range(1, len(widths) + 1)
        curves = {
            "flattened": curve(positions, widths, style="o-"),
            "low rank": curve(positions, low, style="s-"),
        }
        return Findings({"Features": table}, {"widths": panel("layer", "features", curves, log="y")})
