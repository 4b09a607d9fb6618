"""Rows in files: .npy, .npz and Parquet, read in pieces, by fits and by the search index alike."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_wine

from manylens import ModularKernelPCA, ModuleNeighbors
from manylens.cluster import Blockwise, DistributedNeighbors
from manylens.cluster.files import first_row, read_file, row_pieces, shape_in_file
from manylens.cluster.index_layout import row_blocks, segments_of

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

FRAME = load_wine(as_frame=True).data
X = FRAME.to_numpy()
LENSES = ModularKernelPCA(4, 3, diversity=1, rank=60, random_state=0)


@pytest.fixture
def folder(tmp_path):
    """The rows in three Parquet files, of row groups of 20."""
    for number, rows in enumerate(np.array_split(np.arange(len(X)), 3)):
        FRAME.iloc[rows].to_parquet(tmp_path / f"{number}.parquet", row_group_size=20)
    return tmp_path


def write(rows, path, group):
    """Write rows in the format of the file's ending."""
    if path.suffix == ".npy":
        np.save(path, rows)
    elif path.suffix == ".npz":
        np.savez(path, rows)
    else:
        pd.DataFrame(rows, columns=[f"c{k}" for k in range(rows.shape[1])]).to_parquet(
            path, row_group_size=group
        )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    suffix=st.sampled_from([".npy", ".npz", ".parquet", ".pq"]),
    n=st.integers(1, 40),
    group=st.integers(1, 15),
    most=st.integers(1, 50),
    data=st.data(),
)
def test_pieces_are_all_rows_in_order_and_any_rows_can_be_read(tmp_path, suffix, n, group, most, data):
    rows, path = np.random.default_rng(n).random((n, 3)), tmp_path / f"rows{suffix}"
    write(rows, path, group)
    pieces = row_pieces(path, most)
    assert np.array_equal(np.vstack([read_file(path, *piece) for piece in pieces]), rows)
    if suffix != ".npz":
        largest = max(most, group if suffix in (".parquet", ".pq") else 1)
        assert max(stop - start for start, stop in pieces) <= largest
    assert shape_in_file(path) == (n, 3)
    assert np.array_equal(np.asarray(read_file(path)), rows)
    start = data.draw(st.integers(0, n - 1))
    stop = data.draw(st.integers(start + 1, n))
    assert np.array_equal(np.asarray(read_file(path, start, stop)), rows[start:stop])
    assert np.array_equal(np.asarray(first_row(path, start)), rows[start : start + 1])


@pytest.mark.filterwarnings("error")
def test_a_parquet_folder_is_a_base_and_keeps_the_names_of_columns(folder):
    lenses = clone(LENSES).fit(FRAME)
    index = DistributedNeighbors(lenses, n_shards=3).fit(folder)
    distances, rows = ModuleNeighbors(lenses, method="exact").fit(FRAME).kneighbors(FRAME[:20], 5)
    found = index.kneighbors(FRAME[:20], 5)
    assert np.array_equal(found.rows, rows)
    np.testing.assert_allclose(found.distances, distances, rtol=1e-9, atol=1e-6)
    assert index.feature_names_in_.tolist() == FRAME.columns.tolist()
    index.partial_fit([folder / "0.parquet"])
    assert index.kneighbors(FRAME[:3], 2).rows.tolist() == [[0, 178], [1, 179], [2, 180]]


def test_modules_are_fitted_to_the_files_of_a_list(folder):
    pytest.importorskip("dask")
    paths = sorted(folder.iterdir())
    index = DistributedNeighbors(LENSES).fit(paths)
    alone = Blockwise(LENSES).fit(folder).estimator_
    assert index.modules_.feature_names_in_.tolist() == FRAME.columns.tolist()
    assert index.modules_.spectrum_ == pytest.approx(alone.spectrum_, rel=1e-6)


def test_fits_read_sparse_and_dense_npz(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", X[:90])
    sparse.save_npz(tmp_path / "b.npz", sparse.csr_matrix(X[90:]))
    linear = ModularKernelPCA(3, 2, kernel="linear", random_state=0)
    found = Blockwise(linear).fit([str(tmp_path / "a.npz")]).estimator_.spectrum_
    assert found == pytest.approx(linear.fit(X[:90]).spectrum_, rel=1e-6)
    found = Blockwise(linear).fit([tmp_path / "b.npz"]).estimator_.spectrum_
    assert found == pytest.approx(linear.fit(X[90:]).spectrum_, rel=1e-6)


def test_columns_of_text_other_columns_and_empty_files_name_the_file(folder):
    lenses = clone(LENSES).fit(FRAME)
    FRAME.assign(soil="chalk").to_parquet(folder / "1.parquet")
    with pytest.raises(ValueError, match=r"File 1\.parquet: columns \['soil'\] are unknown: .* 13 others"):
        DistributedNeighbors(lenses).fit(folder)
    FRAME.assign(ash="grey").to_parquet(folder / "1.parquet")
    with pytest.raises(ValueError, match=r"File 1\.parquet: columns \['ash'\] hold something other .*'grey'"):
        DistributedNeighbors(lenses).fit(folder)
    with pytest.raises(
        ValueError, match=r"Block 1 \(the first is 0\): columns \['ash'\] hold something other"
    ):
        Blockwise(LENSES).fit(folder)
    FRAME[FRAME.columns[::-1]].to_parquet(folder / "1.parquet")
    with pytest.raises(ValueError, match=r"File 1\.parquet: column 0 is 'proline', but .*'alcohol' there"):
        DistributedNeighbors(lenses).fit(folder)
    FRAME[:0].to_parquet(folder / "1.parquet")
    with pytest.raises(ValueError, match=r"File 1\.parquet: it holds an array of shape \(0, 13\)"):
        DistributedNeighbors(lenses).fit(folder)
    (folder / "1.parquet").write_bytes(b"no Parquet file")
    with pytest.raises(ValueError, match=r"File 1\.parquet: .*[Pp]arquet"):
        DistributedNeighbors(lenses).fit(folder)


def test_other_endings_are_refused(tmp_path):
    FRAME.to_csv(tmp_path / "rows.csv")
    with pytest.raises(ValueError, match=r"rows\.csv ends in '\.csv': files that end in \.npy, \.npz"):
        DistributedNeighbors(LENSES).fit(tmp_path / "rows.csv")
    with pytest.raises(RuntimeError, match=r"Block 0 .*rows\.csv ends in '\.csv'"):
        Blockwise(LENSES).fit([tmp_path / "rows.csv"])


def test_folders_that_are_no_base(tmp_path):
    lenses = clone(LENSES).fit(X)
    with pytest.raises(FileNotFoundError, match="nowhere is neither a file nor a folder: give a folder"):
        DistributedNeighbors(lenses).fit(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"holds no file that ends in \.npy, \.npz, \.parquet or"):
        DistributedNeighbors(lenses).fit(tmp_path)
    np.save(tmp_path / "a.npy", X)
    np.save(tmp_path / "b.npy", X[:, :5])
    with pytest.raises(ValueError, match=r"File b\.npy: X has 5 features"):
        DistributedNeighbors(lenses).fit(tmp_path)
    np.save(tmp_path / "b.npy", X[:0])
    with pytest.raises(ValueError, match=r"File b\.npy: it holds an array of shape \(0, 13\)"):
        DistributedNeighbors(lenses).fit(tmp_path)
    np.savez(tmp_path / "c.npz", a=X, b=X)
    (tmp_path / "b.npy").unlink()
    with pytest.raises(ValueError, match=r"File c\.npz: it holds the arrays"):
        DistributedNeighbors(lenses).fit(tmp_path)
    (tmp_path / "c.npz").unlink()
    np.save(tmp_path / "b.npy", np.where(np.arange(13) == 3, np.nan, X))
    with pytest.raises(ValueError, match=r"File b\.npy: Input X contains NaN"):
        DistributedNeighbors(lenses).fit(tmp_path)


def test_shards_of_files_of_any_length_have_about_equally_many_rows(tmp_path):
    for number, n in enumerate((7, 610, 90, 293)):
        np.save(tmp_path / f"{number}.npy", np.zeros((n, 2)))
    sizes = [s.n_rows for s in segments_of(row_blocks(tmp_path, 5, None), 5)]
    assert sum(sizes) == 1000
    assert max(sizes) - min(sizes) <= 50
