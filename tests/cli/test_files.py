"""The commands on files, through the entry point, on good files."""

import contextlib
import functools
import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import NearestNeighbors

import manylens
from manylens.cli import FILE_COMMANDS, main
from manylens.persistence.files import PartWriter

pytest.importorskip("click")
pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

SMALL = ["--modules", "3", "--components", "2", "--rank", "60"]


def run_json(capsys, *words):
    """The JSON object that a command prints."""
    code = main([*map(str, words), "--json"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return json.loads(printed.out)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Iris in all formats, with a model of it."""
    folder = tmp_path_factory.mktemp("files")
    iris = load_iris(as_frame=True)
    frame = iris.data.rename(columns=lambda name: name.replace(" (cm)", "").replace(" ", "_"))
    frame["species"] = iris.target_names[iris.target]
    frame["name"] = [f"flower {k}" for k in range(len(frame))]
    frame.to_csv(folder / "iris.csv", index=False)
    frame.to_csv(folder / "iris.tsv", index=False, sep="\t")
    frame.to_csv(folder / "comma.csv", index=False, sep=";", decimal=",")
    frame.to_parquet(folder / "iris.parquet")
    frame.to_feather(folder / "iris.feather")
    np.save(folder / "iris.npy", iris.data.to_numpy())
    np.savez(folder / "iris.npz", X=iris.data.to_numpy(), species=frame["species"].to_numpy(str))
    model = folder / "iris.manylens"
    code = main(
        [
            "learn",
            str(folder / "iris.csv"),
            "--label",
            "species",
            "--ids",
            "name",
            "-q",
            *SMALL,
            "-o",
            str(model),
        ]
    )
    assert code == 0
    return folder


def environment():
    source = Path(manylens.__file__).parents[1]
    return {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}


def process(*words, **options):
    """A process of the real entry point."""
    return subprocess.run(
        [sys.executable, "-m", "manylens", *map(str, words)],
        capture_output=True,
        timeout=300,
        env=environment(),
        **options,
    )


@pytest.mark.parametrize("name", ["iris.csv", "iris.tsv", "iris.parquet", "iris.feather", "iris.npz"])
def test_every_format_gives_the_same_modules(folder, tmp_path, capsys, name):
    drop = [] if name == "iris.npz" else ["--ids", "name"]
    facts = run_json(
        *(capsys, "learn", folder / name, "--label", "species", "--scale", *drop, *SMALL),
        *("-o", tmp_path / "model.manylens"),
    )
    assert facts["rows"] == 150
    assert facts["number_columns"] == 4
    assert facts["loss"] == pytest.approx(manylens.load(folder / "iris.manylens")[-1].loss_)
    assert facts["gap"] < 1e-6
    assert facts["vote_accuracy"] > 0.8
    assert manylens.load(tmp_path / "model.manylens")[-1].n_modules == 3


def test_decimal_commas_are_read_and_suggested(folder, tmp_path, capsys):
    words = ["learn", folder / "comma.csv", "--label", "species", "--ids", "name", *SMALL]
    words += ["-o", tmp_path / "m.manylens"]
    assert main([*map(str, words)]) == 2
    assert "--decimal ," in capsys.readouterr().err
    assert run_json(capsys, *words, "--decimal", ",")["number_columns"] == 4


def test_the_entry_point_reads_standard_input_and_writes_to_standard_output(folder):
    data = (folder / "iris.parquet").read_bytes()
    done = process("transform", folder / "iris.manylens", "-", "--keep", "species", input=data)
    assert done.returncode == 0, done.stderr
    made = pd.read_csv(io.BytesIO(done.stdout))
    assert made.shape == (150, 1 + 3 * 2)
    expected = manylens.load(folder / "iris.manylens").transform(pd.read_csv(folder / "iris.csv"))
    np.testing.assert_allclose(made.drop(columns="species").to_numpy(), expected)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".feather", ".npy", ".npz"])
def test_tables_are_written_in_every_format(folder, tmp_path, capsys, suffix):
    target = tmp_path / f"out{suffix}"
    run_json(capsys, "transform", folder / "iris.manylens", folder / "iris.csv", "-o", target)
    facts = run_json(capsys, "info", target)
    assert (facts["n_rows"], facts["n_columns"]) == (150, 6)


def test_search_agrees_with_a_scan_of_all_coordinates(folder, tmp_path, capsys):
    frame = pd.read_csv(folder / "iris.csv")
    frame.iloc[[5, 100]].to_csv(tmp_path / "query.csv", index=False)
    facts = run_json(
        *(capsys, "search", folder / "iris.manylens", folder / "iris.csv", "--query", tmp_path / "query.csv"),
        *("-k", 4, "--ids", "name"),
    )
    Z = manylens.load(folder / "iris.manylens").transform(frame)
    distances = NearestNeighbors(n_neighbors=4).fit(Z).kneighbors(Z[[5, 100]])[0]
    ours = np.array([row["distance"] for row in facts["rows"]]).reshape(2, 4)
    np.testing.assert_allclose(ours, distances / np.sqrt(3), rtol=1e-4, atol=1e-6)  # mean over modules
    assert [row["name"] for row in facts["rows"]][:1] == ["flower 5"]
    assert {row["query"] for row in facts["rows"]} == {"flower 5", "flower 100"}


def test_search_for_a_row_leaves_it_out_and_obeys_conditions(folder, capsys):
    words = [
        "search",
        folder / "iris.manylens",
        folder / "iris.csv",
        "--row",
        "0",
        "-k",
        "3",
        "--show",
        "species",
    ]
    assert 0 not in [row["row"] for row in run_json(capsys, *words)["rows"]]
    found = run_json(capsys, *words, "--where", "species == 'virginica' and petal_length > 5.5")["rows"]
    frame = pd.read_csv(folder / "iris.csv")
    assert [row["species"] for row in found] == ["virginica"] * 3
    assert all(frame["petal_length"][row["row"]] > 5.5 for row in found)
    for condition, reason in (
        ("petal_length", "is not a condition on rows"),
        ("petal_length > 99", "no row"),
        ("1 +", "--where"),
        ("petal_lenght > 5", "has no column 'petal_lenght'; did you mean 'petal_length'?"),
    ):
        assert main([*map(str, words), "--where", condition]) == 2
        assert reason in capsys.readouterr().err


def test_compare_prints_the_matrix_with_errors_and_writes_a_heat_map(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6))
    Y = X[:, :3] + rng.normal(size=(300, 3))
    np.save(tmp_path / "a.npy", X)
    np.save(tmp_path / "b.npy", Y)
    words = ["compare", tmp_path / "a.npy", tmp_path / "b.npy", "--plot", tmp_path / "map.png"]
    facts = run_json(capsys, *words, "-o", tmp_path / "matrix.csv")
    exact = manylens.cka(X, Y, estimator="unbiased")
    assert facts["rows"][0]["cka"] == pytest.approx(exact)
    assert 0 < facts["rows"][0]["standard error"] < 0.1
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    assert pd.read_csv(tmp_path / "matrix.csv")["b.npy"][0] == pytest.approx(exact)
    facts = run_json(capsys, *words, "--measure", "dcor", "--groups", 0)
    assert facts["rows"][0]["dcor"] == pytest.approx(manylens.distance_correlation(X, Y))


def test_rank_puts_the_better_representation_first_and_notes_ties(tmp_path, capsys):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    good = np.eye(3)[y] + 0.3 * rng.normal(size=(300, 3))
    np.save(tmp_path / "y.npy", y)
    np.save(tmp_path / "good.npy", good)
    np.save(tmp_path / "same.npy", good + 0.01 * rng.normal(size=(300, 3)))
    np.save(tmp_path / "bad.npy", rng.normal(size=(300, 3)))
    words = ["rank", "--labels", tmp_path / "y.npy", tmp_path / "bad.npy", tmp_path / "good.npy"]
    facts = run_json(capsys, *words)
    assert [row["representation"] for row in facts["rows"]] == ["good.npy", "bad.npy"]
    assert not facts["notes"]
    assert "too close to" in run_json(capsys, *words, tmp_path / "same.npy")["notes"][0]


def test_rank_takes_the_label_from_one_of_the_tables(folder, tmp_path, capsys):
    frame = pd.read_csv(folder / "iris.csv").drop(columns="name")
    frame.to_parquet(tmp_path / "all.parquet")
    frame[["sepal_width"]].to_parquet(tmp_path / "one.parquet")
    facts = run_json(capsys, "rank", "--label", "species", tmp_path / "one.parquet", tmp_path / "all.parquet")
    assert facts["rows"][0]["representation"] == "all.parquet"


def test_prune_keeps_fewer_members_and_measures_both_models(tmp_path, capsys):
    joblib = pytest.importorskip("joblib")
    X, y = load_breast_cancer(return_X_y=True)
    np.savez(tmp_path / "train.npz", X=X[:400], y=y[:400])
    np.savez(tmp_path / "test.npz", X=X[400:], y=y[400:])
    forest = RandomForestClassifier(60, random_state=0).fit(X[:400], y[:400])
    manylens.save(forest, tmp_path / "forest.manylens")
    joblib.dump(forest, tmp_path / "forest.joblib")
    words = [tmp_path / "train.npz", "--label", "y", "--test", tmp_path / "test.npz"]
    small = tmp_path / "small.manylens"
    facts = run_json(capsys, "prune", tmp_path / "forest.manylens", *words, "-o", small)
    assert facts["kept"] < facts["members"] == 60
    assert facts["test_accuracy_before"] == pytest.approx(forest.score(X[400:], y[400:]))
    assert facts["test_accuracy_after"] == pytest.approx(manylens.load(small).score(X[400:], y[400:]))
    assert facts["kilobytes_after"] < facts["kilobytes_before"]

    for words_of_pickles in (
        [tmp_path / "forest.joblib", *words, "-o", small],
        [tmp_path / "forest.manylens", *words, "-o", tmp_path / "small.joblib"],
    ):
        assert main(["prune", *map(str, words_of_pickles)]) == 2
        assert "--trust" in capsys.readouterr().err
    target = tmp_path / "small.joblib"
    run_json(capsys, "prune", tmp_path / "forest.joblib", *words, "-o", target, "--trust", "--native")
    assert isinstance(joblib.load(target), RandomForestClassifier)


def test_nca_learns_a_map_that_transform_applies(folder, tmp_path, capsys):
    target = tmp_path / "nca.manylens"
    facts = run_json(
        *(capsys, "nca", folder / "iris.csv", "--label", "species", "--drop", "name", "--components", 2),
        *("--holdout", 0.3, "-o", target),
    )
    assert facts["held_out_rows"] == 45
    assert facts["knn_accuracy"] > 0.9
    run_json(capsys, "transform", target, folder / "iris.csv", "-o", tmp_path / "map.npy")
    assert np.load(tmp_path / "map.npy").shape == (150, 2)
    found = run_json(capsys, "search", target, folder / "iris.csv", "--row", 3, "-k", 2)["rows"]
    assert len(found) == 2
    assert 3 not in [row["row"] for row in found]


def test_text_and_missing_values_are_encoded_and_imputed_on_request(folder, tmp_path, capsys):
    frame = pd.read_csv(folder / "iris.csv")
    frame.loc[:9, "petal_width"] = np.nan
    frame.loc[20:22, "species"] = None
    frame.to_csv(tmp_path / "holes.csv", index=False)
    words = ["learn", tmp_path / "holes.csv", "--drop", "name", "--one-hot", *SMALL]
    words += ["-o", tmp_path / "m.manylens"]
    assert main([*map(str, words)]) == 2
    assert "'petal_width' (10), 'species' (3)" in capsys.readouterr().err
    facts = run_json(capsys, *words, "--impute", "median")
    assert facts["columns_after_encoding"] == 4 + 4  # three species and none
    frame.loc[0, "species"] = "unheard of"
    frame.to_csv(tmp_path / "new.csv", index=False)
    made = run_json(
        capsys, "transform", tmp_path / "m.manylens", tmp_path / "new.csv", "-o", tmp_path / "z.npy"
    )
    assert made["rows"] == 150
    assert np.isfinite(np.load(tmp_path / "z.npy")).all()


def test_a_folder_of_images_is_learned_and_searched_by_an_image(tmp_path, capsys):
    image = pytest.importorskip("PIL.Image")
    X, y = load_digits(return_X_y=True)
    for k in range(60):
        (tmp_path / "photos" / str(y[k])).mkdir(parents=True, exist_ok=True)
        pixels = (X[k].reshape(8, 8) * 15).astype(np.uint8)
        image.fromarray(pixels).save(tmp_path / "photos" / str(y[k]) / f"{k}.png")
    model = tmp_path / "photos.manylens"
    size = ["--image-size", "8"]
    facts = run_json(capsys, "learn", tmp_path / "photos", "--label", "folder", *size, *SMALL, "-o", model)
    assert (facts["rows"], facts["number_columns"]) == (60, 192)
    query = tmp_path / "photos" / str(y[7]) / "7.png"
    words = ["search", model, tmp_path / "photos", "--query", query, "--ids", "file", "-k", "1", *size]
    assert run_json(capsys, *words)["rows"][0]["file"] == f"{y[7]}/7.png"
    assert main([*map(str, words), "--image-size", "16"]) == 2  # not the first pixels of larger images
    assert "--image-size 8" in capsys.readouterr().err


def test_embeddings_in_a_column_of_lists_are_unpacked(tmp_path, capsys):
    rng = np.random.default_rng(0)
    pd.DataFrame({"v": list(rng.normal(size=(50, 3))), "t": ["a", "b"] * 25}).to_parquet(
        tmp_path / "v.parquet"
    )
    facts = run_json(
        capsys, "learn", tmp_path / "v.parquet", "--label", "t", *SMALL, "-o", tmp_path / "m.manylens"
    )
    assert facts["number_columns"] == 3


def test_the_report_escapes_what_files_say(folder, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    frame = pd.read_csv(folder / "iris.csv")
    evil = "<script>alert(1)</script>"
    frame["species"] = np.where(frame["species"] == "setosa", evil, "$x_1 & y$")
    frame = frame.rename(columns={"species": "<img src=x onerror=alert(1)>"})
    frame.to_csv(tmp_path / "<b>.csv", index=False)
    page = tmp_path / "page.html"
    facts = run_json(
        *(capsys, "report", folder / "iris.manylens", tmp_path / "<b>.csv"),
        *("--label", "<img src=x onerror=alert(1)>", "-o", page),
    )
    text = page.read_text()
    assert "<script" not in text
    assert "<img" not in text
    assert "<b>.csv" not in text
    assert "$x_1 &amp; y$" in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert [point["diversity"] for point in facts["diversities"]] == [0.0, 0.5, 0.9, 0.99, 1.0]


def test_learn_writes_its_report_too(folder, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    words = ["learn", folder / "iris.csv", "--numeric-only", *SMALL, "-o", tmp_path / "m.manylens"]
    run_json(capsys, *words, "--report", tmp_path / "page.html")
    assert "lower bound" in (tmp_path / "page.html").read_text()


def test_info_describes_models_and_tables(folder, capsys):
    model = run_json(capsys, "info", folder / "iris.manylens")
    assert model["class"] == "ModularKernelPCA"
    assert model["columns"] == ["sepal_length", "sepal_width", "petal_length", "petal_width"]
    table = run_json(capsys, "info", folder / "iris.csv")
    assert (table["n_rows"], table["n_columns"]) == (150, 6)
    assert table["rows"][0] == {
        **{"column": "sepal_length", "type": "float64", "missing": 0, "distinct": 35},
        **{"least": 4.3, "largest": 7.9},
    }


def test_the_same_seed_gives_the_same_file(folder, tmp_path):
    files = [tmp_path / f"{k}.manylens" for k in range(2)]
    for file in files:
        words = ["learn", folder / "iris.csv", "--numeric-only", "--seed", 7, "-q", *SMALL, "-o", file]
        assert main([*map(str, words)]) == 0
    assert files[0].read_bytes() == files[1].read_bytes()


def test_quiet_prints_nothing(folder, tmp_path, capsys):
    words = ["learn", folder / "iris.csv", "--numeric-only", "--quiet", *SMALL, "-o", tmp_path / "m.manylens"]
    assert main([*map(str, words)]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("name", FILE_COMMANDS)
def test_every_command_has_help_with_examples(capsys, name):
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert f"manylens {name}" in text.partition("Examples:")[2]


def test_the_examples_name_options_that_exist(capsys):
    from manylens.cli.app import group

    for name in FILE_COMMANDS:
        command = group.commands[name]
        known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        for line in command.epilog.splitlines():
            if f"manylens {name} " in line:
                used = line.partition(f"manylens {name} ")[2].split("|")[0].split()
                assert {word for word in used if word.startswith("-") and word != "-"} <= known, line


def test_an_interrupt_while_writing_leaves_the_earlier_file(folder, tmp_path, capsys, monkeypatch):
    target = tmp_path / "m.manylens"
    target.write_bytes(b"earlier")

    def interrupt(self, content):
        raise KeyboardInterrupt

    monkeypatch.setattr(PartWriter, "finish", interrupt)
    words = ["learn", folder / "iris.csv", "--numeric-only", *SMALL, "-o", target]
    assert main([*map(str, words)]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert target.read_bytes() == b"earlier"
    assert os.listdir(tmp_path) == ["m.manylens"]


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_control_c_ends_a_waiting_process_without_a_traceback(tmp_path):
    words = [sys.executable, "-m", "manylens", "learn", "-", "-o", str(tmp_path / "m.manylens")]
    pipe = subprocess.PIPE
    # children of a background job ignore the signal unless they are told otherwise
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(words, stdin=pipe, stderr=pipe, env=environment(), preexec_fn=heed) as running:
        limit = threading.Timer(200, running.kill)
        limit.start()
        try:
            # more than a pipe holds: this returns once the process, all imports done, reads its input
            running.stdin.write(b"a,b\n" + b"1,2\n" * 500_000)
            running.stdin.flush()
            for _ in range(20):  # again, as a person would, if it came between two system calls
                running.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    running.wait(8)
                    break
            assert running.returncode == 130
            assert running.stderr.read() == b"manylens: interrupted.\n"
        finally:
            limit.cancel()
            running.kill()
    assert not os.listdir(tmp_path)


def test_a_reader_that_closes_the_pipe_ends_the_process_quietly(folder):
    words = [
        sys.executable,
        "-m",
        "manylens",
        "transform",
        str(folder / "iris.manylens"),
        str(folder / "iris.csv"),
    ]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as running:
        running.stdout.close()
        assert running.wait(120) == 141
        assert b"Traceback" not in running.stderr.read()


def test_without_the_extra_demo_and_warmup_are_offered_and_the_others_say_what_to_install(
    capsys, monkeypatch
):
    monkeypatch.setitem(sys.modules, "click", None)
    assert main([]) == 0
    assert "warmup" in capsys.readouterr().out
    assert main(["learn", "x.csv"]) == 2
    assert capsys.readouterr().err == 'manylens: manylens learn needs click: pip install "manylens[cli]"\n'


def test_shells_can_complete_commands_and_options():
    completing = {**environment(), "_MANYLENS_COMPLETE": "bash_complete", "COMP_CWORD": "1"}
    for words, expected in (("manylens tr", b"transform"), ("manylens de", b"demo")):
        done = subprocess.run(
            [sys.executable, "-m", "manylens"],
            capture_output=True,
            timeout=120,
            env={**completing, "COMP_WORDS": words},
        )
        assert expected in done.stdout, done.stderr


def test_models_saved_from_python_are_searched_and_reported(tmp_path, capsys):
    X = load_iris().data
    np.save(tmp_path / "x.npy", X)
    lenses = manylens.ModularKernelPCA(3, 2, rank=60, random_state=0).fit(X)
    manylens.save(lenses, tmp_path / "m.manylens")
    found = run_json(capsys, "search", tmp_path / "m.manylens", tmp_path / "x.npy", "--row", 1, "-k", 2)[
        "rows"
    ]
    assert found[0]["rank"] == 1
    pytest.importorskip("matplotlib")
    run_json(capsys, "report", tmp_path / "m.manylens", tmp_path / "x.npy", "-o", tmp_path / "page.html")
    assert "150 rows" in (tmp_path / "page.html").read_text()


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_a_terminal_shows_progress_and_the_table(folder, tmp_path):
    import pty

    master, slave = pty.openpty()
    words = ["learn", folder / "iris.csv", "--numeric-only", *SMALL, "-o", tmp_path / "m.manylens"]
    with subprocess.Popen(
        [sys.executable, "-m", "manylens", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=slave,
        env={**environment(), "TERM": "xterm"},
    ) as running:
        os.close(slave)
        try:
            table = running.stdout.read()
            assert running.wait(120) == 0
            shown = os.read(master, 100_000)
        finally:
            running.kill()
            os.close(master)
    assert b"Learning modules of 150 rows" in shown
    assert b"Learning" not in table
    assert b"lower bound" in table
