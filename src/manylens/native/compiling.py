"""Compilation of hot loops: cached on disk, without the interpreter's lock, announced if it takes long."""

from __future__ import annotations

import functools
import gc
import hashlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import config, njit
from numba.core import event
from numba.extending import register_jitable

logger = logging.getLogger("manylens")

ANNOUNCE_AFTER = 1.0  # seconds of compilation before the user is told


def compiled(
    function: Callable[..., Any] | None = None, *, cache: bool = True, allocates: bool = True, **options: Any
) -> Any:
    """Compile a loop on its first call; later processes on the same machine load it from numba's cache.

    Functions that are only ever called by others should be `inlined`. A loop that does not allocate (memory,
    not views) compiles faster if numba is told. Loops never use `prange`: see `native.threads`.
    """
    if function is None:
        return functools.partial(compiled, cache=cache, allocates=allocates, **options)
    _Listener.install()
    options = {"nogil": True, "_nrt": allocates, **options}
    if cache and not vars(config)["DISABLE_JIT"]:
        try:
            return _key_cache_by_folder(njit(function, cache=True, **options))
        except RuntimeError as error:  # numba found no folder that it may write to
            logger.info("Compiled loops are not cached: %s", error)
    return njit(function, **options)


def inlined(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """A function for compiled loops only; it stays a plain function in Python.

    Without an entry of its own it takes less time to compile, once for all loops with the same options that
    call it with the same types.
    """
    if function is None:
        return functools.partial(inlined, **options)
    return register_jitable(forceinline=True, **options)(function)


@functools.cache
def folder_hash() -> str:
    """Hash of all sources in this folder."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _key_cache_by_folder(dispatcher: Any) -> Any:
    """Discard a cached loop when any file in this folder has changed.

    numba looks only at the file of the function itself, but loops here inline functions of other files. There
    is no public API for this; `tests/native/test_compiling.py` points to this function if numba changes.
    """
    index = dispatcher._cache._cache_file
    index._source_stamp = (index._source_stamp, folder_hash())
    return dispatcher


class _Listener(event.Listener):
    """Tell the user, once per process, that a wait is due to compilation, and shorten it.

    Garbage collection takes a tenth of a compilation and finds nothing, so it pauses.
    """

    _installed: _Listener | None = None

    def __init__(self) -> None:
        self._depth = 0
        self._timer: threading.Timer | None = None
        self._done = False
        self._paused = False

    @classmethod
    def install(cls) -> None:
        if cls._installed is None:
            cls._installed = cls()
            # numba is not annotated
            event.register("numba:compile", cls._installed)  # type: ignore[no-untyped-call]

    def on_start(self, event: event.Event) -> None:
        function = getattr(event.data["dispatcher"], "py_func", None)  # perhaps of a library without modules
        ours = str(getattr(function, "__module__", None)).startswith("manylens.")
        self._depth += 1
        if ours and gc.isenabled():
            self._paused = True
            gc.disable()
        if ours and not self._done and self._timer is None:
            self._timer = threading.Timer(ANNOUNCE_AFTER, self._announce)
            self._timer.daemon = True
            self._timer.start()

    def on_end(self, event: event.Event) -> None:
        self._depth -= 1
        if self._paused and self._depth == 0:
            self._paused = False
            gc.enable()

    def _announce(self) -> None:
        self._timer = None
        if self._depth > 0:
            self._done = True
            logger.warning(
                "manylens is compiling its loops, once per machine. "
                "`python -m manylens warmup` does it ahead of time."
            )
