"""Displays in the style of scikit-learn; matplotlib is imported when a figure is drawn."""

from typing import TYPE_CHECKING

from manylens._lazy import attach

if TYPE_CHECKING:
    from manylens.plotting.bars import BarDisplay
    from manylens.plotting.curves import CoverageDisplay, CurveDisplay
    from manylens.plotting.gallery import GalleryDisplay
    from manylens.plotting.images import BoundaryDisplay, HeatMapDisplay
    from manylens.plotting.points import NeighborProbabilitiesDisplay, ProjectionDisplay, ScatterDisplay
    from manylens.plotting.reliability import ReliabilityDisplay

__all__ = [
    "BarDisplay",
    "BoundaryDisplay",
    "CoverageDisplay",
    "CurveDisplay",
    "GalleryDisplay",
    "HeatMapDisplay",
    "NeighborProbabilitiesDisplay",
    "ProjectionDisplay",
    "ReliabilityDisplay",
    "ScatterDisplay",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "manylens.plotting.bars": ["BarDisplay"],
        "manylens.plotting.curves": ["CoverageDisplay", "CurveDisplay"],
        "manylens.plotting.gallery": ["GalleryDisplay"],
        "manylens.plotting.images": ["BoundaryDisplay", "HeatMapDisplay"],
        "manylens.plotting.points": ["NeighborProbabilitiesDisplay", "ProjectionDisplay", "ScatterDisplay"],
        "manylens.plotting.reliability": ["ReliabilityDisplay"],
    },
)
