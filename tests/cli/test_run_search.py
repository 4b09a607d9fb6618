"""What `manylens search` prints."""

import pytest
from sklearn.datasets import load_iris

from manylens.cli import main
from tests.cli.test_files import SMALL, run_json

pytest.importorskip("click")
pd = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Iris as a table, with a model of it."""
    folder = tmp_path_factory.mktemp("searching")
    load_iris(as_frame=True).data.to_csv(folder / "iris.csv", index=False)
    assert main(["learn", str(folder / "iris.csv"), "-o", str(folder / "iris.manylens"), "-q", *SMALL]) == 0
    return folder


def test_search_says_if_there_are_fewer_rows_than_neighbors_asked_for(folder, tmp_path, capsys):
    words = ["search", folder / "iris.manylens", folder / "iris.csv", "--row", "0", "-k", "200"]
    facts = run_json(capsys, *words)
    assert len(facts["rows"]) == 149
    assert facts["notes"] == ["-k 200: there are only 149 rows to find in iris.csv."]


def test_a_long_result_in_a_file_is_not_printed_as_well(folder, tmp_path, capsys):
    output = tmp_path / "found.csv"
    words = ["search", folder / "iris.manylens", folder / "iris.csv", "--query", folder / "iris.csv", "-k", 2]
    assert main([*map(str, words), "-o", str(output)]) == 0
    printed = capsys.readouterr()
    assert len(pd.read_csv(output)) == 300
    assert len(printed.out.splitlines()) == 22  # a title, the header and 20 lines
    assert f"The first 20 of 300 lines; {output} has all of them." in printed.err
