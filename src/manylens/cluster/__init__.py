"""Clusters: fits that leave the rows where they are, and search with the workers that reply."""

from typing import TYPE_CHECKING

from manylens._lazy import attach

if TYPE_CHECKING:
    from manylens.cluster.block_functions import over_blocks
    from manylens.cluster.blockwise import Blockwise
    from manylens.cluster.distributed_neighbors import ClusterNeighbors, DistributedNeighbors
    from manylens.cluster.reduction import summarize_blocks

__all__ = ["Blockwise", "ClusterNeighbors", "DistributedNeighbors", "over_blocks", "summarize_blocks"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "manylens.cluster.blockwise": ["Blockwise"],
        "manylens.cluster.distributed_neighbors": ["ClusterNeighbors", "DistributedNeighbors"],
        "manylens.cluster.block_functions": ["over_blocks"],
        "manylens.cluster.reduction": ["summarize_blocks"],
    },
)
