"""Keep few members of an ensemble, with weights."""

from typing import TYPE_CHECKING

from manylens._lazy import attach

if TYPE_CHECKING:
    from manylens.pruning.pruned_ensemble import PrunedEnsemble
    from manylens.pruning.pruner import AlignmentPruner
    from manylens.pruning.selection import Alignment, PruningResult, prune_predictions

__all__ = ["Alignment", "AlignmentPruner", "PrunedEnsemble", "PruningResult", "prune_predictions"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "manylens.pruning.pruned_ensemble": ["PrunedEnsemble"],
        "manylens.pruning.pruner": ["AlignmentPruner"],
        "manylens.pruning.selection": ["Alignment", "PruningResult", "prune_predictions"],
    },
)
