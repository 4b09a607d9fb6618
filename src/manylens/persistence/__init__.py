"""Save and load fitted models: one file of plain data, written atomically and checked when it is read."""

from typing import TYPE_CHECKING

from manylens._lazy import attach

if TYPE_CHECKING:
    from manylens.persistence.save_and_load import load, save, verify

__all__ = ["load", "save", "verify"]

__getattr__, __dir__ = attach(__name__, {"manylens.persistence.save_and_load": ["load", "save", "verify"]})
