"""Array types, and protocols for sets of modules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

FloatArray: TypeAlias = NDArray[np.floating[Any]]
IntArray: TypeAlias = NDArray[np.integer[Any]]
BoolArray: TypeAlias = NDArray[np.bool_]
AnyArray: TypeAlias = NDArray[Any]

SparseRows: TypeAlias = sparse.csr_matrix | sparse.csr_array
Rows: TypeAlias = FloatArray | SparseRows  # validated rows, dense or CSR
MatrixLike: TypeAlias = ArrayLike | sparse.spmatrix | sparse.sparray  # accepted as X by public functions

Seed: TypeAlias = int | np.random.RandomState | None  # scikit-learn's `random_state`


@runtime_checkable
class ModuleSet(Protocol):
    """A transformer whose columns split into modules."""

    def transform(self, X: Any) -> FloatArray:
        """Map rows (n, d) to all modules side by side (n, M H)."""
        ...

    def split(self, Z: Any) -> Any:
        """The columns of `transform` by module: an array (n, M, H), or a list of arrays (n, width)."""
        ...


@runtime_checkable
class DiverseModules(ModuleSet, Protocol):
    """Modules whose diversity can be changed after fitting, from one decomposition of the rows."""

    def with_diversity(self, diversity: float) -> Self:
        """A fitted copy at another diversity."""
        ...

    def diversity_path(self, diversities: Iterable[float]) -> list[Self]:
        """One fitted copy per diversity."""
        ...

    def principal_coordinates(self, X: Any) -> FloatArray:
        """Coordinates (n, k) of rows, the same at every diversity."""
        ...

    def transform_coordinates(self, C: FloatArray) -> FloatArray:
        """Map coordinates (n, k) to all modules side by side (n, M H)."""
        ...
