"""What `manylens learn` measures, and what it costs beside the fit."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from tests.cli.test_files import SMALL, run_json

pytest.importorskip("click")
pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")


def test_real_labels_are_voted_on_by_the_mean_of_the_neighbors(tmp_path, capsys):
    X = np.random.default_rng(0).standard_normal((200, 3))
    frame = pd.DataFrame(X, columns=list("abc")).assign(height=X[:, 0] + X[:, 1])
    frame.to_parquet(tmp_path / "x.parquet")
    words = ["learn", tmp_path / "x.parquet", "--label", "height", "-o", tmp_path / "m.manylens", *SMALL]
    facts = run_json(capsys, *words)
    near = NearestNeighbors(n_neighbors=5).fit(X / X.std(axis=0)).kneighbors(return_distance=False)
    guessed = frame["height"].to_numpy()[near].mean(axis=1)
    residual = ((frame["height"] - guessed) ** 2).mean() / frame["height"].var(ddof=0)
    assert facts["vote_r2_of_columns"] == pytest.approx(1 - residual)
    assert 0.5 < facts["vote_r2"] < 1


def test_large_numbers_are_written_out():
    from manylens.cli.output import shown

    assert shown(10484.3) == "10,484"
    assert shown(9999.4) == "9999"
    assert shown(0.00012345) == "0.0001234"


def test_a_table_of_numbers_is_read_as_one_block(tmp_path):
    from manylens.cli.tables import read_rows

    pd.DataFrame(np.ones((5, 4)), columns=list("abcd")).to_parquet(tmp_path / "x.parquet")
    values = read_rows(str(tmp_path / "x.parquet")).frame.to_numpy()
    assert not values.flags.owndata  # a view: converting column by column would copy all rows


def test_help_loads_no_large_library():
    code = (
        "import sys; from manylens.cli import main; main(['learn', '--help']); "
        "assert not {'sklearn', 'pandas', 'scipy'} & set(sys.modules), 'slow'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, timeout=60)


def test_scikit_learn_is_imported_while_the_file_is_read(tmp_path):
    X = np.random.default_rng(0).standard_normal((30, 3))
    pd.DataFrame(X, columns=list("abc")).to_csv(tmp_path / "x.csv", index=False)
    code = """
import sys
import threading
from manylens.cli import main, tables
assert not {"sklearn", "scipy"} & set(sys.modules), "imported too early"
read = tables.pd.read_csv
def watched(*given, **options):
    print(any(thread.name.endswith("(load)") for thread in threading.enumerate()) or "sklearn" in sys.modules)
    return read(*given, **options)
tables.pd.read_csv = watched
sys.exit(main(["learn", "x.csv", "--quiet", "-o", "m.manylens"]))
"""
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_a_module_that_cannot_be_imported_meanwhile_fails_where_it_is_used():
    from manylens.cli.options import importing

    with importing("manylens.no_such_module"):
        pass
