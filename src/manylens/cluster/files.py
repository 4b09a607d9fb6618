"""Files as blocks: folders and lists of .npy, .npz or Parquet files, each read where its rows are needed."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeGuard

import numpy as np
from scipy import sparse

from manylens.optional import import_optional

PARQUET = (".parquet", ".pq")
SUFFIXES = (".npy", ".npz", *PARQUET)


def is_path(value: Any) -> TypeGuard[str | os.PathLike[str]]:
    """Whether a value names a file or a folder."""
    return isinstance(value, str | os.PathLike)


def file_list(X: Any) -> Any:
    """The files of a folder, of a list of paths, or of a dict of them, as a list; anything else unchanged."""
    if is_path(X):
        return files_in(Path(X))
    if isinstance(X, Mapping) and not sparse.issparse(X) and X and all(map(is_path_or_paths, X.values())):
        return layer_files({name: file_list(value) for name, value in X.items()})
    if is_path_or_paths(X):
        return [Path(path) for path in X]
    if isinstance(X, Iterator):
        first = next(X, None)
        rest = X if first is None else chain([first], X)
        return [Path(path) for path in rest] if is_path(first) else rest
    return X


def is_path_or_paths(value: Any) -> bool:
    """Whether a value is a path, or a list of paths."""
    return is_path(value) or (isinstance(value, list | tuple) and len(value) > 0 and all(map(is_path, value)))


def files_in(path: Path) -> list[Path]:
    """The .npy, .npz and Parquet files of a folder, by name; a file itself."""
    if os.path.isfile(path):  # also False for a name that is too long
        return [path]
    if not os.path.isdir(path):
        raise FileNotFoundError(
            f"{path!s:.200} is neither a file nor a folder: give a folder of files that end in {endings()}."
        )
    found = sorted(each for each in path.iterdir() if each.suffix in SUFFIXES)
    if not found:
        raise ValueError(f"{path} holds no file that ends in {endings()}: save rows there, a file per block.")
    return found


def endings() -> str:
    """The endings of files that can be read, for errors."""
    return f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"


def layer_files(layers: Mapping[Any, list[Path]]) -> list[dict[Any, Path]]:
    """One dict of files for each block, from a list of files for each layer."""
    counts = {name: len(paths) for name, paths in layers.items()}
    if len(set(counts.values())) > 1:
        raise ValueError(
            f"The layers have different numbers of files: {counts}; file i of each must hold the same rows."
        )
    return [dict(zip(layers, paths, strict=True)) for paths in zip(*layers.values(), strict=True)]


def holds_files(block: Any) -> bool:
    """Whether a block is given by a path, or has a part that is."""
    if isinstance(block, tuple):
        return any(map(holds_files, block))
    if isinstance(block, Mapping):
        return any(map(is_path, block.values()))
    return is_path(block)


def read_part(part: Any) -> Any:
    """A part of a block, read if it is a path or a dict of paths."""
    if isinstance(part, Mapping):
        return {name: read_part(value) for name, value in part.items()}
    return read_file(part) if is_path(part) else part


def read_file(path: Any, start: int = 0, stop: int | None = None) -> Any:
    """Rows of a file: an array, a CSR matrix or a data frame; raises for other files and pickled data."""
    suffix = checked_suffix(path)
    if suffix in PARQUET:
        return read_parquet(path, start, stop)
    if suffix == ".npy":
        rows = load_numpy(path, None if stop is None else "r")
        return rows if stop is None else np.array(rows[start:stop])
    with load_numpy(path) as archive:
        rows = sparse.load_npz(path).tocsr() if "format" in archive.files else archive[only_array(archive)]
    return rows if stop is None else rows[start:stop]


def load_numpy(path: Any, mode: Literal["r"] | None = None) -> Any:
    """An array or an archive; replaces NumPy's error, which takes unknown data for a pickle."""
    try:
        return np.load(path, mmap_mode=mode, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        kind = "an array of numbers, or an archive of one"
        raise ValueError(f"{Path(path).name} is damaged, or is not {kind} saved by numpy.") from error


def read_parquet(path: Any, start: int, stop: int | None) -> Any:
    """Rows of a Parquet file as a data frame; only row groups that hold some of them are read."""
    file = parquet_file(path)
    ends = np.cumsum(group_sizes(file)) if file.num_row_groups else np.zeros(1, dtype=int)
    stop = int(ends[-1]) if stop is None else stop
    first, last = np.searchsorted(ends, [start, stop - 1], side="right")
    table = file.read_row_groups(range(first, min(int(last) + 1, file.num_row_groups)))
    before = int(ends[first - 1]) if first else 0
    return table.slice(start - before, stop - start).to_pandas()


def first_row(path: Any, start: int = 0) -> Any:
    """One row of a file; even of a Parquet file with large row groups, little more is read."""
    if checked_suffix(path) not in PARQUET:
        return read_file(path, start, start + 1)
    file = parquet_file(path)
    ends = np.cumsum(group_sizes(file))
    group = int(np.searchsorted(ends, start, side="right"))
    before = int(ends[group - 1]) if group else 0
    batches = file.iter_batches(batch_size=start - before + 1, row_groups=[group])
    return next(batches).to_pandas().iloc[-1:]


def row_pieces(path: Path, most: int) -> list[tuple[int, int]]:
    """First and last row (exclusive) of pieces of up to `most` rows that can be read by themselves.

    A .npz file is one piece, and a row group of a Parquet file is not cut.
    """
    n_rows, _ = row_shape(path)
    sizes = group_sizes(parquet_file(path)) if path.suffix in PARQUET else [n_rows]
    if path.suffix == ".npy":
        sizes = [min(most, n_rows - start) for start in range(0, n_rows, most)]
    pieces: list[tuple[int, int]] = []
    stop = 0
    for size in sizes:
        if pieces and stop + size - pieces[-1][0] <= most:
            pieces[-1] = (pieces[-1][0], stop + size)
        else:
            pieces.append((stop, stop + size))
        stop += size
    return pieces


def row_shape(path: Path) -> tuple[int, int]:
    """Numbers of rows and columns in a file, of which there must be some."""
    shape = shape_in_file(path)
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"it holds an array of shape {shape}: rows need two dimensions.")
    return shape[0], shape[1]


def shape_in_file(path: Path) -> tuple[int, ...]:
    """Shape of the rows in a file, without reading them."""
    suffix = checked_suffix(path)
    if suffix in PARQUET:
        known = parquet_file(path).metadata
        return known.num_rows, known.num_columns
    if suffix == ".npy":
        return tuple(load_numpy(path, "r").shape)
    with load_numpy(path) as archive:
        if "format" in archive.files:
            return tuple(int(size) for size in archive["shape"])
        only_array(archive)
    with zipfile.ZipFile(path) as packed, packed.open(packed.namelist()[0]) as stream:
        version = np.lib.format.read_magic(stream)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        return tuple(read(stream)[0])


def checked_suffix(path: Any) -> str:
    """The ending of a file that can be read."""
    suffix = Path(path).suffix
    if suffix not in SUFFIXES:
        raise ValueError(f"{path} ends in {suffix!r}: files that end in {endings()} can be read.")
    return suffix


def only_array(archive: Any) -> str:
    """The name of the only array of a .npz file."""
    if len(archive.files) != 1:
        raise ValueError(f"it holds the arrays {archive.files}: save one array of rows per file.")
    return str(archive.files[0])


def parquet_file(path: Any) -> Any:
    """An open Parquet file."""
    import_optional("pandas", "Reading Parquet files", "pandas pyarrow")
    parquet = import_optional("pyarrow.parquet", "Reading Parquet files", "pandas pyarrow")
    return parquet.ParquetFile(path)


def group_sizes(file: Any) -> list[int]:
    """Rows of each row group of a Parquet file."""
    return [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
