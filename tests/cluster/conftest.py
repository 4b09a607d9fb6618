"""A cluster of real processes, shared by the tests of this folder."""

import pytest


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    with distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, processes=True, dashboard_address=":0"
    ) as made:
        yield made


@pytest.fixture
def client(cluster):
    from distributed import Client

    with Client(cluster, timeout=30) as made:
        made.wait_for_workers(3, timeout=60)
        yield made
