import numpy as np
import pytest
from sklearn.datasets import load_digits

from manylens import ModularKernelPCA, ModuleNeighbors, retrieval_precision
from manylens.ensembles.retrieval import RetrievalPrecision


def test_precision_is_the_mean_share_of_common_rows():
    rng = np.random.default_rng(0)
    found = np.array([rng.permutation(40)[:8] for _ in range(30)])
    relevant = np.array([rng.permutation(40)[:8] for _ in range(30)])
    literal = np.mean([len(set(a) & set(b)) / 8 for a, b in zip(found, relevant, strict=True)])
    assert retrieval_precision(found, relevant) == pytest.approx(literal, rel=1e-12)
    assert retrieval_precision(found, found[:, ::-1]) == 1.0


def test_an_index_that_keeps_everything_has_precision_one():
    X = load_digits().data[:400]
    whole = ModularKernelPCA(2, 32, kernel="linear", diversity=1.0, random_state=0)
    index = ModuleNeighbors(whole, method="exact").fit(X[:300])
    assert RetrievalPrecision(5).prepared(X[:300], X[300:])(index, X[300:]) == pytest.approx(1.0, abs=0.02)


def test_lists_of_other_queries_are_refused():
    with pytest.raises(ValueError, match=r"are lists of rows for the same queries, .*\(2, 2\) and \(1, 2\)"):
        retrieval_precision([[1, 2], [3, 4]], [[1, 2]])
