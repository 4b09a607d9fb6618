"""The interface of all measures of similarity: values, and values of permuted rows."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
from numpy.random import RandomState

from manylens.alignment.feature_sets import Names
from manylens.typing import FloatArray, IntArray, Rows
from manylens.validation import require_memory

Item = TypeVar("Item")
Null: TypeAlias = FloatArray  # scores of permuted rows, (number of permutations, p, q); first the identity


class Measure:
    """Base class of all measures of similarity, for type checks; give an instance to `compare`."""

    accepts_sparse: ClassVar[bool] = False
    least_rows: ClassVar[int] = 2

    def _check(self, n_rows: int) -> None:
        """Raise if parameters are invalid, or if there are too few rows."""
        if n_rows < self.least_rows:
            raise ValueError(f"{self!r} needs at least {self.least_rows} rows; {n_rows} were given.")

    def _scores(self, arrays: Sequence[Rows], names: Names, split: int | None) -> FloatArray:
        """Similarity (p, q) of each of the first p = `split` representations to each of the others.

        Without `split`, of each representation to each, (p, p).
        """
        raise TypeError(f"{type(self).__name__} is only a base class: give a measure such as CKA().")

    def _runs_on_device(self) -> bool:
        """Whether `_device_scores` is defined for these parameters."""
        return False

    def _device_scores(
        self, xp: ModuleType, arrays: Sequence[Any], names: Names, split: int | None
    ) -> FloatArray:
        """`_scores` of arrays of another library, computed on their device."""
        raise TypeError(f"{self!r} needs NumPy arrays.")

    def _null(
        self, arrays: Sequence[Rows], names: Names, split: int | None, n_permutations: int, rng: RandomState
    ) -> Null:
        """Scores with the rows of the others permuted; the first permutation is the identity."""
        raise TypeError(f"{type(self).__name__} is only a base class: give a measure such as CKA().")


def random_orders(n: int, n_permutations: int, rng: RandomState) -> IntArray:
    """The identity and random permutations of n rows, (1 + n_permutations, n)."""
    require_memory(16.0 * n * n_permutations, f"A list of {n_permutations} permutations of {n} rows")
    return np.stack([np.arange(n)] + [rng.permutation(n) for _ in range(n_permutations)]).astype(np.int64)


def sides(each: Sequence[Item], split: int | None) -> tuple[Sequence[Item], Sequence[Item]]:
    """The two sides of a comparison: the first `split` items and the others, or all items and all items."""
    return (each, each) if split is None else (each[:split], each[split:])
