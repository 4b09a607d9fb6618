"""The notebooks of the documentation run from top to bottom, and are stored without outputs."""

import os
from pathlib import Path

import pytest

import manylens

nbformat = pytest.importorskip("nbformat")
NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))
SECONDS = 180  # for one cell, on a busy machine


def test_there_is_one_notebook_per_job():
    assert {path.stem for path in NOTEBOOKS} == {"search", "compare_networks", "prune_and_transfer"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_stored_without_outputs(path):
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    assert str(Path.home()) not in path.read_text()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path, tmp_path, monkeypatch):
    """Cells assert what the text around them claims; no cell may warn."""
    client = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("matplotlib")
    monkeypatch.delenv("MPLBACKEND", raising=False)  # figures must be drawn into the notebook
    notebook = nbformat.read(path, 4)
    runner = client.NotebookClient(
        notebook, timeout=SECONDS, startup_timeout=SECONDS, resources={"metadata": {"path": str(tmp_path)}}
    )
    source = str(Path(manylens.__file__).parents[1])
    runner.execute(env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"})
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    errors = [output.text for output in outputs if output.get("name") == "stderr"]
    assert not [text for text in errors if "compiling its loops" not in text]
    figures = [output for output in outputs if "image/png" in output.get("data", {})]
    tables = [output for output in outputs if "manylens-facts" in output.get("data", {}).get("text/html", "")]
    assert figures
    assert tables
    assert not os.listdir(tmp_path)
