"""The command line: `manylens demo`, `manylens warmup`, and the commands for users' own files."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence

import manylens

# The commands on files, which click parses; listed here so that the help works without click.
FILE_COMMANDS = {
    "learn": "learn diverse modules of a table, an array or a folder of images",
    "transform": "apply a saved model to rows",
    "search": "find the rows nearest to a query, by all modules",
    "compare": "similarity (CKA) of several representations of the same rows",
    "rank": "rank representations by how well they suit a label",
    "prune": "keep the few members of an ensemble that matter",
    "nca": "learn a map under which rows of a class are near each other",
    "explore": "look at rows and their neighbors in the browser",
    "report": "write a page about a model and its data",
    "info": "describe a model or a data file",
}
COMPLETION = "_MANYLENS_COMPLETE"  # the variable that a shell sets to ask click for completions


class CommandError(Exception):
    """An error that the user can fix, described in one sentence."""


def shell() -> int:
    """Entry point of the shell command; returns the exit code.

    Imports create many objects and hardly any garbage, so garbage collection runs less often, and not at all
    at exit. With Python's default settings it would take half a second.
    """
    gc.set_threshold(50_000, 20, 20)
    try:
        return main()
    finally:
        gc.freeze()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, given as the words after `manylens` (from the shell if None); return the exit code.

    0: done; 1: a bug in manylens; 2: something the user can fix; 130: interrupted; 141: output pipe closed.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if COMPLETION in os.environ or (words and words[0] in FILE_COMMANDS):
            return run_file_command(words)
        parser = make_parser()
        options = parser.parse_args(words)
        if options.command == "demo":
            from manylens.cli.demo import demo

            demo(options.output, options.quick, options.seed, not options.no_open)
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
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return 0


def run_file_command(words: list[str]) -> int:
    """Run a command that click parses, if its packages are installed."""
    missing = [package for package in ("click", "rich", "pandas") if not is_installed(package)]
    if missing:
        what = f"manylens {words[0]}" if words else "Completion"
        raise CommandError(f'{what} needs {", ".join(missing)}: pip install "manylens[cli]"')
    from manylens.cli.app import run

    return run(words)


def is_installed(package: str) -> bool:
    """Whether a package can be imported."""
    from importlib.util import find_spec

    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # ValueError: set to None in sys.modules
        return False


def make_parser() -> argparse.ArgumentParser:
    """The commands, and the options of those that need no other package."""
    parser = argparse.ArgumentParser(
        prog="manylens",
        description="Many small, diverse views of the same data.",
        epilog='"manylens COMMAND --help" shows options and examples.',
    )
    parser.add_argument("--version", action="version", version=f"manylens {manylens.__version__}")
    commands = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="learn modules of the digits, compare them, write a report, open the explorer",
        description="Learn modules of scikit-learn's digits, compare them with other representations, print "
        "a table, write a self-contained HTML page, and open a second one: the explorer.",
    )
    demo.add_argument("--output", default="manylens-report.html", help="file to write (%(default)s)")
    demo.add_argument("--quick", action="store_true", help="use fewer digits and diversities")
    demo.add_argument("--seed", type=seed, default=0, help="seed of the split and the modules (%(default)s)")
    demo.add_argument("--no-open", action="store_true", help="do not open the explorer in the browser")
    commands.add_parser(
        "warmup",
        help="compile all loops ahead of time",
        description="Compile all loops of the library ahead of time, once per machine, so that no later call "
        "has to wait. Useful when a container image is built.",
    )
    for name, summary in FILE_COMMANDS.items():
        commands.add_parser(name, help=summary, add_help=False)
    return parser


def seed(text: str) -> int:
    """A seed that scikit-learn accepts."""
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 4294967295")
    return int(text)
