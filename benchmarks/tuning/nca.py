"""How NCA's defaults were chosen: on held-out rows of training sets, never on test rows.

    python -m benchmarks.tuning.nca recipe    # rate, spread, steps, batch, batcher, anchors
    python -m benchmarks.tuning.nca method    # what method="auto" decides by

A fifth of a training set, at most 5,000 rows, is held out; the map is learned from the rest. `recipe` learns
from at most 20,000 rows and varies one thing at a time around the defaults; `method` gives every method the
same rows, more and more of them. Printed are held-out 5-NN accuracy (%) and seconds, means over the repeats.
"""

import argparse
import time
import warnings
from unittest.mock import patch

import numpy as np

from benchmarks.peers.metric.nca_fits import split, vote
from manylens import NCA
from manylens.metric import MiniBatch, Stochastic, optimizers
from manylens.metric.optimizers import Adam

COMPONENTS = {"letter": 8, "isolet": 20, "usps": 10, "mnist": 10}
MOST_TRAIN, MOST_HELD_OUT = 20_000, 5000
NO_LIMIT = 10_000  # epochs: only the number of steps limits training

RECIPES = {
    "defaults": {},
    **{f"rate {rate}": {"rate": rate} for rate in (0.03, 0.3)},
    **{f"spread 1/{part}": {"spread": 1 / part} for part in (2, 8, 16)},
    **{f"{steps} steps": {"steps": steps} for steps in (100, 200, 800)},
    **{f"batch {rows}": {"method": MiniBatch(rows)} for rows in (500, 1000, 4000)},
    "rpc": {"method": MiniBatch(batching="rpc")},
    "fpc": {"method": MiniBatch(batching="fpc")},
    "rpc-original": {"method": MiniBatch(batching="rpc-original")},
    "fpc-original": {"method": MiniBatch(batching="fpc-original")},
    **{
        f"stochastic {anchors}": {"method": Stochastic(anchors), "steps": steps}
        for anchors, steps in ((128, 400), (256, 400), (512, 200))
    },
}
METHODS = ("exact", "tree", "minibatch")
SIZES = (1000, 2000, 4000, 8000, 16_000)


def held_out(name, n_train, seed):
    """Training and validation rows, both from the training set."""
    X, y = split(name)[:2]
    order = np.random.default_rng(seed).permutation(len(X))
    n_judge = min(MOST_HELD_OUT, len(X) // 5)
    judge, learn = order[:n_judge], order[n_judge : n_judge + n_train]
    return X[learn], y[learn], X[judge], y[judge]


def one_fit(
    data,
    n_components,
    seed,
    rate=Adam.rate,
    steps=optimizers.STEPS,
    spread=optimizers.LEAST_SPREAD,
    **parameters,
):
    """Held-out accuracy (%) and seconds of one setting."""
    changed = {"STEPS": steps, "LEAST_SPREAD": spread}
    with patch.object(Adam, "rate", rate), patch.multiple(optimizers, **changed):
        start = time.perf_counter()
        nca = NCA(n_components, random_state=seed, **parameters).fit(data[0], data[1])
        seconds = time.perf_counter() - start
    return 100 * vote(nca, *data), seconds


def mean_fit(name, n_train, n_components, repeats, **parameters):
    """Mean accuracy and seconds over `repeats` splits and seeds."""
    found = [
        one_fit(held_out(name, n_train, seed), n_components, seed, **parameters) for seed in range(repeats)
    ]
    return np.mean(found, axis=0)


def recipe(repeats, names):
    """One line for each recipe, one column for each data set."""
    print(f"{'recipe':16s}" + "".join(f"{name:>18s}" for name in names) + f"{'mean':>9s}")
    for title, parameters in RECIPES.items():
        parameters = {"method": "minibatch", "max_iter": NO_LIMIT, **parameters}
        found = [mean_fit(name, MOST_TRAIN, COMPONENTS[name], repeats, **parameters) for name in names]
        line = "".join(f"{accuracy:9.2f} {seconds:6.1f} s" for accuracy, seconds in found)
        print(f"{title:16s}{line}{np.mean(found, axis=0)[0]:9.2f}", flush=True)


def method(repeats, names):
    """One line for each data set, number of components and number of rows; one column for each method."""
    mean_fit(names[0], 100, 2, 1, method="tree", max_iter=1)  # compile
    print(f"{'data':8s}{'d':>4s}{'rows':>8s}" + "".join(f"{kind:>18s}" for kind in METHODS))
    for name in names:
        for d in (2, COMPONENTS[name]):
            for n in SIZES:
                found = [mean_fit(name, n, d, repeats, method=kind) for kind in METHODS]
                line = "".join(f"{accuracy:9.2f} {seconds:6.1f} s" for accuracy, seconds in found)
                print(f"{name:8s}{d:4d}{n:8d}{line}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["recipe", "method"])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--datasets", nargs="+", default=list(COMPONENTS), choices=list(COMPONENTS))
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="NCA stopped after")
    {"recipe": recipe, "method": method}[options.what](options.repeats, options.datasets)


if __name__ == "__main__":
    main()
