"""Using modules: search, voting, and choosing their diversity."""

from typing import TYPE_CHECKING

from manylens._lazy import attach

if TYPE_CHECKING:
    from manylens.ensembles.diversity_search import DiversitySearchCV
    from manylens.ensembles.module_neighbors import ModuleNeighbors
    from manylens.ensembles.precision import RetrievalPrecision, retrieval_precision
    from manylens.ensembles.scan_classifier import ScanNeighborsClassifier
    from manylens.ensembles.voting import ModuleVotingClassifier, ModuleVotingRegressor

__all__ = [
    "DiversitySearchCV",
    "ModuleNeighbors",
    "ModuleVotingClassifier",
    "ModuleVotingRegressor",
    "RetrievalPrecision",
    "ScanNeighborsClassifier",
    "retrieval_precision",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "manylens.ensembles.diversity_search": ["DiversitySearchCV"],
        "manylens.ensembles.module_neighbors": ["ModuleNeighbors"],
        "manylens.ensembles.precision": ["RetrievalPrecision", "retrieval_precision"],
        "manylens.ensembles.scan_classifier": ["ScanNeighborsClassifier"],
        "manylens.ensembles.voting": ["ModuleVotingClassifier", "ModuleVotingRegressor"],
    },
)
