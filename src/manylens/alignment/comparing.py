"""Comparing representations by any measure, with standard errors and permutation tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from manylens.alignment.feature_sets import (
    FeatureSets,
    Names,
    check_feature_sets,
    disambiguate_names,
    labeled,
    list_sets,
    refuse_other_rows,
)
from manylens.alignment.measure_base import Measure, Null
from manylens.alignment.measure_names import make_measure
from manylens.arrays import namespace_of, some_rows
from manylens.optional import import_optional
from manylens.typing import FloatArray, MatrixLike, Seed
from manylens.validation import check_choice, check_count, check_real, check_seed, finite_array, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROUNDING = 1e-6  # permuted scores this much below the observed one count as equal to it


class Similarity(NamedTuple):
    """Similarity of two representations.

    Parameters
    ----------
    value : float
        The similarity; larger is more similar.
    standard_error : float or None
        Jackknife standard error over groups of rows: how much the value would vary with other rows.
    calibrated : float or None
        max(0, (value - threshold) / (1 - threshold)): 0 unless the value is significant, 1 at most.
    p_value : float or None
        Share of permutations of the rows of Y, including the identity, with a similarity at least as large.
    threshold : float or None
        The (1 - level) quantile of the similarities of permuted rows.
    n_permutations : int
        Number of permutations.
    """

    value: float
    standard_error: float | None = None
    calibrated: float | None = None
    p_value: float | None = None
    threshold: float | None = None
    n_permutations: int = 0


def compare(
    X: MatrixLike,
    Y: MatrixLike,
    measure: str | Measure = "cka",
    *,
    n_permutations: int = 0,
    n_groups: int = 10,
    level: float = 0.05,
    random_state: Seed = 0,
) -> Similarity:
    """Similarity of two representations of the same rows, with its standard error and significance.

    Parameters
    ----------
    X, Y : array-like, shapes (n, d_x) and (n, d_y)
        Features; row i of both describes the same sample. CKA also accepts sparse matrices. Arrays of torch,
        CuPy or JAX stay on their device for linear CKA, CCA and Procrustes without permutations, if
        array-api-compat is installed.
    measure : str or Measure, default="cka"
        "cka" (linear and unbiased), "biased-cka", "feature-cka", "rbf-cka", "biased-rbf-cka", "mutual-knn",
        "jaccard", "procrustes", "mean-cca", "svcca", "pwcca", "rsa", "distance-correlation"; or a measure
        with other settings: `CKA`, `NeighborOverlap`, `Procrustes`, `CCA`, `RSA`, `DistanceCorrelation`.
    n_permutations : int, default=0
        Minimum number of permutations of the rows of Y for the test of independence; 0 for no test. The test
        is exact for any number. Except for "jaccard", "procrustes" and CCA, n permutations cost as much as a
        few comparisons, and a multiple of n is used; matrices (n, n) are held in memory.
    n_groups : int, default=10
        Number of random groups of rows for the jackknife; 0 for no standard error.
    level : float, default=0.05
        Level of significance of the calibrated value (Gröger, Wen and Brbić 2026).
    random_state : int, RandomState or None, default=0
        Seed of the groups and permutations.

    Returns
    -------
    Similarity
        `value`, `standard_error`, `calibrated`, `p_value`, `threshold`, `n_permutations`.

    Examples
    --------
    >>> import numpy as np
    >>> from manylens.alignment import compare
    >>> rng = np.random.default_rng(0)
    >>> X, noise = rng.standard_normal((100, 300)), rng.standard_normal((100, 300))
    >>> found = compare(X, noise, "biased-cka", n_permutations=500)
    >>> round(found.value, 1), found.calibrated, found.p_value > 0.05
    (0.8, 0.0, True)
    """
    found = compare_matrix(
        {"X": X},
        {"Y": Y},
        measure,
        n_permutations=n_permutations,
        n_groups=n_groups,
        level=level,
        random_state=random_state,
    )

    def only(part: FloatArray | None) -> float | None:
        return None if part is None else float(part[0, 0])

    return Similarity(
        float(found.values[0, 0]),
        only(found.standard_errors),
        only(found.calibrated),
        only(found.p_values),
        only(found.thresholds),
        found.n_permutations,
    )


@dataclass(frozen=True, eq=False)
class SimilarityMatrix:
    """Similarities of each of p representations to each of q others.

    Parameters
    ----------
    values : ndarray, shape (p, q)
        Similarities.
    names, other_names : sequence
        Names of the rows and columns: keys or positions of the representations.
    measure : str
        Name of the measure.
    standard_errors, calibrated, p_values, thresholds : ndarray of shape (p, q), or None, default=None
        As in `Similarity`.
    n_permutations : int, default=0
        Number of permutations.
    """

    values: FloatArray
    names: Names
    other_names: Names
    measure: str
    standard_errors: FloatArray | None = None
    calibrated: FloatArray | None = None
    p_values: FloatArray | None = None
    thresholds: FloatArray | None = None
    n_permutations: int = 0

    def __post_init__(self) -> None:
        shape = finite_array(self.values, "values", 2).shape
        for name, expected in (("names", shape[0]), ("other_names", shape[1])):
            given = getattr(self, name)
            if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != expected:
                raise ValueError(f"{name}={shown(given)} must be a sequence of {expected} names.")
        for name in ("standard_errors", "calibrated", "p_values", "thresholds"):
            part = getattr(self, name)
            if part is not None and finite_array(part, name, 2).shape != shape:
                raise ValueError(f"{name} has shape {np.shape(part)}, but values has shape {shape}.")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> FloatArray:
        if copy is None:  # NumPy 1 does not accept copy=None
            return np.asarray(self.values, dtype=dtype)
        return np.array(self.values, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        rows = [["", *map(str, self.other_names)]]
        rows += [
            [str(name), *(f"{v:.3f}" for v in line)]
            for name, line in zip(self.names, self.values, strict=True)
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
        ]
        return "\n".join([f"SimilarityMatrix: {self.measure}", *lines])

    def to_frame(
        self, what: Literal["values", "calibrated", "p_values", "standard_errors", "thresholds"] = "values"
    ) -> Any:
        """A pandas.DataFrame of one of the matrices.

        Parameters
        ----------
        what : {"values", "calibrated", "p_values", "standard_errors", "thresholds"}, default="values"
            Which one.

        Returns
        -------
        pandas.DataFrame
            Rows and columns by name.
        """
        return labeled(self._part(what), self.names, True, self.other_names)

    def _part(self, what: str) -> FloatArray:
        check_choice(what, "what", ("values", "calibrated", "p_values", "standard_errors", "thresholds"))
        part = getattr(self, what)
        if part is None:
            needed = "call compare_matrix(..., n_permutations=1000)"
            if what == "standard_errors":
                needed = "call compare_matrix(..., n_groups=10), or give compare_models more than 1,024 rows"
            raise ValueError(f"This comparison has no {what}: {needed}.")
        return part

    def plot(self, what: Literal["values", "calibrated"] = "values", ax: Axes | None = None) -> Axes:
        """Draw a heat map (needs matplotlib).

        Parameters
        ----------
        what : {"values", "calibrated"}, default="values"
            Which matrix.
        ax : matplotlib Axes, default=None
            Axes to draw on; a new figure if None.

        Returns
        -------
        matplotlib Axes
            The axes.
        """
        check_choice(what, "what", ("values", "calibrated"))
        part = self._part(what)
        if ax is None:
            pyplot = import_optional("matplotlib.pyplot", "plot", '"manylens[plot]"')
            ax = pyplot.subplots(layout="constrained")[1]
        image = ax.imshow(part, vmin=min(0.0, float(part.min())), vmax=1, cmap="magma_r", aspect="auto")
        ax.set_yticks(range(len(self.names)), [str(name) for name in self.names])
        ax.set_xticks(
            range(len(self.other_names)), [str(name) for name in self.other_names], rotation=45, ha="right"
        )
        ax.figure.colorbar(
            image, ax=ax, label=f"{self.measure}{', calibrated' if what == 'calibrated' else ''}"
        )
        return ax


def compare_matrix(
    layers: FeatureSets,
    others: FeatureSets | None = None,
    measure: str | Measure = "cka",
    *,
    n_permutations: int = 0,
    n_groups: int = 0,
    level: float = 0.05,
    random_state: Seed = 0,
) -> SimilarityMatrix:
    """Similarity of each of several representations to each of several others, all of the same rows.

    Each representation is prepared once, and all pairs share the same permutations.

    Parameters
    ----------
    layers : dict or sequence of array-like, each of shape (n, d_k)
        Representations of the same rows, such as the layers of a network. Arrays of other libraries as for
        `compare`; the matrices returned are NumPy's.
    others : dict or sequence of array-like, each of shape (n, d_l), default=None
        Those to compare them with, such as the layers of another network; the layers themselves if None.
    measure, n_permutations
        As for `compare`.
    n_groups : int, default=0
        Number of random groups of rows for the jackknife; 0 for no standard errors. With errors, everything
        is computed `n_groups` more times.
    level, random_state
        As for `compare`.

    Returns
    -------
    SimilarityMatrix
        `values` (p, q), `standard_errors`, `calibrated`, `p_values`, `thresholds`; `to_frame` and `plot`.

    Examples
    --------
    >>> import numpy as np
    >>> from manylens.alignment import compare_matrix
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 6))
    >>> layers = {"input": X, "ramp": np.maximum(X, 0), "noise": rng.standard_normal((200, 4))}
    >>> compare_matrix(layers, {"input": X}, "mutual-knn").values.shape
    (3, 1)
    """
    chosen = make_measure(measure)
    n_permutations = check_count(n_permutations, "n_permutations", minimum=0)
    if isinstance(others, str | Measure) or callable(others):
        raise TypeError(
            f"others={shown(others)} is not a set of features: give the measure by name, measure=..."
        )
    xp = namespace_of(*(X for each in (layers, others) if each is not None for X in list_sets(each)[1]))
    on_device = xp is not None and chosen._runs_on_device() and n_permutations == 0
    if xp is not None and not on_device:
        refuse_off_host(layers, measure)
    read = list_sets if on_device else partial(check_feature_sets, accept_sparse=chosen.accepts_sparse)
    names, arrays = read(layers)
    other_names, both, both_names, split = names, arrays, names, None
    if others is not None:
        other_names, other_arrays = read(others)
        both, both_names, split = [*arrays, *other_arrays], [*names, *other_names], len(arrays)
        refuse_other_rows([*names, *disambiguate_names(names, other_names)], both)
    n_groups = check_count(n_groups, "n_groups", minimum=0)
    check_real(level, "level", 0, 1, include="neither")
    n = arrays[0].shape[0]
    chosen._check(n)
    scores = chosen._scores if xp is None or not on_device else partial(chosen._device_scores, xp)
    values = scores(both, both_names, split)
    rng = check_seed(random_state)
    found: dict[str, Any] = {}
    if n_groups:
        found["standard_errors"] = jackknife_errors(chosen, scores, both, both_names, split, n_groups, rng)
    if n_permutations:
        null = chosen._null(both, both_names, split, n_permutations, rng)
        found |= calibrated(values, null, level)
        found["n_permutations"] = len(null) - 1
    shown_name = measure if isinstance(measure, str) else repr(measure)
    return SimilarityMatrix(values, names, other_names, shown_name, **found)


def refuse_off_host(layers: FeatureSets, measure: Any) -> None:
    """Raise for arrays of other libraries that are on a device other than the CPU."""
    device = str(getattr(list_sets(layers)[1][0], "device", "cpu"))
    if "cpu" not in device.lower():
        raise ValueError(
            f"measure={shown(measure)} or its permutations run on the host, but the features are on the "
            f"device {device}: move them to the host, or use 'cka', 'procrustes' or CCA without permutations."
        )


def calibrated(values: FloatArray, null: Null, level: float) -> dict[str, FloatArray]:
    """Calibrated values, p-values and thresholds (p, q) from scores of permuted rows, the identity first.

    The threshold is the smallest score that at most a share `level` of all exceed.
    """
    p_values = np.mean(null >= null[0] - ROUNDING * np.abs(null).max(axis=0), axis=0)
    position = int(np.ceil((1 - level) * len(null))) - 1
    thresholds = np.partition(null, position, axis=0)[position]
    room = np.maximum(1.0 - thresholds, np.finfo(np.float64).tiny)
    scaled = np.clip((values - thresholds) / room, 0.0, 1.0)
    return {
        "calibrated": np.where(p_values <= level, scaled, 0.0),
        "p_values": p_values,
        "thresholds": thresholds,
    }


def jackknife_errors(
    measure: Measure,
    scores: Callable[..., FloatArray],
    arrays: Sequence[Any],
    names: Names,
    split: int | None,
    n_groups: int,
    rng: np.random.RandomState,
) -> FloatArray:
    """Standard errors (p, q) from the scores without each of `n_groups` random groups of rows."""
    n = arrays[0].shape[0]
    n_groups = min(n_groups, n)
    groups = rng.permutation(n) % n_groups
    left_out = []
    for g in range(n_groups):
        kept = np.flatnonzero(groups != g)
        try:
            measure._check(len(kept))
            left_out.append(scores([some_rows(X, kept) for X in arrays], names, split))
        except ValueError as error:
            raise ValueError(
                f"Without some of the {n} rows the similarity is undefined ({error}) Use n_groups=0 for no "
                "standard error."
            ) from None
    return np.sqrt((n_groups - 1) * np.var(left_out, axis=0))
