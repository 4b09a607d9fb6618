"""Pruning compared with other ways to select and weight members: ranking, greedy selection, stacking."""

import numpy as np
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor, StackingRegressor
from sklearn.linear_model import LinearRegression

from benchmarks.harness import Claim, Comparison, ratio
from manylens import AlignmentPruner
from manylens.datasets import load_dataset, make_friedman


class PeerPruning(Comparison):
    """Prune a forest of 128 trees on letter (5,000 training and 5,000 test rows) with three methods: ours;
    PyPruning's ranking, which keeps the trees with the smallest individual errors; and its greedy selection,
    which adds the tree that reduces the ensemble's error most. The last two are implemented here because
    PyPruning is not on PyPI. They keep the same number of trees as ours and use the same out-of-bag
    predictions."""

    contenders = ("ours", "ranking", "greedy", "whole")
    needs = ("letter",)
    warm_up = False
    repeats = 1
    memory = False
    claims = (
        Claim("error relative to as many trees chosen by rank", ratio("ours", "ranking", "error"), at_most=1),
        Claim("error relative to as many trees chosen greedily", ratio("ours", "greedy", "error"), at_most=1),
    )

    def make_data(self):
        data = load_dataset("letter")
        X, y = data.X.astype(np.float32), np.unique(data.y, return_inverse=True)[1]
        n, members = (400, 16) if self.quick else (5_000, 128)
        forest = RandomForestClassifier(members, random_state=0, n_jobs=-1).fit(X[:n], y[:n])
        self.kept = AlignmentPruner(forest).fit(X[:n], y[:n]).n_kept_
        shares = np.stack([tree.predict_proba(X[:n]) for tree in forest.estimators_], axis=1)
        in_bag = np.zeros(shares.shape[:2], dtype=bool)
        for m, rows in enumerate(forest.estimators_samples_):
            in_bag[rows, m] = True
        shares[in_bag] = np.nan  # only out-of-bag predictions count
        return X[:n], y[:n], X[n : 2 * n], y[n : 2 * n], forest, shares

    def ours(self, data):
        X, y, X_test, _, forest, _ = data
        return AlignmentPruner(forest).fit(X, y).predict(X_test)

    def vote(self, data, chosen):
        _, _, X_test, _, forest, _ = data
        return np.mean([forest.estimators_[m].predict_proba(X_test) for m in chosen], axis=0).argmax(axis=1)

    def ranking(self, data):
        y, shares = data[1], data[5]
        seen = ~np.isnan(shares[..., 0])
        wrong = np.nan_to_num(shares).argmax(axis=2) != y[:, np.newaxis]
        errors = np.sum(wrong & seen, axis=0) / seen.sum(axis=0)
        return self.vote(data, np.argsort(errors)[: self.kept])

    def greedy(self, data):
        y, shares = data[1], np.nan_to_num(data[5])
        total, chosen = np.zeros_like(shares[:, 0]), []
        while len(chosen) < self.kept:
            left = [m for m in range(shares.shape[1]) if m not in chosen]
            errors = [np.mean((total + shares[:, m]).argmax(axis=1) != y) for m in left]
            chosen.append(left[int(np.argmin(errors))])
            total += shares[:, chosen[-1]]
        return self.vote(data, chosen)

    def whole(self, data):
        return data[4].predict(data[2])

    def score(self, data, predicted):
        return {"error": np.mean(predicted != data[3]), "kept_by_ours": self.kept}


class PeerStacking(Comparison):
    """Weight the trees of a forest of 128 trees fitted to 2,000 rows of Friedman's function: ours, and
    scikit-learn's StackingRegressor of the fitted trees with non-negative least squares."""

    contenders = ("ours", "sklearn_stacking")
    warm_up = False
    memory = False
    claims = (
        Claim("test error relative to stacking", ratio("ours", "sklearn_stacking", "error"), at_most=1),
        Claim("times as fast as stacking", ratio("sklearn_stacking", "ours"), at_least=0.5),
    )

    def make_data(self):
        n, members = (200, 16) if self.quick else (2_000, 128)
        X, y = make_friedman(n, random_state=0)
        self.test = make_friedman(1_000, random_state=1)
        return X, y, RandomForestRegressor(members, random_state=0, n_jobs=-1).fit(X, y)

    def ours(self, data):
        X, y, forest = data
        model = AlignmentPruner(forest).fit(X, y)
        return model.predict(self.test[0]), model.n_kept_

    def sklearn_stacking(self, data):
        X, y, forest = data
        members = [(str(number), tree) for number, tree in enumerate(forest.estimators_)]
        model = StackingRegressor(members, LinearRegression(positive=True), cv="prefit").fit(X, y)
        return model.predict(self.test[0]), int(np.sum(model.final_estimator_.coef_ > 0))

    def score(self, data, outcome):
        predicted, kept = outcome
        return {"error": np.mean((predicted - self.test[1]) ** 2), "kept": kept}
