"""The methods by name: which objective, evaluation, batches and optimizer each stands for.

What does not go together is refused here, by naming the two sides and what would work.
"""

from dataclasses import dataclass

import numpy as np

from manylens.metric.background import CompactBackground
from manylens.metric.batching import BATCHERS, Batcher, StochasticAnchors
from manylens.metric.compact import Compact
from manylens.metric.evaluation import Evaluation, Exact, RangeSearch, Tree
from manylens.metric.gaussian import Gaussian
from manylens.metric.objectives import FORMS, Objective
from manylens.metric.optimizers import STEP_OPTIMISERS

# Up to so many rows all pairs take a second, and up to so many in few dimensions trees are on average better
# than batches (`python -m benchmarks.tuning.nca method`; the guide has its table).
FEW_ROWS = 4000
TREE_ROWS, TREE_COMPONENTS = 20_000, 3
# Batches must hold several rows of each class, or no row has a neighbor to find.
BATCH_ROWS, ROWS_PER_CLASS, MOST_BATCH_ROWS = 2000, 20, 20_000
ANCHORS = 256
# Steps after which batches have taught most of what they can (`python -m benchmarks.tuning.nca recipe`).
STEPS = 400
# float32 pairs from so many rows on, whatever the type of X: their rounding is below the tolerance there.
SINGLE_ROWS = 5000


@dataclass(frozen=True)
class Method:
    """What a method's name stands for.

    Parameters
    ----------
    objective : type
        Kind of objective.
    evaluation : type or None
        How the whole objective is evaluated; None where batches are.
    batches : {None, "sample", "within", "anchors"}
        Rows the optimizer sees: all; one sub-sample; batch after batch, each within itself; or batch after
        batch against all rows.
    """

    objective: type[Objective]
    evaluation: type[Evaluation] | None
    batches: str | None = None

    @property
    def optimizers(self):
        """Names of the optimizers that can serve."""
        return ("lbfgs",) if self.evaluation is not None else tuple(STEP_OPTIMISERS)


METHODS = {
    "exact": Method(Gaussian, Exact),
    "subsample": Method(Gaussian, Exact, "sample"),
    "minibatch": Method(Gaussian, None, "within"),
    "stochastic": Method(Gaussian, None, "anchors"),
    "tree": Method(Gaussian, Tree),
    "compact": Method(Compact, RangeSearch),
    "compact-background": Method(CompactBackground, RangeSearch),
}


def auto_method(n_rows, n_components, n_classes):
    """The method that "auto" picks.

    ==================================================  ===========
    rows                                                method
    ==================================================  ===========
    up to 4,000, or no more than two batches            exact
    up to 10,000 in at most 3 dimensions                tree
    more                                                minibatch
    ==================================================  ===========

    Few dimensions leave few ways round: there the full objective is worth its price, and boxes make it cheap.

    Parameters
    ----------
    n_rows, n_components, n_classes : int
        Sizes of the problem.

    Returns
    -------
    str
    """
    if n_rows <= max(FEW_ROWS, 2 * default_batch_size(n_classes)):
        return "exact"
    if n_components <= TREE_COMPONENTS and n_rows <= TREE_ROWS:
        return "tree"
    return "minibatch"


def resolve_method(method, n_rows, n_components, n_classes):
    """The name of the method to use, "auto" resolved by `auto_method`; other names are refused."""
    if method == "auto":
        return auto_method(n_rows, n_components, n_classes)
    if method not in METHODS:
        raise ValueError(f"method={method!r} is unknown. Choose one of auto, {', '.join(METHODS)}.")
    return method


def default_batch_size(n_classes):
    """Rows in a batch when nothing else is asked for: 2,000, or 20 for each class up to 20,000."""
    return int(np.clip(ROWS_PER_CLASS * n_classes, BATCH_ROWS, MOST_BATCH_ROWS))


def check_choices(method, form, batching, optimizer, n_components):
    """Refuse a combination that cannot work.

    Parameters
    ----------
    method : str
        Name of the method, "auto" resolved.
    form : str
        Form of the objective.
    batching : str
        Name of the batcher.
    optimizer : str
        Name of the optimizer, or "auto".
    n_components : int
        Dimensions of the projected space.
    """
    recipe = METHODS[method]
    if form not in FORMS:
        raise ValueError(f"objective={form!r} is unknown. Choose one of {', '.join(FORMS)}.")
    if batching not in BATCHERS:
        raise ValueError(f"batching={batching!r} is unknown. Choose one of {', '.join(BATCHERS)}.")
    if method == "compact" and form == "likelihood":
        raise ValueError(
            'objective="likelihood" takes the logarithm of every p_i, and method="compact" leaves rows out '
            'of reach with p_i = 0. Use method="compact-background", or objective="accuracy".'
        )
    if optimizer != "auto" and optimizer not in recipe.optimizers:
        if recipe.evaluation is None:
            reason = "which a new batch at each step is not"
            remedy = f'optimizer="{recipe.optimizers[0]}", or method="exact"'
        else:
            reason = "and a step without line search wastes what the whole objective tells"
            remedy = 'optimizer="lbfgs", or method="minibatch"'
        raise ValueError(
            f"optimizer={optimizer!r} does not serve method={method!r}: L-BFGS needs the same function at "
            f"every call, {reason}. Use {remedy}."
        )
    if recipe.evaluation is not None and n_components > recipe.evaluation.max_components:
        raise ValueError(
            f"method={method!r} approximates by boxes in at most {recipe.evaluation.max_components} "
            f"dimensions; n_components={n_components} was asked for. {recipe.evaluation.instead}"
        )


def make_objective(method, form, mixing):
    """The objective of a method.

    Parameters
    ----------
    method : str
        Name of the method.
    form : {"accuracy", "likelihood"}
        Form.
    mixing : {"fixed", "learned"}
        Mixing coefficient of the background, where there is one.

    Returns
    -------
    Objective
    """
    kind = METHODS[method].objective
    if kind is CompactBackground:
        if mixing not in ("fixed", "learned"):
            raise ValueError(f"mixing={mixing!r} is unknown. Choose fixed or learned.")
        return CompactBackground(form, mixing)
    return kind(form)


def make_evaluation(method, labels, dtype, tolerance):
    """The evaluation of a method whose optimizer sees the whole objective."""
    kind = METHODS[method].evaluation
    if kind is None:
        raise ValueError(f"method={method!r} sees batches, never the whole objective.")
    return kind(labels, dtype, tolerance) if kind is Tree else kind(labels, dtype)


def make_batcher(method, batching, batch_size, n_classes) -> Batcher | None:
    """The batcher of a method whose optimizer sees batches; None for one that sees the whole objective."""
    if METHODS[method].evaluation is not None:
        return None
    if METHODS[method].batches == "anchors":
        return StochasticAnchors(batch_size or ANCHORS)
    return BATCHERS[batching](batch_size or default_batch_size(n_classes))


def pair_dtype(X, precision):
    """Float type of the sums over pairs for rows `X`, shape (n, n_features).

    Parameters
    ----------
    X : ndarray, shape (n, n_features)
        Rows.
    precision : {"auto", "single", "double"}
        What was asked for.

    Returns
    -------
    dtype
    """
    if precision == "auto":
        precision = "single" if X.dtype == np.float32 or len(X) > SINGLE_ROWS else "double"
    if precision not in ("single", "double"):
        raise ValueError(f"precision={precision!r} is unknown. Choose one of auto, single, double.")
    return np.dtype(np.float32 if precision == "single" else np.float64)
