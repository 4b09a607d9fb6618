"""How the defaults of AlignmentPruner were chosen: `python -m benchmarks.tuning.pruning`.

No row that bench_pruning tests on is looked at: Friedman's function and the shells are drawn from other
seeds, the benchmark's tables are split again within its training rows, and the other tables are not in it.
"""

import argparse
import itertools

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from benchmarks.data.ensembles import Setting, split_table, summary
from manylens import AlignmentPruner
from manylens.datasets import load_dataset, make_friedman, make_shells
from manylens.pruning import Alignment


def validation_tables():
    """Name, rows, target and whether it is of classes."""
    for name in ("reg_cal_housing", "reg_kin8nm", "reg_abalone", "letter"):
        (X, y), _ = split_table(name, 4000)
        yield name, X, y, name == "letter"
    for name in ("yeast", "optdigits"):
        data = load_dataset(name)
        yield name, data.X, data.y, True
    yield "diabetes", *load_diabetes(return_X_y=True), False
    yield "breast_cancer", *load_breast_cancer(return_X_y=True), True
    yield "digits", *load_digits(return_X_y=True), True
    yield "friedman", *make_friedman(2500, random_state=1001), False
    yield "shells", *make_shells(2500, random_state=1001), True


def bagged(n_members):
    """Forests and bagged trees, with every table."""
    for _, X, y, classes in validation_tables():
        X, T, y, t = train_test_split(X, y, test_size=0.4, random_state=1, stratify=y if classes else None)
        forest = RandomForestClassifier if classes else RandomForestRegressor
        bagging = BaggingClassifier if classes else BaggingRegressor
        tree = DecisionTreeClassifier if classes else DecisionTreeRegressor
        common = {"n_estimators": n_members, "random_state": 1}
        for ensemble in (
            forest(**common),
            bagging(tree(), max_samples=0.1, **common),
            bagging(tree(max_depth=3), max_samples=0.2, **common),
        ):
            yield Setting(ensemble, (X, y), (T, t), (16, n_members))


def boosted(n_stages):
    """Gradient boosting with trees of 1, 3 and 10 levels."""
    for name, X, y, classes in validation_tables():
        if classes or name == "diabetes":
            continue
        X, T, y, t = train_test_split(X, y, test_size=0.4, random_state=1)
        for depth, share in itertools.product((1, 3, 10), (0.1, 0.5)):
            boosting = GradientBoostingRegressor(
                n_estimators=n_stages, max_depth=depth, subsample=share, random_state=1
            )
            yield Setting(boosting, (X, y), (T, t), (16, n_stages // 4, n_stages))


def few_rows(n_splits=8):
    """Boosting on 300 rows of diabetes: R² on the others and stages kept, by the anchor."""
    print("gradient boosting, 300 rows of diabetes: R² and stages kept, the mean of eight splits")
    X, y = load_diabetes(return_X_y=True)
    for options in ({}, {"subsample": 0.5}, {"learning_rate": 0.05}):
        found = []
        for seed in range(n_splits):
            rows, new, target, truth = train_test_split(X, y, train_size=300, random_state=seed)
            boosting = GradientBoostingRegressor(random_state=0, **options).fit(rows, target)
            pruned = [AlignmentPruner(boosting, anchor=a).fit(rows, target) for a in (0.0, "auto")]
            scores = [(each.score(new, truth), each.n_kept_) for each in pruned]
            found.append([boosting.score(new, truth), *scores[0], *scores[1]])
        whole, free, kept_free, auto, kept_auto = np.mean(found, axis=0)
        print(
            f"  {options}: whole {whole:.3f} (100), anchor=0 {free:.3f} ({kept_free:.0f}),",
            f"anchor='auto' {auto:.3f} ({kept_auto:.0f})",
            flush=True,
        )


def show(title, settings, grid):
    """Print one line per combination of options."""
    sizes = np.concatenate([setting.sizes for setting in settings])
    kept_by_stacking = np.concatenate([setting.prune("stacking", False) for setting in settings])[:, 0]
    print(f"{title}: {len(sizes)} settings; shares within 1 % of the whole and fewer than stacking")
    for options in grid:
        alignment = Alignment(slack=options["slack"], shrinkage=options["shrinkage"])
        anchor = options.get("anchor", 0.0)
        outcome = np.concatenate([setting.prune(alignment, True, anchor=anchor) for setting in settings])
        found = summary(outcome, sizes, kept_by_stacking)
        print(
            "  " + ", ".join(f"{name}={value}" for name, value in options.items()),
            f"good {found['good']:.3f}, fewer {found['fewer']:.3f}, kept {found['kept_share']:.3f},",
            f"relative error {found['relative_error']:.4f}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=128)
    parser.add_argument("--few-rows", action="store_true", help="only what speaks for anchor='auto'")
    arguments = parser.parse_args()
    few_rows()
    if arguments.few_rows:
        return
    members = arguments.members
    show(
        "forests and bagging",
        list(bagged(members)),
        [
            {"shrinkage": shrinkage, "slack": slack}
            for shrinkage in (0.0, 0.3, 1.0, 3.0)
            for slack in (0.0, 0.005, 0.01, 0.02)
        ],
    )
    show(
        "gradient boosting",
        list(boosted(2 * members)),
        [
            {"anchor": anchor, "shrinkage": shrinkage, "slack": slack}
            for anchor in (0.0, 0.25, 0.5, 0.75, 0.9)
            for shrinkage in (0.0, 1.0)
            for slack in (0.0, 0.01)
        ],
    )


if __name__ == "__main__":
    main()
