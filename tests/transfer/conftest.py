"""One BLAS thread: the matrices are small, and test processes run side by side."""

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True, scope="session")
def one_blas_thread():
    with threadpool_limits(limits=1, user_api="blas"):
        yield
