"""Saved indexes, mapped and column-wise reading, automatic diversity, and a million rows."""

import json
import mmap
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from sklearn.datasets import load_iris

import manylens
from manylens.cli import main
from tests.cli.test_broken_files import refusal
from tests.cli.test_files import SMALL, environment, run_json

pytest.importorskip("click")
pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Iris with names, its model and its index."""
    folder = tmp_path_factory.mktemp("index")
    iris = load_iris(as_frame=True)
    frame = iris.data.assign(species=iris.target_names[iris.target])
    frame["name"] = [f"flower {k}" for k in range(len(frame))]
    frame.to_parquet(folder / "iris.parquet")
    frame.to_feather(folder / "iris.feather")
    frame.iloc[[3, 140]].to_csv(folder / "wanted.csv", index=False)
    words = ["learn", folder / "iris.parquet", "--label", "species", "--ids", "name", "-q", *SMALL]
    words += ["-o", folder / "m.manylens", "--index", folder / "index.manylens"]
    assert main([*map(str, words)]) == 0
    return folder


class TestIndex:
    def test_a_saved_index_answers_without_the_data_by_id(self, folder, capsys):
        index, query = folder / "index.manylens", folder / "wanted.csv"
        found = run_json(capsys, "search", index, "--query", query, "-k", 4)["rows"]
        words = ["search", folder / "m.manylens", folder / "iris.parquet", "--query", query, "-k", 4]
        by_model = run_json(capsys, *words, "--ids", "name")["rows"]
        assert [line["row"] for line in found] == [line["name"] for line in by_model]
        assert [line["distance"] for line in found] == pytest.approx([line["distance"] for line in by_model])
        assert found[0]["row"] == "flower 3"

    def test_with_the_data_all_options_work(self, folder, capsys):
        words = ["--row", 3, "-k", 3, "--ids", "name", "--show", "species", "--where", "species == 'setosa'"]
        both = [
            run_json(capsys, "search", folder / file, folder / "iris.parquet", *words)["rows"]
            for file in ("index.manylens", "m.manylens")
        ]
        assert both[0] == both[1]
        assert {line["species"] for line in both[0]} == {"setosa"}

    def test_what_needs_the_data_is_refused_without(self, folder, capsys):
        index, query = folder / "index.manylens", folder / "wanted.csv"
        for words in (["--row", 3], ["--row", 3, "--query", query], ["--query", query, "--show", "species"]):
            assert "refer to DATA" in refusal(capsys, "search", index, *words)
        assert "give the DATA to search" in refusal(capsys, "search", folder / "m.manylens", "--query", query)
        assert "the index has 150 rows, not the 2" in refusal(capsys, "search", index, query, "--row", 0)

    def test_python_loads_the_same_index_and_info_describes_it(self, folder, capsys):
        pipe = manylens.load(folder / "index.manylens")
        assert len(pipe[-1]) == 150
        assert run_json(capsys, "info", folder / "index.manylens")["class"] == "ModuleNeighbors"

    def test_learn_reports_the_recall(self, folder, tmp_path, capsys):
        words = ["learn", folder / "iris.parquet", "--numeric-only", *SMALL, "-o", tmp_path / "m.manylens"]
        facts = run_json(capsys, *words, "--index", tmp_path / "i.manylens")
        assert 0 < facts["recall_of_the_index"] <= 1
        assert "name two" in refusal(capsys, *words, "--index", tmp_path / "m.manylens")


class TestReading:
    @pytest.mark.parametrize("suffix", ["parquet", "feather"])
    def test_only_the_columns_that_the_model_needs_are_read(self, folder, capsys, monkeypatch, suffix):
        read, seen = getattr(pd, f"read_{suffix}"), []

        def reading(source, **options):
            frame = read(source, **options)
            seen.append(list(frame.columns))
            return frame

        monkeypatch.setattr(pd, f"read_{suffix}", reading)
        words = [folder / "m.manylens", folder / f"iris.{suffix}"]
        run_json(capsys, "search", *words, "--row", 0, "--ids", "name")
        assert "species" not in seen[0]
        assert "name" in seen[0]
        run_json(capsys, "search", *words, "--row", 0, "--where", "species == 'setosa'")
        assert "species" in seen[1]
        assert "'spcies'; did you mean 'species'?" in refusal(
            capsys, "transform", *words, "--keep", "spcies", "-o", folder / "t.csv"
        )

    def test_arrays_are_mapped_from_the_file(self, tmp_path):
        from manylens.cli.tables import read_rows

        np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(1000, 8)).astype(np.float32))
        frame = read_rows(str(tmp_path / "x.npy")).frame
        base = frame.to_numpy()
        while base.base is not None and not isinstance(base, np.memmap):
            base = base.base
        assert isinstance(base, np.memmap | mmap.mmap)

    @pytest.mark.skipif(os.name != "posix", reason="needs named pipes")
    def test_a_named_pipe_is_read_once(self, folder, tmp_path, capsys):
        os.mkfifo(tmp_path / "pipe")
        text = pd.read_parquet(folder / "iris.parquet").to_csv(index=False)
        writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=(text,), daemon=True)
        writer.start()
        facts = run_json(
            capsys, "learn", tmp_path / "pipe", "--numeric-only", *SMALL, "-o", tmp_path / "m.manylens"
        )
        writer.join(60)
        assert facts["rows"] == 150


class TestAutomaticDiversity:
    def test_it_is_the_best_of_a_cross_validation(self, folder, tmp_path, capsys):
        words = ["learn", folder / "iris.parquet", "--label", "species", "--ids", "name", *SMALL]
        facts = run_json(capsys, *words, "--diversity", "auto", "-o", tmp_path / "m.manylens")
        frame = pd.read_parquet(folder / "iris.parquet")
        X = manylens.load(tmp_path / "m.manylens")[:-1].transform(frame)
        modules = manylens.ModularKernelPCA(3, 2, rank=60, random_state=0)
        search = manylens.DiversitySearchCV(manylens.ModuleVotingClassifier(modules), cv=3)
        assert facts["diversity"] == search.fit(X, frame["species"].to_numpy(str)).best_diversity_

    def test_values_are_searched_too_and_a_label_is_needed(self, folder, tmp_path, capsys):
        words = ["learn", folder / "iris.parquet", "--numeric-only", "--diversity", "auto", *SMALL]
        words += ["-o", tmp_path / "m.manylens"]
        assert "give --label, or a number" in refusal(capsys, *words)
        facts = run_json(capsys, *words, "--label", "petal width (cm)")
        assert 0 <= facts["diversity"] <= 1
        assert "Invalid value for '--diversity'" in refusal(capsys, *words[:3], "--diversity", "often")

    def test_classes_of_one_row_are_refused(self, folder, tmp_path, capsys):
        words = ["learn", folder / "iris.parquet", "--label", "name", "--drop", "species", *SMALL]
        assert "fewer than 3 rows" in refusal(capsys, *words, "--diversity", "auto")


def test_the_size_of_images_is_that_of_the_model(tmp_path, capsys):
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for k in range(12):
        image.fromarray(rng.integers(0, 255, (20, 20, 3), dtype=np.uint8)).save(tmp_path / f"photos/{k}.png")
    model = tmp_path / "m.manylens"
    run_json(capsys, "learn", tmp_path / "photos", "--image-size", 8, *SMALL, "-o", model)
    found = run_json(capsys, "search", model, tmp_path / "photos", "--query", tmp_path / "photos/3.png")
    assert found["rows"][0]["distance"] == pytest.approx(0, abs=1e-5)
    assert main(["transform", str(model), str(tmp_path / "photos"), "-q", "-o", str(tmp_path / "z.npy")]) == 0
    assert "--image-size 8" in refusal(
        capsys, "transform", model, tmp_path / "photos", "--image-size", 16, "-o", tmp_path / "z.npy"
    )


def test_brackets_in_names_are_printed_as_they_are(tmp_path, capsys):
    columns = ["[bold]a[/bold]", "[/]", "c\\"]
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 3)), columns=columns)
    table = tmp_path / "[red]rows[green].csv"
    frame.to_csv(table, index=False)
    target = tmp_path / "[link=x]m.manylens"
    assert main(["learn", str(table), *SMALL, "-o", str(target)]) == 0
    shown = capsys.readouterr().out
    assert "[red]rows[green].csv" in shown
    assert "[link=x]m.manylens" in shown
    assert main(["info", str(table)]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in columns)
    words = ["search", str(target), str(table), "--row", "0", "--show", columns[0], "--show", columns[1]]
    assert main([*words, "-o", str(tmp_path / "[i]found.csv")]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in columns[:2])
    assert (tmp_path / "[i]found.csv").exists()


@pytest.mark.slow
def test_a_million_rows_of_text(tmp_path):
    rng = np.random.default_rng(0)
    block = pd.DataFrame(rng.normal(size=(50_000, 4)).round(3), columns=list("abcd"))
    with open(tmp_path / "big.csv", "w") as stream:
        for number in range(20):
            block.to_csv(stream, index=False, header=number == 0)
    words = ["learn", tmp_path / "big.csv", "--modules", 2, "--components", 2, "--kernel", "linear"]
    done = subprocess.run(
        [sys.executable, "-m", "manylens", *map(str, words), "-o", str(tmp_path / "m.manylens"), "--json"],
        capture_output=True,
        timeout=500,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 1_000_000
