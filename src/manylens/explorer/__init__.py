"""See what lenses do to rows: an interactive page for notebooks, and for the browser as one file."""

from typing import TYPE_CHECKING

from manylens._lazy import attach

if TYPE_CHECKING:
    from manylens.explorer.page_hosts import explore

__all__ = ["explore"]

__getattr__, __dir__ = attach(__name__, {"manylens.explorer.page_hosts": ["explore"]})
