"""Plans for fitting each kind of estimator on blocks: the steps that run on workers."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import numpy as np

from manylens.cluster.sample import RowSample
from manylens.native.threads import one_blas_thread
from manylens.summaries import Summary
from manylens.summaries.bootstrap import bootstrap_counts
from manylens.typing import FloatArray, IntArray
from manylens.validation import check_real, safe_scale, take_rows, times_power

STEPS = ("fit_feature_map", "summarize", "learn_from")

Note = tuple[str, type[Warning]]


class Prepared(NamedTuple):
    """State shared by all blocks after the first pass."""

    plan: Plan
    model: Any  # with its feature map, or fitted
    lengths: list[int]  # number of rows of each block
    extra: Any = None  # of one plan
    notes: tuple[Note, ...] = ()  # warnings


class Fitted(NamedTuple):
    """A fitted estimator and the warnings of its fit, which would be lost on a worker."""

    model: Any
    notes: tuple[Note, ...]


class Plan:
    """Learn from the merged summary of all blocks, after the feature map was fitted to a sample."""

    summarizes: ClassVar[bool] = True  # whether a second pass summarizes the blocks
    walks: ClassVar[bool] = False  # whether a second pass takes the model from block to block

    def needs_sample(self, model: Any) -> bool:
        """Whether the first pass needs more than two rows of the first block."""
        needs = getattr(model, "_needs_sample", None)
        return True if needs is None else bool(needs())

    def takes_target(self, model: Any) -> bool:
        """Whether the estimator learns from a target."""
        return "y" in inspect.signature(model.fit_feature_map).parameters

    def prepare(self, model: Any, sample: RowSample) -> Prepared:
        """Fit the feature map to the sample."""
        classes = {} if sample.labels is None else {"classes": sample.labels}
        fitted = copy.deepcopy(model).fit_feature_map(*sample.arguments(), **classes)
        return Prepared(self, fitted, sample.block_lengths())

    def summarize(self, prepared: Prepared, _number: int, *arguments: Any) -> Summary:
        """The summary of one block."""
        summary: Summary = prepared.model.summarize(*arguments)
        return summary

    def step(self, prepared: Prepared, number: int, *arguments: Any) -> Prepared:
        """The model after it has seen one more block."""
        raise NotImplementedError

    def learn(self, prepared: Prepared, summary: Summary) -> Any:
        """The fitted estimator."""
        return copy.deepcopy(prepared.model).learn_from(summary)


class BootstrapPlan(Plan):
    """Every block counts its rows in the bootstrap samples, whose distribution is that of `fit`."""

    def needs_sample(self, model: Any) -> bool:
        return True  # for the lengths of all blocks

    def summarize(self, prepared: Prepared, number: int, *arguments: Any) -> Summary:
        model = prepared.model
        counts = bootstrap_counts(model.n_modules, prepared.lengths, number, model.random_state)
        summary: Summary = model.summarize(*arguments, counts)
        return summary


class SupervisedPlan(Plan):
    """The first pass needs rows and their targets."""

    def needs_sample(self, model: Any) -> bool:
        return True

    def takes_target(self, model: Any) -> bool:
        return True


class MetricPlan(SupervisedPlan):
    """NCA on the sample alone."""

    summarizes = False

    def prepare(self, model: Any, sample: RowSample) -> Prepared:
        return Prepared(self, copy.deepcopy(model).fit(*sample.arguments()), sample.block_lengths())


class OnlineMetricPlan(MetricPlan):
    """NCA on the sample, then one on-line pass over all rows, block after block."""

    walks = True

    def step(self, prepared: Prepared, _number: int, *arguments: Any) -> Prepared:
        return prepared._replace(model=copy.deepcopy(prepared.model).partial_fit(*arguments))


class Bags(NamedTuple):
    """State shared by all blocks of a pruner."""

    exponent: int  # predictions and target are multiplied by 2^-exponent
    anchor: float
    packed: Any  # (n, p / 8): rows that each member was trained on, as bits; None if they are not used
    share: FloatArray | None  # (p,): share of the rows out of each bag


class PruningPlan(SupervisedPlan):
    """Members predict each block where it lives; the moments of their predictions are merged."""

    def prepare(self, model: Any, sample: RowSample) -> Prepared:
        from manylens.pruning.alignment_pruner import read_members
        from manylens.pruning.pruned_ensemble import validate_member_rows
        from manylens.pruning.selection import check_method
        from manylens.pruning.training_moments import target_columns

        check_method(model.method, model.refit, model.max_members)
        if model.fit_ensemble or model.cv not in (None, "auto", "oob"):
            given = "fit_ensemble=True" if model.fit_ensemble else f"cv={model.cv!r}"
            raise ValueError(
                f"{given} refits the ensemble to all rows at once, which are in blocks here: fit it first, "
                "and use cv=None, 'oob' or 'auto'."
            )
        model, members = copy.copy(model), read_members(model.ensemble)
        if len(sample.arguments()) != 2:
            raise ValueError("AlignmentPruner requires y to be passed, but the target y is None.")
        X, y = sample.arguments()
        rows = validate_member_rows(model, X, members, reset=True)
        several = sample.labels is not None and len(sample.labels) > 1  # in all blocks
        Y = target_columns(np.asarray(y), members, whole=not several)
        mask = rows_in_bag(members, model.cv, rows, Y, sample)
        bags = Bags(
            exponent=safe_scale(Y),
            anchor=0.0 if model.anchor == "auto" else check_real(model.anchor, "anchor", 0, 1),
            packed=None if mask is None else np.packbits(mask, axis=1),
            share=None if mask is None else 1 - mask.mean(axis=0),
        )
        return Prepared(self, model, sample.block_lengths(), bags)

    def summarize(self, prepared: Prepared, number: int, *arguments: Any) -> Summary:
        from manylens.pruning.alignment_pruner import read_members
        from manylens.pruning.pruned_ensemble import validate_member_rows
        from manylens.pruning.training_moments import direct_batches, new_moments, target_columns

        model, bags, (X, y) = prepared.model, prepared.extra, arguments
        members = read_members(model.ensemble)
        rows = validate_member_rows(copy.copy(model), X, members, reset=False)
        Y, p, mask = target_columns(np.asarray(y), members, whole=False), len(members.members), None
        if bags.packed is not None:
            first = sum(prepared.lengths[:number])
            mask = np.unpackbits(bags.packed[first : first + len(Y)], axis=1, count=p).astype(bool)
        moments = new_moments(model.method, p, members.n_outputs)
        for P, target, weight in direct_batches(members, rows, Y, mask, bags.share, bags.anchor, None):
            moments.update(times_power(P, -bags.exponent), times_power(target, -bags.exponent), weight)
        return moments

    def learn(self, prepared: Prepared, summary: Any) -> Any:
        from manylens.pruning.alignment_pruner import read_members

        model, bags = copy.copy(prepared.model), prepared.extra
        members = read_members(model.ensemble)
        return model._select(model.ensemble, members, summary, bags.exponent, bags.anchor)


def rows_in_bag(members: Any, cv: Any, X: Any, Y: FloatArray, sample: RowSample) -> Any:
    """Mask (n, p) of the rows that each member was trained on; None if it is unknown or `cv` is None.

    The rows are taken to be the training rows, in the same order, if their number fits the members' samples
    and members err less on the sampled rows that they were trained on.
    """
    from manylens.pruning import training_moments as training
    from manylens.pruning.members import bag_mask

    if cv is None:
        return None
    n, samples = sum(sample.block_lengths()), members.samples()
    mask = None if samples is None else bag_mask(samples, n)
    if samples is not None:
        some = np.unique(np.linspace(0, len(Y) - 1, training.CHECKED_ROWS).astype(int))
        errors = training.member_errors(members, take_rows(X, some), Y[some], None)
        known: IntArray = sample.positions()[some]
        if mask is not None and training.in_bag_advantage(errors, mask[known]) > training.SIGNIFICANT:
            return mask
        if cv == "auto" and training.resemble_training_rows(errors, samples):
            training.warn_of_training_rows(members)
    if cv == "oob":
        raise ValueError(training.no_samples_message(members, n))
    return None


def plan_for(estimator: Any) -> Plan:
    """The plan for fitting an estimator on blocks; raises if there is none."""
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(estimator).__mro__}
    if "manylens.metric.nca.NCA" in names:
        method = estimator.method
        online = method == "stochastic" or type(method).__name__ == "Stochastic"
        return OnlineMetricPlan() if online else MetricPlan()
    if "manylens.pruning.alignment_pruner.AlignmentPruner" in names:
        return PruningPlan()
    if not all(hasattr(estimator, step) for step in STEPS):
        raise TypeError(
            f"{type(estimator).__name__} does not learn from a summary of the rows, so it cannot be fitted "
            f"block by block: that needs the methods {', '.join(STEPS)}. Fit it on a sample of the rows."
        )
    if estimator.__sklearn_tags__().input_tags.pairwise:
        raise ValueError("kernel='precomputed' has no rows to divide into blocks: use fit of the estimator.")
    counted = "counts" in inspect.signature(estimator.summarize).parameters
    return BootstrapPlan() if counted else Plan()


@contextmanager
def taking_notes() -> Iterator[list[Note]]:
    """Collect warnings instead of showing them, and use one BLAS thread, as all tasks do."""
    notes: list[Note] = []
    with warnings.catch_warnings(record=True) as caught, one_blas_thread():
        warnings.simplefilter("always")
        yield notes
    notes.extend((str(each.message), each.category) for each in caught)


def prepare(plan: Plan, model: Any, sample: RowSample) -> Prepared:
    """The first step, after the first pass."""
    with taking_notes() as notes:
        prepared = plan.prepare(model, sample)
    return prepared._replace(notes=tuple(notes))


def summarize_block(prepared: Prepared, number: int, *arguments: Any) -> Summary:
    """The summary of one block."""
    return prepared.plan.summarize(prepared, number, *arguments)


def learn(prepared: Prepared, summary: Summary) -> Fitted:
    """The last step."""
    with taking_notes() as notes:
        model = prepared.plan.learn(prepared, summary)
    return Fitted(model, (*prepared.notes, *notes))


def as_fitted(prepared: Prepared) -> Fitted:
    """The estimator of a plan without summaries."""
    return Fitted(prepared.model, prepared.notes)
