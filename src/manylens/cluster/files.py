"""Files as blocks: folders and lists of .npy or Parquet files, each read where it is summarized."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from manylens.validation import import_optional

SUFFIXES = (".npy", ".parquet", ".pq")


def is_path(value: Any) -> TypeGuard[str | os.PathLike[str]]:
    """Whether a value names a file or a folder."""
    return isinstance(value, str | os.PathLike)


def file_list(X: Any) -> Any:
    """The files of a folder, of a list of paths, or of a dict of them, as a list; anything else as it is."""
    if is_path(X):
        return files_in(Path(X))
    if isinstance(X, Mapping) and X and all(map(is_path_or_paths, X.values())):
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
    """The .npy and Parquet files of a folder, by name; a file itself."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ValueError(f"{path} is neither a file nor a folder: give a folder of .npy or Parquet files.")
    found = sorted(each for each in path.iterdir() if each.suffix in SUFFIXES)
    if not found:
        raise ValueError(f"{path} holds no file that ends in {', '.join(SUFFIXES)}.")
    return found


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


def read_file(path: Any) -> Any:
    """The array of a .npy file, or the data frame of a Parquet file; no other file, and no pickled data."""
    suffix = Path(path).suffix
    if suffix == ".npy":
        return np.load(path, allow_pickle=False)
    if suffix in SUFFIXES:
        pandas = import_optional("pandas", "Reading Parquet files", "pandas pyarrow")
        return pandas.read_parquet(path)
    raise ValueError(f"{path} ends in {suffix!r}: files in {', '.join(SUFFIXES)} can be read.")


def read_part(part: Any) -> Any:
    """A part of a block, read if it is a path or a dict of paths."""
    if isinstance(part, Mapping):
        return {name: read_part(value) for name, value in part.items()}
    return read_file(part) if is_path(part) else part
