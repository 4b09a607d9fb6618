import numpy as np
import pytest
from sklearn.datasets import load_digits

from manylens import ModularKernelPCA, ModuleNeighbors, retrieval_precision
from manylens.ensembles.precision import RetrievalPrecision, module_neighbors, rerank


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


def test_lists_for_different_numbers_of_queries_are_refused():
    with pytest.raises(ValueError, match=r"must have one line per query; .*\(2, 2\) and \(1, 2\)"):
        retrieval_precision([[1, 2], [3, 4]], [[1, 2]])


@pytest.fixture(scope="module")
def digits_by_modules():
    X = load_digits().data[:220]
    lenses = ModularKernelPCA(5, 4, random_state=0).fit(X)
    modules = lenses.split(lenses.transform(X))
    return modules[:200], modules[200:]


def test_reranking_all_rows_sorts_them_by_the_mean_squared_distance(digits_by_modules):
    base, queries = digits_by_modules
    everything = np.tile(np.arange(200), (20, 5, 1))
    mean = ((base[None] - queries[:, None]) ** 2).sum(axis=3).mean(axis=2)
    np.testing.assert_array_equal(rerank(everything, base, queries, 10), np.argsort(mean, axis=1)[:, :10])


def test_reranking_returns_only_candidates(digits_by_modules):
    base, queries = digits_by_modules
    offered = module_neighbors(base, queries, 3)
    found = rerank(offered, base, queries, 3)
    assert all(set(row) <= set(candidates.ravel()) for row, candidates in zip(found, offered, strict=True))


def test_the_index_with_the_papers_method_finds_the_same_rows(digits_by_modules):
    base, queries = digits_by_modules
    X = load_digits().data[:220]
    lenses = ModularKernelPCA(5, 4, random_state=0).fit(X)
    index = ModuleNeighbors(lenses, method="paper").fit(X[:200])
    by_hand = rerank(module_neighbors(base, queries, 6), base, queries, 6)
    np.testing.assert_array_equal(index.kneighbors(X[200:], 6)[1], by_hand)


def test_rows_that_were_not_found_do_not_count():
    assert retrieval_precision([[9, 1], [-1, -1]], [[9, 1], [3, 4]]) == 0.5
    assert retrieval_precision([[-1]], [[0]]) == 0.0


def test_rows_found_twice_count_once():
    assert retrieval_precision([[7, 7, 7]], [[7]]) == 1.0
    assert retrieval_precision([[7, 7, 2], [1, 1, 1]], [[7, 8], [3, 1]]) == 0.5


@pytest.mark.parametrize(
    ("found", "relevant", "message"),
    [
        (
            [[0, -2]],
            [[0, 1]],
            r"found contains -2 to 0: give row numbers from 0 to 2\*\*40 - 1, or -1 for none",
        ),
        ([[0, 1]], [[0, -1]], r"relevant contains -1 to 0: give row numbers from 0 to 2\*\*40 - 1\."),
        ([[0, 1]], [[5, 5]], "Line 0 of relevant repeats a row"),
        ([[0.5, 1]], [[0, 1]], r"found must contain integers, .* shape \(1, 2\) and type float64"),
        ([0, 1], [[0, 1]], "found must contain integers, one line per query"),
        (np.empty((0, 3), int), np.empty((0, 3), int), "at least one query"),
    ],
)
def test_lists_that_are_no_rows_are_refused(found, relevant, message):
    with pytest.raises(ValueError, match=message):
        retrieval_precision(found, relevant)
