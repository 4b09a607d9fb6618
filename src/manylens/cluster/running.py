"""Run a dask graph and wait for it, with limits and with errors that name the block."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

from manylens.cluster.blocks import Blocks
from manylens.validation import import_optional

POLL_SECONDS = 1.0
ASK_SECONDS = 10.0  # limit of a question to the scheduler


@dataclass
class Runner:
    """Computes on the current dask client, or with dask's own scheduler if there is none."""

    patience: float  # seconds without any worker before giving up

    def compute(self, root: Any, blocks: Blocks) -> Any:
        """The value of a `Delayed`, on the client."""
        client = current_client()
        if client is None:
            return root.compute()
        future = client.compute(root)
        self._wait(client, future, blocks)
        return future.result(timeout=self.patience)

    def persist(self, root: Any, blocks: Blocks) -> Any:
        """The `Delayed`, computed and kept on a worker; dask computes it again if that worker dies."""
        client = current_client()
        if client is None:
            return root.persist()
        kept = client.persist(root)
        for future in distributed().futures_of(kept):
            self._wait(client, future, blocks)
        return kept

    def _wait(self, client: Any, future: Any, blocks: Blocks) -> None:
        """Wait for a future; raise if it failed, or if there is no worker for `patience` seconds."""
        alone_since = None
        while True:
            try:
                distributed().wait(future, timeout=POLL_SECONDS)
                break
            except TimeoutError:
                pass
            if client.status == "running" and client.scheduler_info()["workers"]:
                alone_since = None
                continue
            alone_since = alone_since or time.monotonic()
            if time.monotonic() - alone_since > self.patience:
                future.cancel()
                raise TimeoutError(
                    f"No worker for {self.patience:g} seconds at {client.scheduler_info().get('address')}: "
                    "start workers, or wait longer with a larger `patience`."
                )
        if future.status == "error":
            raise_named(client, future, blocks)


def distributed() -> Any:
    """The module `distributed`."""
    return import_optional("distributed", "Fitting on a cluster", "'manylens[dask]'")


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
