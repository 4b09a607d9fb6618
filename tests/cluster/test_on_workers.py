"""Fits on a cluster of processes: the same bits for any workers, rows that stay, errors that name blocks."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning

from manylens import (
    NCA,
    AlignmentPruner,
    CountSketch,
    LayerRidgeClassifier,
    ModularAutoencoder,
    ModularKernelPCA,
    StreamingCKA,
    align_kernels,
    cka_matrix,
    rank_models,
    stable_rank,
)
from manylens.alignment import FeatureSketch
from manylens.baselines import BaggingAutoencoder, BootstrapKernelPCA
from manylens.cluster import Blockwise, over_blocks, summarize_blocks
from tests.cluster.limits import within

dask = pytest.importorskip("dask")
pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")

X, Y = load_digits(return_X_y=True)
X, Y = X[:900], Y[:900]
KERNEL_PCA = ModularKernelPCA(4, 3, rank=80, random_state=0)


def array(rows=X, size=100):
    return da.from_array(rows, chunks=(size, 30) if rows.ndim == 2 else size)


def same_bits(one, other):
    assert one.estimator_.components_.tobytes() == other.estimator_.components_.tobytes()
    assert one.estimator_.spectrum_.tobytes() == other.estimator_.spectrum_.tobytes()


@within(240)
def test_any_number_of_workers_gives_the_same_bits(client, one_worker):
    from distributed import Client

    three = Blockwise(KERNEL_PCA, sample_rows=300).fit(array())
    with Client(one_worker, timeout=30):
        one = Blockwise(KERNEL_PCA, sample_rows=300).fit(array())
    same_bits(one, three)
    same_bits(Blockwise(KERNEL_PCA, sample_rows=300).fit(np.split(X, 9)), three)  # and without dask
    with dask.config.set(scheduler="threads"):
        same_bits(Blockwise(KERNEL_PCA, sample_rows=300).fit(array()), three)


def slow_block(number, folder, victim):
    """A block of digits; the victim's first reader says who it is and never finishes."""
    mark = os.path.join(folder, f"pid-{victim}")
    if number == victim and not os.path.exists(mark):
        with open(mark + ".part", "w") as file:
            file.write(str(os.getpid()))
        os.rename(mark + ".part", mark)
        time.sleep(300)
    return X[100 * number : 100 * (number + 1)]


def second_time(number, folder, victim):
    """Like `slow_block`, in the pass of the summaries: the victim is read for the second time."""
    seen = os.path.join(folder, f"seen-{number}")
    if number == victim and not os.path.exists(seen):
        open(seen, "w").close()
        return X[100 * number : 100 * (number + 1)]
    return slow_block(number, folder, victim)


@pytest.mark.parametrize("load", [slow_block, second_time])
@within(240)
def test_a_worker_killed_half_way_changes_no_bit(client, tmp_path, load):
    expected = Blockwise(KERNEL_PCA, sample_rows=300).fit(np.split(X, 9))
    killed = []

    def kill():
        mark = tmp_path / "pid-5"
        while not mark.exists():
            time.sleep(0.05)
        killed.append(int(mark.read_text()))
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    blocks = [dask.delayed(load, pure=False)(k, str(tmp_path), 5) for k in range(9)]
    fitted = Blockwise(KERNEL_PCA, sample_rows=300).fit(blocks)
    thread.join(timeout=10)
    assert killed
    assert killed[0] != os.getpid()
    same_bits(fitted, expected)
    client.wait_for_workers(3, timeout=60)


@within(240)
def test_a_worker_killed_while_no_seed_is_given_leaves_one_consistent_fit(client, tmp_path):
    model = ModularKernelPCA(4, 3, rank=80)  # the seed is drawn once, on the client

    def kill():
        mark = tmp_path / "pid-5"
        while not mark.exists():
            time.sleep(0.05)
        os.kill(int(mark.read_text()), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    blocks = [dask.delayed(second_time, pure=False)(k, str(tmp_path), 5) for k in range(9)]
    fitted = Blockwise(model, sample_rows=300).fit(blocks).estimator_
    again = ModularKernelPCA(4, 3, rank=80)
    again.fit_feature_map(X)
    again.feature_map_ = fitted.feature_map_
    again.learn_from(again.summarize(X))
    np.testing.assert_allclose(again.spectrum_, fitted.spectrum_, rtol=1e-8)
    client.wait_for_workers(3, timeout=60)


class Rows:
    """Rows that note in a folder which process received them."""

    def __init__(self, rows, folder):
        self.rows, self.folder = rows, folder

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.rows, dtype=dtype)

    def __reduce__(self):
        return receive, (self.rows, self.folder)


def receive(rows, folder):
    open(os.path.join(folder, str(os.getpid())), "w").close()
    return Rows(rows, folder)


@within(180)
def test_rows_never_come_to_the_client(client, tmp_path):
    blocks = [dask.delayed(lambda k: Rows(X[100 * k : 100 * k + 100], str(tmp_path)))(k) for k in range(9)]
    assert isinstance(blocks[0].compute(), Rows)
    assert (tmp_path / str(os.getpid())).exists()  # the note works
    (tmp_path / str(os.getpid())).unlink()
    Blockwise(KERNEL_PCA, sample_rows=300).fit(blocks)
    assert not (tmp_path / str(os.getpid())).exists()


@within(180)
def test_transform_and_predict_give_dask_arrays(client):
    rows = array()
    fitted = Blockwise(KERNEL_PCA, sample_rows=300).fit(rows)
    Z = fitted.transform(rows)
    assert isinstance(Z, da.Array)
    assert Z.chunks == ((100,) * 9, (12,))
    np.testing.assert_allclose(Z.compute(), fitted.estimator_.transform(X), atol=1e-10)
    single = fitted.transform(rows.astype(np.float32))
    assert single.dtype == single.compute().dtype == np.float32

    classifier = Blockwise(LayerRidgeClassifier(rank=100, random_state=0), sample_rows=300)
    classifier.fit(rows, array(Y, 450))  # y is cut at the blocks of X
    labels = classifier.predict(rows)
    assert labels.dtype == Y.dtype
    assert (labels.compute() == Y).mean() > 0.95
    assert classifier.predict_proba(rows).shape == (900, 10)
    same = Blockwise(LayerRidgeClassifier(rank=100, random_state=0), sample_rows=300).fit(rows, Y)
    np.testing.assert_array_equal(same.predict(rows).compute(), labels.compute())


@within(180)
def test_data_frames(client):
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame(X, index=np.arange(900) * 3 + 7, columns=[f"pixel{k}" for k in range(64)])
    rows = dd.from_pandas(frame, npartitions=5)
    fitted = Blockwise(ModularAutoencoder(3, 4, random_state=0)).fit(rows)
    assert list(fitted.estimator_.feature_names_in_) == list(frame)
    Z = fitted.transform(rows)
    assert isinstance(Z, dd.DataFrame)
    assert Z.divisions == rows.divisions
    assert list(Z.columns) == list(fitted.estimator_.get_feature_names_out())
    expected = pd.DataFrame(fitted.estimator_.transform(frame), index=frame.index, columns=Z.columns)
    pd.testing.assert_frame_equal(Z.compute(), expected, atol=1e-9)
    target = dd.from_pandas(pd.Series(Y, index=frame.index), npartitions=5)
    classifier = Blockwise(LayerRidgeClassifier(kernel="linear")).fit(rows, target)
    labels = classifier.predict(rows)
    assert isinstance(labels, dd.Series)
    np.testing.assert_array_equal(labels.compute().index, frame.index)
    assert (labels.compute() == Y).mean() > 0.9
    odd = rows[rows["pixel20"] > 8]  # partitions of unknown length
    kept = frame[frame["pixel20"] > 8]
    probabilities = classifier.predict_proba(odd).compute()
    assert list(probabilities.columns) == list(range(10))
    np.testing.assert_array_equal(probabilities.index, kept.index)
    few = Blockwise(ModularAutoencoder(3, 4, random_state=0)).fit(odd).estimator_
    whole = ModularAutoencoder(3, 4, random_state=0).fit(kept)
    np.testing.assert_allclose(few.spectrum_, whole.spectrum_, atol=1e-9 * whole.spectrum_[0])


@within(180)
def test_files_as_delayed_blocks(client, tmp_path):
    paths = [tmp_path / f"{k}.npy" for k in range(9)]
    for path, rows in zip(paths, np.split(X, 9), strict=True):
        np.save(path, rows)
    blocks = [dask.delayed(np.load)(path) for path in paths]
    fitted = Blockwise(KERNEL_PCA, sample_rows=300).fit(blocks)
    same_bits(fitted, Blockwise(KERNEL_PCA, sample_rows=300).fit(array()))
    parts = dask.compute(*fitted.transform(blocks))
    np.testing.assert_allclose(np.vstack(parts), fitted.estimator_.transform(X), atol=1e-10)
    paths[4].unlink()
    with pytest.raises(
        RuntimeError, match=r"Block 4 \(the first is 0\) could not be read: FileNotFoundError"
    ):
        Blockwise(KERNEL_PCA).fit(blocks)


@within(180)
def test_folders_are_read_by_workers(client, tmp_path):
    for k, rows in enumerate(np.split(X, 9)):
        np.save(tmp_path / f"{k}.npy", rows)
    fitted = Blockwise(KERNEL_PCA, sample_rows=300).fit(tmp_path)
    same_bits(fitted, Blockwise(KERNEL_PCA, sample_rows=300).fit(array()))
    names = client.run_on_scheduler(lambda dask_scheduler: set(dask_scheduler.task_prefixes))
    assert "manylens-read" in names
    (tmp_path / "4.npy").unlink()
    np.save(tmp_path / "4.npy", np.array([None]), allow_pickle=True)
    with pytest.raises(RuntimeError, match=r"Block 4 \(the first is 0\) could not be read: ValueError"):
        Blockwise(KERNEL_PCA).fit(tmp_path)


@within(240)
def test_bootstrap_pruning_and_nca_give_the_bits_of_batches_in_memory(client):
    def check(estimator, get, y=None):
        batches = (np.split(X, 9),) if y is None else (np.split(X, 9), np.split(y, 9))
        lazy = (array(),) if y is None else (array(), array(y))
        here = get(Blockwise(estimator, sample_rows=300).fit(*batches).estimator_)
        there = get(Blockwise(estimator, sample_rows=300).fit(*lazy).estimator_)
        assert here.tobytes() == there.tobytes()

    check(BootstrapKernelPCA(3, 3, rank=60, random_state=0), lambda fitted: fitted.components_)
    check(BaggingAutoencoder(3, 3, random_state=0), lambda fitted: fitted.components_)
    forest = RandomForestClassifier(12, random_state=0).fit(X, Y)
    check(AlignmentPruner(forest), lambda fitted: fitted.weights_, Y)
    check(NCA(2, max_iter=2, method="stochastic", random_state=0), lambda fitted: fitted.components_, Y)
    with pytest.warns(ConvergenceWarning, match="NCA stopped after 2 iterations"):  # though it ran elsewhere
        check(NCA(2, max_iter=2, random_state=0), lambda fitted: fitted.components_, Y)


@within(240)
def test_a_worker_killed_during_the_walk_of_nca_changes_no_bit(client, tmp_path):
    nca = NCA(2, method="stochastic", max_iter=2, random_state=0)
    expected = Blockwise(nca, sample_rows=300).fit(np.split(X, 9), np.split(Y, 9)).estimator_
    threading.Thread(target=kill_marked, args=(tmp_path / "pid-5",), daemon=True).start()
    blocks = [dask.delayed(second_time, pure=False)(k, str(tmp_path), 5) for k in range(9)]
    labels = [dask.delayed(np.asarray)(part) for part in np.split(Y, 9)]
    fitted = Blockwise(nca, sample_rows=300).fit(list(zip(blocks, labels, strict=True))).estimator_
    assert fitted.components_.tobytes() == expected.components_.tobytes()
    client.wait_for_workers(3, timeout=60)


def kill_marked(mark):
    while not mark.exists():
        time.sleep(0.05)
    os.kill(int(mark.read_text()), signal.SIGKILL)


@within(180)
def test_functions_of_collections(client):
    other = X[:, :20] ** 2
    A, B, labels = array(), array(other), array(Y)
    scores = over_blocks(cka_matrix, [A, B])
    assert isinstance(scores, np.ndarray)
    np.testing.assert_allclose(scores, cka_matrix([X, other]), atol=1e-9)
    found = over_blocks(align_kernels, {"a": A, "b": B}, labels)
    assert found == pytest.approx(align_kernels({"a": X, "b": other}, Y), abs=1e-8)
    assert over_blocks(align_kernels, {"a": A, "b": B}, Y) == pytest.approx(found)  # y in memory
    ranking = over_blocks(rank_models, {"a": A, "b": B}, labels)
    expected = rank_models({"a": X, "b": other}, Y, metric="cka")
    np.testing.assert_allclose([r.score for r in ranking], [r.score for r in expected], atol=1e-8)
    assert over_blocks(stable_rank, A) == pytest.approx(stable_rank(X), rel=1e-9)


@within(180)
def test_alignment_from_summaries(client):
    A, B = array(), array(X[:, :20] ** 2)
    scores = summarize_blocks(StreamingCKA(), {"a": A, "b": B}).result()
    np.testing.assert_allclose(scores, cka_matrix({"a": X, "b": X[:, :20] ** 2}), atol=1e-10)
    sketch = summarize_blocks(CountSketch(128), A)
    np.testing.assert_allclose(sketch.summary_, CountSketch(128).update(X).summary_, atol=1e-9)
    unknown = [dask.delayed(np.asarray)(rows) for rows in np.array_split(X, 4)]  # counted first
    np.testing.assert_allclose(
        summarize_blocks(CountSketch(128), unknown).summary_, sketch.summary_, atol=1e-9
    )
    sketches = {"a": summarize_blocks(FeatureSketch(256), A), "b": summarize_blocks(FeatureSketch(256), B)}
    whole = {"a": FeatureSketch(256).update(X), "b": FeatureSketch(256).update(X[:, :20] ** 2)}
    found, expected = rank_models(sketches, Y), rank_models(whole, Y)
    assert [row.name for row in found] == [row.name for row in expected]
    np.testing.assert_allclose([row.score for row in found], [row.score for row in expected], rtol=1e-9)


@within(180)
def test_tasks_have_names_on_the_dashboard(client):
    from dask.utils import key_split

    Blockwise(KERNEL_PCA, sample_rows=300).fit(array())
    names = client.run_on_scheduler(lambda dask_scheduler: set(dask_scheduler.task_prefixes))
    assert {"manylens-sample", "manylens-sample-merge", "manylens-prepare"} <= names
    assert {"manylens-summarize", "manylens-summarize-merge", "manylens-learn"} <= names
    assert key_split("manylens-sample-3-0123456789abcdef0123456789abcdef") == "manylens-sample"


@within(180)
def test_bad_blocks_are_named(client):
    broken = X.copy()
    broken[345, 6] = np.nan
    with pytest.raises(ValueError, match=r"Block 3 \(the first is 0\): Input X contains NaN"):
        Blockwise(KERNEL_PCA).fit(array(broken))
    with pytest.raises(ValueError, match=r"Block 3 \(the first is 0\): a contains NaN or infinity"):
        summarize_blocks(StreamingCKA(), {"a": array(broken), "b": array()})
    ragged = [dask.delayed(np.ones)((5, 3 + (k == 6))) for k in range(8)]
    with pytest.raises(ValueError, match="Blocks 6 and 7 do not fit together: the columns differ"):
        Blockwise(KERNEL_PCA).fit(ragged)
    fitted = Blockwise(KERNEL_PCA, sample_rows=300).fit(array())
    with pytest.raises(ValueError, match=r"Block 3 .*NaN"):
        fitted.transform(array(broken)).compute()
    with pytest.raises(ValueError, match="X has 900 rows and y has 800"):
        Blockwise(LayerRidgeClassifier()).fit(array(), array(Y[:800]))
    with pytest.raises(ValueError, match=r"'b' has 3 blocks.*'a' has 9 blocks"):
        summarize_blocks(StreamingCKA(), {"a": array(), "b": array(X, 300)})
    with pytest.raises(TypeError, match="list of dask collections"):
        Blockwise(KERNEL_PCA).fit([array(), array()])
    many = [dask.delayed(np.full)((4, 3), np.nan if k == 37 else 1.0 * k) for k in range(50)]
    for estimator in (KERNEL_PCA, ModularAutoencoder(2, 1)):
        with pytest.raises(ValueError, match=r"Block 37 \(the first is 0\): Input X contains NaN"):
            Blockwise(estimator).fit(many)
    empty = [dask.delayed(np.ones)((4 * (k != 2), 3)) for k in range(4)]
    with pytest.raises(ValueError, match=r"Block 2 \(the first is 0\): Found array with 0 sample"):
        Blockwise(KERNEL_PCA).fit(empty)


@within(180)
def test_a_closed_client_is_refused(cluster):
    from distributed import Client

    with Client(cluster, timeout=30):
        kept = array().persist()
    with pytest.raises(RuntimeError, match="persisted by a dask client that is closed"):
        Blockwise(KERNEL_PCA).fit(kept)
    with Client(cluster, timeout=30) as made:
        threading.Timer(0.5, made.close).start()
        slow = [dask.delayed(time.sleep)(5) for _ in range(3)]
        with pytest.raises(RuntimeError, match=r"The dask client of .* is closed"):
            Blockwise(KERNEL_PCA).fit(slow)


@within(180)
def test_progress_on_a_cluster(client, capsys):
    slow = [dask.delayed(slowly)(rows) for rows in np.split(X, 9)]
    Blockwise(KERNEL_PCA, sample_rows=300, verbose=1).fit(slow)
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("[manylens] sample: ") and line.endswith(" of 9 blocks") for line in lines)
    assert any(line.startswith("[manylens] summarize: ") for line in lines)


def slowly(rows):
    time.sleep(0.7)
    return rows


@within(180)
def test_without_a_worker_it_gives_up():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=0, processes=True, dashboard_address=":0") as empty,
        Client(empty, timeout=30),
        pytest.raises(TimeoutError, match="No worker for 1 seconds"),
    ):
        Blockwise(KERNEL_PCA, patience=1).fit(array())
