"""Pruners refuse frames whose columns are not those of the ensemble."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestRegressor

from manylens import AlignmentPruner
from manylens.datasets import make_friedman
from manylens.pruning import TreePruner

X, y = make_friedman(200, random_state=0)
FRAME = pd.DataFrame(X, columns=[f"part {k}" for k in range(10)])


def forest():
    return RandomForestRegressor(20, random_state=0).fit(FRAME, y), FRAME, y


def lightgbm_model():
    lightgbm = pytest.importorskip("lightgbm")
    return lightgbm.LGBMRegressor(n_estimators=20, verbose=-1).fit(FRAME[:120], y[:120]), FRAME[120:], y[120:]


def lightgbm_booster():
    model, rows, target = lightgbm_model()
    return model.booster_, rows, target


def xgboost_model():
    xgboost = pytest.importorskip("xgboost")
    return xgboost.XGBRegressor(n_estimators=20).fit(FRAME[:120], y[:120]), FRAME[120:], y[120:]


def xgboost_booster():
    model, rows, target = xgboost_model()
    return model.get_booster(), rows, target


ENSEMBLES = (forest, lightgbm_model, lightgbm_booster, xgboost_model, xgboost_booster)


@pytest.mark.parametrize("make", ENSEMBLES)
@pytest.mark.parametrize("kind", [TreePruner, AlignmentPruner])
@pytest.mark.filterwarnings("ignore:No smaller model")
def test_columns_in_another_order_or_with_other_names_are_refused(make, kind):
    if kind is AlignmentPruner and "booster" in make.__name__:
        pytest.skip("AlignmentPruner takes no Booster")
    ensemble, rows, target = make()
    swapped = rows[[*rows.columns[::-1]]]
    with pytest.raises(ValueError, match=r"X has 'part 9' instead of 'part.0': give the columns that the"):
        kind(ensemble).fit(swapped, target)
    with pytest.raises(ValueError, match=r"X has 'size' instead of 'part.3'"):
        kind(ensemble).fit(rows.rename(columns={"part 3": "size"}), target)
    kind(ensemble).fit(rows, target)
    kind(ensemble).fit(rows.to_numpy(), target)


@pytest.mark.parametrize("make", ENSEMBLES)
@pytest.mark.filterwarnings("ignore:No smaller model")
def test_names_do_not_matter_to_ensembles_without_names(make, monkeypatch):
    monkeypatch.setattr("tests.pruning.test_columns.FRAME", X)
    ensemble, rows, target = make()
    columns = [f"c{k}" for k in range(10)]
    small = TreePruner(ensemble).fit(pd.DataFrame(rows, columns=columns), target)
    assert np.isfinite(small.predict(pd.DataFrame(rows, columns=columns))).all()


def test_a_booster_is_not_told_to_fit_a_copy():
    booster = lightgbm_booster()[0]
    with pytest.raises(ValueError, match=r"was fitted to, or most of them.*Give others\.$"):
        TreePruner(booster).fit(FRAME[:120], y[:120])
    with pytest.raises(ValueError, match=r"Give others, or use fit_ensemble=True"):
        TreePruner(lightgbm_model()[0]).fit(FRAME[:120], y[:120])
