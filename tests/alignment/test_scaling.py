"""Multiplying an input by a power of two is exact, so it must not change a similarity, a test or a rank."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from manylens import (
    CountSketch,
    KernelAlignment,
    StreamingCKA,
    align_kernels,
    cka,
    cka_matrix,
    distance_correlation,
    hsic_test,
    rank_models,
    sketched_cka,
    stable_rank,
)
from manylens.alignment import FeatureSketch, align_bandwidths, hsic, scka

N = 24
EXPONENTS = st.integers(-1000, 1000)  # entries of the rows below are between 2^-12 and 2^4


def rows(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, 5)) + 1
    return X, X[:, :3] @ rng.standard_normal((3, 4)) + rng.standard_normal((N, 4))


Y_CLASSES = np.arange(N) % 3


def streamed(X, Y, estimator):
    stream = StreamingCKA(estimator=estimator)
    for part in (slice(0, 1), slice(1, 10), slice(10, N)):
        stream.update([X[part], Y[part]])
    return stream.result()[0, 1]


def both_sketched(X, Y):
    return [[CountSketch(16, random_state=r).update(Z) for r in range(4)] for Z in (X, Y)]


def feature_sketched(X, Y):
    parts = [FeatureSketch(16, 4).update(Z[:9]).merge(FeatureSketch(16, 4).update(Z[9:], 9)) for Z in (X, Y)]
    return sketched_cka(*parts, estimator="unbiased").value


SIMILARITIES = {
    "cka": cka,
    "unbiased cka": lambda X, Y: cka(X, Y, estimator="unbiased"),
    "uncentered cka": lambda X, Y: cka(X, Y, center=False),
    "sparse cka": lambda X, Y: cka(sparse.csr_matrix(X), Y),
    "rbf cka": lambda X, Y: cka(X, Y, "rbf"),
    "laplacian cka": lambda X, Y: cka(X, Y, "laplacian", "unbiased"),
    "polynomial cka": lambda X, Y: cka(X, Y, "polynomial"),
    "cosine cka": lambda X, Y: cka(X, Y, "cosine"),
    "precomputed cka": lambda X, Y: cka(*(abs(Z[:, :1] - Z[:, 0]) for Z in (X, Y)), "precomputed"),
    "rectangular cka": lambda X, Y: cka_matrix([X], [Y, X])[0, 0],
    "streamed cka": lambda X, Y: streamed(X, Y, "biased"),
    "unbiased streamed cka": lambda X, Y: streamed(X, Y, "unbiased"),
    "sketched cka": lambda X, Y: sketched_cka(*both_sketched(X, Y)).value,
    "cka with a sketch": lambda X, Y: cka(X, Y, sketch=CountSketch(16), n_replicates=4).value,
    "scka": lambda X, Y: scka(CountSketch(16).update(X), CountSketch(16).update(Y)),
    "feature sketches": feature_sketched,
    "distance correlation": distance_correlation,
    "stable rank": lambda X, Y: stable_rank(X) + stable_rank(Y),
    "hsic test": lambda X, Y: hsic_test(X, Y, n_permutations=99, random_state=0).p_value,
    "hsic": lambda X, Y: hsic(X, Y, "rbf"),
    "align": lambda X, Y: align_kernels([X, Y], Y_CLASSES, method="align")[0],
    "alignment with values": lambda X, Y: align_kernels([X[:, :2], X[:, 2:]], Y, target="values")[0],
    "alignment of kernels": lambda X, Y: align_kernels([X[:, :2], X[:, 2:]], Y, "rbf", target="values")[0],
    "bandwidths": lambda X, Y: align_bandwidths(X, Y, (0, 4), target="values").weights @ range(5),
    "logme": lambda X, _: rank_models([X], Y_CLASSES, "logme", n_groups=0)[0].score,
    "h-score": lambda X, _: rank_models([X], Y_CLASSES, "h-score", n_groups=3)[0].standard_error,
    "shrunk h-score": lambda X, _: rank_models([X], Y_CLASSES, "shrunk-h-score", n_groups=0)[0].score,
    "rank": lambda X, Y: rank_models([X], Y, n_groups=4)[0].standard_error,
}


@pytest.mark.parametrize("name", SIMILARITIES)
@settings(max_examples=12)
@given(left=EXPONENTS, right=EXPONENTS)
def test_powers_of_two_change_no_similarity(name, left, right):
    X, Y = rows()
    similarity = SIMILARITIES[name]
    if name == "bandwidths":
        left = left // 3  # their gammas are returned in the units of the rows and must be representable
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = similarity(np.ldexp(X, left), np.ldexp(Y, right))
    assert found == pytest.approx(similarity(X, Y), rel=1e-7, abs=1e-9)


@given(exponents=st.lists(st.integers(-400, 400), min_size=3, max_size=3), common=st.integers(-500, 500))
def test_weights_follow_the_scale_of_each_set(exponents, common):
    X, Y = rows()
    sets = [Y, X[:, :2], X[:, 2:]]
    plain = align_kernels(sets, Y_CLASSES, estimator="biased")
    assert np.count_nonzero(plain) > 1
    scaled = [np.ldexp(Z, e + common) for Z, e in zip(sets, exponents, strict=True)]
    try:
        weights = align_kernels(scaled, Y_CLASSES, estimator="biased")
    except ValueError as error:
        assert "smaller than any float" in str(error)  # noqa: PT017
        assert np.ptp(exponents) > 450
        return
    with np.errstate(divide="ignore"):
        largest = np.argmax(np.log2(plain) - 2 * np.array(exponents))
    ratios = np.ldexp(plain / plain[largest], -2 * (np.array(exponents) - exponents[largest]))
    np.testing.assert_allclose(weights, ratios / np.linalg.norm(ratios), rtol=1e-7, atol=1e-300)


@given(exponent=EXPONENTS)
def test_the_columns_that_are_kept_and_their_alignment_do_not_depend_on_the_scale(exponent):
    X = np.hstack(rows())
    plain = KernelAlignment().fit(X, Y_CLASSES)
    scaled = KernelAlignment().fit(np.ldexp(X, exponent), Y_CLASSES)
    np.testing.assert_allclose(scaled.weights_, plain.weights_, rtol=1e-7, atol=1e-12)
    assert scaled.alignment_ == pytest.approx(plain.alignment_, rel=1e-9)


@given(exponent=st.integers(-480, 480), other=st.integers(-480, 480))
def test_hsic_and_its_test_scale_with_the_squares_of_the_features(exponent, other):
    X, Y = rows()
    wanted, found = hsic(X, Y), np.ldexp(X, exponent)
    if abs(exponent + other) < 480:
        value = hsic(found, np.ldexp(Y, other))
        assert value == pytest.approx(np.ldexp(wanted, 2 * (exponent + other)), rel=1e-9)
        outcome = hsic_test(found, np.ldexp(Y, other), "linear", n_permutations=9, random_state=0)
        assert outcome.statistic == pytest.approx(value, rel=1e-9)


@given(exponent=EXPONENTS)
def test_the_evidence_of_real_targets_shifts_by_the_log_of_their_scale(exponent):
    X, Y = rows()
    plain = rank_models([X], Y[:, 0], "logme", n_groups=0)[0].score
    scaled = rank_models([X], np.ldexp(Y[:, 0], exponent), "logme", n_groups=0)[0].score
    assert scaled == pytest.approx(plain - exponent * np.log(2), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("exponent", [-700, 0, 300, 700])
def test_transrate_of_any_scale_is_the_log_determinant(exponent):
    X = rows()[0]
    scaled = np.ldexp(X, exponent)
    found = rank_models([scaled], Y_CLASSES, "transrate", standardize=False)[0].score
    if exponent == 700:  # the identity is negligible: every direction counts 2 · 700 log 2 / 2
        parts = [X - X.mean(axis=0), *(X[c == Y_CLASSES] - X.mean(axis=0) for c in range(3))]
        rates = [0.5 * np.linalg.slogdet(Z.T @ Z / (len(Z) * 1e-4))[1] for Z in parts]
        assert found == pytest.approx(rates[0] - np.mean(rates[1:]), rel=1e-9)
    if exponent == -700:
        assert found == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("exponent", [-110, -40, 40, 110])
def test_single_precision_features_of_any_scale_give_the_same_weights(exponent):
    X, Y = (Z.astype(np.float32) for Z in rows())
    scaled = [np.ldexp(Z, exponent) for Z in (X, Y)]
    assert scaled[0].dtype == np.float32
    np.testing.assert_allclose(align_kernels(scaled, Y_CLASSES), align_kernels([X, Y], Y_CLASSES), rtol=1e-4)
    values = Y[:, 0].astype(np.float64) * 1e200  # more than single precision can hold
    wanted = align_kernels([X, Y], Y[:, 0], target="values")
    np.testing.assert_allclose(align_kernels([X, Y], values, target="values"), wanted, rtol=1e-4)
    assert rank_models([X], values, n_groups=0)[0].score == pytest.approx(
        rank_models([X], Y[:, 0], n_groups=0)[0].score, rel=1e-4
    )


def test_a_stream_adapts_to_batches_of_any_size():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((2, 40, 3))
    scales = 2.0 ** np.repeat([0, -300, 250, 700], 10)[:, np.newaxis]  # each batch far larger than the last
    everything = [X * scales, Y]
    zeros = [np.zeros((2, 3)), Y[:2]]
    stream = StreamingCKA().update(zeros)
    for start in range(0, 40, 10):
        stream.update([Z[start : start + 10] for Z in everything])
    wanted = cka(np.vstack([zeros[0], everything[0]]), np.vstack([zeros[1], Y]))
    assert stream.result()[0, 1] == pytest.approx(wanted, rel=1e-9)
    other = StreamingCKA().update([X, Y])
    merged = StreamingCKA().merge(other).merge(stream)
    assert merged.result()[0, 1] == pytest.approx(wanted_of_both(everything, zeros, X, Y), rel=1e-9)


def wanted_of_both(everything, zeros, X, Y):
    return cka(np.vstack([X, zeros[0], everything[0]]), np.vstack([Y, zeros[1], everything[1]]))
