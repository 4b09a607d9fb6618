"""How the defaults of NCA's batches were chosen: on held-out rows of training sets, never on a test part.

    python -m benchmarks.choose_nca_recipe [--repeats 2] [--datasets letter isolet usps mnist]

A fifth of each training set, at most 5,000 rows, is held out; the map is learnt from the rest, at most 20,000
rows. One thing is varied at a time around the defaults: the rate, the number of steps, the rows in a batch,
the batcher, and the anchors of the stochastic method. Printed are held-out 5-NN accuracy (%) and seconds.
"""

import argparse
import time
import warnings
from unittest.mock import patch

import numpy as np

from benchmarks.bench_nca_fits import split, vote
from manylens import NCA
from manylens.metric import training
from manylens.metric.optimisers import Adam

COMPONENTS = {"letter": 8, "isolet": 20, "usps": 10, "mnist": 10}
MOST_TRAIN, MOST_HELD_OUT = 20_000, 5000
NO_LIMIT = 10_000  # sweeps: the number of steps alone is to decide

SETTINGS = {
    "defaults": {},
    **{f"rate {rate}": {"rate": rate} for rate in (0.03, 0.3)},
    **{f"{steps} steps": {"steps": steps} for steps in (100, 200, 800)},
    **{f"batch {rows}": {"batch_size": rows} for rows in (500, 1000, 4000)},
    "rpc": {"batching": "rpc"},
    "fpc": {"batching": "fpc"},
    **{
        f"stochastic {anchors}": {"method": "stochastic", "batch_size": anchors, "steps": steps}
        for anchors, steps in ((128, 400), (256, 400), (512, 200))
    },
}


def held_out(name, rng):
    """Rows to learn from and rows to judge by, both of the training set."""
    X, y = split(name)[:2]
    order = rng.permutation(len(X))
    n_judge = min(MOST_HELD_OUT, len(X) // 5)
    judge, learn = order[:n_judge], order[n_judge : n_judge + MOST_TRAIN]
    return X[learn], y[learn], X[judge], y[judge]


def one_fit(data, n_components, seed, rate=Adam.rate, steps=training.STEPS, **parameters):
    """Held-out accuracy and seconds of one setting."""
    parameters = {"method": "minibatch", "max_iter": NO_LIMIT, **parameters}
    with patch.object(Adam, "rate", rate), patch.object(training, "STEPS", steps):
        start = time.perf_counter()
        nca = NCA(n_components, random_state=seed, **parameters).fit(data[0], data[1])
        seconds = time.perf_counter() - start
    return vote(nca, *data), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--datasets", nargs="+", default=list(COMPONENTS), choices=list(COMPONENTS))
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="NCA stopped after")
    print(f"{'setting':16s}" + "".join(f"{name:>18s}" for name in options.datasets) + f"{'mean':>9s}")
    for setting in options.settings:
        line, means = f"{setting:16s}", []
        for name in options.datasets:
            found = np.array(
                [
                    one_fit(
                        held_out(name, np.random.default_rng(seed)),
                        COMPONENTS[name],
                        seed,
                        **SETTINGS[setting],
                    )
                    for seed in range(options.repeats)
                ]
            )
            means.append(100 * found[:, 0].mean())
            line += f"{means[-1]:9.2f} {found[:, 1].mean():6.1f} s"
        print(f"{line}{np.mean(means):9.2f}", flush=True)


if __name__ == "__main__":
    main()
