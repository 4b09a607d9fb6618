"""Parts of an index on dask workers: where they are, calling them, and building lost ones again.

Each part is an actor: a call goes to its worker without a task of the scheduler, which halves the time of a
round compared with futures, and dask never moves or copies a part. dask does not rebuild actors, so every
question checks for lost ones. The keys of a part's successive copies are known to every client, so clients
that notice a loss at the same time build it once.

All state of `DaskParts` is used on the event loop of the client only, so it needs no locks.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from threading import Lock
from typing import Any

from manylens.cluster.dask_runner import ASK_SECONDS, blamed_key, distributed, graph_may_hold, keys_of
from manylens.cluster.index_layout import (
    Layout,
    RowBlock,
    SavedBlock,
    Segment,
    group_columns,
    read_saved,
    take,
)
from manylens.cluster.local_parts import Enough, Request, Slot, part_name
from manylens.cluster.parts import Part, build_part
from manylens.cluster.reduction import keyed, literal

logger = logging.getLogger("manylens")

POLL_SECONDS = 0.05  # between checks of parts that are being built
SILENT_SECONDS = 15.0  # a worker without a heartbeat for this long gets no new part
HEDGE_AFTER = 3.0  # after this many mean response times, another copy is asked, too
BALANCE_SECONDS = 2.0  # between checks of the balance of the workers
GONE = ("error", "cancelled", "lost")  # states of a future without a result
ATTACH_SECONDS = 10.0  # how long searches wait for parts that a new client has not connected to
LONGEST_PAUSE = 30.0  # longest wait between attempts to build a part
BUSY_SECONDS = 1.0  # if an abandoned call is younger than this, its worker counts as busy, not stopped


class Copy:
    """One copy of a part on a worker, and whether it answers."""

    def __init__(self, slot: Slot, number: int) -> None:
        self.slot, self.number = slot, number
        self.generation = 0
        self.worker = ""
        self.future: Any = None  # of the actor; held as long as the copy is needed
        self.actor: Any = None  # once it can be called
        self.calls = 0
        self.late: set[asyncio.Task[Any]] = set()  # calls that outlast the searches that made them
        self.late_since = 0.0  # when the first of them began
        self.failures = 0
        self.not_before = 0.0
        self.failed: Any = None  # the future of an attempt that ended with an error
        self.error: Exception | None = None  # why the part could not be built

    @property
    def is_ready(self) -> bool:
        """Whether a call is likely to be answered soon."""
        return self.actor is not None and not self.late

    def is_busy(self, now: float) -> bool:
        """Whether it works for a search that gave up, but not for so long that its worker may be stopped."""
        return self.actor is not None and bool(self.late) and now - self.late_since < BUSY_SECONDS

    def lose(self) -> None:
        """Forget the actor; the next copy has another key."""
        if self.future is not None:
            self.future.release()
        self.generation += 1
        self.future = self.actor = None
        self.worker = ""
        self.late = set()


class DaskParts:
    """Parts as actors on the workers of a dask client."""

    def __init__(self, client: Any, layout: Layout, modules: Any, patience: float, wait: bool = True) -> None:
        self.client, self.modules, self.patience = client, modules, patience
        self.writing = Lock()
        self.layout = layout
        self.segments: dict[str, Segment] = {}
        self.copies: dict[Slot, list[Copy]] = {}
        self.most_per_worker = math.inf
        self.silent: set[str] = set()  # workers without a heartbeat for `patience` seconds
        self.response = 0.05  # mean seconds of a call
        self.keeper: asyncio.Task[None] | None = None
        self.last_look = 0.0
        self.moving: tuple[Copy, Copy] | None = None  # a copy and its successor on another worker
        self.garbage = False  # whether something was built, moved or dropped
        self.last_alive = 0.0  # last time that there was a worker
        self.fresh_until = time.monotonic() + ATTACH_SECONDS  # until then, searches wait for new parts
        if wait:
            self.build(layout)
        else:
            self._check_client()
            self.client.sync(self._add, layout, callback_timeout=ASK_SECONDS)

    def ask(
        self, requests: Mapping[Slot, Request], enough: Enough, soft: float, hard: float
    ) -> dict[Slot, Any]:
        """See `Parts`."""
        self._check_client()
        limit = max(0.0, hard - time.monotonic()) + ASK_SECONDS
        answers: dict[Slot, Any] = self.client.sync(
            self._ask, requests, enough, soft, hard, callback_timeout=limit
        )
        return answers

    def build(self, layout: Layout) -> None:
        """See `Parts`."""
        self._check_client()
        self.client.sync(self._build, layout)

    def keep(self, layout: Layout) -> None:
        """See `Parts`."""
        self._check_client()
        self.client.sync(self._keep_only, layout, callback_timeout=ASK_SECONDS)

    def available(self) -> set[Slot]:
        """See `Parts`."""
        self._check_client()
        found: set[Slot] = self.client.sync(self._available, callback_timeout=ASK_SECONDS)
        return found

    def close(self) -> None:
        """See `Parts`."""
        if self.client.status == "running":
            self.client.sync(self._release, list(self.copies), callback_timeout=ASK_SECONDS)

    def _check_client(self) -> None:
        if self.client.status != "running":
            raise RuntimeError(
                f"The dask client of this index is {self.client.status}: create another Client, and the next "
                "search builds the index again from its rows."
            )

    async def _available(self) -> set[Slot]:
        self._look(time.monotonic())
        return {slot for slot, copies in self.copies.items() if any(copy.is_ready for copy in copies)}

    async def _release(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            for copy in self.copies.pop(slot, []):
                copy.lose()
        gc.collect()  # see `_keep`

    async def _build(self, layout: Layout) -> None:
        new = await self._add(layout)
        try:
            await self._wait_for(new)
        except BaseException:
            await self._release(new)
            raise

    async def _add(self, layout: Layout) -> set[Slot]:
        """Note parts that the keeper should build, or connect to if another client has built them."""
        new = set(layout.slots) - set(self.copies)
        self.segments |= {segment.uid: segment for segment in layout.segments}
        for slot in new:
            self.copies[slot] = [Copy(slot, number) for number in range(layout.replicas)]
        return new

    async def _keep_only(self, layout: Layout) -> None:
        await self._release(set(self.copies) - set(layout.slots))
        self.segments = {segment.uid: segment for segment in layout.segments}

    async def _wait_for(self, slots: set[Slot]) -> None:
        """Wait until these parts can answer; raise if one cannot be built, or if there is no worker."""
        copies = [copy for slot in slots for copy in self.copies[slot]]
        placed_at = started = time.monotonic()
        while not all(copy.actor is not None for copy in copies):
            now = time.monotonic()
            self._look(now)
            for copy in copies:
                if copy.error is not None:
                    raise copy.error
            if self.client.status != "running":
                raise RuntimeError(f"The dask client is {self.client.status}: the index was not built.")
            if now - max(started, self.last_alive) > self.patience:
                raise TimeoutError(
                    f"No worker for {self.patience:g} seconds at {self.client.scheduler.address}: start "
                    "workers, or wait longer with a larger `patience`."
                )
            without = [copy for copy in copies if not copy.worker]
            placed_at = placed_at if without else now
            if now - placed_at > self.patience:
                segment = self.segments[without[0].slot[0]]
                raise TimeoutError(
                    f"{part_name(segment, without[0].slot[1])}: no worker could take it for "
                    f"{self.patience:g} seconds, because too few are alive: start more workers."
                )
            await asyncio.sleep(POLL_SECONDS)

    async def _ask(
        self, requests: Mapping[Slot, Request], enough: Enough, soft: float, hard: float
    ) -> dict[Slot, Any]:
        answers: dict[Slot, Any] = {}
        running: dict[asyncio.Task[Any], tuple[Copy, float]] = {}
        tried: set[Copy] = set()
        try:
            while True:
                now = time.monotonic()
                self._look(now)
                self._call(requests, answers, running, tried, now)
                outstanding = {copy.slot for copy, _ in running.values()}
                outstanding |= {slot for slot in requests if self._is_busy(slot, now)}
                if now < self.fresh_until:
                    outstanding |= {slot for slot in requests if self._is_fresh(slot)}
                if enough(set(answers), outstanding - set(answers)):
                    return answers
                if not answers and not outstanding:
                    self._raise_error(requests)
                left = (soft if answers else hard) - now
                if left <= 0:
                    return answers
                late = {task for slot in requests for copy in self.copies.get(slot, []) for task in copy.late}
                waiting = set(running) | late
                pause = min(left, POLL_SECONDS)
                if not waiting:
                    await asyncio.sleep(pause)
                    continue
                done, _ = await asyncio.wait(waiting, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                for task in done & set(running):
                    copy, since = running.pop(task)
                    if task.result() is not LOST:
                        answers.setdefault(copy.slot, task.result())
                        self.response += 0.1 * (time.monotonic() - since - self.response)
        finally:
            for task, (copy, since) in running.items():
                copy.late_since = min(since, copy.late_since) if copy.late else since
                copy.late.add(task)
                task.add_done_callback(copy.late.discard)
                task.add_done_callback(asyncio.Task.exception)  # retrieved, so that asyncio does not log it

    def _is_busy(self, slot: Slot, now: float) -> bool:
        """Whether no copy of a part can be called now, but one probably can soon."""
        copies = self.copies.get(slot, [])
        return not any(copy.is_ready for copy in copies) and any(copy.is_busy(now) for copy in copies)

    def _is_fresh(self, slot: Slot) -> bool:
        """Whether a part has never been connected to, and no attempt to build it has failed."""
        copies = self.copies.get(slot, [])
        return any(c.actor is None and c.generation == 0 and c.error is None for c in copies)

    def _raise_error(self, requests: Mapping[Slot, Request]) -> None:
        """Raise if none of the parts can be built."""
        copies = [copy for slot in requests for copy in self.copies.get(slot, [])]
        if copies and copies[0].error is not None and all(copy.error is not None for copy in copies):
            raise copies[0].error

    def _call(
        self,
        requests: Mapping[Slot, Request],
        answers: Mapping[Slot, Any],
        running: dict[asyncio.Task[Any], tuple[Copy, float]],
        tried: set[Copy],
        now: float,
    ) -> None:
        """Call one copy of each part that has not answered, and another if the first takes long."""
        newest: dict[Slot, float] = {}
        for copy, since in running.values():
            newest[copy.slot] = max(since, newest.get(copy.slot, 0.0))
        for slot in requests.keys() - answers.keys():
            if slot in newest and now - newest[slot] < HEDGE_AFTER * self.response:
                continue
            ready = [copy for copy in self.copies.get(slot, []) if copy.is_ready and copy not in tried]
            if ready:
                copy = min(ready, key=lambda copy: copy.calls)
                tried.add(copy)
                method, arguments = requests[slot]
                running[asyncio.create_task(self._execute(copy, method, arguments))] = (copy, now)

    async def _execute(self, copy: Copy, method: str, arguments: tuple[Any, ...]) -> Any:
        actor = copy.actor
        if actor is None:  # lost since it was chosen
            return LOST
        copy.calls += 1
        try:
            return await getattr(actor, method)(*arguments)
        except (OSError, KeyError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "Actor" not in str(error):
                raise
            if copy.actor is actor:
                logger.info("Part %s on %s is lost: %s", copy.slot, copy.worker, error)
                copy.lose()
            return LOST
        finally:
            copy.calls -= 1

    def _look(self, now: float) -> None:
        """Notice lost parts, and start the keeper if it has work to do."""
        everything = [copy for copies in self.copies.values() for copy in copies]
        for copy in everything:
            if copy.future is not None and copy.future.status in GONE:
                if copy.actor is None:  # kept for its error
                    copy.failed, copy.future = copy.future, None
                copy.lose()
            elif copy.late and copy.worker in self.silent:
                copy.lose()
        incomplete = any(copy.actor is None or copy.late for copy in everything) or self.moving is not None
        pause = POLL_SECONDS if incomplete else BALANCE_SECONDS
        if now - self.last_look >= pause and (self.keeper is None or self.keeper.done()):
            self.last_look = now
            self.keeper = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        """Place parts that have no worker, connect to those that have been built, and balance the workers."""
        try:
            workers = await self._workers()
            everything = [copy for copies in self.copies.values() for copy in copies]
            for copy in everything:
                if copy.failed is not None:
                    await self._examine(copy)
                if copy.future is not None and copy.actor is None:
                    await self._connect(copy)
            if workers:
                self.last_alive = time.monotonic()
                await self._place(everything, workers)
                await self._balance(everything, workers)
        except (OSError, TimeoutError) as error:  # the next search tries again
            logger.info("Parts could not be placed: %s", error)
        if self.garbage:  # graphs and actor handles of dask form cycles, which keep data on workers
            self.garbage = False
            gc.collect()

    async def _examine(self, copy: Copy) -> None:
        """Find out why a part was not built, and with which block, unless its worker died."""
        future, copy.failed = copy.failed, None
        error = await asyncio.wait_for(future.exception(), ASK_SECONDS)
        if "Worker holding Actor was lost" in str(error):  # another client's copy
            return
        cause = await asyncio.wait_for(self.client.run_on_scheduler(blamed_key, key=future.key), ASK_SECONDS)
        segment = self.segments[copy.slot[0]]
        blocks = [block for block in segment.blocks if isinstance(block, RowBlock)]
        name = next((block.name for block in blocks if cause in keys_of(block.rows)), "")
        if isinstance(error, distributed().KilledWorker):
            error = RuntimeError(
                f"{name or part_name(segment, copy.slot[1])}: several workers died while they computed "
                f"{cause!r}. Use more shards or groups if their memory ran out."
            )
        elif name:
            error = RuntimeError(f"{name} could not be read: {type(error).__name__}: {error}")
        copy.error = error
        copy.failures += 1
        copy.not_before = time.monotonic() + min(LONGEST_PAUSE, 2.0**copy.failures)
        logger.warning("A part of the index could not be built: %s", error)

    async def _workers(self) -> list[str]:
        """Workers that are alive; records those that are silent."""
        identity = await asyncio.wait_for(self.client.scheduler.identity(), ASK_SECONDS)
        seen = {address: info["last_seen"] for address, info in identity["workers"].items()}
        latest = max(seen.values(), default=0.0)
        self.silent = {address for address, at in seen.items() if latest - at > self.patience}
        busy = {copy.worker for copies in self.copies.values() for copy in copies if copy.late}
        return [
            address for address, at in seen.items() if latest - at < SILENT_SECONDS and address not in busy
        ]

    async def _place(self, everything: list[Copy], workers: list[str]) -> None:
        """Submit the parts that are missing, each to the worker with the fewest parts.

        Copies of one part live on different workers. A worker gets at most twice the parts it would have if
        all workers of `fit` were alive, so that the loss of some does not overload the others.
        """
        if self.most_per_worker == math.inf:
            self.most_per_worker = 2 * math.ceil(len(everything) / len(workers))
        load = loads(everything, workers)
        now, placed = time.monotonic(), []
        for copy in sorted(everything, key=lambda copy: (copy.number, copy.slot)):
            if copy.future is not None or copy.not_before > now:
                continue
            taken = {other.worker for other in self.copies.get(copy.slot, [])}
            free = [w for w in workers if w not in taken and load[w] < self.most_per_worker]
            if free:
                group = copy.slot[1]  # if it lives on few workers, the loss of one costs few modules
                own = {c.worker for c in everything if c.slot[1] == group}
                copy.worker = min(free, key=lambda worker: (load[worker], worker not in own))
                load[copy.worker] += 1
                placed.append(copy)
        try:
            await self._submit(placed)
        except BaseException:
            for copy in placed:
                copy.lose()
            raise

    async def _balance(self, everything: list[Copy], workers: list[str]) -> None:
        """Move one part at a time from the worker with the most parts to an idle one, perhaps restarted.

        The old copy answers until the new one can.
        """
        if self.moving is not None:
            old, new = self.moving
            if old not in self.copies.get(old.slot, []) or new.future.status in GONE:
                self.moving = None
                new.lose()
            elif new.future.status == "finished":
                await self._connect(new)
                if new.actor is not None:
                    self.moving = None
                    copies = self.copies[old.slot]
                    copies[copies.index(old)] = new
                    old.lose()
            return
        load = loads(everything, workers)
        fullest, idlest = max(workers, key=load.__getitem__), min(workers, key=load.__getitem__)
        if load[fullest] - load[idlest] < 2 or any(copy.actor is None for copy in everything):
            return
        for old in everything:
            if old.worker == fullest and all(c.worker != idlest for c in self.copies.get(old.slot, [])):
                new = Copy(old.slot, old.number)
                new.generation, new.worker = old.generation + 1, idlest
                await self._submit([new])
                self.moving = (old, new)
                return

    async def _submit(self, copies: list[Copy]) -> None:
        """Start to build these copies; each block is read and mapped once for all of one generation.

        All keys follow from the segment, the block and the copy, so that clients which build the same copy
        at the same time submit the same graph.
        """
        columns: dict[str, Any] = {}
        modules = literal(self.modules, "manylens-modules", self.layout.name)
        wanted = []
        for copy in copies:
            uid, group = copy.slot
            for number, block in enumerate(self.segments[uid].blocks):
                part = f"{uid}-{number}-{copy.generation}"
                own = f"{part}-{group}-{copy.number}"
                if isinstance(block, SavedBlock):
                    wanted.append(keyed(read_saved, f"manylens-load-{own}")(block.path(group)))
                    continue
                if part not in columns:
                    rows = await self._rows(block, f"manylens-rows-{part}")
                    columns[part] = keyed(group_columns, f"manylens-columns-{part}")(
                        modules, self.layout.groups, block.name, rows
                    )
                wanted.append(keyed(take, f"manylens-take-{own}")(columns[part], group))
        with self.client.as_current(), graph_may_hold(self.modules):
            pieces = iter(self.client.compute(wanted, optimize_graph=False))
        for copy in copies:
            uid, group = copy.slot
            segment = self.segments[uid]
            widths = tuple(self.layout.widths[m] for m in self.layout.groups[group])
            copy.future = self.client.submit(
                build_part,
                part_name(segment, group),
                segment.n_rows,
                widths,
                [next(pieces) for _ in segment.blocks],
                key=f"manylens-part-{uid}-{group}-{copy.number}-{copy.generation}",
                workers=[copy.worker],
                allow_other_workers=True,
                actor=True,
            )

    async def _rows(self, block: RowBlock, key: str) -> Any:
        """Rows as an argument of a task: a `Delayed`, a file, or rows sent to a worker from here."""
        if not (hasattr(block.rows, "shape") and not hasattr(block.rows, "__dask_graph__")):
            return block.rows
        sent = await self.client.scatter({key: block.rows}, hash=False, broadcast=False)
        return sent[key]

    async def _connect(self, copy: Copy) -> None:
        """Get a handle of an actor that has been built."""
        future = copy.future
        if future.status != "finished":
            if copy.worker in self.silent:  # its worker stopped while it built
                copy.lose()
            return
        holders = await asyncio.wait_for(self.client.scheduler.who_has(keys=[future.key]), ASK_SECONDS)
        addresses = holders.get(future.key, ())
        if addresses and copy.future is future:
            copy.worker = addresses[0]
            with self.client.as_current():
                copy.actor = distributed().Actor(Part, copy.worker, future.key)
            copy.failures, copy.error = 0, None
            self.garbage = True


def loads(copies: Iterable[Copy], workers: Iterable[str]) -> Counter[str]:
    """Number of parts on each worker."""
    load = Counter(dict.fromkeys(workers, 0))
    load.update(copy.worker for copy in copies if copy.worker in load)
    return load


LOST = object()  # returned instead of an answer
