"""The methods of `NCA`: how the sums over pairs of rows are computed, and how "auto" chooses one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import DTypeLike

from manylens.metric.batching import BATCHERS, Batcher, Batching, StochasticAnchors
from manylens.metric.objectives import (
    BackgroundObjective,
    CompactObjective,
    Form,
    GaussianObjective,
    Objective,
)
from manylens.metric.optimizers import STEP_OPTIMIZERS, OptimizerName
from manylens.metric.pair_evaluation import Evaluation, ExactEvaluation, RangeSearch, TreeEvaluation
from manylens.typing import IntArray
from manylens.validation import check_choice, check_count, check_real

# Limits up to which "auto" chooses "exact" or "tree" (`python -m benchmarks.tuning.nca method`).
EXACT_ROWS, TREE_ROWS, TREE_COMPONENTS = 4000, 20_000, 3
# A batch needs several rows of each class, so that rows have neighbors of their own class in it.
BATCH_ROWS, ROWS_PER_CLASS, MAX_BATCH_ROWS = 2000, 20, 20_000


class Method:
    """Base class of the methods."""

    name: ClassVar[str]
    max_components: ClassVar[float] = np.inf
    forms: ClassVar[tuple[Form, ...]] = ("accuracy", "likelihood")

    def make_objective(self, form: Form) -> Objective:
        """Make the objective to maximize."""
        return GaussianObjective(form)


class AllRowsMethod(Method):
    """Base class of the methods that maximize the objective over all rows with L-BFGS."""

    def make_evaluation(self, labels: IntArray, dtype: DTypeLike) -> Evaluation:
        """Make the evaluation of the objective."""
        return ExactEvaluation(labels, dtype)


class BatchMethod(Method):
    """Base class of the methods whose optimizer sees one batch of rows at a time."""

    optimizer: OptimizerName

    def make_batcher(self, n_classes: int) -> Batcher:
        """Make the batcher, which chooses the rows of each batch."""
        raise NotImplementedError


@dataclass(frozen=True)
class Exact(AllRowsMethod):
    """All pairs of rows, with L-BFGS: O(n²) time and O(n) memory.

    Examples
    --------
    >>> from manylens.metric import NCA, Exact
    >>> NCA(n_components=2, method=Exact())
    NCA(method=Exact(), n_components=2)
    """

    name: ClassVar[str] = "exact"


@dataclass(frozen=True)
class Subsample(AllRowsMethod):
    """All pairs within one random sample of the rows, with L-BFGS.

    Parameters
    ----------
    size : int, default=2000
        Number of rows in the sample; every class keeps its share.
    """

    name: ClassVar[str] = "subsample"
    size: int = BATCH_ROWS

    def __post_init__(self) -> None:
        check_count(self.size, "size", 2)


@dataclass(frozen=True)
class Tree(AllRowsMethod):
    """All pairs except those that a k-d tree shows to be negligible, with L-BFGS; at most 20 components.

    Parameters
    ----------
    tolerance : float, default=1e-3
        Largest fraction of a row's kernel sum that may be left out.
    """

    name: ClassVar[str] = "tree"
    max_components: ClassVar[float] = 20
    tolerance: float = 1e-3

    def __post_init__(self) -> None:
        if not 0 < check_real(self.tolerance, "tolerance") < 1:
            raise ValueError(
                f"tolerance={self.tolerance!r} is outside (0, 1): it is the fraction of a row's kernel sum "
                "that may be left out. Use a value such as 1e-3."
            )

    def make_evaluation(self, labels: IntArray, dtype: DTypeLike) -> Evaluation:
        return TreeEvaluation(labels, dtype, self.tolerance)


@dataclass(frozen=True)
class Compact(AllRowsMethod):
    """The kernel (1 - D)² for D <= 1 instead of the Gaussian: pairs within reach, found by range search."""

    name: ClassVar[str] = "compact"
    forms: ClassVar[tuple[Form, ...]] = ("accuracy",)

    def make_objective(self, form: Form) -> Objective:
        return CompactObjective(form)

    def make_evaluation(self, labels: IntArray, dtype: DTypeLike) -> Evaluation:
        return RangeSearch(labels, dtype)


@dataclass(frozen=True)
class CompactBackground(AllRowsMethod):
    """Compact support plus a normal density per class, so that rows out of reach also have a probability.

    Parameters
    ----------
    mixing : {"fixed", "learned"}, default="fixed"
        Weight of the density: 1 / (N_c + 1) for a class of N_c rows, or learned (`NCA.mixing_`).
    """

    name: ClassVar[str] = "compact-background"
    mixing: Literal["fixed", "learned"] = "fixed"

    def __post_init__(self) -> None:
        check_choice(self.mixing, "mixing", ("fixed", "learned"))

    def make_objective(self, form: Form) -> Objective:
        return BackgroundObjective(form, self.mixing)

    def make_evaluation(self, labels: IntArray, dtype: DTypeLike) -> Evaluation:
        return RangeSearch(labels, dtype)


@dataclass(frozen=True)
class MiniBatch(BatchMethod):
    """Pairs within batches of rows, one step per batch.

    Parameters
    ----------
    size : int or None, default=None
        Rows per batch; by default 2,000, or 20 per class if there are more than 100 classes, up to 20,000.
    batching : {"random", "rpc", "fpc", "rpc-original", "fpc-original"}, default="random"
        Random batches, or clusters by recursive projection or farthest points, new ones in every epoch: of
        the projected rows, or of the original rows.
    optimizer : {"adam", "adagrad"}, default="adam"
        Optimizer.
    """

    name: ClassVar[str] = "minibatch"
    size: int | None = None
    batching: Batching = "random"
    optimizer: OptimizerName = "adam"

    def __post_init__(self) -> None:
        if self.size is not None:
            check_count(self.size, "size", 2)
        check_choice(self.batching, "batching", BATCHERS)
        check_choice(self.optimizer, "optimizer", STEP_OPTIMIZERS)

    def make_batcher(self, n_classes: int) -> Batcher:
        return BATCHERS[self.batching](self.size or default_batch_size(n_classes))


@dataclass(frozen=True)
class Stochastic(BatchMethod):
    """A few rows at a time against all rows, one step each: an unbiased estimate of the full gradient.

    Parameters
    ----------
    anchors : int, default=256
        Rows per step. In `NCA.partial_fit` these are the new rows and, if they are fewer, random rows of the
        base; with 1 and one new row at a time, the step follows the new row alone.
    optimizer : {"adam", "adagrad"}, default="adam"
        Optimizer.
    base : int or None, default=2000
        Number of rows kept for `NCA.partial_fit`, a random sample of all rows so far; None keeps all.
    """

    name: ClassVar[str] = "stochastic"
    anchors: int = 256
    optimizer: OptimizerName = "adam"
    base: int | None = BATCH_ROWS

    def __post_init__(self) -> None:
        check_count(self.anchors, "anchors")
        if self.base is not None:
            check_count(self.base, "base", 2)
        check_choice(self.optimizer, "optimizer", STEP_OPTIMIZERS)

    def make_batcher(self, n_classes: int) -> Batcher:
        return StochasticAnchors(self.anchors)


METHODS: dict[str, type[Method]] = {
    kind.name: kind for kind in (Exact, Subsample, MiniBatch, Stochastic, Tree, Compact, CompactBackground)
}


def resolve_method(method: Any, n_rows: int, n_components: int, n_classes: int, form: Form) -> Method:
    """The method object for a name or an object; raise if it cannot be used."""
    if isinstance(method, str):
        check_choice(method, "method", ("auto", *METHODS))
        name = auto_method(n_rows, n_components, n_classes) if method == "auto" else method
        method = METHODS[name]()
    if not isinstance(method, Method):
        raise TypeError(
            f"method={method!r} must be a name (auto, {', '.join(METHODS)}) or an object of manylens.metric "
            "such as Tree(tolerance=1e-3)."
        )
    if form not in method.forms:
        raise ValueError(
            f'objective="{form}" takes the logarithm of every p_i, but with method="{method.name}" rows '
            'without others in reach have p_i = 0. Use method="compact-background", or objective="accuracy".'
        )
    if n_components > method.max_components:
        raise ValueError(
            f'method="{method.name}" works in at most {method.max_components} dimensions (in more, its boxes '
            f'skip no pairs); n_components={n_components} was given. Use method="minibatch".'
        )
    return method


def auto_method(n_rows: int, n_components: int, n_classes: int) -> str:
    """The method that "auto" chooses: "exact" up to 4,000 rows, or two batches if that is more; "tree" up to
    20,000 rows in at most 3 dimensions; else "minibatch".
    """
    if n_rows <= max(EXACT_ROWS, 2 * default_batch_size(n_classes)):
        return "exact"
    if n_components <= TREE_COMPONENTS and n_rows <= TREE_ROWS:
        return "tree"
    return "minibatch"


def default_batch_size(n_classes: int) -> int:
    """2,000 rows, or 20 per class if that is more, up to 20,000."""
    return int(np.clip(ROWS_PER_CLASS * n_classes, BATCH_ROWS, MAX_BATCH_ROWS))
