"""Display classes in scikit-learn's pattern; matplotlib is imported when a figure is drawn."""

from manylens.plotting.gallery import RetrievalGalleryDisplay
from manylens.plotting.modules import CoverageDisplay, DiversityPathDisplay

__all__ = ["CoverageDisplay", "DiversityPathDisplay", "RetrievalGalleryDisplay"]
