"""Ensemble pruning: keep a few members of an ensemble, with new weights."""

from typing import TYPE_CHECKING

from manylens._lazy import attach

if TYPE_CHECKING:
    from manylens.pruning.pruned_ensemble import PrunedEnsemble
    from manylens.pruning.pruner import AlignmentPruner, prune_predictions
    from manylens.pruning.selection import Alignment, PruningResult

__all__ = ["Alignment", "AlignmentPruner", "PrunedEnsemble", "PruningResult", "prune_predictions"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "manylens.pruning.pruned_ensemble": ["PrunedEnsemble"],
        "manylens.pruning.pruner": ["AlignmentPruner", "prune_predictions"],
        "manylens.pruning.selection": ["Alignment", "PruningResult"],
    },
)
