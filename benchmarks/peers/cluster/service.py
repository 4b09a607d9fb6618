"""A model of a search on many workers: when a query is answered, and by whom. Pure functions.

- A query goes to all workers at once and takes as long as the answers it waits for; queries do not queue.
- A call takes a lognormal time with a measured median and spread. With a small probability it stalls and
  takes `stall_factor` times as long (a pause of the garbage collector, a slow disk, a busy neighbor).
- Worker w stands in rack w mod n_racks. Racks and single workers are down independently, and the query does
  not wait for them: a refused connection is noticed at once. A stalled worker is not noticed.
- Rows are divided among groups of workers, and a group has answered when `at_least` of its workers have, or
  all of them that are up. The query ends when every group has answered; what came until then counts.

  modules: a group holds the modules of one row shard, one per worker (`at_least` of M)
  shards: a group is one worker with all coordinates of its rows
  shards, replicated r times: a group is r workers with the same rows (`at_least` 1); the same total memory
  holds the leading 1/r of the coordinates of r times as many rows per worker
"""

from typing import NamedTuple

import numpy as np


class Calls(NamedTuple):
    """How long calls take, and how often workers are down."""

    median: float  # seconds
    spread: float  # standard deviation of the logarithm
    stall_probability: float = 0.01
    stall_factor: float = 20.0
    rack_down: float = 0.0  # probability
    worker_down: float = 0.0
    n_racks: int = 5


class Outcome(NamedTuple):
    """Seconds of each query, (q,), and how many workers of each group had answered by then, (q, groups)."""

    seconds: np.ndarray
    answered: np.ndarray


def fit_lognormal(seconds):
    """Median and spread of measured service times."""
    logs = np.log(seconds)
    return float(np.exp(np.median(logs))), float(np.std(logs))


def service_times(calls, n_queries, n_workers, rng):
    """Seconds (q, w) of every call."""
    seconds = calls.median * np.exp(calls.spread * rng.standard_normal((n_queries, n_workers)))
    stalled = rng.random((n_queries, n_workers)) < calls.stall_probability
    return np.where(stalled, calls.stall_factor * seconds, seconds)


def workers_up(calls, n_queries, n_workers, rng):
    """Mask (q, w) of the workers that are up; those of a rack that is down are all down."""
    racks = rng.random((n_queries, calls.n_racks)) >= calls.rack_down
    own = rng.random((n_queries, n_workers)) >= calls.worker_down
    return own & racks[:, np.arange(n_workers) % calls.n_racks]


def wait(seconds, up, group_size, at_least):
    """Outcome of queries that wait for `at_least` workers of every group of consecutive workers."""
    by_group = np.where(up, seconds, np.inf).reshape(len(seconds), -1, group_size)
    alive = np.isfinite(by_group).sum(axis=2)  # (q, groups)
    wanted = np.minimum(at_least, alive)
    ordered = np.concatenate([np.zeros((*alive.shape, 1)), np.sort(by_group, axis=2)], axis=2)
    done = np.take_along_axis(ordered, wanted[:, :, np.newaxis], axis=2)[:, :, 0]
    ended = done.max(axis=1)
    return Outcome(ended, (by_group <= ended[:, np.newaxis, np.newaxis]).sum(axis=2))


def module_precision(curve, answered):
    """Precision (q,) from `curve` (M + 1,), precision by modules answering, averaged over row shards."""
    return np.asarray(curve)[answered].mean(axis=1)


def shard_precision(whole, answered):
    """Precision (q,) of shards: of the rows that some worker answered for."""
    return whole * (answered > 0).mean(axis=1)


def simulate(calls, n_workers, group_size, at_least, precision, n_queries, seed):
    """Mean precision and percentiles of the time, in medians of a call.

    `precision` maps the counts of answers (q, groups) and the number of workers to precisions (q,).
    """
    rng = np.random.default_rng(seed)
    step = max(1, 2_000_000 // n_workers)
    seconds, found = [], []
    for start in range(0, n_queries, step):
        size = (min(step, n_queries - start), n_workers)
        outcome = wait(service_times(calls, *size, rng), workers_up(calls, *size, rng), group_size, at_least)
        seconds.append(outcome.seconds)
        found.append(precision(outcome.answered, n_workers))
    p50, p99 = np.percentile(np.concatenate(seconds), [50, 99]) / calls.median
    values = np.concatenate(found)
    return {
        "precision": float(values.mean()),
        "worst_percent": float(np.percentile(values, 1)),
        "p50": float(p50),
        "p99": float(p99),
    }


def whole_curve(points, n_modules):
    """Precision by 0 ... M modules answering, linear between the measured numbers; 0 if none answers."""
    sizes = sorted(points)
    return np.interp(np.arange(n_modules + 1), [0, *sizes], [0.0, *(points[size] for size in sizes)])
