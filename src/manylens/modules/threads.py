"""BLAS on one thread, for matrices so small that threads would only wait for each other."""

import contextlib
import functools

from threadpoolctl import ThreadpoolController


@functools.cache
def _controller():
    # Finding the loaded libraries takes milliseconds, as long as a whole small solve: do it once.
    return ThreadpoolController()


def one_blas_thread(small=True):
    """A context in which BLAS runs on one thread.

    Parameters
    ----------
    small : bool
        Whether the matrices are small; where not, nothing is changed.

    Returns
    -------
    context manager
        To be entered with `with`.
    """
    return _controller().limit(limits=1, user_api="blas") if small else contextlib.nullcontext()
