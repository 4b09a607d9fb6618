"""Options and help of `manylens compare`, `rank` and `prune`: which representations, or members, to keep."""

from __future__ import annotations

from typing import Any

import click

from manylens.cli.options import choosing, command, read, reading, split_options, trusting


@command(
    "compare",
    "manylens compare layer1.npy layer2.npy layer3.npy --plot layers.png",
    "manylens compare before.parquet after.parquet --numeric-only --json",
)
@click.argument("files", nargs=-1, required=True, metavar="DATA...")
@click.option(
    "--measure", type=click.Choice(["cka", "dcor"]), default="cka", help="CKA or distance correlation."
)
@click.option(
    "--estimator", type=click.Choice(["unbiased", "biased"]), default="unbiased", help="Estimator of CKA."
)
@click.option("--groups", type=click.IntRange(0), default=10, help="Row groups for standard errors; 0: none.")
@click.option("--label", metavar="COLUMN", help="Column to leave out of all files.")
@click.option("--output", "-o", help="Table of the matrix to write.")
@click.option("--plot", metavar="FILE", help="Heat map to write (.png, .svg or .pdf).")
@choosing
@reading
def compare(
    common: Any,
    files: tuple[str, ...],
    measure: str,
    estimator: str,
    groups: int,
    label: str | None,
    output: str | None,
    plot: str | None,
    **options: Any,
) -> None:
    """Compare representations of the same rows, one per file: their similarity, with standard errors."""
    from manylens.cli import run_compare

    if len(files) < 2:
        raise click.UsageError("Give at least two files to compare.")
    how, columns = split_options(options)
    rows = [read(file, **how) for file in files]
    run_compare.compare(common, rows, plain_numbers(columns), measure, estimator, groups, label, output, plot)


@command(
    "rank",
    "manylens rank --labels y.npy resnet.npy clip.npy dino.npy",
    "manylens rank --label species model_a.parquet model_b.parquet --metric logme",
)
@click.argument("files", nargs=-1, required=True, metavar="DATA...")
@click.option("--label", metavar="COLUMN", help="Column of the label, in --labels or in one of the files.")
@click.option("--labels", metavar="FILE", help="File that holds the label.")
@click.option(
    "--metric",
    type=click.Choice(
        [
            *("accuracy", "ridge", "knn", "cka", "biased-cka", "logme", "h-score", "shrunk-h-score", "sfda"),
            *("nleep", "transrate", "leep", "nce"),
        ]
    ),
    default="accuracy",
    help="Score, as in manylens.rank_models.",
)
@click.option("--regression", is_flag=True, help="The label holds numbers, even if they are whole.")
@click.option("--output", "-o", help="Table to write.")
@choosing
@reading
def rank(
    common: Any,
    files: tuple[str, ...],
    label: str | None,
    labels: str | None,
    metric: str,
    regression: bool,
    output: str | None,
    **options: Any,
) -> None:
    """Rank representations of the same rows, one per file, by how well they predict a label linearly."""
    from manylens.cli import run_compare

    how, columns = split_options(options)
    rows = [read(file, **how) for file in files]
    given = None if labels is None else read(labels, **how)
    run_compare.rank(common, rows, plain_numbers(columns), label, given, metric, regression, output)


def plain_numbers(columns: Any) -> Any:
    """Raise for options that would change the representations, which are compared as they are."""
    if columns.one_hot or columns.impute or columns.scale:
        raise click.UsageError(
            "Representations are compared as they are: only --drop and --numeric-only apply."
        )
    return columns


@command(
    "prune",
    "manylens prune forest.manylens train.csv --label y --test test.csv -o small.manylens",
    "manylens prune forest.joblib train.parquet --label y --trust -o small.joblib",
)
@click.argument("model")
@click.argument("data")
@click.option("--label", metavar="COLUMN", required=True, help="Column that the model predicts.")
@click.option("--test", metavar="FILE", help="Other rows, to measure both models with.")
@click.option(
    "--method",
    type=click.Choice(["alignment", "stacking", "r2", "rank", "uniform"]),
    default="alignment",
    help="How members are chosen, as in manylens.AlignmentPruner.",
)
@click.option("--native", is_flag=True, help="Save an ensemble of the original class (forests, boosting).")
@click.option("--output", "-o", default="pruned.manylens", help="File of the pruned model.")
@trusting
@reading
def prune(
    common: Any,
    model: str,
    data: str,
    label: str,
    test: str | None,
    method: str,
    native: bool,
    output: str,
    trust: bool,
    **options: Any,
) -> None:
    """Keep the few members of a fitted ensemble that matter, print error and speed, and save the result.

    Works best with the rows that MODEL was fitted to, for which forests and bagging have out-of-bag
    predictions.
    """
    from manylens.cli import run_prune
    from manylens.cli.model_files import read_model

    loaded, rows = read_model(model, trust), read(data, **options)
    other = None if test is None else read(test, **options)
    run_prune.prune(common, model, loaded, rows, other, label, method, native, trust, output)
