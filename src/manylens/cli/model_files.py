"""Reading and writing models: files of plain data, and pickles only if the user trusts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sklearn.pipeline import Pipeline

from manylens.cli import CommandError
from manylens.cli.tables import check_target, nearest_file
from manylens.persistence.files import MAGIC, replacing
from manylens.persistence.save_and_load import BEGINNINGS, load, read_beginning, save
from manylens.validation import plain_conversion_errors

PICKLES = (".joblib", ".pkl", ".pickle")


def read_model(path: str, trust: bool = False) -> Any:
    """A model from a file of manylens or skops, or from a pickle if `trust` is set."""
    if not Path(path).exists():
        raise CommandError(f"{path} does not exist{nearest_file(Path(path))}.")
    try:
        beginning = read_beginning(path)
        if is_pickle(beginning):
            if not trust:
                raise CommandError(
                    f"{path} is a pickle, which could run any code when loaded: add --trust if you trust its "
                    "author."
                )
            import joblib

            return joblib.load(path)
        return load_trusted(path) if trust else load(path, mmap=beginning.startswith(MAGIC))
    except CommandError:
        raise
    except TypeError as error:  # raised for classes that are not trusted
        sentence = str(error).partition(": if you trust")[0]
        raise CommandError(f"{sentence}: add --trust if you trust its author.") from error
    except Exception as error:  # unpickling can raise anything
        raise CommandError(f"{path} could not be loaded: {error}") from error


def load_trusted(path: str) -> Any:
    """A model from a file that may name any class."""
    try:
        return load(path)
    except TypeError:
        if Path(path).suffix.lower() != ".skops":
            raise
        import skops.io

        return skops.io.load(path, trusted=skops.io.get_untrusted_types(file=path))


def is_pickle(beginning: bytes) -> bool:
    """Whether a file begins like a pickle, compressed or not."""
    return any("joblib" in kind for start, kind in BEGINNINGS.items() if beginning.startswith(start))


def check_model_target(path: str, trust: bool | None = None) -> None:
    """Raise if a file could not be written, or if its extension stands for another format.

    `trust` is the value of --trust, or None for commands that do not have it.
    """
    suffix = Path(path).suffix.lower()
    if suffix in PICKLES and not trust:
        choice = "" if trust is None else ", or add --trust"
        raise CommandError(
            f"{path} would be a pickle, which runs code when loaded: name it .manylens{choice}."
        )
    if suffix == ".skops":
        raise CommandError(f"{path}: manylens reads skops files but writes its own: name it .manylens.")
    check_target(path)


def write_model(model: Any, path: str) -> None:
    """Write a model: a pickle if the name says so, otherwise a file of plain data."""
    if Path(path).suffix.lower() in PICKLES:
        import joblib

        with replacing(path) as stream:
            joblib.dump(model, stream)
    else:
        save(model, path)


def last_step(model: Any) -> Any:
    """The estimator at the end of a pipeline, or the model itself."""
    return model[-1] if isinstance(model, Pipeline) else model


def first_steps(model: Any, X: Any) -> Any:
    """Rows as they enter the last step of a pipeline."""
    with plain_conversion_errors("DATA"):
        return model[:-1].transform(X) if isinstance(model, Pipeline) and len(model) > 1 else X
