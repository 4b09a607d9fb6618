"""Ordinary and hostile values for the parameters of any public function or method."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

import manylens as ml

BILLION = 10**9
HOSTILE_SCALARS: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, BILLION, -0.5, 0.0, 1.5, 1e300, -1e300, float("nan"), float("inf"),
    "nonsense", "", b"x", (), [], {}, [1, 2], (0, -1), np.float32(0.5), np.int64(3), np.array(2),
    np.array([1, 2]), object(), dict, len, 1 + 2j, np.int8(3), np.uint64(2**63), 2**63, pd.NA, "a" * 5000,
    np.datetime64("2020-01-01"), slice(None),
)  # fmt: skip
TENSORS: tuple[Any, ...] = (
    (lambda X: X.requires_grad_(), lambda X: X.bfloat16(), lambda X: X.to_sparse())
    if find_spec("torch")
    else ()
)
RESULTS: tuple[Any, ...] = (
    lambda X, Y: X @ Y.T,
    lambda X, _: X,
    lambda *_: np.ones((2, 3)),
    lambda X, Y: (X @ Y.T).tolist(),
    lambda X, Y: X @ Y.T + 1j,
    lambda X, Y: (X @ Y.T) * np.nan,
    lambda *_: [[1.0, 2.0], [3.0]],
    lambda *_: None,
    lambda *_: "near",
)
SCALES = (1e-300, 1e-160, 1e-45, 1e-30, 1e-23, 1e-10, 1e10, 1e19, 1e20, 1e38, 1e100, 1e154, 1e200, 1e300)
DTYPES = (
    "float16",
    "float32",
    "int8",
    "int64",
    "uint8",
    "bool",
    "complex128",
    "object",
    "U5",
    "datetime64[s]",
    ">f8",
)


@dataclass(frozen=True)
class Function:
    """A function of two sets of rows, as kernels are, whose result may have another shape or type."""

    k: int

    def __call__(self, X: Any, Y: Any) -> Any:
        return RESULTS[self.k](X, Y)


def with_long_indices(X: Any) -> Any:
    """A CSR matrix with indices of 64 bits, as those of very large ones have."""
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


def tensor(X: np.ndarray) -> Any:
    """The rows as a tensor."""
    import torch

    return torch.tensor(np.ascontiguousarray(X))


class Draw:
    """A source of values; everything follows from the generator, so a case can be replayed from its seed."""

    def __init__(self, rng: np.random.Generator, hostility: float) -> None:
        self.rng = rng
        self.hostility = hostility
        self.n = int(rng.choice([2, 3, 5, 12, 30, 60], p=[0.03, 0.05, 0.1, 0.2, 0.42, 0.2]))
        self.d = int(rng.choice([1, 2, 4, 9], p=[0.1, 0.2, 0.5, 0.2]))
        self.y = self._classes()

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def one_of(self, values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def hostile(self) -> bool:
        return self.chance(self.hostility)

    def scalar(self) -> Any:
        return self.one_of(HOSTILE_SCALARS)

    def _classes(self) -> np.ndarray:
        return self.rng.permutation(np.arange(self.n) % min(3, max(2, self.n // 4)))

    def matrix(self, n: int, d: int) -> np.ndarray:
        """Return ordinary rows, sometimes degenerate or at an extreme scale."""
        X = self.rng.normal(size=(n, d)) + 2.0 * self.rng.normal(size=(3, d))[self._labels_for(n)]
        kinds = (
            "constant",
            "duplicated",
            "constant column",
            "scaled",
            "column scaled",
            "offset",
            "integers",
            "rank 1",
            "zeros",
        )
        if X.size == 0 or not self.hostile():
            return X
        kind = self.one_of(kinds)
        if kind == "constant":
            return np.full((n, d), float(self.one_of([1.0, 0.1, 1e20])))
        if kind == "duplicated":
            return X[self.rng.integers(0, max(1, n // 4), n)]
        if kind == "constant column":
            X[:, 0] = 3.0
        elif kind == "scaled":
            X *= float(self.one_of(SCALES))
        elif kind == "column scaled":
            X[:, -1] *= float(self.one_of(SCALES))
        elif kind == "offset":
            X += float(self.one_of([1e6, 1e12, 1e16]))
        elif kind == "integers":
            X = np.round(X)
        elif kind == "rank 1":
            X = np.outer(X[:, 0], X[0])
        else:
            X = np.zeros((n, d))
        return X

    def _labels_for(self, n: int) -> np.ndarray:
        return np.resize(self.y, n) % 3

    def rows(self, n: int | None = None, d: int | None = None) -> Any:
        """Return something that stands for a matrix."""
        n, d = self.n if n is None else n, self.d if d is None else d
        if self.hostile():
            n = int(self.one_of([0, 1, 2, n + 1]))
        elif self.hostile():
            d = int(self.one_of([0, 1, d + 1, 40]))
        X: Any = self.matrix(n, d)
        if not self.hostile():
            return X.astype("float32") if self.chance(0.2) else X
        kind = self.one_of(("nan", "inf", "dtype", "container", "ndim", "scalar", "ragged"))
        if kind in ("nan", "inf") and X.size:
            X.flat[int(self.rng.integers(X.size))] = np.nan if kind == "nan" else np.inf
            return X
        if kind == "dtype":
            return self._as_dtype(X)
        if kind == "container":
            return self._contained(X)
        if kind == "ndim":
            return self.one_of([X.ravel(), X[None], X[..., None], np.array(1.0)])
        if kind == "ragged":
            return [[1.0, 2.0], [3.0]]
        return self.scalar()

    def _as_dtype(self, X: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            dtype = str(self.one_of(DTYPES))
            safe = np.clip(X, -100, 100) if dtype[0] in "iud" else X
            return safe.astype("int64").astype(dtype) if dtype.startswith("datetime") else safe.astype(dtype)

    def _contained(self, X: np.ndarray) -> Any:
        frozen = X.copy()
        frozen.setflags(write=False)
        makers = (
            lambda: X.tolist(),
            lambda: pd.DataFrame(X),
            lambda: pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])], index=range(5, 5 + len(X))),
            lambda: sparse.csr_matrix(X),
            lambda: sparse.csc_array(X),
            lambda: sparse.coo_array(X),
            lambda: np.asfortranarray(X),
            lambda: np.repeat(np.repeat(X, 2, axis=0), 2, axis=1)[::2, ::2],
            lambda: frozen,
            lambda: np.ma.masked_array(X, mask=X > 1),
            lambda: np.matrix(X),
            lambda: iter(X.tolist()),
            lambda: sparse.lil_matrix(X),
            lambda: with_long_indices(sparse.csr_array(X)),
            lambda: X[::-1, ::-1],
            lambda: pd.DataFrame(X).astype("Float64"),
            *((lambda change=change: change(tensor(X))) for change in TENSORS),
        )
        return self.one_of(makers)()

    def labels(self, n: int | None = None) -> Any:
        """Return something that stands for classes or target values."""
        y: Any = self.y if n is None else np.resize(self.y, n)
        if self.chance(0.25):
            y = y + self.rng.normal(size=len(y))
        elif self.chance(0.15):
            y = np.array(["a", "bb", "-1"])[y % 3]
        if not self.hostile():
            return y
        kind = self.one_of(
            (
                "one class",
                "own class",
                "length",
                "nan",
                "two columns",
                "object",
                "frame",
                "scale",
                "list",
                "missing",
                "complex",
                "scalar",
            )
        )
        if kind == "missing":
            return pd.array(["a", pd.NA] * len(y), dtype="string")[: len(y)]
        if kind == "complex":
            return np.arange(len(y)) + 1j
        if kind == "one class":
            return np.zeros(len(y))
        if kind == "own class":
            return np.arange(len(y))
        if kind == "length":
            return np.resize(y, max(0, len(y) + int(self.one_of([-1, 1, -len(y)]))))
        if kind == "nan":
            y = self.rng.normal(size=len(y))
            y[: 1 + len(y) // 5] = self.one_of([np.nan, np.inf])
            return y
        if kind == "two columns":
            return np.column_stack([y, y])
        if kind == "object":
            return np.array([self.one_of([None, 1, "a", 2.5]) for _ in y], dtype=object)
        if kind == "frame":
            return self.one_of([pd.Series(y), pd.DataFrame({"y": y}), pd.Series(y).astype("category")])
        if kind == "scale":
            return self.rng.normal(size=len(y)) * float(self.one_of(SCALES))
        return list(y) if kind == "list" else self.scalar()

    def feature_sets(self) -> Any:
        """Return a list or dict of matrices with the same rows."""
        if self.hostile():
            return self.one_of([[], {}, self.rows(), [self.rows(), self.rows(self.n + 1)], self.scalar()])
        sets = [self.rows(d=int(self.rng.integers(1, 6))) for _ in range(int(self.rng.integers(1, 4)))]
        return dict(zip("abc", sets, strict=False)) if self.chance(0.5) else sets

    def integers(self) -> np.ndarray:
        """Return row numbers, sometimes negative or repeated."""
        found = np.argsort(self.rng.random((self.n, max(3, self.n))), axis=1)[:, :3]
        return self.rng.integers(-1, self.n, (self.n, 3)) if self.hostile() else found

    def sketches(self) -> Any:
        """Return CountSketches of the same rows."""
        sketches = [ml.CountSketch(8, random_state=seed) for seed in range(3)]
        for sketch in sketches:
            sketch.update(self.matrix(self.n, self.d))
        return self.one_of([[], sketches[:1], self.scalar()]) if self.hostile() else sketches

    def ensemble(self) -> Any:
        """Return a fitted or unfitted forest or boosting."""
        X, y = self.rng.normal(size=(self.n, self.d)), self.y
        kind = self.one_of(
            [RandomForestClassifier, ExtraTreesClassifier, RandomForestRegressor, GradientBoostingRegressor]
        )
        model = kind(n_estimators=5, random_state=0)
        return model if self.hostile() else model.fit(X, y)

    def network(self) -> Any:
        """Return a small torch network for rows of this case's width, or something else."""
        if not find_spec("torch"):
            return "no network"
        import torch

        if self.hostile():
            return self.scalar()
        torch.manual_seed(int(self.rng.integers(1000)))
        return torch.nn.Sequential(torch.nn.Linear(self.d, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))

    def batches(self) -> Any:
        """Return batches of float32 rows, or something else."""
        if self.hostile():
            return self.one_of([[], self.rows(), [self.rows(), self.rows()], self.scalar()])
        with np.errstate(over="ignore"):
            X = self.matrix(self.n, self.d).astype("float32")
        return np.array_split(X, int(self.rng.integers(1, 4)))

    def modules(self) -> Any:
        """Return a transformer that has modules."""
        return self.one_of(
            [ml.ModularAutoencoder(2, 2, random_state=0), ml.ModularKernelPCA(2, 2, random_state=0), None]
        )

    def path(self) -> Any:
        """Return the path of a model, intact or damaged, of a folder, of nothing, or what is no path."""
        folder = Path(tempfile.gettempdir()) / f"manylens-fuzz-{os.getpid()}"
        folder.mkdir(exist_ok=True)
        if self.hostile():
            scalar = self.scalar()
            no_path = 3 if isinstance(scalar, str) else scalar  # a name would write to the current folder
            return self.one_of([folder, folder / "missing" / "model", no_path])
        path = folder / "model.manylens"
        ml.save(ml.CountSketch(4, random_state=0).update(self.rng.normal(size=(5, 3))), path)
        content = bytearray(path.read_bytes())
        if self.hostile():
            content[int(self.rng.integers(len(content)))] ^= 1 << int(self.rng.integers(8))
        elif self.hostile():
            content = content[: int(self.rng.integers(len(content)))]
        elif self.hostile():
            content = bytearray(self.rng.bytes(100))
        path.write_bytes(content)
        return self.one_of([path, str(path)])

    def model(self) -> Any:
        """Return something to save, sometimes what cannot be saved."""
        fitted = ml.ModularAutoencoder(2, 1, random_state=0).fit(self.rng.normal(size=(12, 3)))
        return (
            self.scalar() if self.hostile() else self.one_of([fitted, {"rows": self.rows(), "model": fitted}])
        )

    def by_type(self, annotation: str, default: Any) -> Any:
        """Return a value for an optional parameter, from the words of its annotation."""
        if self.hostile():
            return self.scalar()
        choices = re.findall(r"['\"]([\w-]+)['\"]", annotation)
        numbers: list[Any] = []
        if re.search(r"\bint\b|Seed", annotation):
            numbers += [1, 2, 3, 5]
        if re.search(r"\bfloat\b|Gamma", annotation):
            numbers += [0.0, 0.1, 0.5, 1.0]
        if "bool" in annotation:
            numbers += [True, False]
        if "CountSketch" in annotation:
            numbers += [ml.CountSketch(8), ml.CountSketch(8, 2, 3)]
        if "Kernel" in annotation and "Callable" in annotation:
            numbers += [Function(k) for k in range(len(RESULTS))]
        options = choices + numbers
        return self.one_of(options) if options else default
