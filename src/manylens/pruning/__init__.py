"""Ensemble pruning: keep few members of an ensemble, or few nodes of its trees."""

from typing import TYPE_CHECKING

from manylens._lazy import attach

if TYPE_CHECKING:
    from manylens.pruning.alignment_pruner import AlignmentPruner, prune_predictions
    from manylens.pruning.pruned_ensemble import PrunedEnsemble
    from manylens.pruning.pruned_trees import PrunedTrees
    from manylens.pruning.selection import Alignment, PruningResult
    from manylens.pruning.tree_ensembles import TreeEnsemble
    from manylens.pruning.tree_pruner import TreePruner

__all__ = [
    "Alignment",
    "AlignmentPruner",
    "PrunedEnsemble",
    "PrunedTrees",
    "PruningResult",
    "TreeEnsemble",
    "TreePruner",
    "prune_predictions",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "manylens.pruning.alignment_pruner": ["AlignmentPruner", "prune_predictions"],
        "manylens.pruning.pruned_ensemble": ["PrunedEnsemble"],
        "manylens.pruning.pruned_trees": ["PrunedTrees"],
        "manylens.pruning.selection": ["Alignment", "PruningResult"],
        "manylens.pruning.tree_ensembles": ["TreeEnsemble"],
        "manylens.pruning.tree_pruner": ["TreePruner"],
    },
)
