"""How the rules of TreePruner were chosen: `python -m benchmarks.tuning.pruning_nodes`.

Forests are pruned on the tables of `CHOOSING`, never on those on which PrunedNodes judges. Options replace
constants of the modules, for example `--set held_out_trials.PARTS=4 size_limits.MARGIN=1`.
"""

import argparse
import importlib
import time
import warnings

import numpy as np
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from benchmarks.peers.pruning.tables import CHOOSING, VALUES, draw
from manylens.pruning import TreePruner

TEST_ROWS = 4000


def losses(model, rows):
    """Test loss, and share of wrong classes."""
    if not hasattr(model, "predict_proba"):
        return float(np.mean((model.predict(rows.test) - rows.truth) ** 2)), 0.0
    P = model.predict_proba(rows.test)
    own = np.maximum(P[np.arange(len(P)), rows.truth], np.finfo(P.dtype).eps)
    return float(-np.log(own).mean()), float(np.mean(P.argmax(axis=1) != rows.truth))


def first_trees(forest, share):
    """A fresh forest: as many of the trees as have this share of the nodes, at least one."""
    sizes = np.cumsum([tree.tree_.node_count for tree in forest.estimators_])
    few = type(forest)(**forest.get_params())
    few.__dict__.update(forest.__dict__)
    few.estimators_ = forest.estimators_[: max(1, int(np.searchsorted(sizes, share * sizes[-1], "right")))]
    return few


def one_draw(name, seed, most, n_trees):
    """Factor of bytes, rise, rise of errors, loss relative to fresh, held-out loss relative to test, time."""
    rows = draw(name, seed, most, TEST_ROWS)
    make = RandomForestRegressor if name in VALUES else RandomForestClassifier
    start = time.process_time()
    forest = make(n_trees, random_state=seed).fit(rows.X, rows.y)
    training = time.process_time() - start
    start = time.process_time()
    small = TreePruner(forest, random_state=seed).fit(rows.X, rows.y)
    pruning = time.process_time() - start
    whole, pruned = losses(forest, rows), losses(small, rows)
    share = small.n_bytes_ / small.whole_bytes_
    fresh = losses(first_trees(forest, share), rows)
    return (
        1 / share,
        100 * (pruned[0] / whole[0] - 1),
        100 * (pruned[1] - whole[1]),
        100 * (pruned[0] / fresh[0] - 1),
        100 * (small.held_out_loss_ / pruned[0] - 1),
        pruning / training,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--trees", type=int, default=500)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--set", nargs="*", default=[], metavar="MODULE.NAME=VALUE")
    options = parser.parse_args()
    for each in options.set:
        path, value = each.split("=")
        module, name = path.split(".")
        setattr(importlib.import_module(f"manylens.pruning.{module}"), name, float(value))
    warnings.filterwarnings("ignore", message="No smaller model")
    print("table            smaller  rise %  errors  to fresh %  held-out/test %  time/training")
    found = []
    for name in CHOOSING:
        draws = np.array([one_draw(name, k, options.rows, options.trees) for k in range(options.draws)])
        found.append(draws)
        middle = np.append(np.median(draws[:, 0]), draws[:, 1:].mean(axis=0))
        print("{:16} {:7.1f} {:7.2f} {:7.2f} {:11.2f} {:16.2f} {:14.2f}".format(name, *middle), flush=True)
    smaller, rise, errors, to_fresh, held_out, seconds = np.concatenate(found).T
    print(
        f"median {np.median(smaller):.1f} times smaller, rise {np.median(rise):.2f} % (at most 1 % in "
        f"{np.mean(rise <= 1):.2f}, largest {rise.max():.1f}), errors {errors.mean():+.2f} points,\n"
        f"below fresh in {np.mean(to_fresh < 0):.2f} (largest {to_fresh.max():.1f} %), held-out loss "
        f"{held_out.mean():+.1f} % of the test loss, time {np.median(seconds):.2f} of training"
    )


if __name__ == "__main__":
    main()
