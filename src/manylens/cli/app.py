"""The commands on files: their options, help and examples. What they do is in the other modules."""

from __future__ import annotations

import functools
import inspect
import os
import traceback
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from manylens.cli import COMPLETION, FILE_COMMANDS, CommandError
from manylens.cli.talk import Talk

Function = TypeVar("Function", bound=Callable[..., Any])
DEBUG = "MANYLENS_DEBUG"  # if set, errors are shown with their traceback

DATA_HELP = (
    "DATA is a .csv, .tsv, .parquet, .feather, .npy or .npz file (recognized by its content), a folder of "
    "images, or - for standard input."
)


def run(words: Sequence[str]) -> int:
    """Run a command and return the exit code."""
    if COMPLETION in os.environ:
        group.main(args=list(words), prog_name="manylens", complete_var=COMPLETION)
    try:
        # not `group.main`, which has its own ideas of interrupts and closed pipes
        with group.make_context("manylens", list(words)) as context:
            group.invoke(context)
        return 0
    except click.exceptions.Exit as request:  # after --help
        return request.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.ClickException as error:
        error.show()
        return 2
    except BrokenPipeError:
        raise
    except CommandError:
        if os.environ.get(DEBUG):
            traceback.print_exc()
        raise
    except (ValueError, OSError, ImportError, MemoryError) as error:
        if os.environ.get(DEBUG):
            traceback.print_exc()
        # the library refuses input in one sentence; an error without one is a defect
        if not str(error):
            raise
        raise CommandError(str(getattr(error, "strerror", None) or error)) from error


@click.group(
    name="manylens", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
def group() -> None:
    """Many small, diverse views of the same data."""


@group.command("demo", help="Learn modules of the digits (see `manylens demo --help`).")
def demo_name() -> None:
    """Stands here for completion; argparse runs it, without click."""


@group.command("warmup", help="Compile all loops ahead of time.")
def warmup_name() -> None:
    """Stands here for completion; argparse runs it, without click."""


def command(name: str, *examples: str) -> Callable[[Function], Function]:
    """Register a command with examples in its help, and with --json, --quiet and --seed."""
    shown = "\n".join(f"  {example}" for example in examples)

    def register(function: Function) -> Function:
        @functools.wraps(function)
        def wrapped(as_json: bool, quiet: bool, seed: int, **options: Any) -> Any:
            from manylens.cli.learning import Common

            return function(common=Common(Talk(as_json, quiet), seed), **options)

        for option in (
            click.option(
                "--seed", type=click.IntRange(0, 2**32 - 1), default=0, help="Seed of all randomness."
            ),
            click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors."),
            click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object."),
        ):
            wrapped = option(wrapped)
        group.command(
            name,
            help=f"{inspect.getdoc(function)}\n\n{DATA_HELP if name != 'info' else ''}",
            short_help=FILE_COMMANDS[name],
            epilog=f"\b\nExamples:\n{shown}",
            context_settings={"show_default": True},
        )(wrapped)
        return function

    return register


def combined(*options: Any) -> Callable[[Function], Function]:
    """Several options as one decorator, in the order of the help."""

    def decorate(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


reading = combined(
    click.option("--delimiter", help="Delimiter of a text file.  [default: the one in its first line]"),
    click.option("--encoding", default="utf-8", help="Encoding of a text file."),
    click.option("--decimal", default=".", help="Decimal point of a text file."),
    click.option(
        "--image-size",
        type=click.IntRange(2, 512),
        help="Side to which images are resized.  [default: that of the model, or 32]",
    ),
)
choosing = combined(
    click.option("--drop", multiple=True, metavar="COLUMN", help="Leave a column out; may be repeated."),
    click.option("--numeric-only", is_flag=True, help="Leave out all columns that are not numbers."),
    click.option("--one-hot", is_flag=True, help="Encode text columns, one number per text."),
    click.option(
        "--impute", type=click.Choice(["mean", "median", "most_frequent"]), help="How to fill missing values."
    ),
    click.option("--scale/--no-scale", default=None, help="Standardize numbers.  [default: tables only]"),
)
trusting = click.option(
    "--trust", is_flag=True, help="Load pickles (joblib) and unknown classes, which can run any code."
)


class Diversity(click.FloatRange):
    """A number from 0 to 1, or "auto"."""

    name = "number or auto"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Check and convert the value."""
        return value if value == "auto" else super().convert(value, param, ctx)


def read(
    source: str,
    delimiter: str | None,
    encoding: str,
    decimal: str,
    image_size: int | None,
    *,
    model: Any = None,
    columns: Any = None,
) -> Any:
    """Rows of a source, with the options of `reading`."""
    from manylens.cli.columns import model_image_size
    from manylens.cli.tables import IMAGE_SIDE, CSVFormat, read_rows

    text = CSVFormat(delimiter and delimiter.replace("\\t", "\t"), encoding, decimal)
    side = image_size or model_image_size(model) or IMAGE_SIDE
    return read_rows(source, text, side, columns)


def split_options(options: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Options of `reading`, and those of `choosing` as an object."""
    from manylens.cli.columns import ColumnOptions

    names = ("delimiter", "encoding", "decimal", "image_size")
    return {name: options[name] for name in names}, ColumnOptions(
        **{name: value for name, value in options.items() if name not in names}
    )


@command(
    "learn",
    "manylens learn flowers.csv --label species -o flowers.manylens",
    "manylens learn houses.parquet --one-hot --impute median --diversity 0.9 -o houses.manylens",
    "manylens learn photos/ --image-size 16 -o photos.manylens",
    "manylens learn shop.parquet --ids name --label kind --diversity auto --index shop-index.manylens",
    "zcat big.csv.gz | manylens learn - --numeric-only -o big.manylens --json",
)
@click.argument("data")
@click.option("--output", "-o", default="lenses.manylens", help="File of the model.")
@click.option(
    "--label", metavar="COLUMN", help="Column that is not learned from but used to measure the result."
)
@click.option("--ids", metavar="COLUMN", help="Column that names the rows and is not learned from.")
@click.option("--modules", type=click.IntRange(1), default=10, help="Number of modules.")
@click.option("--components", type=click.IntRange(1), default=10, help="Dimensions of each module.")
@click.option(
    "--diversity",
    type=Diversity(0, 1),
    default=0.99,
    help="0: equal modules, 1: most diverse; auto: the best by cross-validation of --label.",
)
@click.option(
    "--kernel", type=click.Choice(["rbf", "linear", "laplacian", "cosine"]), default="rbf", help="Kernel."
)
@click.option(
    "--rank", type=click.IntRange(1), default=1000, help="Number of kernel components to choose from."
)
@click.option("--index", metavar="FILE", help="Also write a search index of the rows, for `search FILE`.")
@click.option("--report", metavar="FILE", help="Also write a page about the model (HTML).")
@choosing
@reading
def learn(
    common: Any,
    data: str,
    output: str,
    label: str | None,
    ids: str | None,
    modules: int,
    components: int,
    diversity: float | str,
    kernel: str,
    rank: int,
    index: str | None,
    report: str | None,
    **options: Any,
) -> None:
    """Learn diverse modules of the rows of DATA, print what they reach and save them.

    All columns of numbers are used; text and missing values are refused unless an option says what to do.
    """
    from manylens.cli import learning

    how, columns = split_options(options)
    settings = {
        **{"n_modules": modules, "n_components": components, "diversity": diversity},
        **{"kernel": kernel, "rank": rank},
    }
    rows = read(data, **how)
    if report:
        from manylens.cli.model_report import check_report_target

        check_report_target(report)
    model = learning.learn(common, rows, columns, settings, label, ids, output, index)
    if report:
        from manylens.cli.model_report import write_report

        write_report(model, rows, label, report, common.seed, f"manylens learn --report {report}")


@command(
    "transform",
    "manylens transform flowers.manylens flowers.csv --keep species -o coordinates.parquet",
    "manylens transform flowers.manylens new.csv -o - | head",
)
@click.argument("model")
@click.argument("data")
@click.option(
    "--output", "-o", default="-", help="Table to write (.csv, .tsv, .parquet, .feather, .npy, .npz)."
)
@click.option(
    "--keep", multiple=True, metavar="COLUMN", help="Column to copy to the output; may be repeated."
)
@trusting
@reading
def transform(
    common: Any, model: str, data: str, output: str, keep: tuple[str, ...], trust: bool, **options: Any
) -> None:
    """Apply the saved MODEL to the rows of DATA and write its columns as a table."""
    from manylens.cli import learning
    from manylens.cli.columns import needed_columns
    from manylens.cli.model_files import read_model

    loaded = read_model(model, trust)
    columns = needed_columns(loaded, *keep)
    learning.transform(common, loaded, read(data, **options, model=loaded, columns=columns), keep, output)


@command(
    "nca",
    "manylens nca flowers.csv --label species --components 2 --holdout 0.25 -o flowers-nca.manylens",
    "manylens transform flowers-nca.manylens flowers.csv --keep species -o map.csv",
)
@click.argument("data")
@click.option("--label", metavar="COLUMN", required=True, help="Column of classes.")
@click.option("--output", "-o", default="nca.manylens", help="File of the model.")
@click.option("--components", type=click.IntRange(1), help="Dimensions of the map.  [default: all columns]")
@click.option("--method", default="auto", help="How sums over pairs are computed, as in manylens.NCA.")
@click.option("--max-iter", type=click.IntRange(1), default=50, help="Largest number of iterations.")
@click.option("--holdout", type=click.FloatRange(0, 0.9), default=0.0, help="Share of rows to measure with.")
@choosing
@reading
def nca(
    common: Any,
    data: str,
    label: str,
    output: str,
    components: int | None,
    method: str,
    max_iter: int,
    holdout: float,
    **options: Any,
) -> None:
    """Learn a linear map under which rows near each other tend to be of the same class, and save it."""
    from manylens.cli import learning

    how, columns = split_options(options)
    settings = {"n_components": components, "method": method, "max_iter": max_iter}
    learning.nca(common, read(data, **how), columns, settings, label, holdout, output)


@command(
    "search",
    "manylens search flowers.manylens flowers.csv --row 0 -k 5 --show species",
    "manylens search shop.manylens shop.parquet --query wanted.csv --ids name --where 'price < 10'",
    "manylens search photos.manylens photos/ --query new.jpg --ids file -o found.csv",
    "manylens search shop-index.manylens --query wanted.csv",
)
@click.argument("model")
@click.argument("data", required=False)
@click.option("--query", metavar="FILE", help="Rows to search for, with the columns of the model.")
@click.option(
    "--row", "query_rows", multiple=True, type=click.IntRange(0), help="Row of DATA to search for (from 0)."
)
@click.option("-k", type=click.IntRange(1), default=10, help="Number of neighbors.")
@click.option("--ids", metavar="COLUMN", help="Column that names the rows.")
@click.option(
    "--show", multiple=True, metavar="COLUMN", help="Column to show for each neighbor; may be repeated."
)
@click.option(
    "--where", metavar="CONDITION", help="Search only rows for which this holds (pandas; it is code)."
)
@click.option("--output", "-o", help="Table to write.")
@trusting
@reading
def search(
    common: Any,
    model: str,
    data: str | None,
    query: str | None,
    query_rows: tuple[int, ...],
    k: int,
    ids: str | None,
    show: tuple[str, ...],
    where: str | None,
    output: str | None,
    trust: bool,
    **options: Any,
) -> None:
    """Find the rows of DATA with the smallest distance to each query, by all modules of MODEL together.

    An index of `manylens learn --index` in place of MODEL is searched without reading DATA again, which is
    needed only for --row, --show, --ids and --where.
    """
    from manylens.cli import searching
    from manylens.cli.columns import needed_columns
    from manylens.cli.model_files import read_model

    if query is None and not query_rows:
        raise click.UsageError("Give the rows to search for: --query FILE, or --row NUMBER.")
    if data == query == "-":
        raise click.UsageError("Standard input can be read once: give DATA or --query as a file.")
    loaded = read_model(model, trust)
    columns = None if where else needed_columns(loaded, ids, *show)
    rows = None if data is None else read(data, **options, model=loaded, columns=columns)
    asked = None if query is None else read(query, **options, model=loaded)
    searching.search(common, loaded, rows, asked, query_rows, k, ids, where, show, output)


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
@click.option("--groups", type=click.IntRange(0), default=10, help="Groups of rows for errors; 0 for none.")
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
    from manylens.cli import comparing

    if len(files) < 2:
        raise click.UsageError("Give at least two files to compare.")
    how, columns = split_options(options)
    rows = [read(file, **how) for file in files]
    comparing.compare(common, rows, plain_numbers(columns), measure, estimator, groups, label, output, plot)


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
@click.option("--regression", is_flag=True, help="The label holds values, even if they are whole numbers.")
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
    from manylens.cli import comparing

    how, columns = split_options(options)
    rows = [read(file, **how) for file in files]
    given = None if labels is None else read(labels, **how)
    comparing.rank(common, rows, plain_numbers(columns), label, given, metric, regression, output)


def plain_numbers(columns: Any) -> Any:
    """Refuse options that change representations, which are compared as they are."""
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

    Best given the rows that MODEL was fitted to, for which forests and bagging know out-of-bag predictions.
    """
    from manylens.cli import prune_model
    from manylens.cli.model_files import read_model

    loaded, rows = read_model(model, trust), read(data, **options)
    other = None if test is None else read(test, **options)
    prune_model.prune(common, model, loaded, rows, other, label, method, native, trust, output)


@command("info", "manylens info flowers.csv", "manylens info flowers.manylens --json")
@click.argument("data", metavar="FILE")
@trusting
@reading
def info(common: Any, data: str, trust: bool, **options: Any) -> None:
    """Describe FILE: the class, parameters and columns of a model, or the columns of data.

    Data are read as by `manylens learn`: tables, arrays, a folder of images, or - for standard input.
    """
    from manylens.cli import description

    if description.is_model(data, trust):
        description.describe_model(common, data, trust)
    else:
        description.describe_rows(common, read(data, **options))


@command("report", "manylens report flowers.manylens flowers.csv --label species -o flowers.html")
@click.argument("model")
@click.argument("data")
@click.option("--label", metavar="COLUMN", help="Column that colors the map and is voted on.")
@click.option("--output", "-o", default="manylens-report.html", help="Page to write.")
@trusting
@reading
def report(
    common: Any, model: str, data: str, label: str | None, output: str, trust: bool, **options: Any
) -> None:
    """Write one HTML page about a MODEL of `manylens learn` and the rows of DATA; it needs no server."""
    from manylens.cli.model_files import read_model
    from manylens.cli.model_report import check_report_target, write_report

    check_report_target(output)
    loaded = read_model(model, trust)
    rows = read(data, **options, model=loaded)
    with common.talk.step("Drawing"):
        said = write_report(loaded, rows, label, output, common.seed, f"manylens report {model} {data}")
    shown = {name: value for name, value in said.items() if name != "diversities" or common.talk.as_json}
    common.talk.result(f"Report on {rows.name}", shown)


import manylens.cli.explore_command  # noqa: E402, F401  (registers its command; it needs the options above)
