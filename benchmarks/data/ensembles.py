"""Ensembles whose members' predictions are kept, so that every prefix can be pruned by every method."""

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from manylens.alignment.nonnegative_least_squares import nonnegative_minimum
from manylens.datasets import load_dataset
from manylens.pruning import Alignment
from manylens.pruning.alignment_pruner import read_members
from manylens.pruning.selection import select_predictors, stacking_weights
from manylens.pruning.training_moments import new_moments, out_of_bag, target_columns, working_response
from manylens.summaries.prediction_moments import PredictionMoments

# turns off each addition to the thesis's method
AS_IN_THE_THESIS = Alignment(tolerance=None, slack=None, shrinkage=0.0, kernel="rows")


class Setting:
    """Predictions of one fitted ensemble for training and test rows, from which every prefix is pruned."""

    def __init__(self, ensemble, train, test, sizes):
        X, y = train
        ensemble.fit(X, y)
        self.members = read_members(ensemble)
        self.sizes = [p for p in sizes if p <= len(self.members.members)]
        # in single precision, so that all settings of a grid fit into memory
        self.P = self.members.predict(X).astype(np.float32)
        self.T = self.members.predict(test[0]).astype(np.float32)
        self.Y, self.truth = (target_columns(each, self.members) for each in (y, test[1]))
        self.in_bag = self.members.in_bag(X)

    def moments(self, p, honest, anchor, method="alignment"):
        """Moments of the first p members, as `method` needs them; honest: out-of-bag."""
        P, Y = self.P[:, :p].astype(np.float64), self.Y
        if self.members.additive:
            # the score of the first p stages, whatever constant they started from
            score = P.sum(axis=1) - P.sum(axis=1).mean(axis=0) + Y.mean(axis=0)
            Y, _ = working_response(Y, score, self.members.link, anchor)
        elif honest and self.in_bag is not None:
            P, rows = out_of_bag(P, self.in_bag[:, :p])
            Y = Y[rows]
        return new_moments(method, *P.shape[1:]).update(P, Y)

    def prune(self, method, honest, refit="nonnegative", anchor=0.0):
        """Members kept and test error relative to the whole ensemble, for every size."""
        outcome = []
        for p in self.sizes:
            baseline = self.members.baseline[:p]
            baseline = baseline if self.members.additive else baseline / baseline.sum()
            moments = self.moments(p, honest, anchor, method)
            choice = select_predictors(
                moments, method, refit, baseline=baseline, additive=self.members.additive
            )
            scores = np.einsum("ikc,k->ic", self.T[:, :p], choice.weights) + choice.intercept
            whole = np.einsum("ikc,k->ic", self.T[:, :p], baseline)
            if self.members.additive:
                whole += self.Y.mean(axis=0) - (self.P[:, :p].sum(axis=1)).mean(axis=0)
            outcome.append((len(choice.kept), self.error(scores) / self.error(whole)))
        return np.array(outcome)

    def fresh(self, kept):
        """Fresh ensembles with as many members as were kept of every size: the first ones, not weighted."""
        outcome = []
        for p, k in zip(self.sizes, kept, strict=True):
            errors = []
            for size in (int(k), p):
                baseline = self.members.baseline[:size]
                baseline = baseline if self.members.additive else baseline / baseline.sum()
                scores = np.einsum("ikc,k->ic", self.T[:, :size], baseline)
                if self.members.additive:
                    scores += self.Y.mean(axis=0) - (self.P[:, :size].sum(axis=1)).mean(axis=0)
                errors.append(self.error(scores))
            outcome.append((k, errors[0] / errors[1]))
        return np.array(outcome)

    def prune_uncentered(self):
        """Members kept by the thesis's method if equation 4.3 is not centered, and the relative test error.

        The refit is centered, as in least squares with an intercept.
        """
        p = self.sizes[-1]
        P, baseline = self.P[:, :p].astype(np.float64), self.members.baseline[:p]
        n, _, C = P.shape
        flat = P.reshape(n, -1)
        M = np.sum(((flat.T @ flat) ** 2).reshape(p, C, p, C), axis=(1, 3))
        a = np.sum(((flat.T @ self.Y) ** 2).reshape(p, -1), axis=1)
        moments = PredictionMoments().update(P, self.Y)
        G, b, _ = moments.centered()
        weights = stacking_weights(G, b, nonnegative_minimum(M, a) > 0)
        means, target = moments.means()
        tested = [
            np.einsum("ikc,k->ic", self.T[:, :p], each) + target - each @ means
            for each in (weights, baseline if self.members.additive else baseline / baseline.sum())
        ]
        return int(np.count_nonzero(weights)), self.error(tested[0]) / self.error(tested[1])

    def error(self, scores):
        if self.members.classes is None:
            return np.mean((scores - self.truth) ** 2)
        return np.mean(scores.argmax(axis=1) != self.truth.argmax(axis=1)) + 0.5 / len(scores)


def summary(outcome, sizes, kept_by_stacking):
    """Summarize outcomes over many settings for the claims."""
    kept, relative = outcome.T
    return {
        "settings": len(kept),
        "good": np.mean(relative <= 1.01),
        "fewer": np.mean(kept < kept_by_stacking),
        "not_more": np.mean(kept <= kept_by_stacking),
        "kept_share": np.exp(np.mean(np.log(kept / sizes))),
        "relative_error": np.exp(np.mean(np.log(relative))),
    }


def split_table(name, most=8000):
    """Training and test rows of a table: 70 % of them, `most` at most, and 4,000 of the others at most.

    The training rows are the last of one permutation: those of a smaller `most` are among those of a larger.
    """
    data = load_dataset(name)
    rows = min(most, int(0.7 * len(data.X)))
    X, T, y, t = train_test_split(data.X, data.y, train_size=rows, test_size=None, random_state=0)
    scaler = StandardScaler().fit(X)
    return (scaler.transform(X), y), (scaler.transform(T[:4000]), t[:4000])
