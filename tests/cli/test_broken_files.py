"""The commands on files refuse broken input in one sentence, with exit code 2, and write nothing."""

import json
import os

import numpy as np
import pytest

from manylens.cli import main

pytest.importorskip("click")
pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")


@pytest.fixture
def write(tmp_path):
    """A function that writes bytes or a table and returns the name of the file."""

    def write(name, content):
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif name.endswith(".parquet"):
            content.to_parquet(path)
        else:
            content.to_csv(path, index=False)
        return str(path)

    return write


def refusal(capsys, *words):
    """The one sentence with which a command refuses."""
    code = main([*map(str, words)])
    printed = capsys.readouterr()
    assert code == 2, printed
    assert printed.out == ""
    assert "Traceback" not in printed.err
    return printed.err


def frame(n=30):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {"height": rng.normal(size=n), "weight": rng.normal(size=n), "kind": ["a", "b"] * (n // 2)}
    )


def test_an_empty_file(write, capsys, tmp_path):
    assert "empty.csv is empty" in refusal(
        capsys, "learn", write("empty.csv", b""), "-o", tmp_path / "m.manylens"
    )
    assert "no rows" in refusal(capsys, "learn", write("header.csv", b"a,b\n"), "-o", tmp_path / "m.manylens")
    assert sorted(os.listdir(tmp_path)) == ["empty.csv", "header.csv"]


def test_a_missing_file_suggests_the_nearest_name(write, capsys, tmp_path):
    write("people.csv", frame())
    text = refusal(capsys, "learn", tmp_path / "peple.csv")
    assert "does not exist (did you mean" in text
    assert "people.csv" in text
    assert "nor does the folder" in refusal(capsys, "learn", tmp_path / "no" / "such.csv")


def test_a_table_with_one_column_that_is_the_label(write, capsys, tmp_path):
    path = write("one.csv", b"kind\na\nb\n")
    assert "no column of numbers" in refusal(
        capsys, "learn", path, "--label", "kind", "-o", tmp_path / "m.manylens"
    )


def test_one_column_of_numbers_is_enough(write, tmp_path):
    path = write("one.csv", frame()[["height"]])
    words = ["learn", path, "-q", "--modules", "2", "--components", "2", "-o", str(tmp_path / "m.manylens")]
    assert main(words) == 0


def test_a_wrong_delimiter_is_named(write, capsys):
    path = write("semicolons.csv", b"a;b\n1;2\n3;4\n")
    assert "';'" in refusal(capsys, "learn", path, "--delimiter", ",")
    assert "could not be read as text" in refusal(
        capsys, "learn", write("ragged.csv", b"a,b\n1,2\n1,2,3,4\n1,2\n")
    )


def test_latin_1(write, capsys, tmp_path):
    path = write("latin.csv", "größe,n\n1,2\n2,3\n4,1\n".encode("latin-1"))
    assert "--encoding" in refusal(capsys, "learn", path)
    words = ["learn", path, "--encoding", "latin-1", "-q", "--modules", "2", "--components", "1"]
    assert main([*words, "-o", str(tmp_path / "m.manylens")]) == 0
    assert "unknown" in refusal(capsys, "learn", path, "--encoding", "klingon")


def test_bytes_that_are_no_text_and_text_of_two_bytes_a_letter(write, capsys, tmp_path):
    path = write("binary.csv", bytes(range(256)) * 4)
    assert "neither text nor a known format" in refusal(capsys, "info", path)
    path = write("wide.csv", frame().to_csv(index=False).encode("utf-16"))
    assert "--encoding, such as utf-16" in refusal(capsys, "info", path)
    assert main(["info", path, "--encoding", "utf-16"]) == 0


def test_modules_have_no_members_to_prune(write, capsys, tmp_path):
    path, model = write("people.csv", frame()), str(tmp_path / "m.manylens")
    assert main(["learn", path, "--label", "kind", "-o", model]) == 0
    capsys.readouterr()
    text = refusal(capsys, "prune", model, path, "--label", "kind", "-o", tmp_path / "small.manylens")
    assert "holds a ModularKernelPCA, which has no members to prune" in text


def test_a_label_with_one_class(write, capsys, tmp_path):
    path = write("same.csv", frame().assign(kind="a"))
    assert "the same 'kind' ('a'), but 2 classes" in refusal(capsys, "nca", path, "--label", "kind")
    assert main(["learn", path, "--label", "kind", "-o", str(tmp_path / "m.manylens"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["notes"] == ["All rows have the same 'kind' ('a'), so there is no vote to measure."]
    assert "vote_accuracy" not in told


def test_a_wrong_column_suggests_the_nearest_one(write, capsys):
    path = write("people.csv", frame())
    for option in ("--label", "--ids", "--drop"):
        assert "did you mean 'weight'?" in refusal(capsys, "learn", path, "--numeric-only", option, "Wieght")
    assert "there are 'height', 'weight', 'kind'" in refusal(capsys, "learn", path, "--label", "zzz")


def test_text_is_refused_by_name_and_identifiers_are_not_encoded(write, capsys):
    table = frame(500).assign(name=[f"n{k}" for k in range(500)])
    path = write("people.csv", table)
    assert "text in 'kind', 'name'" in refusal(capsys, "learn", path)
    assert "--drop name" in refusal(capsys, "learn", path, "--one-hot")


def test_a_column_of_lists_is_refused_by_name(write, capsys):
    ragged = frame().assign(tags=[[1.0] * (k % 3) for k in range(30)])
    path = write("lists.parquet", ragged)
    assert "'tags' (lists)" in refusal(capsys, "learn", path, "--label", "kind")
    assert "holds lists" in refusal(capsys, "learn", path, "--label", "tags", "--numeric-only")
    assert main(["info", path, "-q"]) == 0


def test_dates_infinite_and_empty_columns_are_refused_by_name(write, capsys):
    dated = frame().drop(columns="kind").assign(day=pd.Timestamp("2020-01-01"))
    assert "'day' (datetime64" in refusal(capsys, "learn", write("dated.parquet", dated))
    infinite = frame().drop(columns="kind").assign(weight=np.inf)
    assert "infinite values in 'weight'" in refusal(capsys, "learn", write("infinite.parquet", infinite))
    empty = frame().drop(columns="kind").assign(weight=np.nan)
    assert "no values in 'weight'" in refusal(capsys, "learn", write("hollow.csv", empty), "--impute", "mean")


def test_an_output_that_cannot_be_written_is_refused_before_any_work(write, capsys, tmp_path, monkeypatch):
    path = write("people.csv", frame())
    monkeypatch.setattr("manylens.modules.kernel_pca.ModularKernelPCA.fit", lambda *_: pytest.fail("worked"))
    words = ["learn", path, "--numeric-only", "-o"]
    assert "does not exist" in refusal(capsys, *words, tmp_path / "no" / "m.manylens")
    assert "is a folder" in refusal(capsys, *words, tmp_path)
    assert "name it .manylens" in refusal(capsys, *words, tmp_path / "m.skops")
    if os.path.isdir("/proc/self"):  # a folder in which nobody, not even root, can write
        assert "cannot be written" in refusal(capsys, *words, "/proc/self/m.manylens")
    if os.name == "posix" and os.geteuid() != 0:
        locked = tmp_path / "locked"
        locked.mkdir()
        locked.chmod(0o500)
        assert "Permission denied" in refusal(capsys, *words, locked / "m.manylens")


def test_files_that_are_no_tables(write, capsys, tmp_path):
    assert "Parquet" in refusal(capsys, "info", write("cut.parquet", b"PAR1\x00\x01\x02"))
    assert "NumPy" in refusal(capsys, "info", write("cut.npy", b"\x93NUMPY\x01"))
    assert "neither text" in refusal(capsys, "info", write("binary.csv", b"\x00\x01\x02" * 50))
    np.save(tmp_path / "objects.npy", np.array([{}, []], dtype=object), allow_pickle=True)
    assert "could not be read" in refusal(capsys, "info", tmp_path / "objects.npy")
    (tmp_path / "nothing").mkdir()
    assert "contains no images" in refusal(capsys, "learn", tmp_path / "nothing")
    write("nothing/broken.png", b"no image")
    assert "broken.png could not be read as an image" in refusal(capsys, "learn", tmp_path / "nothing")


def test_an_archive_with_several_tables_asks_for_one(capsys, tmp_path):
    np.savez(tmp_path / "two.npz", a=np.eye(4), b=np.ones((4, 2)))
    assert "'a', 'b'" in refusal(capsys, "info", tmp_path / "two.npz")
    assert main(["info", f"{tmp_path / 'two.npz'}::a", "-q"]) == 0
    assert "no array 'c'" in refusal(capsys, "info", f"{tmp_path / 'two.npz'}::c")


def test_a_table_without_the_columns_of_the_model(write, capsys, tmp_path):
    model = str(tmp_path / "m.manylens")
    path = write("people.csv", frame())
    assert main(["learn", path, "--numeric-only", "-q", "--components", "2", "-o", model]) == 0
    other = write("other.csv", frame().rename(columns={"weight": "weigth"}))
    assert "'weight'" in (text := refusal(capsys, "transform", model, other))
    assert "did you mean 'weigth'?" in text
    assert "manylens.save" in refusal(capsys, "transform", path, path)
    assert "--row 99" in refusal(capsys, "search", model, path, "--row", 99)


def test_wrong_options_exit_with_2(write, capsys):
    path = write("people.csv", frame())
    assert "Invalid value for '--diversity'" in refusal(capsys, "learn", path, "--diversity", "2")
    assert "No such option" in refusal(capsys, "learn", path, "--diversty", "1")
    assert "at least two files" in refusal(capsys, "compare", path)


def test_representations_of_different_rows(write, capsys):
    files = [write(f"{n}.csv", frame(n).drop(columns="kind")) for n in (20, 30)]
    assert "20.csv has 20, 30.csv has 30" in refusal(capsys, "compare", *files)
    assert "needs a label" in refusal(capsys, "rank", *files)


def test_a_delimiter_and_a_decimal_point_are_one_character(write, capsys):
    path = write("x.csv", b"a,b\n1,2\n3,4\n")
    assert "--decimal ',,' has 2 characters" in refusal(capsys, "learn", path, "--decimal", ",,")
    assert "--delimiter 'ab' has 2 characters" in refusal(capsys, "learn", path, "--delimiter", "ab")


def test_missing_values_that_a_model_does_not_fill_are_refused_in_one_sentence(tmp_path, capsys):
    X = np.random.default_rng(0).standard_normal((30, 3))
    np.save(tmp_path / "good.npy", X)
    X[3, 1] = np.nan
    np.save(tmp_path / "bad.npy", X)
    model = tmp_path / "m.manylens"
    assert main(["learn", str(tmp_path / "good.npy"), "-q", "-o", str(model)]) == 0
    for words in (
        ["transform", model, tmp_path / "bad.npy"],
        ["search", model, tmp_path / "bad.npy", "--row", "0"],
        ["explore", tmp_path / "bad.npy", "--model", model, "--no-open", "-o", tmp_path / "x.html"],
    ):
        said = refusal(capsys, *words)
        assert "contains NaN: leave these rows out, or fill" in said
        assert len(said.strip().splitlines()) == 1


def test_commands_without_trust_do_not_advise_it(write, capsys, tmp_path):
    said = refusal(capsys, "learn", write("x.csv", b"a,b\n1,2\n3,4\n"), "-o", tmp_path / "m.joblib")
    assert said.endswith("name it .manylens.\n")


def test_a_column_of_records_is_described_and_refused_as_a_label(write, capsys):
    path = write("x.parquet", frame().assign(nested=[{"u": 1, "v": 2}] * 30))
    assert main(["info", path]) == 0
    assert "records" in capsys.readouterr().out
    for command in ("learn", "nca", "explore"):
        said = refusal(capsys, command, path, "--label", "nested", "--numeric-only")
        assert "'nested' holds records instead of one value per row" in said


def test_numbers_with_a_decimal_comma_are_named_by_commands_on_a_model(write, capsys, tmp_path):
    rng = np.random.default_rng(0)
    numbers = pd.DataFrame(rng.normal(size=(30, 2)), columns=["a", "b"])
    model = str(tmp_path / "m.manylens")
    assert main(["learn", write("t.csv", numbers), "-o", model, "--modules", "2", "--components", "1"]) == 0
    capsys.readouterr()
    comma = write("comma.csv", numbers.map(lambda number: str(number).replace(".", ",")))
    for words in (("transform", model, comma, "-o", tmp_path / "z.csv"), ("report", model, comma)):
        assert "DATA cannot be read as an array of numbers" in refusal(capsys, *words)
