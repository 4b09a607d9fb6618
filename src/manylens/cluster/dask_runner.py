"""Run a dask graph and wait for it, with limits and with errors that name the block."""

from __future__ import annotations

import asyncio
import concurrent.futures
import pickle
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from manylens.optional import import_optional
from manylens.validation import check_real

if TYPE_CHECKING:
    from manylens.cluster.blocks import Blocks

POLL_SECONDS = 1.0
ASK_SECONDS = 10.0  # timeout of a request to the scheduler
LONGEST_SECONDS = 1e7  # longer limits are as good as none, and would overflow clocks


def check_patience(seconds: Any, name: str = "patience") -> float:
    """A positive number of seconds to wait, at most `LONGEST_SECONDS`."""
    return min(check_real(seconds, name, 0, None, include="neither"), LONGEST_SECONDS)


@dataclass
class Runner:
    """Computes on the current dask client, or with dask's own scheduler if there is none."""

    patience: float  # seconds without any worker before giving up
    verbose: int = 0

    def compute(self, root: Any, blocks: Blocks, stage: str = "") -> Any:
        """The value of a `Delayed`, on the client."""
        client = current_client()
        if client is None:
            with self._bar(stage):
                return root.compute()
        future = client.compute(root)
        self._wait(client, future, blocks, stage)
        return future.result(timeout=self.patience)

    def persist(self, root: Any, blocks: Blocks, stage: str = "") -> Any:
        """The `Delayed`, computed and kept on a worker; dask computes it again if that worker dies."""
        client = current_client()
        if client is None:
            with self._bar(stage):
                return root.persist()
        kept = client.persist(root)
        for future in distributed().futures_of(kept):
            self._wait(client, future, blocks, stage)
        return kept

    def say(self, stage: str, done: int, total: int | None = None) -> None:
        """Print how many blocks of a stage are done, if `verbose`."""
        if self.verbose and stage:
            print(f"[manylens] {stage}: {done}{'' if total is None else f' of {total}'} blocks", flush=True)

    def _bar(self, stage: str) -> Any:
        """The progress bar of dask's own scheduler."""
        if not (self.verbose and stage):
            return nullcontext()
        print(f"[manylens] {stage}", flush=True)
        return import_optional("dask.diagnostics", "A progress bar", "'manylens[dask]'").ProgressBar()

    def _wait(self, client: Any, future: Any, blocks: Blocks, stage: str) -> None:
        """Wait for a future; raise if it failed, if the client is closed, or if there are no workers."""
        alone_since, said = None, -1
        while True:
            try:
                distributed().wait(future, timeout=POLL_SECONDS)
                break
            except TimeoutError:
                pass
            except (asyncio.CancelledError, concurrent.futures.CancelledError):
                raise RuntimeError(
                    closed_message(client)
                    if client.status != "running"
                    else "The computation was cancelled by another client, or by a restart: call fit again."
                ) from None
            if client.status in ("closing", "closed"):
                raise RuntimeError(closed_message(client))
            if client.status == "running" and client.scheduler_info()["workers"]:
                alone_since = None
                if self.verbose and stage:
                    total = len(list(blocks))
                    done = max(0, total - client.run_on_scheduler(tasks_left, name=f"manylens-{stage}"))
                    if done != said:
                        self.say(stage, done, total)
                    said = done
                continue
            alone_since = alone_since or time.monotonic()
            if time.monotonic() - alone_since > self.patience:
                future.cancel()
                raise TimeoutError(
                    f"No worker for {self.patience:g} seconds at {address_of(client)}: "
                    "start workers, or wait longer with a larger `patience`."
                )
        if future.status == "error":
            raise_named(client, future, blocks)


def address_of(client: Any) -> str:
    """Address of the scheduler."""
    scheduler = getattr(client, "scheduler", None)
    return str(getattr(scheduler, "address", "") or "an unknown address")


def closed_message(client: Any) -> str:
    """Error message for a client that was closed."""
    return f"The dask client of {address_of(client)} is closed: make a new one, distributed.Client(...)."


def refuse_closed(collection: Any) -> None:
    """Raise if a collection or `Delayed` holds results of a client that is closed."""
    if "distributed" not in sys.modules:
        return
    for future in distributed().futures_of(collection):
        owner = getattr(future, "client", None)
        if owner is None or owner.status in ("closing", "closed"):
            raise RuntimeError(
                "X was persisted by a dask client that is closed, so its blocks are gone: make a new client "
                "and read or persist X again."
            )


def tasks_left(name: str, dask_scheduler: Any = None) -> int:
    """On the scheduler: the number of tasks with this name, of all running fits, that are not done."""
    prefix = dask_scheduler.task_prefixes.get(name)
    waiting = ("waiting", "processing", "queued", "no-worker", "erred")
    return 0 if prefix is None else sum(prefix.states.get(state, 0) for state in waiting)


def distributed() -> Any:
    """The module `distributed`."""
    return import_optional("distributed", "Fitting on a cluster", "'manylens[dask]'")


def graph_may_hold(value: Any) -> Any:
    """Context in which dask warns of a large graph only if it is large without this value.

    A lost part must be built again after any worker has died, so its graph has to hold the modules, and
    dask's advice to send them another way would not help.
    """
    import dask
    from dask.utils import parse_bytes

    limit = "distributed.admin.large-graph-warning-threshold"
    return dask.config.set({limit: parse_bytes(dask.config.get(limit)) + len(pickle.dumps(value))})


def current_client() -> Any:
    """The dask client to use; None if there is none, or if another scheduler was asked for."""
    if "distributed" not in sys.modules:
        return None
    import dask

    if dask.config.get("scheduler", None) not in (None, "dask.distributed", "distributed"):
        return None
    try:
        return distributed().Client.current()
    except ValueError:
        return None


def raise_named(client: Any, future: Any, blocks: Blocks) -> None:
    """Raise the error of a future, with the number of the block if reading the block failed."""
    error = future.exception(timeout=ASK_SECONDS)
    cause = client.run_on_scheduler(blamed_key, key=future.key)
    number = next((k for k, each in enumerate(blocks) if any(cause in keys_of(part) for part in each)), None)
    where = "" if number is None else f"Block {number} (the first is 0) "
    if isinstance(error, distributed().KilledWorker):
        raise RuntimeError(
            f"{where or 'A task '}was given up because several workers died while they computed {cause!r}: "
            "a worker needs memory for one block and two summaries."
        ) from error
    if number is None:
        raise error
    raise RuntimeError(f"{where}could not be read: {type(error).__name__}: {error}") from error


def keys_of(part: Any) -> Any:
    """Keys of the graph of a `Delayed`, or of a dict of them."""
    if isinstance(part, dict):
        return set().union(*(keys_of(value) for value in part.values()))
    return set(part.__dask_graph__()) if hasattr(part, "__dask_graph__") else set()


def blamed_key(key: str, dask_scheduler: Any = None) -> Any:
    """On the scheduler: the key of the task whose failure made this one fail."""
    task = dask_scheduler.tasks.get(key)
    return task.exception_blame.key if task is not None and task.exception_blame else key
