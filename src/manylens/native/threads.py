"""BLAS on one thread, for matrices so small that threads would only wait for each other."""

import contextlib
import threading

from threadpoolctl import ThreadpoolController


class OneThread:
    """A limit of one BLAS thread, which every one that leaves sets back to what the first one found.

    Whether such a limit holds for a thread or for the process depends on the BLAS. Were each to set back what
    it found itself, two fits that overlap in threads could leave the process with one thread for good.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._inside = 0
        self._libraries = None
        self._found = []

    def __enter__(self):
        with self._lock:
            if self._libraries is None:
                # Finding the loaded libraries takes milliseconds, as long as a small solve: do it once.
                self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers
            if self._inside == 0:
                self._found = [library.num_threads for library in self._libraries]
            self._inside += 1
        self._set([1] * len(self._found))

    def __exit__(self, *exception):
        self._set(self._found)
        with self._lock:
            self._inside -= 1

    def _set(self, counts):
        for library, count in zip(self._libraries or [], counts, strict=True):
            library.set_num_threads(count)


_LIMIT = OneThread()


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
    return _LIMIT if small else contextlib.nullcontext()


def scipy_alone(size):
    """A context for a call of scipy's BLAS or LAPACK between numpy's own: one thread, unless it is large.

    Wheels of numpy and scipy each bring a BLAS with threads of its own, which wait busily for some hundredths
    of a second after a call: those of the one would then take the cores from the other.

    Parameters
    ----------
    size : int
        Order of the matrix.

    Returns
    -------
    context manager
        To be entered with `with`.
    """
    return one_blas_thread(size <= 2000)
