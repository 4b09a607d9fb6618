"""All threading: one thread for BLAS, and shares of work on Python threads.

Compiled loops release the interpreter's lock, so plain threads run them side by side. numba's `prange` takes
seconds longer to compile, and its default scheduler aborts if two threads enter it at once.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from numbers import Integral
from types import TracebackType
from typing import Any

from joblib import effective_n_jobs
from threadpoolctl import ThreadpoolController

BRING_BLAS = frozenset({"numpy", "scipy.linalg", "sklearn", "faiss", "torch"})  # each loads its own BLAS
SMALL_ORDER = 2000  # LAPACK gains little from threads on matrices up to this order


class OneThread:
    """Context that limits BLAS to one thread; on exit, a thread restores the limits that the first one found.

    Some BLAS libraries set the limit per thread, some per process, so every thread must restore it. If each
    restored what it found itself, two overlapping fits could leave the process with one thread for good.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._depth = threading.local()  # contexts that this thread is in
        self._libraries: list[Any] = []
        self._seen: frozenset[str] | None = None  # packages loaded when the libraries were listed
        self._found: list[int] = []

    def __enter__(self) -> None:
        with self._lock:
            loaded = frozenset(name for name in BRING_BLAS if name in sys.modules)
            if self._inside == 0 and loaded != self._seen:
                # Listing the libraries takes milliseconds, as long as a small solve.
                self._libraries = list(ThreadpoolController().select(user_api="blas").lib_controllers)
                self._seen = loaded
            if self._inside == 0:
                self._found = [library.num_threads for library in self._libraries]
            self._inside += 1
        self._depth.count = getattr(self._depth, "count", 0) + 1
        self._set([1] * len(self._found))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._depth.count -= 1
        if self._depth.count == 0:
            self._set(self._found)
        with self._lock:
            self._inside -= 1

    def _set(self, counts: Sequence[int]) -> None:
        for library, count in zip(self._libraries, counts, strict=True):
            library.set_num_threads(count)


_LIMIT = OneThread()


def one_blas_thread(small: bool = True) -> contextlib.AbstractContextManager[None]:
    """Context in which BLAS runs on one thread, if the matrices are small."""
    return _LIMIT if small else contextlib.nullcontext()


def scipy_alone(order: int) -> contextlib.AbstractContextManager[None]:
    """Context for a LAPACK call of scipy among numpy's: one thread unless the matrix is large.

    The wheels of numpy and scipy each bring a BLAS whose threads spin for some hundredths of a second after a
    call and take the cores from the other.
    """
    return one_blas_thread(order <= SMALL_ORDER)


def in_threads(task: Callable[[int, int], Any], n_shares: int, alone: bool = False) -> None:
    """Call task(first, last) over contiguous ranges that together cover shares 0 ... n_shares - 1.

    `alone` keeps small tasks on the calling thread. Shares must not write to the same memory.
    """
    from numba import get_num_threads  # takes 0.25 s to import, which fits without compiled loops avoid

    n_threads = 1 if alone else min(get_num_threads(), n_shares)
    if n_threads <= 1:
        task(0, n_shares)
        return
    cuts = [n_shares * k // n_threads for k in range(n_threads + 1)]
    pool = _pool(n_threads, os.getpid())
    others = [pool.submit(task, first, last) for first, last in pairwise(cuts[1:])]
    task(0, cuts[1])
    for other in others:
        other.result()


def over_blocks(work: Callable[[slice], Any], n_rows: int, block: int, n_jobs: int | None) -> None:
    """Call work(slice) for blocks of rows on threads, each with one BLAS thread.

    The blocks do not depend on the number of threads, and neither does the result.
    """
    blocks = [slice(first, min(first + block, n_rows)) for first in range(0, n_rows, block)]
    if not isinstance(n_jobs, int | Integral | None):  # NaN would wait forever for a thread
        raise TypeError(
            f"n_jobs={n_jobs!r:.200} is not a number of threads: give 1 or more, or -1 for all cores."
        )
    n_threads = min(effective_n_jobs(n_jobs), len(blocks))
    with one_blas_thread():
        if n_threads < 2:
            for rows in blocks:
                work(rows)
            return
        with ThreadPoolExecutor(n_threads) as pool:
            for finished in [pool.submit(work, rows) for rows in blocks]:
                finished.result()


@lru_cache(maxsize=8)
def _pool(n_threads: int, process: int) -> ThreadPoolExecutor:
    """Threads of this process; those of its parent are gone after a fork."""
    return ThreadPoolExecutor(n_threads, thread_name_prefix=f"manylens-{process}")
