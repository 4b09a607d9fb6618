"""Pruning compared with the whole ensemble and with stacking: error, kept members, speed and cost."""

import numpy as np
from sklearn.ensemble import (
    AdaBoostRegressor,
    BaggingClassifier,
    BaggingRegressor,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from benchmarks.data.ensembles import AS_IN_THE_THESIS, Setting, split_table, summary
from benchmarks.harness import Claim, Comparison, ratio, result
from manylens import AlignmentPruner
from manylens.datasets import make_friedman, make_shells
from manylens.pruning.alignment_pruner import read_members
from manylens.pruning.selection import select_predictors
from manylens.pruning.training_moments import out_of_bag
from manylens.summaries.prediction_moments import FoldedMoments

QUALITY = (
    Claim(
        "fraction of settings with a test error at most 1 % above the whole ensemble's",
        result("ours", "good"),
        0.8,
    ),
    Claim("fraction of settings with fewer members kept than by stacking", result("ours", "fewer"), 0.8),
    Claim(
        "fraction of settings with a smaller test error than as many fresh members",
        result("ours", "below_fresh"),
        0.8,
    ),
)


class Pruning(Comparison):
    """Base class. "ours" and "stacking_oob" learn from out-of-bag predictions. The thesis's method, stacking,
    and ranking with early stopping (sections 4.4.3 and 4.5.4; Figures 4.13 to 4.15, 4.20, 4.21) learn from
    predictions for the training rows. "fresh" is an ensemble with as many members as "ours" keeps: the first
    ones, which for boosting is early stopping."""

    abstract = True
    alone = False
    contenders = ("ours", "fresh", "thesis", "stacking", "stacking_oob", "ranking")
    claims = QUALITY
    memory = False
    warm_up = False
    repeats = 1
    seeds = 1  # number of data sets drawn; the thesis draws ten

    def settings(self):
        raise NotImplementedError

    def make_data(self):
        data = list(self.settings())
        self.sizes = np.concatenate([setting.sizes for setting in data])
        self.kept_by_stacking = self.stacking(data)[:, 0]
        self.pruned = self.ours(data)
        return data

    def ours(self, data):
        return np.concatenate([setting.prune("alignment", True) for setting in data])

    def fresh(self, data):
        kept = np.split(self.pruned[:, 0], np.cumsum([len(setting.sizes) for setting in data])[:-1])
        return np.concatenate([setting.fresh(each) for setting, each in zip(data, kept, strict=True)])

    def thesis(self, data):
        return np.concatenate([setting.prune(AS_IN_THE_THESIS, False) for setting in data])

    def stacking(self, data):
        return np.concatenate([setting.prune("stacking", False) for setting in data])

    def stacking_oob(self, data):
        return np.concatenate([setting.prune("stacking", True) for setting in data])

    def ranking(self, data):
        return np.concatenate([setting.prune("rank", False, refit="none") for setting in data])

    def score(self, data, outcome):
        scores = summary(outcome, self.sizes, self.kept_by_stacking)
        if np.array_equal(outcome, self.pruned):
            scores["below_fresh"] = np.mean(outcome[:, 1] < self.fresh(data)[:, 1])
        return scores


class PrunedBaggedTrees(Pruning):
    """Figures 4.1, 4.2, 4.7, 4.8: 8 to 1,024 bagged trees (unpruned, 3 levels, stumps) with bootstrap ratios
    of 0.1, 0.2 and 0.5, on Friedman's function and the ten-dimensional shells; 3,000 training rows and 1,000
    test rows."""

    learners = (
        *((DecisionTreeRegressor(max_depth=d), DecisionTreeClassifier(max_depth=d)) for d in (None, 3, 1)),
    )
    n_rows = 3000
    largest = 1024

    def settings(self):
        n, largest = (300, 16) if self.quick else (self.n_rows, self.largest)
        sizes = [2**k for k in range(3, 11)]
        learners = self.learners[:1] if self.quick else self.learners
        for seed in range(self.seeds):
            tasks = [[make(m, random_state=2 * seed + k) for k, m in enumerate((n, 1000))] for make in
                     (make_friedman, make_shells)]  # fmt: skip
            for regressor, classifier in learners:
                for share in (0.1,) if self.quick else (0.1, 0.2, 0.5):
                    common = {
                        "n_estimators": largest,
                        "max_samples": share,
                        "random_state": seed,
                        "n_jobs": -1,
                    }
                    yield Setting(BaggingRegressor(regressor, **common), *tasks[0], sizes)
                    yield Setting(BaggingClassifier(classifier, **common), *tasks[1], sizes)


class PrunedBaggedNeighbors(PrunedBaggedTrees):
    """Figures 4.3, 4.4, 4.9, 4.10: like PrunedBaggedTrees, with 1, 5, 10 and 25 nearest neighbors and up
    to 128 members."""

    learners = tuple((KNeighborsRegressor(k), KNeighborsClassifier(k)) for k in (1, 5, 10, 25))
    largest = 128


class PrunedBaggedNetworks(PrunedBaggedTrees):
    """Figures 4.5, 4.6, 4.11, 4.12: like PrunedBaggedTrees, with networks that have two hidden layers of 5
    and 2 units, or three of 100 units; 2,000 rows and up to 32 members."""

    learners = tuple(
        (
            MLPRegressor(hidden_layer_sizes=units, activation="tanh", max_iter=100),
            MLPClassifier(hidden_layer_sizes=units, activation="relu", max_iter=100),
        )
        for units in ((5, 2), (100, 100, 100))
    )
    n_rows = 2000
    largest = 32


class PrunedBoostedTrees(Pruning):
    """Figures 4.16 to 4.19: gradient boosting (10, 20 and 50 % of the rows per stage) with 8 to 1,024 stages
    and AdaBoost with up to 256, with trees of 1, 3 and 10 levels, on 3,000 rows of Friedman's function."""

    def settings(self):
        n, stages = (300, 16) if self.quick else (3000, 1024)
        sizes = [2**k for k in range(3, 11)]
        for seed in range(self.seeds):
            task = [make_friedman(m, random_state=2 * seed + k) for k, m in enumerate((n, 1000))]
            for depth in (1,) if self.quick else (1, 3, 10):
                for share in (0.1,) if self.quick else (0.1, 0.2, 0.5):
                    yield Setting(
                        GradientBoostingRegressor(
                            n_estimators=stages, max_depth=depth, subsample=share, random_state=seed
                        ),
                        *(*task, sizes),
                    )
                tree = DecisionTreeRegressor(max_depth=depth)
                few = AdaBoostRegressor(tree, n_estimators=min(stages, 256), random_state=seed)
                yield Setting(few, *task, sizes)


class PrunedRealTables(Pruning):
    """Random forests and bagged trees (each on a tenth of the rows) with 16 to 256 members, on cal_housing,
    kin8nm, abalone and letter; at most 8,000 training rows and 4,000 test rows."""

    needs = ("reg_cal_housing", "reg_kin8nm", "reg_abalone", "letter")

    def settings(self):
        sizes = [16, 64, 256]
        members = 16 if self.quick else 256
        for name in self.needs[2:3] if self.quick else self.needs:
            train, test = split_table(name, 300 if self.quick else 8000)
            classes = name == "letter"
            common = {"n_estimators": members, "random_state": 0, "n_jobs": -1}
            forest = RandomForestClassifier if classes else RandomForestRegressor
            bagging, tree = (
                (BaggingClassifier, DecisionTreeClassifier())
                if classes
                else (BaggingRegressor, DecisionTreeRegressor())
            )
            yield Setting(forest(**common), train, test, sizes)
            yield Setting(bagging(tree, max_samples=0.1, **common), train, test, sizes)


class PrunedForestSpeed(Comparison):
    """Time to predict 10,000 rows of Friedman's function with a forest of 1,024 trees fitted to 3,000 rows;
    one thread."""

    contenders = ("ours", "whole")
    claims = (
        Claim("times as fast as the whole forest", ratio("whole", "ours"), at_least=3),
        Claim("test error relative to the whole forest", result("ours", "relative_error"), at_most=1.01),
    )
    repeats = 5
    memory = False
    rows = 10_000
    task = staticmethod(make_friedman)
    forest = RandomForestRegressor

    def make_data(self):
        X, y = self.task(300 if self.quick else 3000, random_state=0)
        forest = self.forest(32 if self.quick else 1024, random_state=0, n_jobs=-1).fit(X, y)
        small = AlignmentPruner(forest).fit(X, y)
        forest.n_jobs = None
        new, self.truth = self.task(self.rows, random_state=1)
        self.whole_error = self.error(forest.predict(new))
        self.kept = small.n_kept_
        return small.estimator_, forest, new

    def ours(self, data):
        return data[0].predict(data[2])

    def whole(self, data):
        return data[1].predict(data[2])

    def error(self, predicted):
        return np.mean((predicted - self.truth) ** 2)

    def score(self, data, predicted):
        return {"relative_error": self.error(predicted) / self.whole_error, "kept_by_ours": self.kept}


class PrunedClassifierSpeed(PrunedForestSpeed):
    """Time to predict 10,000 rows of the ten-dimensional shells with a forest of 1,024 trees fitted to 3,000
    rows; one thread."""

    task = staticmethod(make_shells)
    forest = RandomForestClassifier

    def error(self, predicted):
        return np.mean(predicted != self.truth)


class PrunedForestLatency(PrunedForestSpeed):
    """Time to predict 20 rows one at a time with the forest of PrunedForestSpeed."""

    claims = (Claim("times as fast as the whole forest", ratio("whole", "ours"), at_least=3),)
    rows = 20

    def ours(self, data):
        return np.concatenate([data[0].predict(row[np.newaxis]) for row in data[2]])

    def whole(self, data):
        return np.concatenate([data[1].predict(row[np.newaxis]) for row in data[2]])


class PruningCost(Comparison):
    """Time to select members from the predictions of 1,024 trees for their 3,000 training rows, compared with
    the time to train the forest; one thread."""

    contenders = ("ours", "training")
    claims = (Claim("time of pruning relative to training", ratio("ours", "training"), at_most=0.1),)
    memory = False

    def make_data(self):
        X, y = make_friedman(300 if self.quick else 3000, random_state=0)
        forest = RandomForestRegressor(32 if self.quick else 1024, random_state=0)
        members = read_members(forest.fit(X, y))
        return X, y, forest, members.predict(X), members.in_bag(X)

    def ours(self, data):
        _, y, _, P, in_bag = data
        filled, rows = out_of_bag(P, in_bag)
        return select_predictors(FoldedMoments().update(filled, y[rows, np.newaxis]))

    def training(self, data):
        X, y, forest, *_ = data
        return forest.fit(X, y)
