"""Options and help of `manylens explore`."""

from __future__ import annotations

from typing import Any

import click

from manylens.cli.options import choosing, command, read, reading, split_options, trusting
from manylens.optional import import_optional


@command(
    "explore",
    "manylens explore flowers.csv --label species",
    "manylens explore photos/ --image-size 16 --output photos.html --no-open",
    "manylens explore shop.parquet --model shop.manylens --ids name --text about --show price",
    "manylens explore before.npy --compare after.npy",
    "manylens explore million.parquet --serve",
)
@click.argument("data")
@click.option("--model", metavar="FILE", help="Model of `learn`.  [default: modules are learned now]")
@click.option("--label", metavar="COLUMN", help="Column that colors the map and is voted on.")
@click.option("--ids", metavar="COLUMN", help="Column that names the rows.")
@click.option("--text", metavar="COLUMN", help="Column of texts to show.")
@click.option("--show", multiple=True, metavar="COLUMN", help="Column to show; may be repeated.")
@click.option("--output", "-o", default="explorer.html", help="Page to write.")
@click.option("--open/--no-open", "open_page", default=True, help="Open the page in the browser.")
@click.option("--serve", is_flag=True, help="Show all of many rows: serve the page on this machine.")
@click.option("--compare", metavar="FILE", help="Another representation of the same rows, side by side.")
@click.option("--modules", type=click.IntRange(1), default=10, help="Number of modules to learn.")
@click.option("--components", type=click.IntRange(1), default=10, help="Dimensions of each module.")
@click.option("--diversity", type=click.FloatRange(0, 1), default=0.99, help="Where the slider starts.")
@trusting
@choosing
@reading
def explore(
    common: Any,
    data: str,
    model: str | None,
    label: str | None,
    ids: str | None,
    text: str | None,
    show: tuple[str, ...],
    output: str,
    open_page: bool,
    serve: bool,
    compare: str | None,
    modules: int,
    components: int,
    diversity: float,
    trust: bool,
    **options: Any,
) -> None:
    """Look at the rows of DATA in the browser: a map, the neighbors by each module, and a slider.

    The page is one file that needs no server and no network. With more than 20,000 rows it shows a sample;
    --serve shows all of them by a server that only this machine can reach.
    """
    from manylens.cli import run_explore
    from manylens.cli.model_files import read_model

    how, columns = split_options(options)
    shown = run_explore.DisplayColumns(label, ids, text, show)
    if compare is not None and (model is not None or serve):
        raise click.UsageError("--compare shows two files as they are: leave out --model and --serve.")
    if data == compare == "-":
        raise click.UsageError("Standard input can be read once: give DATA or --compare as a file.")
    if serve:
        for package in ("uvicorn", "starlette"):
            import_optional(package, "--serve", '"manylens[serve]"')
    loaded = None if model is None else read_model(model, trust)
    rows = read(data, **how)
    if compare is not None:
        other = read(compare, **how)
        run_explore.compare_rows(common, rows, other, columns, shown, output, open_page)
        return
    settings = {"n_modules": modules, "n_components": components, "diversity": diversity}
    run_explore.explore_rows(common, rows, loaded, columns, settings, shown, output, open_page, serve)
