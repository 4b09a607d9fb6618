"""One numba thread for each test process: several processes of several threads would wait for each other."""

import os

import numba
import pytest


@pytest.fixture(autouse=True, scope="session")
def one_thread_per_process():
    if "PYTEST_XDIST_WORKER" in os.environ:
        numba.set_num_threads(1)
