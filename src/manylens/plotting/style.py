"""Colors and axes that all displays share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from sklearn.utils.validation import check_is_fitted

from manylens.optional import import_optional
from manylens.typing import AnyArray, FloatArray
from manylens.validation import check_count, check_iterable, distinct_labels, label_column, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Named: TypeAlias = "Mapping[Any, Any] | list[Any] | tuple[Any, ...]"  # items of a list are named by position

# Ten colors that remain distinct for color-blind readers (Petroff, 2021).
PALETTE = (
    *("#3f90da", "#e76300", "#832db6", "#ffa90e", "#bd1f01"),
    *("#92dadd", "#a96b59", "#b9ac70", "#94a4a2", "#717581"),
)
REFERENCE_COLOR, WRONG_COLOR = "#717581", "#bd1f01"
REFERENCE_STYLES: tuple[Any, ...] = ("--", ":", "-.", (0, (12, 4)))
MARKERS = "osD^vPX<>*"
COLORMAP = "magma_r"  # light to dark, so that dark cells read as high values
LARGEST = 1e300  # matplotlib adds margins and multiplies
SLANTED: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}


class Display:
    """Base class of all displays; `plot` sets `ax_` and `figure_`, the axes and figure that were drawn on."""

    ax_: Axes
    figure_: Figure

    def plot(self, ax: Axes | None = None, **style: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on; a new figure if None.
        **style
            Passed to the matplotlib function that draws the main part, such as `Axes.imshow`.

        Returns
        -------
        Display
            The display itself, with the attributes `ax_` and `figure_`.
        """
        raise NotImplementedError

    def _open(self, ax: Axes | None, width: float, height: float, *, framed: bool = False) -> Axes:
        """The given axes, or those of a new figure; top and right spines are hidden unless `framed`."""
        if ax is not None and not hasattr(ax, "transData"):
            raise TypeError(f"ax={ax!r} must be matplotlib Axes, or None for a new figure.")
        if ax is None:
            pyplot = import_optional("matplotlib.pyplot", type(self).__name__, '"manylens[plot]"')
            ax = pyplot.subplots(figsize=(width, height), layout="constrained")[1]
        self.ax_, self.figure_ = ax, ax.figure  # type: ignore[assignment]  # a SubFigure works as well
        if not framed:
            ax.spines[["top", "right"]].set_visible(False)
        return ax


def numbers(value: Any, name: str, *shape: int | None) -> FloatArray:
    """`value` as a float64 array of this shape (None: any length above 0); NaN is drawn as a gap."""
    try:
        if np.iscomplexobj(value):
            raise TypeError
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: tensors that require grad
        raise TypeError(f"{name} must hold numbers only, in an array of {len(shape)} dimensions.") from None
    if array.size and np.abs(np.where(np.isfinite(array), array, 0)).max() > LARGEST:
        raise ValueError(
            f"{name} has numbers beyond {LARGEST:g}, which cannot be drawn: divide them by a constant."
        )
    wanted = ", ".join("any" if length is None else str(length) for length in shape)
    pairs = zip(array.shape, shape, strict=False)
    if array.ndim != len(shape) or any(n == 0 or (m is not None and n != m) for n, m in pairs):
        raise ValueError(f"{name} has shape {array.shape}: it needs shape ({wanted}), without empty sides.")
    return array


def check_mapping(value: Any, name: str) -> Mapping[Any, Any]:
    """A mapping; raise otherwise."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dict of names to values, not {type(value).__name__}.")
    return value


def check_names(value: Any, name: str, n_names: int | None = None) -> list[str]:
    """A sequence of names as strings; raise if their number differs from `n_names`."""
    is_scalar = getattr(value, "ndim", 1) == 0 and not isinstance(value, np.ndarray)
    if isinstance(value, bytes | Mapping | type) or not hasattr(value, "__iter__") or is_scalar:
        raise TypeError(f"{name} must be a list of names, not {type(value).__name__}.")
    names = (
        [str(item) for item in np.atleast_1d(value)]
        if isinstance(value, np.ndarray)
        else list(map(str, value))
    )
    if not names or (n_names is not None and len(names) != n_names):
        raise ValueError(f"{name} has {len(names)} names: it needs {n_names or 'at least one'}.")
    return names


def color(number: int) -> str:
    """Color of the class or curve with this number."""
    return PALETTE[number % len(PALETTE)]


def marker(number: int) -> str:
    """Marker of the class or curve with this number."""
    return MARKERS[number % len(MARKERS)]


def add_legend(ax: Axes, **options: Any) -> None:
    """Draw the legend; a long one is placed beside the axes if the figure's layout makes room for it."""
    n_labels = len(ax.get_legend_handles_labels()[0])
    if n_labels > 4 and not options and ax.figure.get_layout_engine() is not None:
        options = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
    if n_labels:
        ax.legend(**{"frameon": False, "fontsize": "small", **options})


def name_ticks(ax: Axes, names: list[str], places: Any = None) -> None:
    """Write names below the x axis, slanted if they would touch each other."""
    room = 0.8 * ax.get_window_extent().width / ax.figure.dpi / len(names)  # inches
    long = 0.1 * max(map(len, names)) > room
    ax.set_xticks(range(len(names)) if places is None else places, names, **(SLANTED if long else {}))


def by_name(items: Named, name: str) -> dict[Any, Any]:
    """A mapping as a dict; the items of a sequence are named by position. Raise if there is none."""
    listed = check_iterable(items, name, "a dict or list")
    named = dict(listed) if isinstance(listed, Mapping) else dict(enumerate(listed))
    if not named:
        raise ValueError(f"{name} is empty: give at least one.")
    return named


def require_attributes(model: Any, expected: str, *attributes: str) -> None:
    """Raise unless the model has these attributes; `expected` says what to give."""
    for attribute in attributes:
        if not hasattr(model, attribute):
            raise TypeError(f"{shown(model)} without {attribute} cannot be drawn: give {expected}.")


def check_classes(y: Any, n_rows: int) -> tuple[AnyArray, AnyArray]:
    """Labels (n,) of the rows and their sorted classes."""
    labels = label_column(y)
    if len(labels) != n_rows:
        raise ValueError(f"y has {len(labels)} labels for {n_rows} rows.")
    return labels, distinct_labels(labels)[0]


def module_view(modules: Any, X: Any, module: int) -> FloatArray:
    """One module (n, H) of the transformed rows; `split` may return an array or a list."""
    check_is_fitted(modules)
    require_attributes(modules, "fitted modules, such as ModularKernelPCA", "split", "transform")
    parts = modules.split(modules.transform(X))
    n_modules = parts.shape[1] if isinstance(parts, np.ndarray) else len(parts)
    if check_count(module, "module", 0) >= n_modules:
        raise ValueError(f"module={module} is not one of the {n_modules} modules, which are counted from 0.")
    return parts[:, module] if isinstance(parts, np.ndarray) else np.asarray(parts[module])
