"""Figures, stored as data in a record and drawn from it; pictures are not tracked."""

from pathlib import Path

import numpy as np

HERE = Path(__file__).parents[1]
FOLDER = HERE / "figures"  # untracked; drawn by `python -m benchmarks report --figures`


def short(values, digits=4):
    """Round numbers to a few digits, so that records stay small."""
    return [float(f"{value:.{digits}g}") for value in np.asarray(values, dtype=float).ravel()]


def curve(x, y, low=None, high=None, style="-"):
    """Make a curve: `style` is matplotlib's format, and the area between `low` and `high` is shaded."""
    made = {"x": short(x), "y": short(y), "style": style}
    if low is not None:
        made |= {"low": short(low), "high": short(high)}
    return made


def panel(x_label, y_label, curves, *, log="", ticks=(), image=None, extent=()):
    """Make one panel.

    Parameters
    ----------
    x_label, y_label : str
        Labels of the axes.
    curves : dict of dict
        Name -> `curve`; names that begin with "_" are not in the legend.
    log : str
        Which axes are logarithmic: "", "x", "y" or "xy".
    ticks : sequence of str
        Labels of x = 0, 1, 2, ...
    image : ndarray, optional
        Shown behind the curves.
    extent : sequence of float
        Left, right, bottom and top of the image.
    """
    made = {"x_label": x_label, "y_label": y_label, "curves": curves, "log": log, "ticks": list(ticks)}
    if image is not None:
        made |= {"image": [short(row, 3) for row in image], "extent": [float(v) for v in extent]}
    return made


def draw(record, folder=FOLDER):
    """Draw all panels of one record side by side; return the path, or None if there are no panels."""
    panels = record.get("figures", {})
    if not panels:
        return None
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    n_columns = 2 if len(panels) == 4 else min(3, len(panels))
    n_rows = -(-len(panels) // n_columns)
    figure, axes = pyplot.subplots(
        n_rows, n_columns, figsize=(4.2 * n_columns, 3.2 * n_rows), squeeze=False, layout="constrained"
    )
    for axis, (title, content) in zip(axes.flat, panels.items(), strict=False):
        draw_panel(axis, title, content)
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / f"{record['name']}.png"
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path


def draw_panel(axis, title, content):
    """Draw one panel on a matplotlib axis."""
    if "image" in content:
        extent = content["extent"] or None
        axis.imshow(
            content["image"], origin="lower", aspect="auto", extent=extent, cmap="viridis", alpha=0.75
        )
    for name, points in content["curves"].items():
        label = None if name.startswith("_") else name
        color = {"color": "0.4", "linewidth": 0.7} if name.startswith("_") else {}
        line = axis.plot(points["x"], points["y"], points["style"], label=label, markersize=3.5, **color)[0]
        if "low" in points:
            axis.fill_between(points["x"], points["low"], points["high"], color=line.get_color(), alpha=0.2)
    if "x" in content["log"]:
        axis.set_xscale("log")
    if "y" in content["log"]:
        axis.set_yscale("log")
    if content["ticks"]:
        axis.set_xticks(range(len(content["ticks"])), content["ticks"])
    axis.set_title(title, fontsize=9)
    axis.set_xlabel(content["x_label"], fontsize=8)
    axis.set_ylabel(content["y_label"], fontsize=8)
    axis.tick_params(labelsize=7)
    if any(not name.startswith("_") for name in content["curves"]):
        axis.legend(fontsize=6, frameon=False)
