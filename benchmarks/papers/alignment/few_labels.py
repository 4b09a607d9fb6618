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

ALONE, WITH, GAIN, SECONDS = (
    "Labeled rows alone, accuracy (%)",
    "With unlabeled rows, accuracy (%)",
    "Gain from unlabeled rows (points)",
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
        + """ Candidates for the penalties, which the thesis does not print, are ours. The thesis does not
    evaluate manifold regularization, because of its cost."""
    )
    reduced = """Two tasks, at most 2,000 rows, three draws and three numbers of labels (2, 10, 50) instead of
    six tasks and six numbers; 512 buckets, the smallest of the thesis: two cores collect features."""
    statements = (
        Statement(
            "accuracy is higher with the unlabeled rows, all else being equal",
            quote="""Our method also gives significant relative improvement when unlabelled samples are
            incorporated through transductive regression on these five tasks""",
            source="Section 3.4.3, Figure 3.5",
            cases=lambda found: {row: cells["thesis"] > 0 for row, cells in found[GAIN].items()},
            ours=lambda found: {row: cells["default"] > 0 for row, cells in found[GAIN].items()},
        ),
        Statement(
            "with unlabeled rows, it is more accurate than self-trained softmax regression",
            quote="Our method outperforms fine-tuning the last layer on five out of six transfer tasks",
            source="Section 3.4.3",
            cases=lambda found: {r: c["thesis"] > c["softmax"] for r, c in found[WITH].items()},
            ours=lambda found: {r: c["default"] > c["softmax"] for r, c in found[WITH].items()},
            share=5 / 6,
        ),
        Statement(
            "unlabeled rows help it more than softmax regression",
            quote="""Our method is also better at leveraging unlabelled samples for learning as indicated by
            taller bars for ours than LogReg""",
            source="Figure 3.5",
            cases=lambda found: {r: c["thesis"] > c["softmax"] for r, c in found[GAIN].items()},
            ours=lambda found: {r: c["default"] > c["softmax"] for r, c in found[GAIN].items()},
        ),
        Statement(
            "unlabeled rows do not raise the accuracy of softmax regression",
            quote="samples don't improve the performance for the top layer fine-tuning method",
            source="Section 3.4.3",
            cases=lambda found: {row: cells["softmax"] <= 0 for row, cells in found[GAIN].items()},
        ),
    )

    def compute(self):
        figures, counts = {}, (2,) if self.quick else (2, 10, 50)
        draws = [{title: {} for title in (ALONE, WITH, GAIN, SECONDS)} for _ in range(1 if self.quick else 3)]
        for task in TASKS:
            data = self.features(task)
            for count in counts:
                for seed, tables in enumerate(draws):
                    row, found = f"{task}, {count} per class", self.draw(data, count, seed)
                    for k, title in enumerate((ALONE, WITH, SECONDS)):
                        tables[title][row] = {name: found[name][k] for name in METHODS}
                    tables[GAIN][row] = {name: found[name][1] - found[name][0] for name in METHODS}
        findings = Findings.over_draws(draws, figures)
        for task in TASKS:
            rows = [f"{task}, {count} per class" for count in counts]
            for label, title in (("accuracy (%) with unlabeled rows", WITH), ("gain (points)", GAIN)):
                curves = {
                    name: curve(counts, [findings[title][row][name] for row in rows], style="o-")
                    for name in METHODS
                }
                figures[f"{task}: {label}"] = panel("labeled rows per class", label, curves, log="x")
        return findings

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


class WidthsOfLayers(OnTheNetwork):
    """Numbers of features of each flattened layer of the network, and after the low-rank map."""

    where = "Figure 3.8"
    differs = "EfficientNet-Lite0 instead of ResNets."
    reduced = "Images of 128 pixels instead of 224, as in the other benchmarks on this network."
    statements = (
        Statement(
            "layers have ten times as many features, in the mean, as after the low-rank map",
            quote="features from intermediate layers ... are in very high-dimensional spaces",
            source="Chapter 1, Figure 3.8",
            cases=lambda found: {
                "mean": found["Features"]["mean"]["flattened"] > 10 * found["Features"]["mean"]["low rank"]
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
