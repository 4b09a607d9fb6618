"""`manylens explore` through the entry point, and the explorer at the end of the demo."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np
import pytest
from sklearn.datasets import load_iris

import manylens
from manylens.cli import browser, main, run_explore

pytest.importorskip("click")
pd = pytest.importorskip("pandas")

SMALL = ["--modules", "3", "--components", "2"]


def run_json(capsys, *words):
    code = main([*map(str, words), "--json"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return json.loads(printed.out)


def content(path):
    """The description that a page holds."""
    found = re.search(r'<script id="data"[^>]*>(.*?)</script>', Path(path).read_text(), re.DOTALL)
    return json.loads(found[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    iris = load_iris(as_frame=True)
    frame = iris.data.rename(columns=lambda name: name.replace(" (cm)", "").replace(" ", "_"))
    frame["species"] = iris.target_names[iris.target]
    frame["name"] = [f"flower {k}" for k in range(len(frame))]
    frame["note"] = ["<b>bold</b>", None, "plain"] * 50
    frame.to_csv(folder / "iris.csv", index=False)
    np.save(folder / "a.npy", iris.data.to_numpy())
    np.save(folder / "b.npy", iris.data.to_numpy()[:, ::-1] ** 2)
    np.save(folder / "short.npy", np.ones((3, 2)))
    return folder


COLUMNS = ["--label", "species", "--ids", "name", "--text", "note", "--show", "sepal_length"]


def test_modules_are_learned_and_shown_with_the_columns(folder, capsys):
    page = folder / "out.html"
    said = run_json(capsys, "explore", folder / "iris.csv", *COLUMNS, *SMALL, "-o", page)
    assert (said["rows"], said["page"], said["opened"]) == (150, str(page), False)
    meta = content(page)["meta"]
    assert meta["classes"] == ["setosa", "versicolor", "virginica"]
    assert meta["ids"][7] == "flower 7"
    assert meta["text"][:3] == ["<b>bold</b>", "", "plain"]
    assert meta["table"] == {
        "names": ["sepal_length"],
        "values": [[f"{v:.6g}" for v in load_iris().data[:, 0]]],
    }
    assert meta["shape"] == [3, 2]


def test_a_model_is_shown_with_its_own_diversity(folder, capsys):
    model, page = folder / "iris.manylens", folder / "model.html"
    shown = ["--drop", "note", "--label", "species", "--ids", "name"]
    assert (
        main(
            ["learn", str(folder / "iris.csv"), *shown, *SMALL, "-q", "--diversity", "0.7", "-o", str(model)]
        )
        == 0
    )
    capsys.readouterr()
    run_json(capsys, "explore", folder / "iris.csv", "--model", model, "--label", "species", "-o", page)
    data = content(page)
    assert data["meta"]["diversity"] == 0.7
    prepared = manylens.load(model)
    rows = prepared[:-1].transform(pd.read_csv(folder / "iris.csv"))
    wanted = prepared[-1].principal_coordinates(rows)[:, :6].astype("<f4")
    assert gzip.decompress(b64decode(data["coordinates"])) == np.ascontiguousarray(wanted).tobytes()


def test_many_rows_are_sampled_and_keep_their_numbers(folder, capsys, monkeypatch):
    monkeypatch.setattr(run_explore, "MOST_ROWS", 40)
    page = folder / "sample.html"
    said = run_json(
        capsys, "explore", folder / "iris.csv", "--numeric-only", "--label", "species", *SMALL, "-o", page
    )
    assert said["rows"] == 40
    assert "random sample of 40 of 150 rows" in said["notes"][0]
    meta = content(page)["meta"]
    species = pd.read_csv(folder / "iris.csv")["species"]
    rows = [int(name.removeprefix("row ")) for name in meta["ids"]]
    assert rows == sorted(rows)
    assert [meta["classes"][code] for code in meta["codes"]] == species[rows].tolist()


def test_two_files_are_compared(folder, capsys):
    page = folder / "both.html"
    said = run_json(capsys, "explore", folder / "a.npy", "--compare", folder / "b.npy", "-o", page)
    assert said["rows"] == 150
    meta = content(page)["meta"]
    assert [side["name"] for side in meta["sides"]] == ["a.npy", "b.npy"]
    X = load_iris().data
    assert meta["cka"][0][0] == pytest.approx(
        manylens.cka(X, X[:, ::-1] ** 2, estimator="unbiased"), abs=1e-4
    )


def test_images_of_a_folder_are_shown_with_their_files(tmp_path, capsys):
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for k in range(12):
        kind = tmp_path / "photos" / ("ab"[k % 2])
        kind.mkdir(parents=True, exist_ok=True)
        image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)).save(kind / f"{k}.png")
    page = tmp_path / "photos.html"
    words = ["--image-size", "4", "--label", "folder", *SMALL, "-o", page]
    run_json(capsys, "explore", tmp_path / "photos", *words)
    meta = content(page)["meta"]
    assert meta["image_shape"] == [4, 4, 3]
    assert meta["ids"][0] == "a/0.png"
    assert meta["query"]["n_landmarks"] == 12  # an image can be dropped


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.csv"], "missing.csv does not exist"),
        (["iris.csv", "--label", "specis"], "did you mean 'species'"),
        (["iris.csv"], "text in 'species', 'name', 'note'"),
        (["iris.csv", "--numeric-only", "-o", "page.txt"], "its name must end in .html"),
        (["iris.csv", "--numeric-only", "-o", "nowhere/page.html"], "the folder nowhere does not exist"),
        (["a.npy", "--compare", "short.npy"], "a.npy has 150 rows and short.npy 3"),
        (["a.npy", "--compare", "b.npy", "--serve"], "leave out --model and --serve"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_a_sentence(folder, words, message, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    assert main(["explore", *words]) == 2
    assert message in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


def test_the_page_is_opened_only_if_there_is_a_display(folder, capsys, monkeypatch):
    opened = []
    monkeypatch.setattr(browser.webbrowser, "open", lambda address: opened.append(address) or True)
    words = ["explore", str(folder / "a.npy"), *SMALL, "-o", str(folder / "a.html")]
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert main(words) == 0
    assert opened == []
    monkeypatch.setenv("DISPLAY", ":0")
    assert main([*words, "--no-open"]) == 0
    assert opened == []
    assert main(words) == 0
    assert opened == [(folder / "a.html").as_uri()]
    capsys.readouterr()


def test_the_demo_ends_with_the_explorer(tmp_path, capsys, monkeypatch):
    opened = []
    monkeypatch.setattr("manylens.cli.demo.open_in_browser", lambda page: opened.append(page) or True)
    page = tmp_path / "digits.html"
    assert main(["demo", "--quick", "--no-open", "--output", str(page)]) == 0
    explorer = tmp_path / "digits-explorer.html"
    assert f"Explorer: {explorer} (open it in a browser)" in capsys.readouterr().out
    assert opened == []
    assert content(explorer)["meta"]["n"] == 500
    assert main(["demo", "--quick", "--output", str(page)]) == 0
    assert "(opened in the browser)" in capsys.readouterr().out
    assert opened == [explorer]


def test_a_served_page_ends_cleanly_on_ctrl_c(folder):
    pytest.importorskip("uvicorn")
    source = Path(manylens.__file__).parents[1]
    words = ["explore", str(folder / "a.npy"), *SMALL, "--serve", "--no-open", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "manylens", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(source)},
    )
    try:
        address = json.loads(process.stdout.readline())["address"]
        assert urlsplit(address).hostname == "127.0.0.1"
        with urlopen(address, timeout=30) as answer:
            assert b"<title>a.npy" in answer.read()
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=30)
        assert (process.returncode, rest, errors) == (0, "", "")
    finally:
        process.kill()
        process.wait()
