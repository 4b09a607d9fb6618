"""The command line beside the library."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.preprocessing import StandardScaler

from benchmarks.harness import Claim, Comparison, ratio
from manylens import ModularKernelPCA


class LearnCommand(Comparison):
    """`manylens learn` on a Parquet file of 100,000 x 100 numbers, as one process from start to end (imports,
    reading, checks, scaling, fit, measuring, saving), beside the fit alone in a running process. `loss` is
    the same if both learn the same modules."""

    contenders = ("command", "fit")
    repeats = 3
    memory = False
    claims = (
        Claim("time of the command relative to the fit alone", ratio("command", "fit"), at_most=2),
        Claim("loss relative to that of the fit", ratio("command", "fit", "loss"), at_most=1.001),
    )

    def make_data(self):
        import pandas as pd

        rng = np.random.default_rng(self.seed)
        n, d = (3_000, 20) if self.quick else (100_000, 100)
        X = rng.normal(size=(n, 12)) @ rng.normal(size=(12, d)) + 0.5 * rng.normal(size=(n, d))
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "rows.parquet"
        pd.DataFrame(X, columns=[f"x{k}" for k in range(d)]).to_parquet(path)
        return path, StandardScaler().fit_transform(X)

    def command(self, data):
        path, _ = data
        words = [sys.executable, "-m", "manylens", "learn", str(path), "--json"]
        words += ["-o", str(path.with_name("m.manylens")), "--seed", "0"]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=1800)
        return json.loads(done.stdout)["loss"]

    def fit(self, data):
        settings = {"n_modules": 10, "n_components": 10, "diversity": 0.99, "kernel": "rbf", "rank": 1000}
        return ModularKernelPCA(**settings, random_state=0).fit(data[1]).loss_

    def score(self, data, outcome):
        return {"loss": float(outcome)}
