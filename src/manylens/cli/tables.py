"""Reading rows from files, folders of images and standard input, and writing tables."""

from __future__ import annotations

import codecs
import csv
import io
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeAlias

import numpy as np
import pandas as pd

from manylens.cli import CommandError
from manylens.optional import import_optional

if TYPE_CHECKING:  # avoids importing scikit-learn and SciPy before the file is read
    from manylens.typing import AnyArray

Kind = Literal["table", "array", "images"]
Source: TypeAlias = Path | io.BytesIO  # a file, or the bytes of standard input
HEAD = 65536  # bytes from which format, encoding and delimiter are recognized
IMAGE_SIDE = 32  # default side to which images are resized
DELIMITERS = ",;\t|"
IMAGES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"}
MOST_PIXELS = 2**25  # larger images are rejected before they are decoded


@dataclass(frozen=True)
class CSVFormat:
    """How to read text files; None means to guess from the first line."""

    delimiter: str | None = None
    encoding: str = "utf-8"
    decimal: str = "."


@dataclass(frozen=True)
class Rows:
    """Rows with named columns, and whether they came from a table, an array or images."""

    frame: pd.DataFrame
    name: str
    kind: Kind


def read_rows(
    source: str,
    text: CSVFormat | None = None,
    image_size: int = IMAGE_SIDE,
    columns: Collection[str] | None = None,
) -> Rows:
    """Rows of a file, of a folder of images, of one array of an archive (`file.npz::name`), or of stdin.

    If `columns` are given and a Parquet or Feather file has all of them, only they are read.
    """
    if source == "-":
        return parse(io.BytesIO(read_input(sys.stdin.buffer)), "standard input", text or CSVFormat())
    file, _, member = source.partition("::")
    path = Path(file)
    if path.is_dir():
        return read_images(path, image_size)
    content: Source = path
    try:
        if path.is_file():
            path.open("rb").close()
        else:  # a pipe can be opened once
            content = io.BytesIO(path.read_bytes())
    except FileNotFoundError:
        raise CommandError(f"{file} does not exist{nearest_file(path)}.") from None
    except OSError as error:
        raise CommandError(f"{file} could not be read: {error.strerror}.") from None
    if path.suffix.lower() in IMAGES:
        return Rows(image_frame([path], path.parent, image_size), path.name, "images")
    return parse(content, path.name, text or CSVFormat(), member, columns)


def read_input(stream: Any) -> bytes:
    """All bytes of standard input, read piece by piece: between pieces Python notices Ctrl-C.

    A single `read` loops in C, and an interrupt between two of its system calls would wait for more input.
    """
    if not hasattr(stream, "read1"):
        return bytes(stream.read())
    return b"".join(iter(lambda: stream.read1(2**20), b""))


def nearest_file(path: Path) -> str:
    """Hint at a file with a similar name in the same folder."""
    from difflib import get_close_matches

    if not path.parent.is_dir():
        return f", nor does the folder {path.parent}"
    found = get_close_matches(path.name, [each.name for each in path.parent.iterdir()], 1)
    return f" (did you mean {path.with_name(found[0])}?)" if found else ""


def parse(
    source: Source, name: str, text: CSVFormat, member: str = "", columns: Collection[str] | None = None
) -> Rows:
    """Rows of a file, whose format is recognized by how it begins."""
    head, whole = beginning_of(source)
    if whole and not head.strip():
        raise CommandError(f"{name} is empty.")
    readers: dict[bytes, tuple[str, Callable[[], Rows]]] = {
        b"PAR1": ("Parquet", lambda: Rows(unpacked(read_arrow("parquet", source, columns)), name, "table")),
        b"ARROW1": ("Feather", lambda: Rows(unpacked(read_arrow("feather", source, columns)), name, "table")),
        b"\x93NUMPY": ("NumPy", lambda: array_rows(load_numpy(source), name)),
        b"PK\x03\x04": ("NumPy archive", lambda: archive_rows(load_numpy(source), name, member)),
    }
    for beginning, (kind, read) in readers.items():
        if head.startswith(beginning):
            try:
                rows = read()
            except (ValueError, OSError, KeyError, EOFError) as error:
                raise CommandError(f"{name} could not be read as a {kind} file: {error}") from None
            break
    else:
        rows = Rows(read_csv(source, head, whole, name, text), name, "table")
    if not len(rows.frame):
        raise CommandError(f"{name} has columns but no rows.")
    if not rows.frame.columns.is_unique:
        twice = rows.frame.columns[rows.frame.columns.duplicated()][0]
        raise CommandError(f"{name} has two columns named {twice!r}: rename one.")
    return rows


def beginning_of(source: Source) -> tuple[bytes, bool]:
    """The first bytes of a file, and whether they are all of it."""
    if isinstance(source, io.BytesIO):
        head, size = source.getvalue()[:HEAD], len(source.getvalue())
    else:
        with source.open("rb") as stream:
            head, size = stream.read(HEAD), source.stat().st_size
    return head, len(head) >= size


def read_arrow(
    kind: Literal["parquet", "feather"], source: Source, columns: Collection[str] | None
) -> pd.DataFrame:
    """A table of pyarrow, with its column names as text; only some columns if it has all of them."""
    import_optional("pyarrow", f"Reading {kind} files", '"manylens[cli]"')
    read: Any = pd.read_parquet if kind == "parquet" else pd.read_feather
    chosen = None
    if columns is not None and isinstance(source, Path):
        import pyarrow as pa
        from pyarrow import parquet

        if kind == "parquet":
            known = list(parquet.read_schema(source).names)
        else:
            with pa.memory_map(str(source)) as mapped:
                known = list(pa.ipc.open_file(mapped).schema.names)
        chosen = [each for each in known if each in set(columns)] if set(columns) <= set(known) else None
    frame: pd.DataFrame = read(source, columns=chosen)
    named = frame.index.names[0] is not None
    frame = frame.reset_index(drop=not named)
    return frame.rename(columns=str)


def unpacked(frame: pd.DataFrame) -> pd.DataFrame:
    """Replace columns of equally long lists of numbers, such as embeddings, by one column per number."""
    parts: list[pd.DataFrame] = []
    found = False
    for name in frame.columns:
        values = frame[name]
        first = values.dropna().iloc[:1]
        if values.dtype == object and len(first) and isinstance(first.iloc[0], list | tuple | np.ndarray):
            lists = [np.asarray(each) for each in values if each is not None]
            shapes = {each.shape for each in lists}
            if len(lists) == len(frame) and len(shapes) == 1 and lists[0].ndim == 1:
                stacked = np.stack(lists)
                if stacked.dtype.kind in "biuf" and stacked.size:
                    names = [f"{name}_{k}" for k in range(stacked.shape[1])]
                    parts.append(pd.DataFrame(stacked, columns=names))
                    found = True
                    continue
        parts.append(values.to_frame())
    return pd.concat(parts, axis=1) if found else frame  # one block of numbers is converted without a copy


def load_numpy(source: Source) -> Any:
    """Arrays of numbers or text, mapped from a file; raises for arrays of objects, which could run code."""
    try:
        return np.load(source, mmap_mode="r" if isinstance(source, Path) else None, allow_pickle=False)
    except ValueError as error:
        if "object" in str(error).lower():
            raise ValueError(
                "it holds Python objects, which could run code when loaded; save numbers or text instead."
            ) from None
        raise


def array_rows(array: AnyArray, name: str) -> Rows:
    """Rows of an array; more than two axes are flattened to columns."""
    if array.dtype.names:
        return Rows(pd.DataFrame(array), name, "table")
    if array.ndim == 0:
        raise CommandError(f"{name} holds a single number instead of rows.")
    flat = array.reshape(len(array), int(np.prod(array.shape[1:])))
    columns = [f"x{k}" for k in range(flat.shape[1])]
    return Rows(pd.DataFrame(flat, columns=columns, copy=False), name, "array")


def archive_rows(archive: Any, name: str, member: str) -> Rows:
    """The array `member` of an archive, or its only array of rows beside one-dimensional columns."""
    arrays = {key: archive[key] for key in archive.files}
    if member:
        if member not in arrays:
            raise CommandError(f"{name} has no array {member!r}, only {quoted(arrays)}.")
        return array_rows(arrays[member], f"{name}::{member}")
    wide = [key for key, array in arrays.items() if array.ndim >= 2]
    if len(wide) != 1:
        if not wide and len(arrays) == 1:
            return array_rows(next(iter(arrays.values())), name)
        raise CommandError(
            f"{name} has {len(wide)} arrays of rows ({quoted(wide or arrays)}): choose one with {name}::NAME."
        )
    rows = array_rows(arrays[wide[0]], name)
    beside = {
        key: array for key, array in arrays.items() if array.ndim == 1 and len(array) == len(rows.frame)
    }
    return Rows(pd.concat([rows.frame, pd.DataFrame(beside)], axis=1), name, rows.kind)


def read_csv(source: Source, head: bytes, whole: bool, name: str, text: CSVFormat) -> pd.DataFrame:
    """A table with a header line; the delimiter is the one that the header contains most often."""
    for option, given in (("--delimiter", text.delimiter), ("--decimal", text.decimal)):
        if given and len(given) > 1:
            raise CommandError(f"{option} {given!r} has {len(given)} characters instead of one.")
    try:
        start = head.decode(text.encoding, errors="strict" if whole else "ignore")
        if "\0" in start:
            raise CommandError(f"{name} is neither text nor a known format of tables.")
        header = next((line for line in start.splitlines() if line.strip()), "")
        delimiter = text.delimiter or max(DELIMITERS, key=header.count)
        options: dict[str, Any] = {"encoding": text.encoding, "decimal": text.decimal}
        options["compression"] = None
        frame = pd.read_csv(source, sep=delimiter, skipinitialspace=True, **options)
    except UnicodeDecodeError as error:
        wide = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        if b"\0" in head and not wide:
            raise CommandError(f"{name} is neither text nor a known format of tables.") from None
        raise CommandError(
            f"{name} is not {text.encoding} (byte {error.start}): give its --encoding, such as "
            f"{'utf-16' if wide else 'latin-1'}."
        ) from None
    except LookupError:
        raise CommandError(f"--encoding {text.encoding} is unknown: try utf-8, latin-1 or cp1252.") from None
    except (pd.errors.ParserError, csv.Error, ValueError) as error:
        reason = " ".join(str(error).split())
        raise CommandError(
            f"{name} could not be read as text with the delimiter {delimiter!r}: {reason} Another one can be "
            "given by --delimiter."
        ) from None
    others = [each for each in DELIMITERS if each != delimiter and header.count(each)]
    if frame.shape[1] == 1 and others:
        raise CommandError(
            f"{name} has a single column {frame.columns[0]!r} if columns are separated by {delimiter!r}: its "
            f"delimiter seems to be {max(others, key=header.count)!r}, see --delimiter."
        )
    if not isinstance(frame.index, pd.RangeIndex):
        raise CommandError(f"{name} has more values per line than names in its first line.")
    return frame.rename(columns=str)


def read_images(folder: Path, size: int) -> Rows:
    """All images below a folder, as rows of pixels with the file and, if there are any, the subfolder."""
    paths = sorted(
        path for path in folder.rglob("*") if path.suffix.lower() in IMAGES and not path.name.startswith(".")
    )
    if not paths:
        raise CommandError(f"{folder} contains no images ({', '.join(sorted(IMAGES))}).")
    return Rows(image_frame(paths, folder, size), folder.name or str(folder), "images")


def image_frame(paths: list[Path], folder: Path, size: int) -> pd.DataFrame:
    """One row per image: RGB pixels in [0, 1], in columns named by the image size, `file` and `folder`."""
    import_optional("PIL", "Reading images", '"manylens[cli]"')
    from PIL import Image

    pixels = np.empty((len(paths), size * size * 3), dtype=np.float32)
    for row, path in enumerate(paths):
        try:
            with Image.open(path) as image:
                if image.width * image.height > MOST_PIXELS:
                    raise CommandError(f"{path} has {image.width} x {image.height} pixels: make it smaller.")
                small = image.convert("RGB").resize((size, size), Image.Resampling.BOX)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise CommandError(f"{path} could not be read as an image: {error}") from None
        pixels[row] = np.asarray(small, dtype=np.float32).ravel() / 255
    frame = pd.DataFrame(pixels, columns=[f"p{size}_{k}" for k in range(pixels.shape[1])])
    names = [path.relative_to(folder) for path in paths]
    beside = {"file": [name.as_posix() for name in names]}
    if any(len(name.parts) > 1 for name in names):
        beside["folder"] = [name.parent.as_posix() for name in names]
    return pd.concat([frame, pd.DataFrame(beside)], axis=1)


def write_rows(frame: pd.DataFrame, target: str) -> None:
    """Write a table in the format that the extension names; `-` is CSV on standard output."""
    if target == "-":
        sys.stdout.write(frame.to_csv(index=False))
        sys.stdout.flush()
        return
    from manylens.persistence.files import replacing

    write = WRITERS[Path(target).suffix.lower()]
    with replacing(target) as stream:
        write(frame, stream)


def write_npy(frame: pd.DataFrame, stream: BinaryIO) -> None:
    """An array of the columns, which must be numbers."""
    text = [name for name in frame if frame[name].dtype.kind not in "biuf"]
    if text:
        raise CommandError(f"an .npy file holds numbers only, unlike {quoted(text)}: write .parquet.")
    np.save(stream, frame.to_numpy(), allow_pickle=False)


def write_npz(frame: pd.DataFrame, stream: BinaryIO) -> None:
    """The numbers as `X`, every other column as an array of text."""
    numbers = [name for name in frame if frame[name].dtype.kind in "biuf"]
    text: dict[str, Any] = {
        str(name): frame[name].to_numpy(dtype=str) for name in frame.columns.drop(numbers)
    }
    np.savez(stream, allow_pickle=False, X=frame[numbers].to_numpy(), **text)


WRITERS: dict[str, Callable[[pd.DataFrame, BinaryIO], object]] = {
    ".csv": lambda frame, stream: frame.to_csv(stream, index=False),
    ".tsv": lambda frame, stream: frame.to_csv(stream, index=False, sep="\t"),
    ".parquet": lambda frame, stream: frame.to_parquet(stream),
    ".feather": lambda frame, stream: frame.to_feather(stream),
    ".npy": write_npy,
    ".npz": write_npz,
}


def check_table_target(target: str | None) -> None:
    """Raise before any work if a file could not be written."""
    if target is None or target == "-":
        return
    if Path(target).suffix.lower() not in WRITERS:
        raise CommandError(f"{target} has no known extension: use one of {', '.join(WRITERS)}, or -.")
    check_target(target)


def check_target(target: str) -> None:
    """Raise if a file is in a folder that does not exist or cannot be written to."""
    path = Path(target)
    if path.is_dir():
        raise CommandError(f"{target} is a folder: give the name of a file in it.")
    if not path.parent.is_dir():
        raise CommandError(f"the folder {path.parent} does not exist: create it first.")
    probe = path.parent / f".manylens-probe-{id(path)}"
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise CommandError(f"{target} cannot be written: {error.strerror}.") from None


def quoted(names: Any, most: int = 8) -> str:
    """Names in quotes, the first few of many."""
    names = [repr(str(name)) for name in names]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
