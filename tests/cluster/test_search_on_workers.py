"""Search on a cluster of processes: the embedded answer, and workers that die or stop."""

import os
import pickle
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits

from manylens import ModularKernelPCA, ModuleNeighbors
from manylens.cluster import DistributedNeighbors
from tests.cluster.limits import within

dask = pytest.importorskip("dask")
pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")

X = load_digits().data[np.random.default_rng(0).permutation(1797)]
BASE, QUERIES = X[:1200], X[1200:1230]
LENSES = ModularKernelPCA(6, 4, diversity=1, rank=150, random_state=0).fit(BASE)
DISTANCES, ROWS = ModuleNeighbors(LENSES, method="exact").fit(BASE).kneighbors(QUERIES)


def is_exact(found):
    np.testing.assert_allclose(found.distances, DISTANCES, rtol=1e-9)
    return found.answered.all() and np.array_equal(found.rows, ROWS)


def until(condition, seconds=60):
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def workers_of(index):
    """The worker of each part."""
    return {slot: [copy.worker for copy in copies] for slot, copies in index._parts.copies.items()}


def victim(index, client):
    """A worker that holds parts of the index, and its process."""
    worker = next(iter(workers_of(index).values()))[0]
    return worker, client.run(os.getpid, workers=[worker])[worker]


@within(300)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_rows_from_anywhere_give_the_embedded_answer(client, tmp_path):
    for number, rows in enumerate(np.split(BASE, 4)):
        np.save(tmp_path / f"rows-{number}.npy", rows)
    blocks = [dask.delayed(np.load)(path) for path in sorted(tmp_path.glob("*.npy"))]
    frame = da.from_array(BASE, chunks=(400, 20)).to_dask_dataframe(columns=[f"c{k}" for k in range(64)])
    parquet = tmp_path / "parquet"
    frame.to_parquet(parquet)
    for rows in (tmp_path, parquet, blocks, da.from_array(BASE, chunks=(300, 64)), frame, BASE):
        index = DistributedNeighbors(LENSES, n_shards=2).fit(rows)
        assert is_exact(index.kneighbors(QUERIES))
        index.close()


@pytest.fixture
def index(client):
    index = DistributedNeighbors(LENSES, n_shards=2).fit(BASE)
    yield index
    index.close()


@within(120)
def test_large_modules_are_no_reason_for_a_warning_but_large_blocks_are(client):
    blocks = [dask.delayed(BASE)]  # in the graph
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "50 kB"}):
        assert len(pickle.dumps(LENSES)) > 50_000
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            DistributedNeighbors(LENSES).fit(BASE).close()
        with pytest.warns(UserWarning, match="large graph"):
            DistributedNeighbors(LENSES).fit(blocks).close()


@within(120)
def test_ids_filters_and_removed_rows_give_the_embedded_answer(index):
    exact = ModuleNeighbors(LENSES, method="exact").fit(BASE)
    for each in (index, exact):
        each.remove(np.arange(500, 700)).partial_fit(X[1300:1350], ids=np.arange(5000, 5050))
    for where in (None, np.arange(1050) % 3 == 0, [5, 17, *range(5000, 5030)], lambda ids: ids > 900):
        found, expected = (each.kneighbors(QUERIES, 7, where=where) for each in (index, exact))
        assert found.answered.all()
        assert np.array_equal(found.rows, expected[1])


@within(120)
def test_workers_with_several_threads(threads):
    index = DistributedNeighbors(LENSES, n_groups=3, n_shards=2).fit(BASE)
    assert is_exact(index.kneighbors(QUERIES))
    index.close()


@within(120)
def test_no_machine_holds_all_modules(client):
    index = DistributedNeighbors(LENSES, n_shards=2).fit(BASE)
    assert len(index.groups_) == 3
    groups = {}
    for (_uid, group), workers in workers_of(index).items():
        groups.setdefault(workers[0], set()).add(group)
    assert set(groups) == set(client.scheduler_info()["workers"])
    assert all(len(held) < 3 for held in groups.values())
    until(lambda: len(client.who_has()) == 6)  # the actors; rows and columns are gone
    index.close()
    until(lambda: not client.who_has())


@within(180)
def test_unfitted_modules_are_fitted_where_the_rows_live(client):
    blocks = da.from_array(BASE, chunks=(300, 64))
    index = DistributedNeighbors(ModularKernelPCA(4, 3, rank=60, random_state=0)).fit(blocks)
    exact = ModuleNeighbors(index.modules_, method="exact").fit(BASE).kneighbors(QUERIES)[1]
    assert np.array_equal(index.kneighbors(QUERIES).rows, exact)


@within(240)
def test_a_killed_worker_is_missed_then_rebuilt_and_the_load_is_balanced(client, tmp_path):
    np.save(tmp_path / "rows.npy", BASE)
    index = DistributedNeighbors(LENSES, n_shards=2).fit(tmp_path)
    worker, process = victim(index, client)
    os.kill(process, signal.SIGKILL)
    counts = []

    def is_back():
        found = index.kneighbors(QUERIES, deadline=20)
        counts.append(int(found.answered.sum()))
        assert found.expected_recall[0] == index.recall_curve_[counts[-1]]
        return found.answered.all()

    until(is_back, 120)
    assert is_exact(index.kneighbors(QUERIES))
    assert min(counts) >= 4  # two of three workers answered throughout
    assert worker not in {each for workers in workers_of(index).values() for each in workers}
    client.wait_for_workers(3, timeout=60)

    def is_balanced():
        index.kneighbors(QUERIES[:1])
        placed = [workers[0] for workers in workers_of(index).values()]
        return sorted(placed.count(each) for each in set(placed)) == [2, 2, 2]

    until(is_balanced, 90)
    assert is_exact(index.kneighbors(QUERIES))


@within(180)
def test_a_stopped_worker_costs_at_most_the_deadline_and_comes_back(client):
    index = DistributedNeighbors(LENSES).fit(BASE)
    index.kneighbors(QUERIES)
    _, process = victim(index, client)
    os.kill(process, signal.SIGSTOP)
    try:
        start = time.monotonic()
        found = index.kneighbors(QUERIES, deadline=3)
        assert time.monotonic() - start < 6
        assert found.answered.sum() == 4
        start = time.monotonic()
        assert index.kneighbors(QUERIES, at_least=4).answered.sum() == 4  # without a deadline
        assert time.monotonic() - start < 6
    finally:
        os.kill(process, signal.SIGCONT)
    until(lambda: is_exact_if_all(index))


def is_exact_if_all(index):
    found = index.kneighbors(QUERIES, deadline=20)
    return found.answered.all() and is_exact(found)


@within(180)
def test_with_replicas_a_killed_worker_is_not_missed(client):
    index = DistributedNeighbors(LENSES, replicas=2).fit(BASE)
    assert all(len(set(workers)) == 2 for workers in workers_of(index).values())
    _, process = victim(index, client)
    os.kill(process, signal.SIGKILL)
    for _ in range(5):
        assert is_exact(index.kneighbors(QUERIES, deadline=30))
    client.wait_for_workers(3, timeout=60)


OTHER_CLIENT = """
import pickle, sys
import numpy as np
from distributed import Client
with Client(sys.argv[1], timeout=30):
    with open(sys.argv[2], "rb") as file:
        index, queries, rows = pickle.load(file)
    found = index.kneighbors(queries, deadline=60)
    assert found.answered.all() and np.array_equal(found.rows, rows)
    print(sorted(copy.future.key for copies in index._parts.copies.values() for copy in copies))
"""


@within(180)
def test_another_process_searches_the_same_parts(client, tmp_path):
    index = DistributedNeighbors(LENSES).fit(BASE)
    path = tmp_path / "index.pickle"
    path.write_bytes(pickle.dumps((index, QUERIES, ROWS)))
    before = sorted(client.who_has())
    done = subprocess.run(
        [sys.executable, "-c", OTHER_CLIENT, client.scheduler.address, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    keys = [copy.future.key for copies in index._parts.copies.values() for copy in copies]
    assert eval(done.stdout) == sorted(keys)
    assert sorted(client.who_has()) == before
    assert is_exact(index.kneighbors(QUERIES))


@within(180)
def test_rows_are_added_saved_and_loaded(client, tmp_path):
    index = DistributedNeighbors(LENSES, n_shards=2).fit(BASE[:900])
    index.partial_fit(da.from_array(BASE[900:1100], chunks=(100, 64)))
    index.partial_fit(BASE[1100:])
    assert is_exact(index.kneighbors(QUERIES))
    index.save(tmp_path)
    assert len(list(tmp_path.glob("part-*"))) == len(index.layout_.slots)
    index.close()
    loaded = DistributedNeighbors.load(tmp_path)
    assert is_exact(loaded.kneighbors(QUERIES))
    _, process = victim(loaded, client)
    os.kill(process, signal.SIGKILL)  # its parts are read from the files again
    until(lambda: is_exact_if_all(loaded), 90)
    client.wait_for_workers(3, timeout=60)


class TestBadInput:
    @within(120)
    def test_a_block_that_cannot_be_read_is_named(self, client, tmp_path):
        paths = [tmp_path / f"{k}.npy" for k in range(5)]
        for path, rows in zip(paths, np.split(BASE, 5), strict=True):
            np.save(path, rows)
        blocks = [dask.delayed(np.load)(path) for path in paths]
        index = DistributedNeighbors(LENSES).fit(blocks)
        paths[3].unlink()
        index.close()
        with pytest.raises(RuntimeError, match=r"Block 3 \(the first is 0\) could not be read: FileNotFound"):
            index.kneighbors(QUERIES)

    @within(120)
    def test_nan_and_other_widths_name_the_block(self, client):
        rows = [dask.delayed(part) for part in np.split(BASE, 40)]
        for bad, message in (
            (np.where(np.arange(64) == 2, np.nan, BASE[:30]), "Input X contains NaN"),
            (BASE[:30, :3], "X has 3 features"),
            (BASE[:0], "Found array with 0 sample"),
        ):
            rows[37] = dask.delayed(bad)
            with pytest.raises(ValueError, match=rf"Block 37 \(the first is 0\): {message}"):
                DistributedNeighbors(LENSES).fit(rows)

    @within(60)
    def test_a_deadline_that_is_over_at_once(self, index):
        with pytest.raises(ValueError, match="deadline"):
            index.kneighbors(QUERIES, deadline=0)
        with pytest.raises(TimeoutError, match="None of the 6 modules"):
            index.kneighbors(QUERIES, deadline=1e-9)
        assert is_exact(index.kneighbors(QUERIES))

    @within(60)
    def test_more_replicas_than_workers(self, client):
        with pytest.raises(ValueError, match="replicas=4 is more than the 3 workers"):
            DistributedNeighbors(LENSES, replicas=4).fit(BASE)

    @within(60)
    def test_no_worker(self):
        from distributed import Client, LocalCluster

        with LocalCluster(n_workers=0, dashboard_address=":0") as empty, Client(empty, timeout=30):
            start = time.monotonic()
            with pytest.raises(TimeoutError, match="No worker for 1 seconds at tcp"):
                DistributedNeighbors(LENSES, patience=1.0).fit(BASE)
            assert time.monotonic() - start < 15

    @within(120)
    def test_a_closed_client(self, cluster):
        from distributed import Client

        with Client(cluster, timeout=30):
            index = DistributedNeighbors(LENSES).fit(BASE)
        with pytest.raises(RuntimeError, match=r"The dask client of this index is closed: create another"):
            index.kneighbors(QUERIES)
        with Client(cluster, timeout=30):
            assert is_exact(index.kneighbors(QUERIES))  # built again on the new client
