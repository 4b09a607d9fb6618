"""Memory of a fit on blocks: a worker holds one block and summaries, the client only the result."""

import weakref
from pathlib import Path

import numpy as np
import pytest

from manylens import ModularAutoencoder, ModularKernelPCA
from manylens.cluster import Blockwise
from tests.cluster.test_on_workers import within

dask = pytest.importorskip("dask")
pytest.importorskip("distributed")

BLOCK_MB, N_BLOCKS = 8, 40


def make_block(number, n_rows=10_000):
    return np.random.default_rng(number).standard_normal((n_rows, 100)) + number


def reset_peak():
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


class Counted(np.ndarray):
    """Rows that are counted while they exist."""


class Living:
    """Number of blocks that exist at a time, in this process."""

    now = most = 0


def counted_block(number):
    rows = make_block(number, 300).view(Counted)
    Living.now += 1
    Living.most = max(Living.most, Living.now)
    weakref.finalize(rows, forget)
    return rows


def forget():
    Living.now -= 1


@pytest.mark.parametrize(
    "model", [ModularAutoencoder(3, 4, random_state=0), ModularKernelPCA(3, 4, rank=50, random_state=0)]
)
@within(120)
def test_blocks_are_not_read_ahead(model):
    from distributed import Client, LocalCluster

    settings = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with LocalCluster(**settings) as cluster, Client(cluster, timeout=60):
        Living.most = 0
        Blockwise(model, sample_rows=200).fit([dask.delayed(counted_block)(k) for k in range(40)])
    assert 1 <= Living.most <= 5


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is read from /proc")
@within(240)
def test_a_worker_holds_one_block_and_summaries_and_the_client_the_result():
    from distributed import Client, LocalCluster

    models = [ModularAutoencoder(3, 4, random_state=0), ModularKernelPCA(3, 4, rank=50, random_state=0)]
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        Client(cluster, timeout=60) as client,
    ):
        for model in models:  # loads libraries and compiled code
            Blockwise(model, sample_rows=200).fit([dask.delayed(make_block)(k) for k in range(3)])
        for model in models:
            (worker,) = client.run(reset_peak).values()
            here = reset_peak()
            Blockwise(model, sample_rows=200).fit([dask.delayed(make_block)(k) for k in range(N_BLOCKS)])
            (peak,) = client.run(status, "VmHWM").values()
            # 320 MB in all; a few blocks at a time: one read ahead, one in work, and its features
            assert peak - worker < 10 * BLOCK_MB
            assert status("VmHWM") - here < 2 * BLOCK_MB
