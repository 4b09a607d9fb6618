import multiprocessing
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest

from manylens.native.threads import in_threads


@pytest.fixture(params=[1, 2])
def n_threads(request):
    before = numba.get_num_threads()
    numba.set_num_threads(min(request.param, before))
    yield request.param
    numba.set_num_threads(before)


@pytest.mark.parametrize("n_shares", [0, 1, 2, 7, 16])
@pytest.mark.parametrize("alone", [False, True])
def test_every_share_is_done_once(n_threads, n_shares, alone):
    done = np.zeros(n_shares, int)

    def task(first, last):
        done[first:last] += 1

    in_threads(task, n_shares, alone)
    assert np.all(done == 1)


def test_an_error_in_any_share_is_raised(n_threads):
    def task(first, last):
        if last == 8:
            raise ValueError("the last share fails")

    with pytest.raises(ValueError, match="the last share fails"):
        in_threads(task, 8)


def test_callers_in_several_threads_do_not_wait_for_each_other_forever():
    def call(_):
        done = np.zeros(20, int)
        in_threads(lambda first, last: done[first:last].__iadd__(1), 20)
        return done.sum()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(call, range(50))) == [20] * 50


def _count(pipe):
    done = np.zeros(6, int)

    def task(first, last):
        done[first:last] += 1

    in_threads(task, 6)
    pipe.send(int(done.sum()))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own():
    in_threads(np.arange, 4)
    ours, theirs = multiprocessing.get_context("fork").Pipe()
    process = multiprocessing.get_context("fork").Process(target=_count, args=(theirs,))
    process.start()
    assert ours.poll(20)
    assert ours.recv() == 6
    process.join()
