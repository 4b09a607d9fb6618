"""Tests that every adapter must pass: inherit from `MembersContract` and define `make`."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import is_classifier

from manylens.native.trees import flatten_trees
from manylens.pruning.alignment_pruner import read_members
from manylens.pruning.members import prediction_blocks
from manylens.pruning.pruned_ensemble import probabilities, tree_sums
from tests.pruning.conftest import S, X, label, y


class MembersContract:
    """Tests of one adapter; a subclass defines `make`, `adapter` and what the ensemble supports."""

    adapter: type
    classes = None  # classes of the target; None for regression
    flat = False  # whether the members are trees
    samples = False  # whether the training rows of each member are known
    rebuilds = False  # whether an ensemble of the same class can hold any weights
    tolerance = 1e-8

    def make(self):
        """Return an ensemble that is not fitted."""
        raise NotImplementedError

    @property
    def rows(self):
        return X if self.classes is None else S

    @property
    def target(self):
        return y if self.classes is None else np.isin(label, "outer") if self.classes == 2 else label

    @pytest.fixture(scope="class")
    @classmethod
    def fitted(cls):
        contract = cls()
        return contract.make().fit(contract.rows, contract.target)

    @pytest.fixture(scope="class")
    @classmethod
    def members(cls, fitted):
        return read_members(fitted)

    @pytest.fixture(scope="class")
    @classmethod
    def P(cls, members):
        return members.predict(cls().rows)

    def assert_own_prediction(self, fitted, members, P):
        """Check that members with the baseline weights predict the same as the ensemble."""
        score = np.einsum("ikc,k->ic", P, members.baseline)
        if members.additive:
            score += (members.score(self.rows) - score).mean(axis=0)  # the constant that boosting starts from
            np.testing.assert_allclose(score, members.score(self.rows), atol=self.tolerance)
        if members.classes is None:
            np.testing.assert_allclose(score[:, 0], fitted.predict(self.rows), atol=self.tolerance)
        else:
            proba = probabilities(score, members.link)
            np.testing.assert_allclose(proba, fitted.predict_proba(self.rows), atol=self.tolerance)

    def test_the_adapter_is_found(self, members, fitted):
        assert type(members) is self.adapter
        assert members.name == type(fitted).__name__

    def test_predictions_are_finite_with_one_column_per_output(self, members, P):
        assert P.shape == (len(self.rows), len(members.members), members.n_outputs)
        assert P.dtype == np.float64
        assert np.isfinite(P).all()
        assert members.baseline.shape == (P.shape[1],)
        assert (members.classes is None) == (self.classes is None)

    def test_baseline_weights_reproduce_the_ensembles_prediction(self, members, fitted, P):
        self.assert_own_prediction(fitted, members, P)

    def test_rows_are_predicted_independently_and_in_blocks(self, members, P, monkeypatch):
        np.testing.assert_allclose(members.predict(self.rows[:7]), P[:7], atol=1e-12)
        monkeypatch.setattr("manylens.pruning.members.BLOCK_BYTES", 8 * P[0].size * 150)
        blocks = list(prediction_blocks(members, self.rows, None))
        assert [len(block) for _, block in blocks] == [150, 150, 100]
        np.testing.assert_allclose(np.concatenate([block for _, block in blocks]), P, atol=1e-12)

    def test_threads_do_not_change_predictions(self, members, P):
        np.testing.assert_array_equal(members.predict(self.rows, n_jobs=2), P)

    def test_kept_members_predict_the_same_without_the_ensemble(self, members, P):
        which = np.array([0, P.shape[1] - 1])
        kept = members.keep(which)
        np.testing.assert_allclose(kept.predict(self.rows), P[:, which], atol=1e-12)
        np.testing.assert_array_equal(kept.baseline, members.baseline[which])
        assert kept.ensemble is None
        restored = pickle.loads(pickle.dumps(kept))
        np.testing.assert_array_equal(restored.predict(self.rows), kept.predict(self.rows))
        assert len(members.members) == P.shape[1]

    def test_in_bag_rows_are_known_only_for_the_training_rows(self, members, P):
        mask = members.in_bag(self.rows)
        assert (mask is not None) == self.samples
        if self.samples:
            assert mask.shape == P.shape[:2]
            assert mask.any(axis=0).all()
            assert not mask.all()
        assert members.in_bag(self.rows[::2]) is None
        if members.of_trees:
            assert members.in_bag(self.rows[::-1]) is None

    def test_flat_trees_equal_the_weighted_sum_of_members(self, members, P):
        weights = np.linspace(0.5, 1.5, P.shape[1])
        trees = members.trees(weights)
        assert (trees is not None) == self.flat
        if self.flat:
            wanted = np.einsum("ikc,k->ic", P, weights)
            np.testing.assert_allclose(tree_sums(self.rows, flatten_trees(trees)), wanted, atol=1e-9)
            assert len(members.keep(np.arange(0)).members) == 0
            assert members.keep(np.arange(0)).n_outputs == members.n_outputs

    def test_refitted_members_correspond_one_to_one(self, members, P):
        if members.refittable:
            again = members.refit(self.rows[::2], self.target[::2])
            assert again.predict(self.rows[:5]).shape == P[:5].shape
        else:
            assert members.default_folds is None

    def test_rebuild_accepts_any_weights_or_raises(self, members, fitted, P):
        which = np.array([0, P.shape[1] - 1])
        weights, intercept = np.array([0.7, 0.4]), np.full(P.shape[2], 0.01)
        kept = members.keep(which)
        if not self.rebuilds:
            with pytest.raises(ValueError, match=f"{type(fitted).__name__} .*use the pruned model itself"):
                kept.rebuild(fitted, weights, intercept)
            return
        before = copy.deepcopy(fitted).predict(self.rows)
        small = kept.rebuild(fitted, weights, intercept)
        assert type(small) is type(fitted)
        score = np.einsum("ikc,k->ic", P[:, which], weights) + intercept
        if is_classifier(fitted):
            flat = score[:, 0] > 0 if score.shape[1] == 1 else score.argmax(axis=1)
            np.testing.assert_array_equal(small.predict(self.rows), fitted.classes_[flat.astype(int)])
        else:
            np.testing.assert_allclose(small.predict(self.rows), score[:, 0])
        np.testing.assert_array_equal(fitted.predict(self.rows), before)
