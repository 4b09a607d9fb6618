"""Prune the nodes of a fitted ensemble of trees."""

from __future__ import annotations

import warnings
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.model_selection import train_test_split
from sklearn.utils import Tags, check_consistent_length, get_tags, indexable
from sklearn.utils.validation import check_is_fitted

from manylens.pruning.boosting_members import refuse_early_stopping
from manylens.pruning.class_weights import has_first_trees, warn_of_class_weights, warn_of_constraints
from manylens.pruning.cover_cuts import cover_models, cover_paths, smallest_cut
from manylens.pruning.held_out_trials import held_out_trials, own_trial, refitted_trials
from manylens.pruning.model_choice import Choice, choose_prefix, choose_refit, cut_optimism, stage_optimism
from manylens.pruning.node_path import open_nodes, prune_path, row_leaves, row_scores
from manylens.pruning.path_losses import Candidate, HeldOutEvaluator, candidates, nodes_size
from manylens.pruning.pruned_ensemble import (
    PrunerMixin,
    check_same_columns,
    comparable_rows,
    typed_tags,
    validate_float_rows,
)
from manylens.pruning.pruned_trees import PrunedTrees, find_format, tree_bytes
from manylens.pruning.pruning_rows import dense, out_of_bag, refuse_training_rows
from manylens.pruning.size_limits import ERROR_MARGIN, Goal, SizeLimits
from manylens.pruning.training_moments import columns_of
from manylens.pruning.tree_ensembles import TreeEnsemble, TreeFormat
from manylens.typing import AnyArray, FloatArray, MatrixLike, Seed
from manylens.validation import (
    check_choice,
    check_count,
    check_real,
    check_seed,
    label_column,
    plain_conversion_errors,
    plain_label_errors,
    refuse_extreme,
    require_two_classes,
    restore_on_error,
)

LEAST_TREES = 64
SHARE = 8  # an eighth of the trees of a forest is pruned, but at least LEAST_TREES
MOST_ENTRIES = 2**26  # most rows x trees x values per leaf (or 2) that fit uses; other rows are left out
FAITHFUL = 0.01  # shrinkage with `guarantee`; small, because the scores of the ensemble have no noise
HELD_OUT = 0.2  # share of the rows on which fit_ensemble prunes models without out-of-bag rows
LEAST_ROWS = 10  # held-out rows; fewer than one per fold of the choice say nothing about the loss of a model


class TreePruner(PrunerMixin, MetaEstimatorMixin, BaseEstimator):
    """Cut subtrees of an ensemble of trees and refit the leaf values, at equal held-out loss.

    Subtrees are replaced by leaves in the order of their cost per leaf in a second-order model of the loss.
    After each step, the values of all leaves are refitted by ridge regression over leaf indicators,
    shrunk toward the values of the ensemble. Trees that lose all splits are removed. How much to shrink and
    when to stop is decided on held-out rows: for a forest, by fitting an eighth of its trees again to two
    thirds of its rows, and pruning them in the same way. If that leaves too much uncertain, nodes of a forest
    with few training rows become leaves, and no leaf is refitted. Memory: 16 bytes per row and tree, at most
    540 MB, and a few copies of the trees.

    Parameters
    ----------
    ensemble : estimator or Booster
        A fitted RandomForest, ExtraTrees, GradientBoosting, HistGradientBoosting, LGBM or XGB model, or a
        Booster of LightGBM or XGBoost.
    loss : float or None, default=0.01
        How much the held-out loss (squared error or log loss) may rise, relative to that of the whole
        ensemble; half of its standard error counts as part of the rise. The share of wrong classes may rise
        as much; for a forest, half a standard error more. Boosting is also compared with its best number of
        stages, and with boosting stopped early at as many bytes. The smallest model is kept. None: the model
        with the smallest held-out loss.
    max_members, max_nodes, max_bytes : int or None, default=None
        Largest numbers of trees and of nodes, and largest size as arrays (see `n_bytes_`). A limit holds even
        if the loss rises more. The first trees that fit are kept unless held-out rows favor another model.
    link : {"auto", "identity", "logistic"}, default="auto"
        How a forest of classes predicts. "identity": by the mean of probabilities, as the original does, so
        that `to_ensemble` can return its class. "logistic": by a sum of log-odds, usually with a smaller log
        loss. "auto": whichever is smaller at the same loss. Other ensembles keep their link.
    guarantee : float or None, default=None
        For rows given as `fit(X, y, guarantee_rows=...)`: the largest change of a predicted value. With
        classes, no predicted class may change, whatever the number. Leaf values are then refitted to the
        predictions of the ensemble, and `loss` is ignored. If no model also meets the limits, `fit` raises.
        Values are sums in double precision; XGBoost, which adds in single precision, may differ by rounding.
    fit_ensemble : bool, default=False
        Whether to fit a copy of the ensemble first. Forests with bootstrap=True are fitted to all rows;
        others are fitted to 80 % of the rows and pruned on the rest, with a warning if that is less than 10.
    random_state : int, RandomState or None, default=None
        Determines which rows are held out.

    Attributes
    ----------
    estimator_ : PrunedTrees
        The pruned model.
    n_members_, n_nodes_, n_bytes_ : int
        Size of the pruned model.
    whole_members_, whole_nodes_, whole_bytes_ : int
        Size of the ensemble.
    held_out_loss_ : float
        Squared error or log loss of the pruned model on rows that neither the trees nor the cuts have seen,
        corrected for the choice of this model among others by such rows.
        With `guarantee`, NaN for out-of-bag rows, since leaf values then depend on them.
    held_out_loss_error_ : float
        Standard error of `held_out_loss_`, as an estimate of the loss on new rows.
    whole_loss_ : float
        The same for the whole ensemble.
    path_ : dict of str to ndarray
        All models from large to small: their members, nodes and bytes; the held-out loss, its rise and the
        standard error of the rise; and fresh_loss, that of the first trees of the ensemble with as many
        bytes.
    link_ : str
        Link of the pruned model.
    shrinkage_ : float
        Rows per tree that the original leaf values count for; infinity if they are not refitted.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from manylens.pruning import TreePruner
    >>> X, y = load_diabetes(return_X_y=True)
    >>> forest = RandomForestRegressor(100, random_state=0).fit(X, y)
    >>> small = TreePruner(forest, loss=0.05, random_state=0).fit(X, y)
    >>> small.n_nodes_ < small.whole_nodes_ / 5
    True
    """

    def __init__(
        self,
        ensemble: Any,
        *,
        loss: float | None = 0.01,
        max_members: int | None = None,
        max_nodes: int | None = None,
        max_bytes: int | None = None,
        link: Literal["auto", "identity", "logistic"] = "auto",
        guarantee: float | None = None,
        fit_ensemble: bool = False,
        random_state: Seed = None,
    ) -> None:
        self.ensemble = ensemble
        self.loss = loss
        self.max_members = max_members
        self.max_nodes = max_nodes
        self.max_bytes = max_bytes
        self.link = link
        self.guarantee = guarantee
        self.fit_ensemble = fit_ensemble
        self.random_state = random_state

    @restore_on_error
    def fit(self, X: MatrixLike, y: ArrayLike, guarantee_rows: MatrixLike | None = None) -> Self:
        """Choose the cuts.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            For a forest with bootstrap=True, all rows that it was fitted to, in the same order: trees are
            then judged by rows that they were not trained on. Otherwise, rows that the ensemble was not
            fitted to, at least 10. If they include its training rows, or most of them, and this is no
            coincidence, `fit` raises; for a forest with bootstrap=True, it warns if they resemble some.
        y : array-like of shape (n,)
            Classes or values.
        guarantee_rows : array-like or sparse matrix of shape (m, d), default=None
            Rows for which `guarantee` holds; X if None. They need a `guarantee`.

        Returns
        -------
        TreePruner
        """
        self._check_parameters()
        if guarantee_rows is not None and self.guarantee is None:
            raise ValueError("guarantee_rows need a guarantee: set it, or leave these rows out.")
        if y is None:
            raise ValueError("TreePruner requires y to be passed, but the target y is None.")
        labels: AnyArray = label_column(y, warn=True)
        refuse_extreme(labels, "y")
        if self.ensemble is None:
            raise ValueError(
                "ensemble=None: give a fitted forest or boosting model; a pruner that was loaded or copied "
                "holds only the pruned model, so set its ensemble again."
            )
        random = check_seed(self.random_state)
        ensemble, X, target_rows = self._fitted_ensemble(X, labels, random)
        reader = find_format(ensemble)
        whole = reader.read(ensemble)
        allow_nan = not hasattr(ensemble, "fit") or get_tags(ensemble).input_tags.allow_nan
        rows = validate_float_rows(self, X, allow_nan, True, reader.absent)
        check_same_columns(self, ensemble)
        if self.n_features_in_ <= int(whole.trees.feature.max(initial=0)):
            raise ValueError(
                f"X has {self.n_features_in_} features, but the {type(ensemble).__name__} splits by more: "
                "give rows with the features that it was fitted to."
            )
        rows, target_rows = indexable(rows, target_rows)
        target = columns_of(target_rows, whole.classes, whole.n_outputs)
        if whole.classes is not None:
            require_two_classes(np.unique(labels), "TreePruner")
        with np.errstate(over="ignore", invalid="ignore"):  # scikit-learn sums all values to detect NaN
            evaluator = self._evaluator(ensemble, reader, whole, rows, target_rows, target, random)
        self.whole_members_, self.whole_nodes_ = len(whole.trees.roots), len(whole.trees.feature)
        self.whole_bytes_, self.whole_loss_ = tree_bytes(whole.trees), evaluator.whole_loss
        if self.guarantee is not None:
            if guarantee_rows is not None:
                rows = validate_float_rows(self, guarantee_rows, allow_nan, False, reader.absent)
            model, candidate = self._faithful(whole, dense(rows, reader.absent), evaluator)
        else:
            warn_of_class_weights(ensemble, whole)
            model, candidate = self._smallest(evaluator)
        if not has_first_trees(model, whole):
            warn_of_constraints(ensemble, "cuts and refits of leaves")
        self.link_, self.shrinkage_ = candidate.link, candidate.shrinkage
        self.path_["fresh_loss"] = evaluator.fresh_losses(self.path_["bytes"])
        empty = (type(reader).__name__, reader.empty(ensemble))
        self.estimator_ = self._name_columns(PrunedTrees(model, empty, allow_nan))
        self.n_members_, self.n_nodes_ = self.estimator_.n_members, self.estimator_.n_nodes
        self.n_bytes_ = self.estimator_.n_bytes
        return self

    def _check_parameters(self) -> None:
        for name in ("max_members", "max_nodes", "max_bytes"):
            if getattr(self, name) is not None:
                check_count(getattr(self, name), name)
        for name in ("loss", "guarantee"):
            if getattr(self, name) is not None:
                check_real(getattr(self, name), name, 0.0, np.inf, "left")
        check_choice(self.link, "link", ("auto", "identity", "logistic"))
        check_choice(self.fit_ensemble, "fit_ensemble", (True, False))

    def _fitted_ensemble(
        self, X: Any, y: AnyArray, random: np.random.RandomState
    ) -> tuple[Any, Any, AnyArray]:
        """The ensemble, and the rows to prune it on."""
        if not self.fit_ensemble:
            return self.ensemble, X, y
        find_format(self.ensemble)
        if not hasattr(self.ensemble, "fit"):
            raise ValueError(
                "fit_ensemble=True needs an estimator, but a Booster has no fit: use its estimator."
            )
        refuse_early_stopping(self.ensemble)
        check_consistent_length(X, y)
        with plain_conversion_errors("X or y"), plain_label_errors():
            if getattr(self.ensemble, "bootstrap", False):
                return clone(self.ensemble).fit(X, y), X, y
            if len(y) < 2:
                raise ValueError(
                    f"X has {len(y)} sample(s), but fit_ensemble=True fits a copy to 80 % of the rows and "
                    "prunes it on the rest: give at least 2 rows."
                )
            counts = np.unique(y, return_counts=True)[1]
            stratify = (
                y if is_classifier(self.ensemble) and counts.min() > 1 and len(counts) < len(y) / 10 else None
            )
            parts = train_test_split(X, y, test_size=HELD_OUT, random_state=random, stratify=stratify)
            if is_classifier(self.ensemble) and len(np.unique(parts[2])) < 2:
                raise ValueError(
                    "The 80 % of the rows that fit_ensemble=True fits a copy to have only one class: give "
                    "more rows of each class."
                )
            return clone(self.ensemble).fit(parts[0], parts[2]), parts[1], parts[3]

    def _evaluator(
        self,
        ensemble: Any,
        reader: TreeFormat,
        whole: TreeEnsemble,
        X: Any,
        y: AnyArray,
        target: FloatArray,
        random: np.random.RandomState,
    ) -> HeldOutEvaluator:
        """The rows in all trees that were not fitted to them, and the trials that judge pruned models."""
        T, n = len(whole.trees.roots), X.shape[0]
        unseen, some, given = out_of_bag(ensemble, whole, X, target), None, (X, y, target)
        # a forest that was fitted to as few rows has none to spare
        if unseen is None and n < LEAST_ROWS and getattr(ensemble, "_n_samples", None) != n:
            self._refuse_few_rows(n, ensemble)
        if n > (most := max(1, MOST_ENTRIES // (T * max(2, whole.trees.value.shape[1])))):
            some = np.sort(random.permutation(n)[:most])
            X, y, target = X[some], y[some], target[some]
            unseen = None if unseen is None else np.ascontiguousarray(unseen[:, some])
        rows = comparable_rows(dense(X, reader.absent), whole.trees)
        leaves = row_leaves(rows, whole.trees, unseen, target)
        if unseen is None:
            refuse_training_rows(ensemble, whole, leaves.node.reshape(T, -1), target, reader)
            return HeldOutEvaluator(whole, rows, leaves, held_out_trials(whole, leaves, random))
        retrain = refitted_trials(ensemble, reader, *given, random, some)
        trials = retrain(self._first_trees(T)) or own_trial(whole, leaves)
        return HeldOutEvaluator(whole, rows, leaves, trials, retrain)

    def _refuse_few_rows(self, n_rows: int, ensemble: Any) -> None:
        """Raise, or warn if a copy was fitted to few rows as well, that too few rows are held out."""
        what = f"{n_rows} held-out row{'s' * (n_rows != 1)} cannot show which cuts keep the accuracy"
        if self.fit_ensemble:  # scikit-learn's own checks fit ten rows
            warnings.warn(f"{what}: give at least {5 * LEAST_ROWS} rows.", stacklevel=5)
        else:
            raise ValueError(f"{what} of this {type(ensemble).__name__}: give at least {LEAST_ROWS} rows.")

    def _first_trees(self, n_trees: int) -> int:
        """Number of trees of a forest that are pruned."""
        few = min(n_trees, max(LEAST_TREES, n_trees // SHARE))
        return few if self.max_members is None else min(few, int(self.max_members))

    def _limits(self) -> SizeLimits:
        sizes = (self.max_members, self.max_nodes, self.max_bytes)  # int8 would overflow
        return SizeLimits(self.loss, *(None if most is None else int(most) for most in sizes))

    def _smallest(self, evaluator: HeldOutEvaluator) -> tuple[TreeEnsemble, Candidate]:
        """The model the settings ask for, on the path of the best candidate; sets the path and the loss."""
        ensemble, limits = evaluator.ensemble, self._limits()
        T, loss = len(ensemble.trees.roots), evaluator.whole_loss
        few, goal, stages = self._first_trees(T), Goal(loss, evaluator.whole_error, loss, ERROR_MARGIN), 0.0
        if not ensemble.averages:  # pruning of boosting starts at its best number of stages
            prefixes = evaluator.first_trees(counts := evaluator.first_counts(T))
            losses = evaluator.path_of(prefixes).loss[::-1]  # ties go to the smallest model
            few = int(counts[::-1][np.argmin(losses)])
            goal = Goal(loss, goal.whole_error, float(losses.min()))
            stages = stage_optimism(evaluator, prefixes)
        limited = not limits.fit((T, self.whole_nodes_, self.whole_bytes_))
        compared = candidates(ensemble, few, self.link)
        refit = choose_refit(evaluator, limits, goal, compared, limited, self.whole_bytes_, stages)
        if refit is not None:
            return self._chosen(refit, goal), refit.candidate
        if not ensemble.averages:
            stopped = choose_prefix(evaluator, limits, goal, counts, prefixes)
            if stopped is not None:
                return self._chosen(stopped, goal), stopped.candidate
        allowed = limits.loss or 0.0
        most = (1 + allowed) * loss, allowed * goal.whole_error
        without_refits = cover_paths(evaluator, few, self.link, *most) if ensemble.averages else ()
        for number, cuts in enumerate(without_refits):
            if number == 1 and (more := evaluator.retrained(n := min(2 * few, T))) is not None:
                compared = candidates(ensemble, n, self.link)  # refits are smaller than cuts of as many trees
                refit = choose_refit(more, limits, goal, compared, limited, self.whole_bytes_)
                if refit is not None:
                    return self._chosen(refit, goal), refit.candidate
            found = smallest_cut(cuts, limits, goal, self.whole_bytes_)
            if found is not None:
                (cut, step), models = found, cover_models(evaluator, found[0])
                error = float(cut.losses.rise_error[step])
                optimism = cut_optimism(evaluator, cuts, limits, goal, self.whole_bytes_, error)
                choice = Choice(cut.candidate, cut.losses, models, step, optimism)
                return self._chosen(choice, goal), cut.candidate
        near = f"at most {100 * (self.loss or 0):g} % above that of the whole ensemble"
        what, ease = f"No smaller model has a held-out loss that is evidently {near}", ""
        if evaluator.refused:
            what = f"No smaller model is good enough (some have a loss {near}, but more wrong classes)"
            ease = "loss=None for the lowest loss, "
        warnings.warn(
            f"{what}: all trees are kept as they are. Give {ease}more rows, a larger loss, or max_nodes.",
            stacklevel=4,
        )
        candidate, whole = Candidate(T, ensemble.link, np.inf), evaluator.compare([evaluator.row_losses], T)
        self._chosen(Choice(candidate, evaluator.path_of(whole), [open_nodes(ensemble, T)], 0, 0.0), goal)
        return ensemble, candidate

    def _chosen(self, choice: Choice, goal: Goal) -> TreeEnsemble:
        """The model of a choice; sets the attributes that describe all models and this one."""
        path, self._models, self._rule = choice.path, list(choice.models), (choice.path, goal)
        columns = np.array([nodes_size(model) for model in self._models]).T
        self.path_ = dict(zip(("members", "nodes", "bytes"), columns, strict=True))
        self.path_ |= {"loss": path.loss, "rise": path.rise, "rise_error": path.rise_error}
        self.held_out_loss_ = float(choice.held_out_loss)
        self.held_out_loss_error_ = float(path.loss_error[choice.step])
        return self._models[choice.step].ensemble()

    def _faithful(
        self, whole: TreeEnsemble, rows: FloatArray, evaluator: HeldOutEvaluator
    ) -> tuple[TreeEnsemble, Candidate]:
        """The smallest model on a path toward the ensemble's scores that keeps its predictions for `rows`."""
        T = len(whole.trees.roots)
        blank = row_leaves(
            comparable_rows(rows, whole.trees), whole.trees, None, np.zeros((len(rows), whole.n_outputs))
        )
        start = open_nodes(whole, T)
        score = row_scores(start, blank)
        goal = blank._replace(target=score)
        if whole.classes is not None:
            start = start._replace(link="identity")  # squared differences of scores
        n_leaves, limits = start.n_split_leaves, self._limits()
        n_steps = int(10 * np.log(n_leaves + 1)) + 2  # down to one leaf
        fewer = sorted({max(1, int(n_leaves * 0.9**k)) for k in range(1, n_steps)}, reverse=True)
        models, chosen = [open_nodes(whole, T)], 0
        for nodes, _, reached in prune_path(start, goal, FAITHFUL, [None, *fewer], goal):
            models.append(nodes._replace(link=whole.link))
            if same_predictions(reached, score, whole.classes is not None, self.guarantee or 0.0):
                chosen = len(models) - 1
        if not limits.fit(size := nodes_size(models[chosen])):
            given = " and ".join(
                f"{name}={value}" for name, value in limits._asdict().items() if name != "loss" and value
            )
            ease = "" if whole.classes is not None else "a larger guarantee or "
            raise ValueError(
                f"No model found within {given} keeps guarantee={self.guarantee} for {len(rows)} rows: the "
                f"smallest that does has {size[0]} trees, {size[1]} nodes and {size[2]} bytes, so give "
                f"limits of at least that, or {ease}fewer guarantee_rows."
            )
        candidate = Candidate(T, whole.link, FAITHFUL)
        choice = Choice(candidate, evaluator.judge_models(models), models, chosen, 0.0)
        loss, margin = evaluator.whole_loss, ERROR_MARGIN if whole.averages else 0.0
        return self._chosen(choice, Goal(loss, evaluator.whole_error, loss, margin)), candidate

    def resize(
        self,
        *,
        loss: float | None = None,
        max_members: int | None = None,
        max_nodes: int | None = None,
        max_bytes: int | None = None,
    ) -> PrunedTrees:
        """Return another model of the path, without another fit.

        Parameters
        ----------
        loss : float or None, default=None
            As in `TreePruner`: how much the held-out loss and the share of wrong classes may rise. The
            smallest such model is returned. If there is none, or None: the model with the smallest held-out
            loss within the limits.
        max_members, max_nodes, max_bytes : int or None, default=None
            Largest numbers of trees, nodes and bytes.

        Returns
        -------
        PrunedTrees
        """
        check_is_fitted(self)
        if not hasattr(self, "_models"):
            raise ValueError("A pruner that was loaded or copied holds only the chosen model: fit it again.")
        asked = TreePruner(None, loss=loss, max_members=max_members, max_nodes=max_nodes, max_bytes=max_bytes)
        asked._check_parameters()
        limits, sizes = asked._limits(), [nodes_size(model) for model in self._models]
        if not any(limits.fit(size) for size in sizes):
            raise ValueError(
                f"The smallest model of the path has {self.path_['members'][-1]} trees, "
                f"{self.path_['nodes'][-1]} nodes and {self.path_['bytes'][-1]} bytes: fit a pruner with "
                "these limits."
            )
        path, goal = self._rule
        chosen = self._models[limits.choose(path, sizes, goal, limited=True) or 0].ensemble()
        return self._name_columns(PrunedTrees(chosen, self.estimator_.empty, self.estimator_.allow_nan))

    def __getstate__(self) -> dict[str, Any]:
        """The state for pickles, files and copies: of the ensemble, only what is kept."""
        state = dict(super().__getstate__())
        if "estimator_" in state:
            state.pop("_models", None)
            state.pop("_rule", None)
            if not self.fit_ensemble:
                state["ensemble"] = None
        return state

    def to_ensemble(self) -> Any:
        """Return a model of the original class; see `PrunedTrees.to_ensemble`.

        Returns
        -------
        estimator or Booster
        """
        check_is_fitted(self)
        return self.estimator_.to_ensemble()

    def _classifies(self) -> bool:
        if hasattr(self, "estimator_"):
            return self.estimator_.model.classes is not None
        if hasattr(self.ensemble, "__sklearn_tags__"):
            return is_classifier(self.ensemble)
        try:
            return find_format(self.ensemble).read(self.ensemble).classes is not None
        except (TypeError, ValueError):
            return False

    def __sklearn_clone__(self) -> Self:
        params = self.get_params(deep=False)
        if self.fit_ensemble and hasattr(self.ensemble, "fit"):
            params["ensemble"] = clone(self.ensemble)
        return type(self)(**params)

    def __sklearn_tags__(self) -> Tags:
        tags = typed_tags(super().__sklearn_tags__(), self._classifies())
        known = hasattr(self.ensemble, "__sklearn_tags__")
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = get_tags(self.ensemble).input_tags.allow_nan if known else True
        return tags


def same_predictions(score: FloatArray, whole: FloatArray, classifies: bool, largest: float) -> bool:
    """Whether no class changes, or no value by more than `largest`."""
    if not classifies:
        return bool(np.max(np.abs(score - whole), initial=0.0) <= largest)
    if score.shape[1] == 1:
        return bool(np.array_equal(score > 0, whole > 0))
    return bool(np.array_equal(np.argmax(score, axis=1), np.argmax(whole, axis=1)))
