"""Save and load fitted models, and describe files of other kinds."""

from __future__ import annotations

import zipfile
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from manylens.optional import import_optional
from manylens.persistence.classes import find_class, trusted_classes
from manylens.persistence.encoding import Decoder, Encoder
from manylens.persistence.files import MAGIC, PartReader, PartWriter, replacing
from manylens.validation import check_count, check_flag, check_path

MAX_BYTES = 2**32  # largest unpacked size of a compressed file
# Types that contain only numbers, but that skops does not trust by default.
DATA_ONLY = ("scipy.sparse._csr.csr_matrix", "scipy.sparse._csr.csr_array")

# First bytes of other files that people try to load.
BEGINNINGS = {
    b"PK\x03\x04": "a zip file without a model",
    b"\x93NUMPY": "an array: use numpy.load",
    b"\x80": "a pickle, which could run any code when loaded: use pickle.load or joblib.load if you trust it",
    b"\x78": "a compressed file, such as joblib writes: use joblib.load if you trust it",
    b"\x1f\x8b": "a compressed file (gzip), such as joblib writes: use joblib.load if you trust it",
    b"BZ": "a compressed file (bzip2), such as joblib writes: use joblib.load if you trust it",
    b"\xfd7zXZ": "a compressed file (xz), such as joblib writes: use joblib.load if you trust it",
}


def save(model: Any, path: str | PathLike[str]) -> None:
    """Write a fitted model to a file of plain data.

    The file appears under its name only when it is complete: after a crash or on a full disk, an earlier file
    of that name is unchanged. Models that hold functions raise, because a file holds only data.

    Parameters
    ----------
    model : object
        A model of manylens, a scikit-learn pipeline that contains one, or lists and dicts of models and
        arrays.
    path : str or path-like
        The file, by convention with the extension .manylens.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> import manylens
    >>> lenses = manylens.ModularKernelPCA(3, 2, random_state=0).fit(load_iris().data)
    >>> path = f"{tempfile.mkdtemp()}/lenses.manylens"
    >>> manylens.save(lenses, path)
    >>> manylens.load(path)
    ModularKernelPCA(n_components=2, n_modules=3, random_state=0)
    """
    with replacing(path) as stream:
        writer = PartWriter(stream)
        writer.finish(Encoder(writer).encode(model))


def load(
    path: str | PathLike[str],
    *,
    trusted: Iterable[type | str] = (),
    mmap: bool = False,
    max_bytes: int = MAX_BYTES,
) -> Any:
    """Read a model that `save` wrote, without running code from the file.

    Everything is compared with its checksum, and what compiled code relies on is checked, before it is used.

    Parameters
    ----------
    path : str or path-like
        The file. Files written by skops can be read as well.
    trusted : iterable of classes or str, default=()
        Other classes that the file may contain, such as your own transformers, or their names; their code
        runs with the attributes that the file gives.
    mmap : bool, default=False
        Whether to leave the rows of an index in the file, mapped to memory; they are then not compared with
        their checksum (`verify` does that).
    max_bytes : int, default=4294967296
        Largest unpacked size of a skops file, which may be compressed.

    Returns
    -------
    object
        The model.

    Raises
    ------
    TypeError
        If the file contains classes that are neither known nor trusted.
    ValueError
        If the file is damaged, or is not a file of manylens.
    """
    extra = trusted_classes(trusted)
    check_count(max_bytes, "max_bytes")
    check_flag(mmap, "mmap")
    beginning = read_beginning(path)
    name = Path(path).name
    if beginning.startswith(MAGIC):
        return decode(path, extra, mmap)
    if beginning.startswith(b"PK\x03\x04"):
        return load_skops(path, extra, max_bytes)
    raise ValueError(f"{name} is {kind_of_file(beginning)}; manylens.load reads what manylens.save wrote.")


def verify(path: str | PathLike[str]) -> None:
    """Compare every part of a file that `save` wrote with its checksum, and raise if one differs.

    Parameters
    ----------
    path : str or path-like
        The file.
    """
    beginning = read_beginning(path)
    if not beginning.startswith(MAGIC):
        raise ValueError(f"{Path(path).name} is {kind_of_file(beginning)}, which has no checksums to verify.")
    with PartReader.open(path) as reader:
        reader.verify()


def decode(path: str | PathLike[str], trusted: dict[str, type], mmap: bool) -> Any:
    """The model in a file of our own format."""
    with PartReader.open(path) as reader:
        decoder = Decoder(reader, trusted, mmap)
        try:
            decoder.check_names(reader.content)
            if not decoder.unknown:
                return decoder.decode(reader.content)
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as error:
            raise reader.damaged(f"{type(error).__name__}: {error}") from error
    raise refuse_classes(path, decoder.unknown)


def load_skops(path: str | PathLike[str], trusted: dict[str, type], max_bytes: int) -> Any:
    """The model in a file that skops wrote."""
    name = Path(path).name
    try:
        with zipfile.ZipFile(path) as archive:
            size, files = sum(each.file_size for each in archive.infolist()), archive.namelist()
    except zipfile.BadZipFile:
        raise ValueError(f"{name} is a damaged zip file: use another copy of it.") from None
    if "schema.json" not in files:
        raise ValueError(
            f"{name} is a zip file without a model; manylens.load reads what manylens.save wrote."
        )
    if size > max_bytes:
        raise ValueError(
            f"{name} takes {size:,} bytes when unpacked, more than max_bytes={max_bytes:,}: if you trust its "
            f"author, raise the limit with manylens.load(path, max_bytes={size})."
        )
    skops = import_optional("skops.io", "Reading a skops file", '"manylens[save]"')
    with plain_skops_errors(name):
        asked = skops.get_untrusted_types(file=path)
    unknown = [each for each in asked if each not in DATA_ONLY and find_class(each, trusted) is None]
    if unknown:
        raise refuse_classes(path, unknown)
    with plain_skops_errors(name):
        return skops.load(path, trusted=asked)


@contextmanager
def plain_skops_errors(name: str) -> Iterator[None]:
    """Replace errors of skops and Python about a damaged or foreign file by one sentence."""
    try:
        yield
    except (ImportError, MemoryError):  # say what is missing
        raise
    except Exception as error:
        raise ValueError(
            f"{name} is a skops file that is damaged or was modified, or that was written by another version "
            f"of skops or scikit-learn ({type(error).__name__}): use another copy of it, or save it again."
        ) from error


def refuse_classes(path: str | PathLike[str], names: list[str]) -> TypeError:
    """An error for a file with unknown classes."""
    return TypeError(
        f"{Path(path).name} contains {', '.join(names)}, which could run any code when loaded: if you trust "
        f"the file's author, use load(path, trusted={names})."
    )


def read_beginning(path: str | PathLike[str]) -> bytes:
    """The first bytes of a file; raise if there is none."""
    check_path(path)
    if Path(path).is_dir():
        raise IsADirectoryError(f"{path} is a folder: give a file that manylens.save wrote.")
    if not Path(path).exists():
        raise FileNotFoundError(f"There is no file {path}: give the path that manylens.save was given.")
    with open(path, "rb") as stream:
        return stream.read(512)


def kind_of_file(beginning: bytes) -> str:
    """Describe a file by its first bytes."""
    if not beginning:
        return "an empty file"
    for start, kind in BEGINNINGS.items():
        if beginning.startswith(start):
            return kind
    try:
        text = getincrementaldecoder("utf-8")().decode(beginning)  # may end within a character
    except UnicodeDecodeError:
        text = "\0"
    readable = all(each.isprintable() or each.isspace() for each in text)
    return "a text file" if readable else "not a file that manylens knows"
