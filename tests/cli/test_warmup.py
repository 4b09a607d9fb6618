"""`manylens warmup` compiles all loops: a process that comes later compiles nothing."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from manylens.cli import main

LATER = """
import json, warnings
import numpy as np
from numba.core import event
from scipy import sparse
from sklearn.ensemble import RandomForestClassifier
import manylens as ml
from manylens.cli.warmup import NCA_METHODS, SEARCH_METHODS
from manylens.explorer.served_neighbors import ExplorerBackend
from manylens.transfer.banded_ridge import banded_ridge

warnings.simplefilter("ignore")
compiled = []

class Listener(event.Listener):
    def on_start(self, event):
        function = event.data["dispatcher"].py_func
        if function.__module__.startswith("manylens."):
            compiled.append(f"{call}: {function.__qualname__}{event.data['args']}")

    def on_end(self, event):
        pass

event.register("numba:compile", Listener())
rng = np.random.default_rng(1)
asked = {"row": 9, "weights": [0.5] * 6, "each": True}
y = np.arange(2000) % 3
rows = rng.normal(size=(2000, 12)) + rng.normal(size=(3, 12))[y]
for X in (rows, rows.astype(np.float32)):
    lenses = ml.ModularKernelPCA(3, 2, rank=50, random_state=0).fit(X)
    forest = RandomForestClassifier(10, random_state=0).fit(X, y)
    calls = {
        "CountSketch": lambda: ml.CountSketch(64).update(X),
        "CountSketch, sparse": lambda: ml.CountSketch(64).update(sparse.csr_matrix(X)),
        "hsic_test": lambda: ml.hsic_test(X[:, :4], X[:, 4:], n_permutations=20),
        "distance_correlation": lambda: ml.distance_correlation(X[:, :4], X[:, 4:]),
        "ScanNeighborsClassifier": lambda: ml.ScanNeighborsClassifier(5).fit(X, y).predict(X[:100]),
        "AlignmentPruner": lambda: ml.AlignmentPruner(forest).fit(X, y).predict(X),
        "explorer": lambda: ExplorerBackend(lenses, X, diversities=[1]).neighbors(asked),
        "kernel ridge": lambda: banded_ridge(np.eye(200), np.ones((200, 2)), 1.0).left_out(1.0),
        "NCA": lambda: ml.NCA(2, max_iter=5, random_state=0).fit(X, y),
    }
    for method in NCA_METHODS:
        nca = ml.NCA(2, method=method, max_iter=5, random_state=0)
        calls[f"NCA, {method}"] = lambda nca=nca: nca.fit(X, y)
    for method in SEARCH_METHODS:
        index = ml.ModuleNeighbors(lenses, method=method)
        calls[f"ModuleNeighbors, {method}"] = lambda index=index: index.fit(X).kneighbors(X[:100])
    for call, run in calls.items():
        run()
print(json.dumps(compiled))
"""


def in_fresh_process(arguments, cache, seconds):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    run = subprocess.run(
        [sys.executable, *arguments], env=environment, timeout=seconds, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.slow
def test_nothing_is_compiled_after_a_warmup(tmp_path):
    printed = in_fresh_process(["-m", "manylens", "warmup"], tmp_path, seconds=600)
    assert "NCA, tree, float32" in printed
    assert "Done in" in printed
    assert json.loads(in_fresh_process(["-c", textwrap.dedent(LATER)], tmp_path, seconds=300)) == []


def test_warmup_reports_every_call_in_both_precisions(monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(
        "manylens.cli.warmup.tasks", lambda X, y: [("one call", lambda: calls.append((X.dtype, len(y))))]
    )
    assert main(["warmup"]) == 0
    assert calls == [("float64", 600), ("float32", 600)]
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("  one call, float64: ")
    assert lines[-1].startswith("Done in ")
