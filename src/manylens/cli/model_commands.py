"""Options and help of the commands that learn models, apply them and describe them."""

from __future__ import annotations

from typing import Any

import click

from manylens.cli.options import Diversity, choosing, command, read, reading, split_options, trusting

RUN_LEARN = "manylens.cli.run_learn"  # imports scikit-learn, which takes as long as reading a large file


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
    "--label", metavar="COLUMN", help="Column that is used only to measure the result, not to learn."
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
    """Learn diverse modules of the rows of DATA, print their scores and save them.

    All columns of numbers are used; text and missing values are errors unless an option says what to do.
    """
    how, columns = split_options(options)
    settings = {
        **{"n_modules": modules, "n_components": components, "diversity": diversity},
        **{"kernel": kernel, "rank": rank},
    }
    rows = read(data, **how, meanwhile=RUN_LEARN)
    from manylens.cli import run_learn

    if report:
        from manylens.cli.run_report import check_report_target

        check_report_target(report)
    model = run_learn.learn(common, rows, columns, settings, label, ids, output, index)
    if report:
        from manylens.cli.run_report import write_report

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
    from manylens.cli import run_learn
    from manylens.cli.columns import needed_columns
    from manylens.cli.model_files import read_model

    loaded = read_model(model, trust)
    columns = needed_columns(loaded, *keep)
    run_learn.transform(common, loaded, read(data, **options, model=loaded, columns=columns), keep, output)


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
    how, columns = split_options(options)
    settings = {"n_components": components, "method": method, "max_iter": max_iter}
    rows = read(data, **how, meanwhile=RUN_LEARN)
    from manylens.cli import run_learn

    run_learn.nca(common, rows, columns, settings, label, holdout, output)


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
    "--where", metavar="CONDITION", help="Search only rows that meet this condition (pandas; it is code)."
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

    MODEL can also be an index from `manylens learn --index`; DATA is then needed only for --row, --show,
    --ids and --where.
    """
    from manylens.cli import run_search
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
    run_search.search(common, loaded, rows, asked, query_rows, k, ids, where, show, output)


@command("info", "manylens info flowers.csv", "manylens info flowers.manylens --json")
@click.argument("data", metavar="FILE")
@trusting
@reading
def info(common: Any, data: str, trust: bool, **options: Any) -> None:
    """Describe FILE: the class, parameters and columns of a model, or the columns of data.

    Data are read as by `manylens learn`: tables, arrays, a folder of images, or - for standard input.
    """
    from manylens.cli import run_info

    if run_info.is_model(data, trust):
        run_info.describe_model(common, data, trust)
    else:
        run_info.describe_rows(common, read(data, **options))


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
    from manylens.cli.run_report import check_report_target, write_report

    check_report_target(output)
    loaded = read_model(model, trust)
    rows = read(data, **options, model=loaded)
    with common.printer.step("Drawing"):
        said = write_report(loaded, rows, label, output, common.seed, f"manylens report {model} {data}")
    shown = {name: value for name, value in said.items() if name != "diversities" or common.printer.as_json}
    common.printer.result(f"Report on {rows.name}", shown)
