"""State of objects that is checked when it comes from a file."""

from __future__ import annotations

from typing import Any

MODIFIED = "has a state that does not fit together: the file is damaged or was modified."


class CheckedState:
    """Mixin for objects with state that compiled loops rely on: it is checked when it comes from a file."""

    def _check_state(self) -> None:
        """Raise if arrays have other types or shapes than the methods assume, or indices out of bounds."""
        raise NotImplementedError

    def __setstate__(self, state: dict[str, Any]) -> None:
        inherited = getattr(super(), "__setstate__", None)
        if inherited is None:
            self.__dict__.update(state)
        else:
            inherited(state)
        try:
            self._check_state()
        except (AttributeError, LookupError, TypeError) as error:
            fault = f"{type(error).__name__}: {error}"
            raise ValueError(f"{type(self).__name__} {MODIFIED} ({fault})") from error

    def _require(self, condition: Any) -> None:
        """Raise unless the condition holds; for `_check_state`."""
        if not condition:
            raise ValueError(f"{type(self).__name__} {MODIFIED}")
