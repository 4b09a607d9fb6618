"""One file of arrays and a description: written atomically, with a checksum for every byte.

Layout: a head of 64 bytes, the parts (each padded with zeros to a multiple of 64 bytes), and the description,
which is JSON and lists the length and the SHA-256 of every part.
"""

from __future__ import annotations

import hashlib
import io
import json
import mmap as memory_map
import os
import platform
import re
import secrets
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

from manylens.typing import AnyArray
from manylens.validation import check_path

MAGIC = b"\x93MANYLENS\r\n\0"
FORMAT = 1  # version of the layout and of the description
HEAD = struct.Struct("<12sIQQ32s")  # magic, format, start and length of the description, and its SHA-256
PAD = 64  # bytes to which parts are aligned, enough for every array and for memory maps
CHUNK = 2**24  # bytes that are hashed and written at a time
PART_NAME = re.compile(r"\.manylens-([0-9a-f]{8})-(\d+)-[0-9a-f]{16}\.part")


@contextmanager
def replacing(path: str | PathLike[str]) -> Iterator[BinaryIO]:
    """Open a new file that takes the place of `path` when the block ends; if it raises, nothing changes.

    The new file is written under a unique name in the same folder, synchronized with the disk and renamed.
    """
    check_path(path)
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give the name of a file.")
    if target.exists() and not target.is_file():
        raise ValueError(f"{path} is not a regular file, so it cannot be replaced: give another name.")
    part = target.with_name(f".manylens-{this_host()}-{os.getpid()}-{secrets.token_hex(8)}.part")
    try:
        with open(part, "xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists():
            shutil.copymode(target, part)
        os.replace(part, target)
        sync_folder(target.parent)
    except OSError as error:
        part.unlink(missing_ok=True)
        if error.errno is None:
            raise
        kept = " The file of this name is unchanged." if target.exists() else ""
        raise OSError(error.errno, f"{path} was not saved: {error.strerror}.{kept}") from None
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    remove_abandoned(target.parent)


def this_host() -> str:
    """Eight digits that identify this machine, for the names of unfinished files."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def sync_folder(folder: Path) -> None:
    """Make a rename durable; not possible on Windows, which has no file descriptors of folders."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_abandoned(folder: Path) -> None:
    """Delete unfinished files of processes of this machine that no longer run."""
    if os.name != "posix":  # on Windows, `os.kill` would end the process
        return
    for name in os.listdir(folder):
        found = PART_NAME.fullmatch(name)
        if found is None or found[1] != this_host():
            continue
        try:
            os.kill(int(found[2]), 0)
        except (ProcessLookupError, OverflowError):
            (folder / name).unlink(missing_ok=True)
        except OSError:  # another user's process
            continue


class PartWriter:
    """Writes parts to a stream, and at the end the description and the head."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.parts: list[tuple[int, str]] = []  # length and SHA-256, padding included
        stream.write(bytes(HEAD.size))

    def add(self, data: Any) -> int:
        """Write bytes, or a contiguous array of them, and return the number of the part."""
        view, digest = memoryview(data), hashlib.sha256()
        for start in range(0, len(view), CHUNK):
            digest.update(view[start : start + CHUNK])
            self.stream.write(view[start : start + CHUNK])
        padding = bytes(-len(view) % PAD)
        digest.update(padding)
        self.stream.write(padding)
        self.parts.append((len(view) + len(padding), digest.hexdigest()))
        return len(self.parts) - 1

    def finish(self, content: Any) -> None:
        """Write the description of the content and the head."""
        text = json.dumps({"parts": self.parts, "content": content}, separators=(",", ":")).encode()
        start = self.stream.tell()
        self.stream.write(text)
        self.stream.seek(0)
        self.stream.write(HEAD.pack(MAGIC, FORMAT, start, len(text), hashlib.sha256(text).digest()))


class PartReader:
    """Reads the parts of a file; everything but mapped arrays is compared with its checksum first."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self.stream, self.name = stream, name
        head = stream.read(HEAD.size)
        size = stream.seek(0, io.SEEK_END)
        if len(head) < HEAD.size:
            raise self.damaged("it ends too early")
        _, version, start, length, digest = HEAD.unpack(head)
        if version != FORMAT:
            raise ValueError(
                f"{name} has format {version}, and this version of manylens reads format {FORMAT}: load it "
                "with the version that saved it."
            )
        if start + length != size:
            raise self.damaged(f"it has {size} bytes instead of {start + length}")
        stream.seek(start)
        text = stream.read(length)
        if hashlib.sha256(text).digest() != digest:
            raise self.damaged("its description does not match its checksum")
        description = json.loads(text)
        self.content = description["content"]
        self.parts: list[tuple[int, int, str]] = []  # start, length and SHA-256
        at = HEAD.size
        for size_of_part, checksum in description["parts"]:
            self.parts.append((at, size_of_part, checksum))
            at += size_of_part
        if at != start or any(size_of_part < 0 for _, size_of_part, _ in self.parts):
            raise self.damaged("its parts do not fill it")

    @classmethod
    @contextmanager
    def open(cls, path: str | PathLike[str]) -> Iterator[Self]:
        """Open a file and check its head and its description."""
        with open(path, "rb") as stream:
            yield cls(stream, Path(path).name)

    def read(self, part: int, size: int) -> AnyArray:
        """The first `size` bytes of a part."""
        start, length, checksum = self._part(part, size)
        data: Any = np.empty(length, dtype=np.uint8)
        self.stream.seek(start)
        if self.stream.readinto(memoryview(data)) != length:  # type: ignore[attr-defined]
            raise self.damaged("it ends too early")
        if hashlib.sha256(data).hexdigest() != checksum:
            raise self.damaged(f"part {part} does not match its checksum")
        return data[:size]

    def map(self, part: int, size: int) -> AnyArray:
        """The first `size` bytes of a part, mapped copy-on-write and not compared with the checksum."""
        start, length, _ = self._part(part, size)
        if not length:
            return self.read(part, size)
        offset = start - start % memory_map.ALLOCATIONGRANULARITY
        mapped = np.memmap(
            self.stream, dtype=np.uint8, mode="c", offset=offset, shape=(start - offset + size,)
        )
        return mapped[start - offset :]

    def verify(self) -> None:
        """Compare every part with its checksum."""
        for part, (_, length, _) in enumerate(self.parts):
            self.read(part, length)

    def damaged(self, reason: str) -> ValueError:
        """An error for a file that was changed after it was saved."""
        return ValueError(f"{self.name} is damaged or was modified ({reason}): use another copy of it.")

    def _part(self, part: int, size: int) -> tuple[int, int, str]:
        if not 0 <= part < len(self.parts) or not 0 <= size <= self.parts[part][1]:
            raise self.damaged("an array does not fit its part")
        return self.parts[part]
