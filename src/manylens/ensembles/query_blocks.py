"""Blocks of queries on threads, each with one BLAS thread."""

from concurrent.futures import ThreadPoolExecutor

from joblib import effective_n_jobs
from sklearn.utils import gen_batches

from manylens.native.threads import one_blas_thread

QUERIES = 512  # in a block, for which a tile of rows is turned once; see native.scanning


def over_blocks(work, n_queries, n_jobs):
    """Call `work(slice)` for blocks of queries on threads, each with one BLAS thread.

    The blocks do not depend on the number of threads, nor then does the result.

    Parameters
    ----------
    work : callable
        Releases the interpreter's lock where it matters.
    n_queries : int
        How many in all.
    n_jobs : int
        Threads, as joblib counts them.
    """
    blocks = list(gen_batches(n_queries, QUERIES))
    n_threads = min(effective_n_jobs(n_jobs), len(blocks))
    with one_blas_thread():
        if n_threads < 2:
            for block in blocks:
                work(block)
            return
        with ThreadPoolExecutor(n_threads) as pool:
            for finished in [pool.submit(work, block) for block in blocks]:
                finished.result()
