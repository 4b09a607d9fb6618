"""The group of commands on files, and the options that several of them share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from threading import Thread
from typing import Any, TypeVar

import click

from manylens.cli import FILE_COMMANDS
from manylens.cli.output import CommandContext, Printer

Function = TypeVar("Function", bound=Callable[..., Any])

DATA_HELP = (
    "DATA is a .csv, .tsv, .parquet, .feather, .npy or .npz file (recognized by its content), a folder of "
    "images, or - for standard input."
)


@click.group(
    name="manylens", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
def group() -> None:
    """Many small, diverse views of the same data."""


@group.command("demo", help="Learn modules of the digits (see `manylens demo --help`).")
def demo_name() -> None:
    """Placeholder for shell completion; argparse runs this command, without click."""


@group.command("warmup", help="Compile all loops ahead of time.")
def warmup_name() -> None:
    """Placeholder for shell completion; argparse runs this command, without click."""


def command(name: str, *examples: str) -> Callable[[Function], Function]:
    """Register a command with examples in its help, and with --json, --quiet and --seed."""
    shown = "\n".join(f"  {example}" for example in examples)

    def register(function: Function) -> Function:
        @functools.wraps(function)
        def wrapped(as_json: bool, quiet: bool, seed: int, **options: Any) -> Any:
            return function(common=CommandContext(Printer(as_json, quiet), seed), **options)

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
    click.option("--one-hot", is_flag=True, help="Encode text columns, one 0/1 column per distinct text."),
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
    meanwhile: str | None = None,
) -> Any:
    """Rows of a source, with the options of `reading`; imports the module `meanwhile` on another thread."""
    from manylens.cli.columns import model_image_size
    from manylens.cli.tables import IMAGE_SIDE, CSVFormat, read_rows

    text = CSVFormat(delimiter and delimiter.replace("\\t", "\t"), encoding, decimal)
    side = image_size or model_image_size(model) or IMAGE_SIDE
    with importing(meanwhile) if meanwhile else nullcontext():
        return read_rows(source, text, side, columns)


@contextmanager
def importing(module: str) -> Iterator[None]:
    """Import a module on another thread; errors are ignored here and raised again when the module is used."""

    def load() -> None:
        with suppress(Exception):
            import_module(module)

    thread = Thread(target=load)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def split_options(options: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Options of `reading`, and those of `choosing` as an object."""
    from manylens.cli.columns import ColumnOptions

    names = ("delimiter", "encoding", "decimal", "image_size")
    return {name: options[name] for name in names}, ColumnOptions(
        **{name: value for name, value in options.items() if name not in names}
    )
