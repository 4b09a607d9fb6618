"""Compiled loops on several threads of Python's, as many as numba may use.

The loops release the interpreter's lock, so plain threads run them side by side. numba's own `prange` would
do the same, but takes seconds more to compile, and its default scheduler must not be entered by two threads
at once.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise

from numba import get_num_threads


def in_threads(task, n_shares, alone=False):
    """Call task(first, last) so that every share 0 ... n_shares - 1 lies in one first <= share < last.

    Parameters
    ----------
    task : callable
        Does the shares first ... last - 1; writes nothing that other shares write.
    n_shares : int
        How many there are.
    alone : bool
        Whether the caller's own thread does all of them: where the work is small.
    """
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


@lru_cache(maxsize=8)
def _pool(n_threads, process):
    """Threads of a process: those of its parent are gone after a fork."""
    return ThreadPoolExecutor(n_threads, thread_name_prefix=f"manylens-{process}")
