"""Running a command on files: from words to an exit code. The commands are in the modules imported here."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Sequence

import click

import manylens.cli.compare_commands
import manylens.cli.explore_command
import manylens.cli.model_commands  # noqa: F401  (importing them registers the commands)
from manylens.cli import COMPLETION, CommandError
from manylens.cli.options import group

DEBUG = "MANYLENS_DEBUG"  # if set, errors are shown with their traceback


def run(words: Sequence[str]) -> int:
    """Run a command and return the exit code."""
    if COMPLETION in os.environ:
        group.main(args=list(words), prog_name="manylens", complete_var=COMPLETION)
    try:
        # not `group.main`, which handles interrupts and closed pipes itself
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
        # the library rejects input with a message; an error without one is a bug
        if not str(error):
            raise
        raise CommandError(getattr(error, "strerror", None) or one_sentence(str(error))) from error


def one_sentence(message: str) -> str:
    """A library's message on one line, with advice for the command line if values are missing or infinite."""
    if found := re.match(r"Input( X)? contains (NaN|infinity[^.\n]*)", message):
        return (
            f"{found[0]}: leave these rows out, or fill missing values in the data, or by --impute when the "
            "model is learned."
        )
    return " ".join(message.split())
