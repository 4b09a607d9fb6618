import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from manylens import load, rank_models, save
from manylens.alignment import probes, ranking

METRICS = [name for name, metric in ranking.METRICS.items() if metric.takes == "features"]


def task(n=80, d=6, seed=0, classes=3):
    rng = np.random.default_rng(seed)
    codes = np.concatenate([np.arange(classes), rng.integers(0, classes, n - classes)])
    return np.eye(classes)[codes] @ rng.standard_normal((classes, d)) + rng.standard_normal((n, d)), codes


@pytest.mark.parametrize("shape", [(40, 5), (30, 50)])
def test_leave_one_out_of_the_ridge_is_that_of_refitting(shape):
    X, codes = task(*shape)
    X = X - X.mean(axis=0)
    Y = np.eye(3)[codes]
    rows = probes.decomposed(X)
    found = {ratio: probes.ridge_left_out(rows, Y, np.array([ratio])) for ratio in probes.RATIOS}
    for ratio, predictions in found.items():
        model = Ridge(ratio * rows.squares.mean())
        np.testing.assert_allclose(predictions, cross_val_predict(model, X, Y, cv=LeaveOneOut()), atol=1e-8)
    errors = {ratio: np.sum((predictions - Y) ** 2) for ratio, predictions in found.items()}
    best = found[min(errors, key=errors.get)]
    np.testing.assert_allclose(probes.ridge_left_out(rows, Y), best)


def test_leave_one_out_of_neighbors_is_that_of_refitting():
    X, codes = task(50)
    found = probes.neighbor_left_out(X, np.eye(3)[codes], np.arange(50))
    for k, means in zip(probes.NEIGHBORS, found, strict=True):
        model = KNeighborsClassifier(k)
        wanted = cross_val_predict(model, X, codes, cv=LeaveOneOut(), method="predict_proba")
        np.testing.assert_allclose(means, wanted, atol=1e-12)


def test_the_default_is_the_mean_of_both_accuracies_on_standardized_columns():
    X, codes = task()
    row = rank_models([X * 10.0 ** np.arange(6)], codes)[0]
    Z, Y = StandardScaler().fit_transform(X), np.eye(3)[codes]
    ridge = probes.ridge_left_out(probes.decomposed(Z), Y).argmax(axis=1) == codes
    assert row.ridge == pytest.approx(ridge.mean())
    assert row.score == pytest.approx((row.ridge + row.knn) / 2)
    assert rank_models([X], codes, "ridge")[0].score == row.ridge
    assert rank_models([X], codes, "knn")[0].score == row.knn


def test_neighbors_of_many_rows_are_measured_on_some(monkeypatch):
    X, codes = task(400)
    exact = rank_models([X], codes, "knn")[0]
    monkeypatch.setattr(probes, "MOST_QUERIES", 100)
    some = rank_models([X], codes, "knn")[0]
    assert some.score == pytest.approx(exact.score, abs=4 * some.standard_error)
    assert some.standard_error == pytest.approx(2 * exact.standard_error, rel=0.3)


@pytest.mark.parametrize("metric", METRICS)
def test_one_large_column_of_noise_hardly_matters(metric):
    X, codes = task(200)
    noise = 1e6 * np.random.default_rng(1).standard_normal((200, 1))
    worse = task(200)[0] + 2 * np.random.default_rng(2).standard_normal((200, 6))
    found = rank_models({"padded": np.hstack([X, noise]), "worse": worse}, codes, metric)
    assert found[0].name == "padded"


@pytest.mark.parametrize("metric", ["cka", "biased-cka", "logme", "h-score", "shrunk-h-score", "transrate"])
@pytest.mark.parametrize("shape", [(120, 5), (300, 15)])
def test_the_influence_of_a_row_is_what_leaving_it_out_changes(metric, shape):
    X, codes = task(*shape)
    X = X @ np.random.default_rng(1).standard_normal((shape[1], shape[1]))
    score = ranking.METRICS[metric].score
    by_class = ranking.METRICS[metric].target == "classes"
    target = codes if by_class else np.eye(3)[codes] - np.eye(3)[codes].mean(axis=0)
    whole = score(X, target)
    assert abs(whole.influence.mean()) < 1e-8 * (1 + np.abs(whole.influence).max())
    n = len(X)
    without = [score(np.delete(X, i, axis=0), np.delete(target, i, axis=0)).value for i in range(n)]
    jackknife = (n - 1) * (np.mean(without) - np.array(without))
    assert np.corrcoef(jackknife, whole.influence)[0, 1] > 0.9
    assert np.linalg.norm(whole.influence) / np.linalg.norm(jackknife) == pytest.approx(1, abs=0.3)


def test_scores_by_a_function_are_compared_with_the_best_by_groups_of_rows():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, 400)
    first, second, noise = rng.standard_normal((3, 400, 3))  # the first two separate the classes equally well
    models = {"first": codes[:, None] + first, "second": codes[:, None] + second, "noise": noise}

    def separation(X, labels):
        return float(np.abs(X[labels == 0].mean(axis=0) - X[labels == 1].mean(axis=0)).sum())

    rows = {row.name: row for row in rank_models(models, codes, separation, random_state=0)}
    assert not rows["noise"].too_close
    assert rows["first"].too_close != rows["second"].too_close  # the better of the two is not
    assert 0 < rows["first"].standard_error < rows["first"].score / 5


def test_paired_differences_decide_what_is_too_close():
    X, codes = task(400)
    rng = np.random.default_rng(0)
    same = X + 0.1 * rng.standard_normal(X.shape)  # nearly the same errors on the same rows
    noise = rng.standard_normal(X.shape)
    found = rank_models({"whole": X, "twin": same, "noise": noise}, codes)
    first, second, last = found
    assert {first.name, second.name} == {"whole", "twin"}
    assert second.too_close
    assert not first.too_close
    assert not last.too_close
    assert "too close to call" in repr(found).splitlines()[2]
    if second.rows_to_tell is not None:
        assert second.rows_to_tell > 400
        assert f"{second.rows_to_tell:,} rows would tell" in repr(found)
    assert all(not row.too_close for row in rank_models({"a": X, "b": same}, codes, n_groups=0))


def test_equal_scores_are_too_close_even_without_an_error():
    y = np.arange(60) % 2
    perfect = y[:, np.newaxis] + 0.01 * np.random.default_rng(0).standard_normal((60, 3))
    first, second = rank_models({"one": perfect, "other": 3 * perfect[:, ::-1]}, y)
    assert first.score == second.score == 1
    assert first.standard_error == 0
    assert (first.too_close, second.too_close, second.rows_to_tell) == (False, True, None)


@pytest.mark.parametrize("metric", [*METRICS, "biased-cka"])
def test_equal_models_are_too_close_to_call_whatever_the_order_and_scale_of_their_columns(metric):
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = rng.standard_normal((90, 8)) + np.eye(3)[y] @ rng.standard_normal((3, 8))
    first, *others = rank_models({"one": X, "turned": X[:, ::-1], "scaled": 3.3 * X}, y, metric)
    assert type(first.score) is float
    assert not first.too_close
    assert all(row.too_close is True and row.rows_to_tell is None for row in others)


def test_the_promised_number_of_rows_tells_the_models_apart():
    rng = np.random.default_rng(0)

    def draw(n):
        y = rng.integers(0, 2, n)
        rows = 1.5 * y[:, np.newaxis] + rng.standard_normal((n, 1))
        return {"good": rows, "less": rows + 0.7 * rng.standard_normal((n, 1))}, y

    def share_clear(n):
        return np.mean([not any(row.too_close for row in rank_models(*draw(n), "ridge")) for _ in range(30)])

    needed = [max(row.rows_to_tell or 0 for row in rank_models(*draw(100), "ridge")) for _ in range(40)]
    promised = int(np.median([n for n in needed if n]))
    assert 100 < promised < 2000
    assert share_clear(4 * promised) > 0.8
    assert share_clear(promised // 4) < 0.5


@pytest.mark.parametrize(
    ("y", "read"),
    [
        (np.arange(90) % 3.0, "3 classes, whole numbers stored as floats"),
        (np.arange(900.0) % 25 + 1, "25 classes, whole numbers"),
        (np.arange(900.0) % 70 + 18, "real numbers, whole numbers"),
        (np.arange(90.0), "real numbers, whole numbers"),
        (np.arange(90) / 7.0, "real numbers"),
        (np.arange(90) % 3, "3 classes"),
    ],
)
def test_whole_numbers_stored_as_floats_are_read_and_reported(y, read):
    X = np.random.default_rng(0).standard_normal((len(y), 3))
    found = rank_models([X], y)
    assert found.target.startswith(read)
    assert f"Target: {read}" in repr(found)


def test_the_table_has_html_and_a_plot(capsys):
    pytest.importorskip("matplotlib").use("agg")
    X, codes = task()
    found = rank_models(
        {"<b>": X, "noise": np.random.default_rng(0).standard_normal(X.shape)}, codes, verbose=1
    )
    assert capsys.readouterr().out.splitlines()[0].startswith("<b>: ")
    page = found._repr_html_()
    for text in ("&lt;b&gt;", "<td>noise</td>", "3 classes"):
        assert text in page
    ax = found.plot()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["<b>", "noise"]
    assert ax.get_xlabel() == "accuracy"


def test_rankings_are_saved_with_their_marks(tmp_path):
    X, codes = task()
    found = rank_models({"a": X, "b": X + 1e-3}, codes)
    save(found, tmp_path / "ranking.skops")
    back = load(tmp_path / "ranking.skops")
    assert list(back) == list(found)
    assert repr(back) == repr(found)


@pytest.mark.parametrize("metric", METRICS)
def test_single_precision_gives_the_same_ranking(metric):
    X, codes = task(150)
    wanted = rank_models([X.astype(np.float32).astype(float)], codes, metric)[0].score
    assert rank_models([X.astype(np.float32)], codes, metric)[0].score == pytest.approx(wanted, rel=1e-3)


def test_a_target_that_is_no_word_is_refused():
    with pytest.raises(ValueError, match=r"target=<ndarray of shape \(2,\)> is unknown: give one of auto"):
        rank_models({"a": np.eye(6)}, [0, 1] * 3, target=np.array([1, 2]))


@pytest.mark.parametrize("metric", [name for name in ranking.METRICS if name not in ("leep", "nce")])
def test_features_that_are_constant_up_to_rounding_are_refused_unless_standardized(metric):
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    features = np.column_stack([rng.normal(size=(30, 2)), np.full(30, 1e20)])
    with pytest.raises(ValueError, match="constant up to rounding beside its largest column"):
        rank_models([features], y, metric, standardize=False)
    assert np.isfinite(rank_models([features], y, metric)[0].score)


@pytest.mark.parametrize("value", [None, "good", np.ones(3), 1j])
def test_a_metric_that_returns_no_number_is_refused(value):
    features = np.random.default_rng(0).normal(size=(30, 2))
    with pytest.raises(TypeError, match=r"The metric returned .* for 0: it must return one number"):
        rank_models([features], np.arange(30) % 3, lambda *_: value)


def test_a_metric_that_takes_other_arguments_is_refused():
    features = np.random.default_rng(0).normal(size=(30, 2))
    with pytest.raises(TypeError, match="metric=dict could not be called with features and class numbers"):
        rank_models([features], np.arange(30) % 3, dict)
