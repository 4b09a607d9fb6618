"""HTML tables for notebooks: what an estimator learned, kept or chose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from numbers import Integral, Real
from typing import Any

import numpy as np

MOST_ITEMS = 12  # of a list or a table within a table
LONGEST_TEXT = 80
STYLE = "border-collapse: collapse; margin: 0.4em 0; font-size: 90%;"
CELL = "text-align: left; padding: 0.1em 1em 0.1em 0; vertical-align: top; font-weight: normal;"


class FactsMixin:
    """Mixin that adds a table of fitted attributes below the HTML diagram; list it before `BaseEstimator`.

    Subclasses name the attributes in `_facts_shown`; those that are not set are left out.
    """

    _facts_shown: Mapping[str, str] = {}  # attribute name -> label in the table

    def _facts(self) -> dict[str, Any]:
        """Names and values of what was learned; empty before `fit`."""
        known = {name: getattr(self, attribute, None) for attribute, name in self._facts_shown.items()}
        return {name: value for name, value in known.items() if value is not None}

    @property
    def _repr_html_(self) -> Callable[[], str]:
        diagram: Callable[[], str] = super()._repr_html_  # type: ignore[misc]
        return lambda: diagram() + facts_table(self._facts())

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**options)  # type: ignore[misc]
        if "text/html" in bundle:
            bundle["text/html"] += facts_table(self._facts())
        return bundle


def result_table(result: Any) -> str:
    """The fields of a named tuple or a dataclass as a table; assign it as `_repr_html_`."""
    names = result._fields if hasattr(result, "_fields") else result.__dataclass_fields__
    fields = {name.replace("_", " "): getattr(result, name) for name in names}
    return facts_table({name: value for name, value in fields.items() if value is not None})


def facts_table(facts: Mapping[str, Any]) -> str:
    """An HTML table of names and values; empty if there are none. All text is escaped."""
    if not facts:
        return ""
    cell = f'style="{CELL}"'
    lines = (
        f'<tr><th scope="row" {cell}>{escape(str(name))}</th><td {cell}>{shown_value(value)}</td></tr>'
        for name, value in facts.items()
    )
    return f'<table class="manylens-facts" style="{STYLE}">{"".join(lines)}</table>'


def shown_value(value: Any) -> str:
    """HTML for a value: numbers with four digits, the first items of a collection, the shape of an array."""
    if isinstance(value, Mapping):
        items = [f"{shown_value(key)}: {shown_value(each)}" for key, each in value.items()]
    elif isinstance(value, np.ndarray) and (value.ndim != 1 or len(value) > MOST_ITEMS):
        return escape(f"array of shape {value.shape}")
    elif isinstance(value, list | tuple | np.ndarray):
        items = [shown_value(each) for each in value]
    elif isinstance(value, Real) and not isinstance(value, bool | np.bool_):
        return f"{int(value):,}" if isinstance(value, Integral) else f"{float(value):.4g}"
    else:
        text = str(value)
        return escape(text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…")
    more = f" and {len(items) - MOST_ITEMS} more" if len(items) > MOST_ITEMS else ""
    return ", ".join(items[:MOST_ITEMS]) + more
