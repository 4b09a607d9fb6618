"""Which adapter reads which ensemble. A new kind is registered by its place in `KINDS`."""

from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from manylens.pruning.adapters import AdaBoostMembers, BaggingMembers, ForestMembers
from manylens.pruning.boosting import (
    GradientBoostingStages,
    HistGradientBoostingStages,
    LightGBMStages,
    XGBoostStages,
)
from manylens.pruning.mixed import ListMembers, StackingMembers, VotingMembers

KINDS = (
    *(BaggingMembers, ForestMembers, AdaBoostMembers, VotingMembers, StackingMembers),
    *(GradientBoostingStages, HistGradientBoostingStages, LightGBMStages, XGBoostStages),
)


def read_members(ensemble):
    """The adapter of an ensemble.

    Parameters
    ----------
    ensemble : estimator or list
        Fitted.

    Returns
    -------
    Members
        Its members.
    """
    if isinstance(ensemble, list | tuple):
        return ListMembers(ensemble)
    if not isinstance(ensemble, BaseEstimator):
        raise TypeError(f"{type(ensemble).__name__} is neither an ensemble nor a list of fitted predictors.")
    if type(ensemble).__name__ == "FrozenEstimator":
        return read_members(ensemble.estimator)
    names = [base.__name__ for base in type(ensemble).__mro__]
    for kind in KINDS:
        if any(name in kind.reads for name in names):
            try:
                return kind(ensemble)
            except NotFittedError:
                raise NotFittedError(
                    f"This {type(ensemble).__name__} is not fitted yet: call its fit first, or let the "
                    "pruner do it with fit_ensemble=True."
                ) from None
    known = sorted(name for kind in KINDS for name in kind.reads)
    raise TypeError(
        f"{type(ensemble).__name__} is not an ensemble that can be pruned: give a list of fitted predictors, "
        f"or one of {', '.join(known)}."
    )
