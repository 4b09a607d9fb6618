"""The two hosts of the explorer: a notebook, by anywidget, and one html file that needs no server."""

from __future__ import annotations

import base64
import html
import json
import os
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from manylens.explorer.data import ExplorerData, explorer_data
from manylens.typing import MatrixLike
from manylens.validation import import_optional

HERE = Path(__file__).parent


def explore(
    lenses: Any,
    X: MatrixLike,
    labels: Any = None,
    images: Any = None,
    text: Sequence[Any] | None = None,
    *,
    diversities: Iterable[float] | None = None,
    n_neighbors: int = 10,
    title: str = "manylens explorer",
    output: str | os.PathLike[str] | None = None,
) -> Any:
    """Look at the neighbors that modules find, while the diversity moves.

    The page shows a map of the rows, the neighbors of the row that is clicked, in each module and in all of
    them together, what happens when modules are switched off, the coverage of the spectrum, the certificate,
    and retrieval precision and vote against the diversity. Distances over all modules are exact at any
    diversity; single modules are those of the nearest of `diversities`, and the page says which.

    Parameters
    ----------
    lenses : fitted transformer with `transform` and `split`
        The diversity can be moved for `ModularKernelPCA` and `ModularAutoencoder`.
    X : array-like or CSR matrix of shape (n, d)
        Rows to show, up to a few ten thousand. The index of a data frame names them.
    labels : array-like of shape (n,), default=None
        Labels, which color the map and vote; many different float values are shown on a scale and do not.
    images : array-like of shape (n, height, width) or (n, height, width, channels), default=None
        One image per row: uint8, or other numbers, which are scaled to the range of all images.
    text : sequence of str, default=None
        One text per row.
    diversities : iterable of float, default=None
        Where to learn single modules and measure the curves; nine values in [0, 1] if None.
    n_neighbors : int, default=10
        Number of neighbors to show.
    title : str, default="manylens explorer"
        Title of the page.
    output : str or path, default=None
        If given, write the page to this file, which works offline, instead of showing it in a notebook.

    Returns
    -------
    widget or pathlib.Path
        The widget, with the traits `selected`, `diversity` and `switched_off`, or the file that was written.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manylens import ModularKernelPCA, explore
    >>> digits = load_digits()
    >>> lenses = ModularKernelPCA(n_modules=5, n_components=8, random_state=0).fit(digits.data)
    >>> path = explore(
    ...     lenses, digits.data, digits.target, digits.images, output="digits.html"
    ... )  # doctest: +SKIP
    """
    if output is None:
        widget_class()  # before the work, so that a missing package is reported at once
    data = explorer_data(
        lenses, X, labels, images, text, diversities=diversities, n_neighbors=n_neighbors, title=title
    )
    return widget(data) if output is None else write_page(data, Path(output))


def write_page(data: ExplorerData, path: Path) -> Path:
    """Write the page as one file; it appears only when it is complete."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(page(data), encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def page(data: ExplorerData) -> str:
    """The page as html; what users gave is in it as JSON without "<" and in the escaped title only."""
    buffers = {
        name: base64.b64encode(getattr(data, name)).decode("ascii")
        for name in ("coordinates", "modules", "images")
    }
    parts = {
        "TITLE": html.escape(data.meta["title"]),
        "CSS": source("explorer.css"),
        "DATA": as_script({"meta": data.meta, **buffers}),
        "MODULE": as_script(source("explorer.js")),
    }
    before, *rest = source("page.html").split("{{")
    filled = [parts[name] + text for name, text in (piece.split("}}", 1) for piece in rest)]
    return before + "".join(filled)


def as_script(value: Any) -> str:
    """JSON that is safe within a script element."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def source(name: str) -> str:
    """Text of a file of this folder."""
    return (HERE / name).read_text(encoding="utf-8")


def widget(data: ExplorerData) -> Any:
    """The explorer as a widget of the notebook."""
    start = float(data.meta.get("diversity", 1.0))
    return widget_class()(
        meta=data.meta,
        coordinates=data.coordinates,
        modules=data.modules,
        images=data.images,
        diversity=start,
    )


@cache
def widget_class() -> Any:
    """The class of the widget, made when it is first needed because anywidget is optional."""
    anywidget = import_optional("anywidget", "The explorer in notebooks", "'manylens[explore]'")
    import traitlets

    class Explorer(anywidget.AnyWidget):  # type: ignore[name-defined]
        """Explorer in a notebook; `selected`, `diversity` and `switched_off` follow the page and set it."""

        _esm = source("explorer.js")
        _css = source("explorer.css")
        meta = traitlets.Dict().tag(sync=True)
        coordinates = traitlets.Bytes().tag(sync=True)
        modules = traitlets.Bytes().tag(sync=True)
        images = traitlets.Bytes().tag(sync=True)
        selected = traitlets.Int(0).tag(sync=True)
        diversity = traitlets.Float(1.0, min=0.0, max=1.0).tag(sync=True)
        switched_off = traitlets.List(traitlets.Int()).tag(sync=True)

    return Explorer
