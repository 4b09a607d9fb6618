"""`manylens learn`, `manylens transform` and `manylens nca`: fit and apply a map of rows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.pipeline import Pipeline

import manylens  # its names are imported lazily, because numba is slow to import
from manylens.cli import CommandError
from manylens.cli.columns import (
    ColumnOptions,
    Features,
    choose_features,
    column,
    labels,
    model_rows,
    preparation,
)
from manylens.cli.model_files import check_model_target, last_step, write_model
from manylens.cli.output import CommandContext
from manylens.cli.tables import Rows, check_table_target, write_rows
from manylens.modules.kernel_pca import ModularKernelPCA
from manylens.typing import AnyArray, FloatArray
from manylens.validation import plain_conversion_errors

SAMPLE = 2000  # neighbors are compared within a sample of this many rows
NEIGHBORS = 10
VOTERS = 5
SEARCH_ROWS, SEARCH_FOLDS = 5000, 3  # from which --diversity auto is chosen


def learn(
    common: CommandContext,
    rows: Rows,
    options: ColumnOptions,
    settings: dict[str, Any],
    label: str | None,
    ids: str | None,
    output: str,
    index: str | None = None,
) -> Pipeline:
    """Learn modules of all usable columns, save them (and an index if asked), and print their scores."""
    check_model_target(output)
    if index:
        check_model_target(index)
        if Path(index).resolve() == Path(output).resolve():
            raise CommandError(f"--index and --output are the same file {index}: name two.")
    y = labels(rows, label) if label else None
    if ids:
        column(rows, ids, "--ids")
    if len(rows.frame) < 2:
        raise CommandError(f"{rows.name} has a single row; modules are learned from at least two.")
    features = choose_features(rows, options, (label, ids))
    prepare = preparation(rows, features, options)
    with common.printer.step(f"Learning modules of {len(rows.frame):,} rows"):
        start = time.perf_counter()
        X = prepare.fit_transform(rows.frame[[*features.numbers, *features.categories]])
        if settings["diversity"] == "auto":
            settings = {**settings, "diversity": best_diversity(X, y, settings, common.seed)}
        lenses = ModularKernelPCA(**settings, random_state=common.seed).fit(X)
        seconds = time.perf_counter() - start
    model = Pipeline([("prepare", prepare), ("lenses", lenses)])
    with common.printer.step("Measuring"):
        scores = neighbor_scores(X, lenses, y, common.seed)
    if y is not None and len(np.unique(y)) == 1:
        common.printer.note(
            f"All rows have the same {label!r} ({str(y[0])!r}), so there is no vote to measure."
        )
    write_model(model, output)
    searched = {}
    if index:
        with common.printer.step(f"Indexing {len(rows.frame):,} rows"):
            neighbors = manylens.ModuleNeighbors(lenses).fit(X, ids=index_ids(rows, ids))
        write_model(Pipeline([("prepare", prepare), ("index", neighbors)]), index)
        searched = {"index": index, "recall_of_the_index": float(neighbors.recall_)}
    common.printer.result(
        f"Modules of {rows.name}",
        {
            **counts(rows, features),
            "columns_after_encoding": X.shape[1] if features.categories else None,
            "modules": lenses.n_modules,
            "components": lenses.n_components,
            "diversity": float(lenses.diversity_),
            "loss": float(lenses.loss_),
            "lower_bound": float(lenses.lower_bound_),
            "gap": float(lenses.optimality_gap_),
            **scores,
            "seconds": seconds,
            "model": output,
            **searched,
        },
    )
    return model


def best_diversity(X: FloatArray, y: AnyArray | None, settings: dict[str, Any], seed: int) -> float:
    """The diversity with the best vote on the label in cross-validation, on a sample of many rows."""
    if y is None:
        raise CommandError("--diversity auto is chosen by how well modules vote: give --label, or a number.")
    classes = y.dtype.kind != "f"
    if classes and np.unique(y, return_counts=True)[1].min() < SEARCH_FOLDS:
        raise CommandError(
            f"--diversity auto: a class of the label has fewer than {SEARCH_FOLDS} rows, too few for "
            "cross-validation; give a number."
        )
    chosen = np.arange(len(X))
    if len(X) > SEARCH_ROWS:
        chosen = train_test_split(
            chosen, train_size=SEARCH_ROWS, stratify=y if classes else None, random_state=seed
        )[0]
    modules = ModularKernelPCA(**{**settings, "diversity": 0.5}, random_state=seed)
    voting = manylens.ModuleVotingClassifier if classes else manylens.ModuleVotingRegressor
    search = manylens.DiversitySearchCV(voting(modules), cv=SEARCH_FOLDS, refit=False)
    return search.fit(X[chosen], y[chosen]).best_diversity_


def index_ids(rows: Rows, ids: str | None) -> AnyArray | None:
    """The ids of the rows in the form that an index accepts: whole numbers or text."""
    if ids is None:
        return None
    values = rows.frame[ids]
    return values.to_numpy() if values.dtype.kind in "iu" else values.to_numpy(dtype=str)


def counts(rows: Rows, features: Features) -> dict[str, Any]:
    """Numbers of rows and of columns of each kind."""
    return {
        "rows": len(rows.frame),
        "number_columns": len(features.numbers),
        "text_columns": len(features.categories) or None,
    }


def neighbor_scores(X: FloatArray, lenses: Any, y: AnyArray | None, seed: int) -> dict[str, Any]:
    """Neighbors kept by the modules and, with labels, the vote of neighbors, all within a sample of rows."""
    chosen = np.random.default_rng(seed).permutation(len(X))[:SAMPLE]
    k = min(NEIGHBORS, len(chosen) - 1)
    Z = lenses.transform(X[chosen])
    near, found = (neighbors(rows, k) for rows in (X[chosen], Z))
    kept = [len(np.intersect1d(*pair)) / k for pair in zip(near, found, strict=True)]
    scores: dict[str, Any] = {"rows_measured": len(chosen), f"neighbors_kept_of_{k}": float(np.mean(kept))}
    if y is not None and y.dtype.kind != "f" and len(np.unique(y)) > 1:  # one class wins every vote
        codes = np.unique(y[chosen], return_inverse=True)[1]
        scores["vote_accuracy"] = vote(codes, found)
        scores["vote_accuracy_of_columns"] = vote(codes, near)
    if y is not None and y.dtype.kind == "f" and np.ptp(y[chosen]) > 0:
        means = (y[chosen][rows[:, :VOTERS]].mean(axis=1) for rows in (found, near))
        scores["vote_r2"], scores["vote_r2_of_columns"] = (float(r2_score(y[chosen], m)) for m in means)
    return scores


def neighbors(rows: FloatArray, k: int) -> Any:
    """Row numbers of the k nearest other rows, (n, k)."""
    return NearestNeighbors(n_neighbors=k).fit(rows).kneighbors(return_distance=False)


def vote(codes: Any, found: Any) -> float:
    """Share of rows for which the vote of their nearest other rows is their own class."""
    ballots = codes[found[:, :VOTERS]]
    tally = np.zeros((len(codes), codes.max() + 1))
    for k in range(ballots.shape[1]):
        tally[np.arange(len(codes)), ballots[:, k]] += 1
    return float(np.mean(tally.argmax(axis=1) == codes))


def transform(common: CommandContext, model: Any, rows: Rows, keep: tuple[str, ...], output: str) -> None:
    """Apply a model to rows, and write its columns after those to keep."""
    check_table_target(output)
    common.printer.results_on_stderr = output == "-"
    kept = [column(rows, name, "--keep") for name in keep]
    if not hasattr(model, "transform"):
        kind = type(last_step(model)).__name__
        raise CommandError(f"a {kind} has no transform: give a model of learn or nca.")
    X = model_rows(model, rows)
    with common.printer.step(f"Transforming {len(rows.frame):,} rows"), plain_conversion_errors("DATA"):
        Z = np.asarray(model.transform(X))
    try:
        names = [str(name) for name in model.get_feature_names_out()]
    except (AttributeError, ValueError):
        names = [f"z{k}" for k in range(Z.shape[1])]
    made = pd.DataFrame(Z, columns=names, index=rows.frame.index)
    clash = [name for name in keep if name in set(names)]
    if clash:
        raise CommandError(
            f"--keep: the model makes a column {clash[0]!r} too; rename the one in {rows.name}."
        )
    write_rows(pd.concat([*kept, made], axis=1), output)
    if output != "-":
        common.printer.result(
            "Transformed",
            {"rows": len(Z), "columns": Z.shape[1], "kept": list(keep) or None, "output": output},
        )


def nca(
    common: CommandContext,
    rows: Rows,
    options: ColumnOptions,
    settings: dict[str, Any],
    label: str,
    holdout: float,
    output: str,
) -> None:
    """Learn a map by NCA, save it and print its score, on held-out rows if there are any."""
    check_model_target(output)
    y = labels(rows, label, least_classes=2)
    if y.dtype.kind == "f" and not np.all(y == np.round(y)):
        raise CommandError(f"--label: {label!r} holds real numbers; NCA needs classes.")
    y = y.astype(int) if y.dtype.kind == "f" else y
    features = choose_features(rows, options, (label,))
    X = rows.frame[[*features.numbers, *features.categories]]
    train, test = np.arange(len(X)), np.arange(0)
    if holdout:
        try:
            train, test = train_test_split(train, test_size=holdout, stratify=y, random_state=common.seed)
        except ValueError as error:
            raise CommandError(f"--holdout {holdout:g}: {error}") from None
    with common.printer.step(f"Learning a map of {len(train):,} rows") as step:

        def show(iteration: int, _: FloatArray, score: float) -> None:
            step.advance(iteration, settings["max_iter"], f"score {score:.3f}")

        estimator = manylens.NCA(**settings, callback=show, random_state=common.seed)
        model = Pipeline([("prepare", preparation(rows, features, options)), ("nca", estimator)])
        start = time.perf_counter()
        model.fit(X.iloc[train], y[train])
        seconds = time.perf_counter() - start
    estimator.set_params(callback=None)  # functions cannot be saved in the file
    scores = {}
    if holdout:
        k = min(VOTERS, len(train))
        for name, steps in (("knn_accuracy_of_columns", model[:-1]), ("knn_accuracy", model)):
            knn = KNeighborsClassifier(k).fit(steps.transform(X.iloc[train]), y[train])
            scores[name] = float(knn.score(steps.transform(X.iloc[test]), y[test]))
    write_model(model, output)
    common.printer.result(
        f"NCA of {rows.name}",
        {
            **counts(rows, features),
            "classes": len(np.unique(y)),
            "components": len(estimator.components_),
            "method": estimator.method_,
            "iterations": estimator.n_iter_,
            "training_score": float(estimator.score_path_[-1]) if len(estimator.score_path_) else None,
            "held_out_rows": len(test) or None,
            **scores,
            "seconds": seconds,
            "model": output,
        },
    )
