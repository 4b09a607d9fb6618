"""Two questions about equation 4.3: `python -m benchmarks.tuning.pruning_kernels [--kernels] [--fewer]`.

--kernels: for three or more classes, should a member have the kernel P Pᵀ between rows (the thesis's) or f fᵀ
between the entries f of P? Held-out errors of both on the classification tables.

--fewer: the thesis says that alignment keeps fewer predictors than stacking. How many settings agree if one
thing at a time is done differently?
"""

import argparse

import numpy as np
from scipy.optimize import nnls
from sklearn.datasets import load_digits
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    GradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from benchmarks.data.ensembles import AS_IN_THE_THESIS, Setting
from manylens.datasets import load_dataset, make_friedman, make_shells
from manylens.pruning import Alignment
from manylens.pruning.selection import alignment_weights, select_predictors, stacking_weights
from manylens.summaries.prediction_moments import InnerProducts, PredictionMoments

TABLES = ("letter", "isolet", "optdigits", "usps", "yeast", "glass", "ecoli", "balance", "digits", "shells")
KERNELS = ("entries", "rows")
MOST_ROWS = 2_000
STEP_ONE = "before the refit (equation 4.3 alone)"


def class_settings(members, draws):
    """Name and ensembles of every table with at least three classes."""
    for name in TABLES:
        if name == "shells":
            X, y = make_shells(2_500, random_state=1001)
        elif name == "digits":
            X, y = load_digits(return_X_y=True)
        else:
            data = load_dataset(name)
            X, y = data.X, np.unique(data.y, return_inverse=True)[1]
        common = np.bincount(y)[y] >= 10
        X, y = X[common], y[common]
        for seed in range(draws):
            rows = min(MOST_ROWS, int(0.6 * len(X)))
            A, T, a, t = train_test_split(X, y, train_size=rows, stratify=y, random_state=seed)
            for ensemble in (
                RandomForestClassifier(members, random_state=seed),
                BaggingClassifier(
                    DecisionTreeClassifier(max_depth=3), members, max_samples=0.2, random_state=seed
                ),
            ):
                yield name, Setting(ensemble, (A, a), (T[:4000], t[:4000]), (members,))


def compare_kernels(members, draws):
    """Print kept members, held-out error and Brier score of both kernels, for the thesis and the defaults."""
    variants = {
        (kind, kernel): Alignment(kernel=kernel, **options)
        for kind, options in {
            "thesis": {"tolerance": None, "slack": None, "shrinkage": 0.0},
            "default": {},
        }.items()
        for kernel in KERNELS
    }
    found = {}
    for name, setting in class_settings(members, draws):
        for key, method in variants.items():
            honest = key[0] == "default"
            moments = setting.moments(members, honest, 0.0, method)
            choice = select_predictors(moments, method, baseline=setting.members.baseline)
            scores = np.einsum("ikc,k->ic", setting.T, choice.weights) + choice.intercept
            brier = np.mean(np.sum((scores - setting.truth) ** 2, axis=1))
            found.setdefault(name, {}).setdefault(key, []).append(
                (len(choice.kept), setting.error(scores), brier, set(choice.kept))
            )
    print(f"{members} members (a forest, trees of 3 levels on a fifth of the rows), {draws} draws: means")
    print("table | members in common | " + " | ".join(f"{a} {b}: kept, error, Brier" for a, b in variants))
    for name, cells in found.items():
        shown = [np.mean([outcome[:3] for outcome in cells[key]], axis=0) for key in variants]
        common = np.mean(
            [
                len(one[3] & other[3]) / len(one[3] | other[3])
                for one, other in zip(*(cells["default", kernel] for kernel in KERNELS), strict=True)
            ]
        )
        numbers = " | ".join(f"{kept:.1f}, {error:.4f}, {brier:.4f}" for kept, error, brier in shown)
        print(f"{name} | {common:.2f} | {numbers}", flush=True)
    for kind in ("thesis", "default"):
        ratios = np.array(
            [
                np.divide(rows[:3], entries[:3])
                for cells in found.values()
                for entries, rows in zip(*(cells[kind, kernel] for kernel in KERNELS), strict=True)
            ]
        )
        logs = np.log(ratios)
        means, errors = np.exp(logs.mean(axis=0)), logs.std(axis=0) / np.sqrt(len(logs))
        shown = ", ".join(
            f"{what} x {mean:.4f} (± {error:.4f})"
            for what, mean, error in zip(("kept", "error", "Brier"), means, errors, strict=True)
        )
        print(f"{kind}: rows relative to entries, {len(logs)} settings: {shown}")


def bagged_settings(members, n_rows):
    """The thesis's tasks with trees, neighbors and boosting, by kind of learner."""
    trees = [
        (f"{'unpruned trees' if depth is None else f'trees of {depth} levels'}",
         DecisionTreeRegressor(max_depth=depth), DecisionTreeClassifier(max_depth=depth))
        for depth in (None, 3, 1)
    ]  # fmt: skip
    near = [(f"{k} neighbors", KNeighborsRegressor(k), KNeighborsClassifier(k)) for k in (1, 5, 25)]
    tasks = [
        [make(size, random_state=k) for k, size in enumerate((n_rows, 500))]
        for make in (make_friedman, make_shells)
    ]
    for label, regressor, classifier in trees + near:
        for share in (0.1, 0.5):
            common = {"n_estimators": members, "max_samples": share, "random_state": 0}
            yield (
                f"regression, {label}",
                Setting(BaggingRegressor(regressor, **common), *tasks[0], (members,)),
            )
            yield (
                f"classification, {label}",
                Setting(BaggingClassifier(classifier, **common), *tasks[1], (members,)),
            )
    for depth in (1, 3):
        boosting = GradientBoostingRegressor(
            n_estimators=members, max_depth=depth, subsample=0.5, random_state=0
        )
        yield f"boosting, trees of {depth} levels", Setting(boosting, *tasks[0], (members,))


def count(weights, share=0.0):
    """Number of weights above this share of the largest."""
    return int(np.sum(weights > share * weights.max()))


def fewer_than_stacking(setting):
    """Members kept by alignment and by stacking, for the thesis's method and each departure from it."""
    P, Y = setting.P.astype(np.float64), setting.Y
    moments = PredictionMoments(pairs=P.shape[2] > 1).update(P, Y)
    products, kernels = moments.centered(), moments.kernel_products()
    G, b, _ = products
    entries = P.transpose(0, 2, 1).reshape(-1, P.shape[1])
    raw = InnerProducts(entries.T @ entries, entries.T @ Y.ravel(), float(np.sum(Y**2)))
    step_one = alignment_weights(G, b, kernels)
    refitted, stacked = stacking_weights(G, b, step_one > 0), stacking_weights(G, b)
    correlation = G / np.sqrt(np.outer(np.diag(G), np.diag(G)))
    found = {
        "as in the thesis": (count(refitted), count(stacked)),
        STEP_ONE: (count(step_one), count(stacked)),
        "kernel of entries": (
            count(stacking_weights(G, b, alignment_weights(G, b) > 0)), count(stacked)
        ),
        "zero: below 1 % of the largest": (count(refitted, 0.01), count(stacked, 0.01)),
    }  # fmt: skip
    raw_step = alignment_weights(raw.G, raw.b)
    raw_stacked = nnls(entries, Y.ravel())[0]
    found["not centered"] = (count(stacking_weights(raw.G, raw.b, raw_step > 0)), count(raw_stacked))
    found["alignment centered, stacking not"] = (count(refitted), count(raw_stacked))
    uncentered, error = setting.prune_uncentered()
    found["alignment not centered, refit and stacking centered"] = (uncentered, count(stacked))
    inside = np.all(step_one[stacked > 0] > 0)
    errors = (error, setting.prune(AS_IN_THE_THESIS, False)[-1, 1], setting.prune("stacking", False)[-1, 1])
    return found, bool(inside), float(np.median(correlation[np.triu_indices(len(b), 1)])), errors


def explain_counts(members, n_rows):
    """Print, for each departure, how many settings keep strictly fewer members than stacking."""
    kept, inside, errors = {}, [], []
    for name, setting in bagged_settings(members, n_rows):
        found, contained, similarity, tested = fewer_than_stacking(setting)
        errors.append(tested)
        inside.append((contained, found["as in the thesis"]))
        for cause, counts in found.items():
            kept.setdefault(cause, []).append(counts)
        ours, theirs = found["as in the thesis"]
        print(
            f"{name}: median correlation {similarity:.2f}, equation 4.3 {found[STEP_ONE][0]},",
            f"refitted {ours}, stacking {theirs}, contains stacking's: {contained}",
            flush=True,
        )
    print(f"of {len(inside)} settings with {members} members: strictly fewer, equal, more; mean numbers kept")
    for cause, counts in kept.items():
        ours, theirs = np.array(counts).T
        print(
            f"{cause} | {np.sum(ours < theirs)} | {np.sum(ours == theirs)} | {np.sum(ours > theirs)} |",
            f"{ours.mean():.1f} | {theirs.mean():.1f}",
        )
    held = [counts[0] == counts[1] for contained, counts in inside if contained]
    print(f"{len(held)} times equation 4.3 selects all of stacking's; then as many are kept: {sum(held)}")
    means = np.exp(np.mean(np.log(errors), axis=0))
    print("test error relative to the whole ensemble, geometric mean:", end=" ")
    print("not centered {:.3f}, as in the thesis {:.3f}, stacking {:.3f}".format(*means))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=64)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--fewer", action="store_true")
    arguments = parser.parse_args()
    both = arguments.kernels == arguments.fewer
    if arguments.kernels or both:
        compare_kernels(arguments.members, arguments.draws)
    if arguments.fewer or both:
        explain_counts(arguments.members, arguments.rows)


if __name__ == "__main__":
    main()
