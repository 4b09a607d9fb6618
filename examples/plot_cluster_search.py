"""
Search while a machine dies
===========================

Modules of the same rows live on different workers of a dask cluster. A search asks all of them and is
answered by those that reply, so a machine that dies costs a little recall until its modules have been rebuilt
elsewhere. This example first shows how much the answers of some workers are worth, for modules and for other
ways to divide the rows. Then it starts three worker processes, searches without a pause, and kills one of
them.
"""

import os
import signal
import time

import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits

from manylens import ModularKernelPCA, ModuleNeighbors
from manylens.baselines import PartitionKernelPCA, RandomKernelProjection
from manylens.cluster import DistributedNeighbors
from manylens.plotting import CurveDisplay

X = load_digits().data
base, queries = X[:1400], X[1400:1450]
n_workers, n_draws = 15, 10


def recall(found, exact):
    """Share of the exact neighbors that were found."""
    return np.mean([np.isin(*pair).mean() for pair in zip(exact, found, strict=True)])


def search_and_kill(seconds=60):
    """Search, kill a worker, and search until all modules are back; what was seen, and the recall curve."""
    lenses = ModularKernelPCA(12, 4, diversity=1, kernel="linear", random_state=0).fit(base)
    _, exact = ModuleNeighbors(lenses, method="exact").fit(base).kneighbors(queries)
    seen = []
    with (
        LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        index = DistributedNeighbors(lenses).fit(base)
        victim = next(iter(client.run(os.getpid).values()))
        start = time.monotonic()
        killed_at = None
        while time.monotonic() - start < seconds:
            found = index.kneighbors(queries, deadline=5)
            now = time.monotonic() - start
            seen.append((now, found.answered.sum(), recall(found.rows, exact), found.expected_recall.mean()))
            if killed_at is None and now > 1:
                os.kill(victim, signal.SIGKILL)
                killed_at = now
            elif killed_at is not None and now > killed_at + 2 and found.answered.all():
                break
        index.close()
    return np.array(seen), killed_at, index.recall_curve_


# %%
# Each of fifteen workers has the same amount of memory: for one module of ten coordinates of all rows, or for
# all 150 coordinates of a fifteenth of the rows, as in most vector databases. Some of them answer. Each point
# is the share of the ten nearest rows by pixels that they find: the mean over ten random draws of the workers
# that answer, with two standard errors.
def distances_by_worker(rows, new):
    """Squared distances (workers, queries, rows) that each worker knows; infinite for rows of others."""

    def of_modules(lenses):
        lenses.fit(rows)
        near, far = (lenses.split(lenses.transform(each)) for each in (new, rows))
        return np.stack([cdist(near[:, m], far[:, m], "sqeuclidean") for m in range(n_workers)])

    settings = {"kernel": "linear", "random_state": 0}
    modules = of_modules(ModularKernelPCA(n_workers, 10, diversity=1, **settings))
    shard = np.random.default_rng(0).permutation(len(rows)) % n_workers
    shards = np.stack([np.where(shard == w, modules.sum(axis=0), np.inf) for w in range(n_workers)])
    return {
        "modules, diversity 1": modules,
        "random projections": of_modules(RandomKernelProjection(n_workers, 10, **settings)),
        "principal components, dealt at random": of_modules(PartitionKernelPCA(n_workers, 10, **settings)),
        "rows divided among workers": shards,
    }


def precision_by_answers(distances, near):
    """Mean precision, and its standard error, if 1, 2, ... workers answer."""
    rng, out = np.random.default_rng(0), []
    combined = np.min if np.isinf(distances).any() else np.sum  # shards know different rows
    for size in range(1, n_workers + 1):
        drawn = []
        for _ in range(n_draws):
            some = distances[rng.permutation(n_workers)[:size]]
            found = np.argpartition(combined(some, axis=0), 9, axis=1)[:, :10]
            drawn.append(recall(found, near))
        out.append((np.mean(drawn), np.std(drawn, ddof=1) / np.sqrt(n_draws)))
    return np.array(out)


if __name__ == "__main__":
    new = X[1400:1500]
    near = np.argsort(cdist(new, base), axis=1)[:, :10]
    _, ax = plt.subplots(layout="constrained")
    for name, distances in distances_by_worker(base, new).items():
        mean, error = 100 * precision_by_answers(distances, near).T
        print(f"{name}: {mean[-1]:.1f} % if all answer, {mean[7]:.1f} +- {error[7]:.1f} % if 8 of 15 do")
        ax.errorbar(range(1, n_workers + 1), mean, 2 * error, marker="o", markersize=4, capsize=2, label=name)
    ax.set(xlabel=f"workers that answer, of {n_workers}", ylabel="precision at 10 (%)", ylim=(0, 100))
    ax.legend(loc="lower right")

# %%
# The upper panel shows the recall of every search beside the recall that the index says to expect, the lower
# one how many modules answered. With all modules, the result is exactly that of the index in one process. The
# guard is needed because the worker processes import this file.
if __name__ == "__main__":
    seen, killed_at, curve = search_and_kill()
    times, answered, measured, expected = seen.T
    _, (upper, lower) = plt.subplots(2, 1, sharex=True, height_ratios=[2, 1], layout="constrained")
    upper.plot(times, measured, ".-", label="recall of each search")
    upper.plot(times, expected, "--", label="expected with the modules that answered")
    upper.set(ylim=(0, 1.05), ylabel="recall at 10")
    upper.legend(loc="lower right")
    lower.step(times, answered, where="post")
    lower.set(ylim=(0, 12.5), xlabel="seconds", ylabel="modules")
    for ax in (upper, lower):
        ax.axvline(killed_at, color="gray", linewidth=1)

    # %%
    # `fit` measures the recall for every number of modules that may answer.
    CurveDisplay(
        np.arange(1, len(curve)),
        {"modules": curve[1:]},
        x_label="modules that answer",
        y_label="recall at 10",
    ).plot()
    plt.show()
