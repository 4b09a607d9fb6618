"""A cluster of real processes, shared by all tests of this folder; killed workers are started again."""

import pytest


@pytest.fixture(scope="session")
def cluster():
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    import dask

    with (
        # a cluster gives up a worker that has not been restarted after 15 seconds, too few on a busy machine
        dask.config.set({"distributed.deploy.lost-worker-timeout": "10 minutes"}),
        distributed.LocalCluster(
            n_workers=3, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as made,
    ):
        yield made


@pytest.fixture
def client(cluster):
    from distributed import Client

    with Client(cluster, timeout=30) as made:
        made.wait_for_workers(3, timeout=60)
        yield made


@pytest.fixture(scope="session")
def one_worker():
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=True, dashboard_address=":0"
    ) as made:
        yield made


@pytest.fixture
def threads(one_worker):
    """A client of one worker with two threads."""
    from distributed import Client

    with Client(one_worker, timeout=30) as made:
        yield made
