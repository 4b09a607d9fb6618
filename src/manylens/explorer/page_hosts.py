"""The two hosts of the explorer: a notebook, through anywidget, and one HTML file that needs no server."""

from __future__ import annotations

import base64
import gzip
import html
import json
import os
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from manylens.explorer.comparison import comparison_data
from manylens.explorer.page_data import BUFFERS, ExplorerData, explorer_data
from manylens.optional import import_optional
from manylens.typing import MatrixLike

HERE = Path(__file__).parent
SCRIPTS = (
    "nearest",
    "solver",
    "drawing",
    "rows",
    "map",
    "image_query",
    "remote",
    "modules",
    "comparison",
    "explorer",
)


def explore(
    lenses: Any,
    X: MatrixLike | None = None,
    labels: Any = None,
    images: Any = None,
    text: Sequence[Any] | None = None,
    *,
    compare: Any = None,
    table: Any = None,
    ids: Sequence[Any] | None = None,
    diversities: Iterable[float] | None = None,
    n_neighbors: int = 10,
    title: str = "manylens explorer",
    output: str | os.PathLike[str] | None = None,
) -> Any:
    """Explore the neighbors that modules find at any diversity, on an interactive page.

    The page shows a map of the rows, the neighbors of the row that is clicked, in each module and in all of
    them together, what happens when modules are switched off, the coverage of the spectrum, the certificate,
    retrieval precision and vote against the diversity, and the similarity of the modules. Distances over all
    modules are exact at any diversity; single modules are those of the nearest of `diversities`, and the page
    says which.

    With `compare`, the page shows two representations of the same rows, such as two embeddings or a network
    before and after fine-tuning: two linked maps, the rows whose neighbors changed most, and the CKA of every
    pair of layers.

    Parameters
    ----------
    lenses : fitted transformer with `transform` and `split`
        `ModularKernelPCA` and `ModularAutoencoder` get a slider for the diversity. With `compare`, any of the
        representations described there.
    X : array-like or CSR matrix of shape (n, d), default=None
        Rows to show, up to a few tens of thousands. The index of a data frame names them. Needed unless two
        arrays are compared.
    labels : array-like of shape (n,), default=None
        Labels, which color the map and are voted on; many different float values are shown on a color scale
        instead, without a vote.
    images : array-like of shape (n, height, width[, channels]) or sequence, default=None
        One image per row: uint8, or other numbers, which are scaled to the range of all images; or a sequence
        of files or PIL images. If the rows of X are these pixels, an image can be dropped as a query.
    text : sequence of str, default=None
        One text per row.
    compare : representation, default=None
        If given, a page of two representations side by side: `lenses` is A and this is B. Each is an array
        (n, d), a dict or list of such arrays (layers), a fitted transformer, or a pair (name, one of these).
    table : data frame of n rows, default=None
        Columns to show beside each row.
    ids : sequence of str, default=None
        Names of the rows; the index of X, if it is a data frame, by default.
    diversities : iterable of float, default=None
        Diversities at which to learn single modules and measure the curves; nine values in [0, 1] if None.
    n_neighbors : int, default=10
        Number of neighbors to show.
    title : str, default="manylens explorer"
        Title of the page.
    output : str or path, default=None
        If given, write the page to this file, which works offline, instead of showing it in a notebook.

    Returns
    -------
    widget or pathlib.Path
        The widget, with the traits `selected`, `diversity`, `switched_off` and `view`, or the file.

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
    shared: dict[str, Any] = {"table": table, "ids": ids, "n_neighbors": n_neighbors, "title": title}
    if compare is not None:
        if diversities is not None:
            raise ValueError("Two representations are compared as they are: leave out diversities.")
        data = comparison_data(lenses, compare, X, labels, images, text, **shared)
    else:
        data = explorer_data(lenses, X, labels, images, text, diversities=diversities, **shared)
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
    packed = {name: compressed(getattr(data, name)) for name in BUFFERS}
    parts = {
        "TITLE": html.escape(data.meta["title"]),
        "CONNECT": "'self'" if "remote" in data.meta else "'none'",
        "CSS": source("explorer.css"),
        "DATA": as_script({"meta": data.meta, **packed}),
        "MODULE": as_script(module_source()),
    }
    before, *rest = source("page.html").split("{{")
    filled = [parts[name] + text for name, text in (piece.split("}}", 1) for piece in rest)]
    return before + "".join(filled)


def compressed(buffer: bytes) -> str:
    """Bytes, compressed by gzip, as text."""
    return base64.b64encode(gzip.compress(buffer, 6, mtime=0)).decode("ascii")


@cache
def module_source() -> str:
    """The front end as one ES module: its files share one scope and import nothing."""
    return "\n".join(source(f"js/{name}.js") for name in SCRIPTS)


def as_script(value: Any) -> str:
    """JSON that is safe within a script element."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def source(name: str) -> str:
    """Text of a file of this folder."""
    return (HERE / name).read_text(encoding="utf-8")


def widget(data: ExplorerData) -> Any:
    """The explorer as a widget of the notebook."""
    start = float(data.meta.get("diversity", 1.0))
    return widget_class()(meta=data.meta, diversity=start, **{name: getattr(data, name) for name in BUFFERS})


@cache
def widget_class() -> Any:
    """The class of the widget, made when it is first needed because anywidget is optional."""
    anywidget = import_optional("anywidget", "The explorer in notebooks", "'manylens[explore]'")
    import traitlets

    class Explorer(anywidget.AnyWidget):  # type: ignore[name-defined]
        """Explorer in a notebook; `selected`, `diversity` and `switched_off` follow the page and set it."""

        _esm = module_source()
        _css = source("explorer.css")
        meta = traitlets.Dict().tag(sync=True)
        coordinates = traitlets.Bytes().tag(sync=True)
        modules = traitlets.Bytes().tag(sync=True)
        images = traitlets.Bytes().tag(sync=True)
        query = traitlets.Bytes().tag(sync=True)
        selected = traitlets.Int(0).tag(sync=True)
        diversity = traitlets.Float(1.0, min=0.0, max=1.0).tag(sync=True)
        switched_off = traitlets.List(traitlets.Int()).tag(sync=True)
        view = traitlets.Dict().tag(sync=True)

    return Explorer
