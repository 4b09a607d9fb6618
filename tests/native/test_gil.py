"""Compiled loops release Python's lock only if they want to."""

import threading

import numpy as np

from manylens.native.compiling import compiled
from manylens.native.gil import release, retake
from tests.native.plain_python import forms


@compiled(cache=False, nogil=False)
def spin(flag, most, wanted):
    """Count until another thread sets the flag."""
    state, count = release(wanted), 0
    while flag[0] == 0 and count < most:
        count += 1
        flag[1] = count
    retake(state)
    return count


@forms(spin)
def test_the_loop_runs_with_and_without_the_lock(loop):
    for wanted in (True, False):
        assert loop(np.zeros(2, dtype=np.int64), 5, wanted) == 5


def test_another_thread_runs_while_the_lock_is_released():
    flag = np.zeros(2, dtype=np.int64)
    spin(flag, 1, True)  # compile
    flag[:] = 0
    other = threading.Timer(0.01, flag.__setitem__, (0, 1))
    other.start()
    assert spin(flag, 2**60, True) == flag[1]  # would never end if it kept the lock
    other.join()
    assert flag[0] == 1
