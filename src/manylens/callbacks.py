"""scikit-learn's callbacks during a fit, if its version has them (1.9 and later)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

Fit = TypeVar("Fit", bound=Callable[..., Any])
Attributes: TypeAlias = Callable[
    [], dict[str, Any]
]  # computed only if a callback asks for a fitted estimator
Context: TypeAlias = Any  # sklearn.callback.CallbackContext, or None before scikit-learn 1.9

if TYPE_CHECKING:

    class CallbackSupportMixin:
        """Mixin with `set_callbacks`."""

        _init_callback_context: Any

    def with_callbacks(fit: Fit) -> Fit:
        """Decorate `fit` so that callbacks are closed at its end; `restore_on_error` goes around it."""

else:
    try:
        from sklearn.callback import CallbackSupportMixin, with_callbacks
    except ImportError:

        class CallbackSupportMixin:
            """Before scikit-learn 1.9 there are no callbacks."""

        def with_callbacks(fit: Fit) -> Fit:
            """Before scikit-learn 1.9 there is nothing to close."""
            return fit


class StopFit(Exception):
    """Raised between iterations if a callback asked to stop; optimizers keep what they have reached."""


class FitTasks:
    """The iterations of one fit, reported as tasks to the callbacks of an estimator.

    Only for estimators that have callbacks (`_skl_callbacks`). The fit calls `end` after each iteration and
    `close` once all attributes are set.
    """

    def __init__(self, estimator: Any, X: Any, y: Any, name: str, n_tasks: int) -> None:
        self.estimator, self.data, self.name, self.n_tasks = estimator, {"X": X, "y": y}, name, n_tasks
        self.n_begun = 0
        self.root: Context = root_context(estimator, X, y, n_tasks)
        self.task: Context = None
        self._begin()

    def _begin(self) -> None:
        if self.n_begun < self.n_tasks:
            self.n_begun += 1
            self.task = self.root.subcontext(task_name=self.name)
            self.task.call_on_fit_task_begin(estimator=self.estimator, **self.data)

    def end(self, attributes: Attributes) -> None:
        """End an iteration and begin the next; raise `StopFit` if a callback asked for it.

        `attributes()` are the fitted attributes with which a copy of the estimator can transform or predict.
        """
        if self.task is None:
            return
        task, self.task = self.task, None
        stop = task.call_on_fit_task_end(
            estimator=self.estimator, **self.data, reconstruction_attributes=attributes
        )
        if stop:
            raise StopFit
        self._begin()

    def close(self) -> None:
        """End the fit, and the iteration that was begun but not needed."""
        if self.task is not None:
            self.task.call_on_fit_task_end(estimator=self.estimator)
        self.root.call_on_fit_task_end(estimator=self.estimator, **self.data, reconstruction_attributes=dict)


def root_context(estimator: Any, X: Any, y: Any, n_tasks: int | None) -> Context:
    """Start the task "fit" of an estimator and return its context; None before scikit-learn 1.9."""
    if not hasattr(estimator, "_init_callback_context"):
        return None
    context = estimator._init_callback_context(max_subtasks=n_tasks)
    return context.call_on_fit_task_begin(estimator=estimator, X=X, y=y)


def subtask(context: Context, name: str, n_tasks: int = 0) -> Context:
    """A new task within a task; None if there are no callbacks."""
    return None if context is None else context.subcontext(task_name=name, max_subtasks=n_tasks)


@contextmanager
def reported(context: Context, estimator: Any) -> Iterator[None]:
    """Report the beginning and the end of a task of an estimator."""
    if context is not None:
        context.call_on_fit_task_begin(estimator=estimator)
    yield
    if context is not None:
        context.call_on_fit_task_end(estimator=estimator)


def propagated(context: Context, estimator: Any) -> AbstractContextManager[Any]:
    """While this context is open, the estimator has the callbacks of the one that fits it."""
    if context is None or not hasattr(estimator, "set_callbacks"):
        return nullcontext()
    return context.propagate_callback_context(estimator)
