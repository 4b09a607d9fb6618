"""Metric learning: `NCA`, and the methods that compute and optimize its objective."""

from __future__ import annotations

from typing import TYPE_CHECKING

from manylens._lazy import attach

if TYPE_CHECKING:
    from manylens.metric.methods import (
        Compact,
        CompactBackground,
        Exact,
        MiniBatch,
        Stochastic,
        Subsample,
        Tree,
    )
    from manylens.metric.nca import NCA

__all__ = ["NCA", "Compact", "CompactBackground", "Exact", "MiniBatch", "Stochastic", "Subsample", "Tree"]

__getattr__, __dir__ = attach(
    __name__,
    {"manylens.metric.nca": ["NCA"], "manylens.metric.methods": [name for name in __all__ if name != "NCA"]},
)
