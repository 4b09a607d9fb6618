"""Waiting for the parts of an index, on an event loop without a cluster."""

import asyncio
import math
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from manylens.cluster import dask_parts
from manylens.cluster.dask_parts import Copy, DaskParts

SLOT = ("segment", 0)


def run(scenario):
    """Run a coroutine in a thread of its own: in this one, a browser of another test may have left a loop."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, scenario).result(timeout=120)


class Actor:
    """A part that answers when it is told to, one call after the other, like an actor of dask."""

    def __init__(self):
        self.proceed, self.calls = asyncio.Event(), 0

    async def search(self):
        self.calls += 1
        await self.proceed.wait()
        return f"answer {self.calls}"


class Parts(DaskParts):
    """One copy of one part; nothing looks after it."""

    def __init__(self):
        self.copies = {SLOT: [Copy(SLOT, 0)]}
        self.response, self.fresh_until = 0.05, 0.0
        self.copy = self.copies[SLOT][0]
        self.copy.actor = Actor()

    def _look(self, now):
        pass

    async def asked(self, seconds):
        """Ask as a search does that waits for all parts whose workers are alive."""
        until = time.monotonic() + seconds
        return await self._ask({SLOT: ("search", ())}, lambda _, outstanding: not outstanding, until, until)


def test_a_search_waits_for_a_part_that_is_busy_with_a_search_that_gave_up():
    async def scenario():
        parts = Parts()
        assert await parts.asked(0.01) == {}
        assert not parts.copy.is_ready
        second = asyncio.create_task(parts.asked(60))
        await asyncio.sleep(0.1)
        assert not second.done()
        assert parts.copy.actor.calls == 1  # calls do not pile up
        parts.copy.actor.proceed.set()
        assert await asyncio.wait_for(second, 30) == {SLOT: "answer 2"}

    run(scenario())


@pytest.mark.parametrize("since", [dask_parts.BUSY_SECONDS, math.inf])
def test_a_search_does_not_wait_for_a_part_whose_worker_may_be_stopped(since):
    async def scenario():
        parts = Parts()
        assert await parts.asked(0.01) == {}
        parts.copy.late_since -= since
        assert await asyncio.wait_for(parts.asked(math.inf), 30) == {}
        assert parts.copy.actor.calls == 1
        parts.copy.actor.proceed.set()

    run(scenario())


def test_the_wait_for_a_busy_part_ends_by_itself(monkeypatch):
    monkeypatch.setattr(dask_parts, "BUSY_SECONDS", 0.2)

    async def scenario():
        parts = Parts()
        await parts.asked(0.01)
        start = time.monotonic()
        assert await asyncio.wait_for(parts.asked(math.inf), 30) == {}
        assert time.monotonic() - start > 0.1
        parts.copy.actor.proceed.set()

    run(scenario())


def test_a_part_is_ready_again_when_all_its_late_calls_have_ended():
    async def scenario():
        parts = Parts()
        await asyncio.gather(parts.asked(0.01), parts.asked(0.05))
        assert len(parts.copy.late) == 2
        assert not parts.copy.is_ready
        parts.copy.actor.proceed.set()
        await asyncio.wait(set(parts.copy.late))
        await asyncio.sleep(0)
        assert parts.copy.is_ready

    run(scenario())
