"""Showing a page in the browser."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path


def open_in_browser(page: Path | str) -> bool:
    """Open a file or an address in the browser, if there is a display; return whether that succeeded."""
    has_display = sys.platform in ("win32", "darwin") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    return has_display and webbrowser.open(page if isinstance(page, str) else page.resolve().as_uri())
