"""Options and help of `manylens explore`."""

from __future__ import annotations

from typing import Any

import click

from manylens.cli.app import choosing, command, read, reading, split_options, trusting


@command(
    "explore",
    "manylens explore flowers.csv --label species",
    "manylens explore photos/ --image-size 16 --output photos.html --no-open",
    "manylens explore shop.parquet --model shop.manylens --ids name --text about --show price",
)
@click.argument("data")
@click.option("--model", metavar="FILE", help="Model of `learn`.  [default: modules are learned now]")
@click.option("--label", metavar="COLUMN", help="Column that colors the map and is voted on.")
@click.option("--ids", metavar="COLUMN", help="Column that names the rows.")
@click.option("--text", metavar="COLUMN", help="Column of texts to show.")
@click.option("--show", multiple=True, metavar="COLUMN", help="Column to show; may be repeated.")
@click.option("--output", "-o", default="explorer.html", help="Page to write.")
@click.option("--open/--no-open", "open_page", default=True, help="Open the page in the browser.")
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
    modules: int,
    components: int,
    diversity: float,
    trust: bool,
    **options: Any,
) -> None:
    """Look at the rows of DATA in the browser: a map, the neighbors by each module, and a slider.

    The page is one file that needs no server and no network.
    """
    from manylens.cli import exploring
    from manylens.cli.model_files import read_model

    how, columns = split_options(options)
    settings = {"n_modules": modules, "n_components": components, "diversity": diversity}
    loaded = None if model is None else read_model(model, trust)
    rows = read(data, **how)
    shown = exploring.Shown(label, ids, text, show)
    exploring.write_explorer(common, rows, loaded, columns, settings, shown, output, open_page)
