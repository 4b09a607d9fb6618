import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from manylens.native.threads import one_blas_thread


def blas_threads():
    np.ones((2, 2)) @ np.ones((2, 2))
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_overlapping_threads_leave_the_limit_as_they_found_it():
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        entered, leave, seen = threading.Event(), threading.Event(), []

        def work():
            with one_blas_thread():
                seen.append(blas_threads())
                entered.set()
                leave.wait(10)

        other = threading.Thread(target=work)
        with one_blas_thread():
            other.start()
            entered.wait(10)
            assert blas_threads() == {1}
        leave.set()
        other.join()
        assert seen == [{1}]
        assert blas_threads() == before


def test_large_matrices_keep_their_threads():
    before = blas_threads()
    with one_blas_thread(small=False):
        assert blas_threads() == before


def test_a_blas_that_is_loaded_later_is_limited_too():
    code = (
        "from manylens.native.threads import one_blas_thread\n"
        "with one_blas_thread(): pass\n"
        "import faiss\n"
        "from threadpoolctl import threadpool_info\n"
        "with one_blas_thread():\n"
        "    print({l['num_threads'] for l in threadpool_info() if l['user_api'] == 'blas'})\n"
    )
    pytest.importorskip("faiss")
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120, check=True
    )
    assert done.stdout == "{1}\n"


def test_a_nested_limit_does_not_end_the_outer_one():
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        with one_blas_thread():
            with one_blas_thread():
                pass
            assert blas_threads() == {1}
        assert blas_threads() == before
