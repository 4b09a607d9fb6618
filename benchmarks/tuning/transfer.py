"""How the defaults of the transfer room were chosen: `python -m benchmarks.tuning.transfer`.

Every candidate is fitted to one part of the *training* rows of the benchmarks' two tasks (CIFAR-10 as JPEG,
MNIST as RGB) and scored on another part of them, the mean of three splits. The test rows of the benchmarks
are not read.
"""

import argparse
from dataclasses import dataclass

import numpy as np

from benchmarks.data.network_features import DIGITS, OBJECTS, network_features, reason_to_leave_out
from manylens import LayerRidgeClassifier, TransductiveRidgeClassifier, expected_calibration_error
from manylens.papers.linear_kernel_alignment import layer_ridge

SUPERVISED = {
    "the default": {},
    "uniform weights": {"weights": "uniform"},
    "alignment weights": {"weights": "alignment"},
    "stacked linear ridges": {"weights": "stacked", "kernel": "linear"},
    "linear kernel": {"kernel": "linear"},
    "gamma by the mean rule": {"gamma": "mean"},
    "gamma by the median rule": {"gamma": "median"},
    "512 landmarks": {"max_exact_rows": 0, "rank": 512},
    "1,024 landmarks": {"max_exact_rows": 0, "rank": 1024},
    "thesis": {"thesis": True},
}
TRANSDUCTIVE = {
    "labeled rows alone, uniform weights": {"alone": True},
    "labeled rows alone, alignment weights": {"alone": True, "weights": "alignment"},
    "the default": {},
    "uniform weights": {"weights": "uniform"},
    "alignment weights": {"weights": "alignment"},
    "one step": {"n_steps": 1},
    "three steps": {"n_steps": 3},
    "thirty steps": {"n_steps": 30},
    "one step, hard pseudo-labels": {"n_steps": 1, "pseudo_labels": "hard"},
    "hard pseudo-labels": {"pseudo_labels": "hard"},
    "soft pseudo-labels": {"pseudo_labels": "soft"},
    "linear kernel": {"kernel": "linear"},
    "512 landmarks": {"rank": 512},
}


@dataclass(frozen=True)
class Split:
    """Layers and labels of rows to fit to, and of rows to score on.

    Parameters
    ----------
    layers, y : pair
        Of the rows to fit to and of those to score on.
    """

    layers: tuple
    y: tuple


def splits(task, kind, n_fit, n_validation, n_splits):
    """Parts of the training rows of a task, drawn separately for each split."""
    features = network_features(task)
    layers = {"flat": features.flat, "pooled": features.pooled, "both": features.all_layers}[kind][0]
    y = features.y[0]
    for seed in range(n_splits):
        order = np.random.default_rng(seed).permutation(len(y))
        parts = order[:n_fit], order[n_fit : n_fit + n_validation]
        yield Split(
            tuple({name: rows[part] for name, rows in layers.items()} for part in parts),
            tuple(y[part] for part in parts),
        )


def supervised(split, settings):
    """Accuracy and calibration error of one candidate on one split."""
    if "thesis" in settings:
        found = layer_ridge(split.layers[0], split.y[0], split.layers[1])
        proba, classes = found.proba, found.classes
    else:
        model = LayerRidgeClassifier(random_state=0, **settings).fit(split.layers[0], split.y[0])
        proba, classes = model.predict_proba(split.layers[1]), model.classes_
    accuracy = np.mean(classes[np.argmax(proba, axis=1)] == split.y[1])
    return accuracy, expected_calibration_error(split.y[1], proba, classes=classes)


def transductive(split, settings, per_class=10):
    """The same with ten labeled rows per class."""
    y = split.y[0]
    known = np.concatenate([np.flatnonzero(y == c)[:per_class] for c in np.unique(y)])
    given = np.full(len(y), -1)
    given[known] = y[known]
    settings = dict(settings)
    if settings.pop("alone", False):
        few = {name: rows[known] for name, rows in split.layers[0].items()}
        model = LayerRidgeClassifier(random_state=0, **settings).fit(few, y[known])
    else:
        model = TransductiveRidgeClassifier(random_state=0, **settings).fit(split.layers[0], given)
    proba = model.predict_proba(split.layers[1])
    accuracy = np.mean(model.classes_[np.argmax(proba, axis=1)] == split.y[1])
    return accuracy, expected_calibration_error(split.y[1], proba, classes=model.classes_)


def chosen(candidates, beginnings):
    """Candidates whose names start with one of the prefixes."""
    return {name: settings for name, settings in candidates.items() if name.startswith(tuple(beginnings))}


def compare(title, made, candidates, measure):
    """Print the mean accuracy and calibration error of every candidate."""
    print(title, flush=True)
    for name, settings in candidates.items():
        accuracy, error = np.mean([measure(split, settings) for split in made], axis=0)
        print(f"    {name:<52} accuracy {accuracy:.3f}  calibration error {error:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning.transfer", description=__doc__)
    parser.add_argument("--fit", type=int, default=2000, help="rows to fit to")
    parser.add_argument("--validation", type=int, default=1000, help="rows to score on")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--tasks", nargs="*", default=["objects", "digits"], choices=["objects", "digits"])
    parser.add_argument("--labels", nargs="*", default=["all", "few"], choices=["all", "few"])
    parser.add_argument("--only", nargs="*", default=[""], help="candidates whose names begin so")
    given = parser.parse_args()
    reason = reason_to_leave_out()
    if reason:
        parser.exit(message=f"left out: {reason}\n")
    sizes = given.fit, given.validation, given.splits
    print("rows to fit to, rows to score on, splits of the training rows:", *sizes)
    for name in given.tasks:
        task = {"objects": OBJECTS, "digits": DIGITS}[name]
        both = list(splits(task, "both", *sizes))
        if "few" in given.labels:
            compare(f"{name}: ten labels a class", both, chosen(TRANSDUCTIVE, given.only), transductive)
        if "all" in given.labels:
            compare(
                f"{name}: layers flattened and averaged", both, chosen(SUPERVISED, given.only), supervised
            )
            for kind in ("flat", "pooled") if "" in given.only else ():
                one = list(splits(task, kind, *sizes))
                compare(f"{name}: layers {kind} only", one, {"the default": {}}, supervised)


if __name__ == "__main__":
    main()
