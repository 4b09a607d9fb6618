"""The command line: `manylens demo` and `manylens warmup`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import manylens


class CommandError(Exception):
    """An error that the user can fix, described in one sentence."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, given as the words after `manylens` (from the shell if None); return the exit code."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        if options.command == "demo":
            from manylens.cli.demo import demo

            demo(options.output, options.quick, options.seed)
        elif options.command == "warmup":
            from manylens.cli.warmup import warmup

            warmup()
        else:
            parser.print_help()
    except CommandError as error:
        print(f"manylens: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("manylens: interrupted.", file=sys.stderr)
        return 130
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    parser = argparse.ArgumentParser(
        prog="manylens", description="Many small, diverse views of the same data."
    )
    parser.add_argument("--version", action="version", version=f"manylens {manylens.__version__}")
    commands = parser.add_subparsers(dest="command", title="commands")
    demo = commands.add_parser(
        "demo",
        help="learn modules of the digits, compare them, write a report",
        description="Learn modules of scikit-learn's digits, compare them with other representations, print "
        "a table and write a self-contained HTML page.",
    )
    demo.add_argument("--output", default="manylens-report.html", help="file to write (%(default)s)")
    demo.add_argument("--quick", action="store_true", help="use fewer digits and diversities")
    demo.add_argument("--seed", type=seed, default=0, help="seed of the split and the modules (%(default)s)")
    commands.add_parser(
        "warmup",
        help="compile all loops ahead of time",
        description="Compile all loops of the library ahead of time, once per machine, so that no later call "
        "has to wait. Useful when a container image is built.",
    )
    return parser


def seed(text: str) -> int:
    """A seed that scikit-learn accepts."""
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 4294967295")
    return int(text)
