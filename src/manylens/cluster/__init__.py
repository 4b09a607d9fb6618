"""Fits whose rows live on many machines: summarize each block where it is, merge, learn once."""

from typing import TYPE_CHECKING

from manylens._lazy import attach

if TYPE_CHECKING:
    from manylens.cluster.blockwise import Blockwise
    from manylens.cluster.functions import over_blocks
    from manylens.cluster.reduction import summarize_blocks

__all__ = ["Blockwise", "over_blocks", "summarize_blocks"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "manylens.cluster.blockwise": ["Blockwise"],
        "manylens.cluster.functions": ["over_blocks"],
        "manylens.cluster.reduction": ["summarize_blocks"],
    },
)
