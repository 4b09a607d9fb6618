"""Run hostile calls in worker processes, watch for hangs and crashes, and print a table.

python -m tests.fuzz --seconds 600          # a fresh seed, printed
python -m tests.fuzz --seed 7 --calls 5000
python -m tests.fuzz --replay 123456        # one case again (with the same --only, if that was given)
"""

from __future__ import annotations

import argparse
import collections
import json
import queue
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from typing import Any

from tests.fuzz.calls import BAD, Verdict, run_case

CASE_LIMIT = 60.0  # seconds before a case counts as a hang
STRIDE = 1_000_003  # seeds of different workers never meet


class Worker:
    """A process that runs cases one after the other and reports each as a line of JSON."""

    def __init__(self, seed: int, only: str) -> None:
        self.seed = seed
        self.only = only
        self.started = time.monotonic()
        self.lines: queue.Queue[str | None] = queue.Queue()
        command = [sys.executable, "-m", "tests.fuzz", "--worker", str(seed), "--only", only]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def work(seed: int, only: str) -> None:
    """Run cases from `seed` on, forever."""
    while True:
        print(json.dumps({"start": seed}), flush=True)
        verdicts = [asdict(verdict) for verdict in run_case(seed, only)]
        print(json.dumps({"seed": seed, "verdicts": verdicts}), flush=True)
        seed += 1


def fuzz(
    seed: int, seconds: float, calls: int | None = None, n_workers: int = 2, only: str = ""
) -> list[tuple[int, Verdict]]:
    """Return (seed of the case, verdict) for all calls made within the time."""
    outcomes: list[tuple[int, Verdict]] = []
    workers = [Worker(seed + i * STRIDE, only) for i in range(n_workers)]
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end and (calls is None or len(outcomes) < calls):
            for i, worker in enumerate(workers):
                fate = drain(worker, outcomes)
                if fate is not None:
                    outcomes.append((worker.seed, Verdict(fate, f"case {worker.seed}")))
                    worker.stop()
                    workers[i] = Worker(worker.seed + 1, only)
            time.sleep(0.02)
    finally:
        for worker in workers:
            worker.stop()
    return outcomes


def drain(worker: Worker, outcomes: list[tuple[int, Verdict]]) -> str | None:
    """Take what the worker reported; return "hang" or "crash" if it will report no more."""
    while True:
        try:
            line = worker.lines.get_nowait()
        except queue.Empty:
            return "hang" if time.monotonic() - worker.started > CASE_LIMIT else None
        if line is None:
            return "crash"
        try:
            message: dict[str, Any] = json.loads(line)
        except ValueError:
            continue  # something a fit printed
        if "start" in message:
            worker.seed, worker.started = message["start"], time.monotonic()
        else:
            outcomes += [(message["seed"], Verdict(**verdict)) for verdict in message["verdicts"]]


def report(outcomes: list[tuple[int, Verdict]], examples: int = 40) -> str:
    """Return the table of verdicts and one example of each cause."""
    counts = collections.Counter(verdict.kind for _, verdict in outcomes)
    lines = [f"{len(outcomes):,} calls"] + [f"{kind:>16} {count:>8,}" for kind, count in counts.most_common()]
    causes: dict[tuple[str, str, str], list[int]] = {}
    for seed, verdict in outcomes:
        if verdict.kind not in ("ok", "refused"):
            place = (
                verdict.detail[verdict.detail.rfind("(") :] if "(" in verdict.detail else verdict.detail[:60]
            )
            causes.setdefault((verdict.kind, verdict.call, place), []).append(seed)
    details = {seed: verdict for seed, verdict in outcomes if verdict.kind not in ("ok", "refused")}
    for (kind, call, _), seeds in sorted(causes.items(), key=lambda item: -len(item[1]))[:examples]:
        lines.append(
            f"{len(seeds):>5} x {kind}: {call}, e.g. --replay {seeds[0]}: {details[seeds[0]].detail[:220]}"
        )
    return "\n".join(lines)


def is_bad(verdict: Verdict) -> bool:
    return verdict.kind in BAD


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--calls", type=int)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--examples", type=int, default=40)
    parser.add_argument("--only", default="", help="names that contain this, e.g. manylens.kernels")
    parser.add_argument("--replay", type=int)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        work(options.worker, options.only)
    if options.replay is not None:
        for verdict in run_case(options.replay, options.only):
            print(verdict)
        return 0
    seed = options.seed if options.seed is not None else time.time_ns() % 2**40
    print(f"seed {seed}")
    outcomes = fuzz(
        seed, options.seconds if options.calls is None else 1e9, options.calls, options.workers, options.only
    )
    print(report(outcomes, options.examples))
    return int(any(is_bad(verdict) for _, verdict in outcomes))


if __name__ == "__main__":
    sys.exit(main())
