"""The code blocks of the guides run, one after another, with the data that their text assumes."""

import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import cross_val_score

from manylens import save
from manylens.alignment import FeatureSketch

DOCS = Path(__file__).parents[1] / "docs"


def code_blocks(guide):
    return re.findall(r"```python\n(.*?)```", (DOCS / f"{guide}.md").read_text(), flags=re.S)


def run(guide, names):
    """Run all blocks of a guide in one namespace."""
    blocks = code_blocks(guide)
    assert blocks
    for block in blocks:
        exec(compile(block, f"docs/{guide}.md", "exec"), names)


@pytest.fixture
def rows(digits, tmp_path, monkeypatch):
    """What most guides assume: rows, classes, test rows, and three representations of the rows."""
    monkeypatch.chdir(tmp_path)
    X, y = digits.data, digits.target
    views = {"A": X[:300, :30], "B": X[:300, 30:], "C": X[:300, 20:40]}
    return {"X": X[:300], "y": y[:300], "X_test": X[300:400], "y_test": y[300:400], **views}


def test_search(rows):
    run("searching", {"embeddings": rows["X"], "names": np.arange(300), "queries": rows["X_test"]})


def test_ensembles(rows, digits):
    names = {
        "embeddings": rows["X"],
        "names": [f"{letter}{number}" for letter in "abc" for number in range(100)],
        "is_in_stock": np.arange(300) % 2 == 0,
        "queries": rows["X_test"],
        "new_rows": digits.data[300:301],
        "more_rows": digits.data[301:305],
        "more_names": ["d0", "d1", "d2", "d3"],
    }
    run("ensembles", rows | names)


def test_alignment(rows):
    def layers(batch):
        return {"conv1": batch[:, :20], "conv2": batch[:, 20:40], "head": batch[:, 40:]}

    class Layers(dict):
        """A dict of layers that also gives those of a batch: the guide uses the name for both."""

        __call__ = staticmethod(layers)

    names = {"layers": Layers(layers(rows["X"])), "other_layers": {"left": rows["A"], "right": rows["B"]}}
    names |= {"loader": np.array_split(rows["X"], 3), "features": rows["A"]}
    save(FeatureSketch(512).update(rows["B"]), "effnet.manylens")
    run("alignment", rows | names)


def test_nca(rows):
    run("nca", rows)


def test_similarity(rows):
    run("similarity", rows | {"layers": [rows["A"], rows["B"]], "other_layers": [rows["C"]]})


def test_choosing(rows):
    run("choosing", rows)


def test_pruning(rows):
    forest = RandomForestClassifier(20, random_state=0).fit(rows["X"], rows["y"])
    run("pruning", rows | {"forest": forest, "X_new": rows["X_test"]})


def test_explorer(rows):
    pytest.importorskip("anywidget")
    layers = {"left": rows["A"], "right": rows["B"]}
    run("explorer", {"layers": layers, "other_layers": layers, "y": rows["y"], "images": None})


def test_networks(rows):
    pytest.importorskip("torch")
    run("networks", {name: values[:60] for name, values in rows.items()})


def test_transfer(rows, digits):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnx")

    def network():
        return torch.nn.Sequential(torch.nn.Linear(64, 20), torch.nn.ReLU(), torch.nn.Linear(20, 10))

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = torch.nn.Embedding(20, 8), torch.nn.Linear(8, 5)

        def forward(self, input_ids, attention_mask):
            return self.head(self.embedding(input_ids))

    torch.manual_seed(0)
    images, new_images = (torch.tensor(rows[name], dtype=torch.float32) for name in ("X", "X_test"))
    tokens = torch.tensor(rows["X"][:, 20:30].astype(int))
    ridge = RidgeClassifier().fit(rows["A"], rows["y"])
    names = {
        "network": network(),
        "batches": images.split(100),
        "new_batches": [new_images],
        "encoder": Encoder(),
        "tokenized": [(tokens, torch.ones_like(tokens))],
        "cross_val_score": cross_val_score,
        "edges": np.diff(rows["X"]),
        "resnet": network(),
        "vit": network(),
        "loader": torch.tensor(digits.data, dtype=torch.float32).split(100),  # enough rows for errors
        "images": images,
        "new_images": new_images,
        "test": new_images,
        "n_epochs": 2,
        "train_one_epoch": torch.nn.Module.train,
        "probe_batches": [images],
        "probe_labels": rows["y"],
        "tuned": ridge,
        "ridge": ridge,
        "held_out": rows["A"],
        "held_out_layers": rows["A"],
        "labels": rows["y"],
    }
    run("transfer", rows | names)
