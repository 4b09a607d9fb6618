"""How the rules of TreePruner were chosen: `python -m benchmarks.tuning.pruning_nodes`.

Forests are pruned on the tables of `CHOOSING`, never on those on which PrunedNodes judges. With `--boosting`,
LightGBM and XGBoost are pruned on a quarter of the rows of `FEW_ROWS`, small draws of the same tables and
generated ones with nearly separable classes, which `--few` uses for forests, too; "fresh" is then boosting
stopped early at as many bytes. Options replace constants of the modules, for example
`--set held_out_trials.PARTS=4 size_limits.MARGIN=1`, or
`--boosting --rows 120 --set model_choice.EVIDENCE_BY_LOSS=0 model_choice.DOUBT=0` (no evidence).
"""

import argparse
import importlib
import warnings
from typing import NamedTuple

import numpy as np
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from benchmarks.peers.pruning.nodes import PrunedBoostingNodes, Table, ratio_error
from benchmarks.peers.pruning.tables import CHOOSING, FEW_ROWS, VALUES

TEST_ROWS = 4000


class Outcome(NamedTuple):
    """One draw of a table."""

    smaller: float  # factor of bytes, or of nodes for boosting
    whole: float  # test losses of the whole, the pruned and the fresh ensemble
    pruned: float
    fresh: float
    held_out: float  # held_out_loss_
    whole_held_out: float  # whole_loss_, whose error is mostly that of the rows that were drawn
    errors: float  # rise of the share of wrong classes, in percent
    seconds: float  # time of pruning relative to training


def one_draw(name, seed, most, ensemble, held_out):
    """The outcome of one draw of a table."""
    table = Table(name, seed, ensemble, most, held_out, TEST_ROWS)
    pruner = table.pruner
    sizes = (pruner.whole_nodes_, pruner.n_nodes_) if held_out else (pruner.whole_bytes_, pruner.n_bytes_)
    losses = (table.whole_loss, table.loss(pruner), table.loss(table.as_model(table.fresh())))
    errors = 100 * table.rise_of_errors() if table.classes else 0.0
    share = table.pruning_seconds / table.seconds
    estimates = pruner.held_out_loss_, pruner.whole_loss_
    return Outcome(sizes[0] / max(1, sizes[1]), *losses, *estimates, errors, share)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boosting", action="store_true")
    parser.add_argument("--few", action="store_true", help="use the tables of FEW_ROWS for forests, too")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--trees", type=int, default=500)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="number of the first draw")
    parser.add_argument("--set", nargs="*", default=[], metavar="MODULE.NAME=VALUE")
    options = parser.parse_args()
    for each in options.set:
        path, value = each.split("=")
        module, name = path.split(".")
        setattr(importlib.import_module(f"manylens.pruning.{module}"), name, float(value))
    warnings.filterwarnings("ignore")
    makers = [
        lambda classes: (RandomForestClassifier if classes else RandomForestRegressor)(
            options.trees, random_state=0
        )
    ]
    if options.boosting:
        makers = list(PrunedBoostingNodes(False).ensembles())
    print("table            smaller  rise %  errors  to fresh %  held-out/test %  time/training")
    found = []
    for name in FEW_ROWS if options.boosting or options.few else CHOOSING:
        for make in makers:
            # threads cost more than they save on few rows
            ensemble = make(name not in VALUES).set_params(n_jobs=1)
            seeds = range(options.first, options.first + options.draws)
            draws = [one_draw(name, seed, options.rows, ensemble, options.boosting) for seed in seeds]
            found.append(Outcome(*np.array(draws).T))
            print("{:16} {:7.1f} {:7.2f} {:7.2f} {:11.2f} {:16.2f} {:14.2f}".format(name, *row(found[-1])))
    report(found)


def row(table):
    """Figures of one table: those of losses are ratios of sums over draws."""
    ratios = [100 * ratio_error(a, b)[0] for a, b in losses_compared(table)]
    return (
        np.median(table.smaller),
        *(ratios[0], table.errors.mean(), ratios[1], ratios[2]),
        np.median(table.seconds),
    )


def losses_compared(table):
    """Pruned beside whole and fresh ensembles, and the held-out loss beside the test loss."""
    return (table.pruned, table.whole), (table.pruned, table.fresh), (table.held_out, table.pruned)


def report(tables):
    """Print figures of all draws."""
    every = Outcome(*(np.concatenate(each) for each in zip(*tables, strict=True)))
    rise, to_fresh = (100 * (every.pruned / each - 1) for each in (every.whole, every.fresh))
    above = max(ratio_error(table.pruned, table.fresh) for table in tables)
    bias, of_whole = (
        mean_of_tables(pairs)
        for pairs in (
            [(table.held_out, table.pruned) for table in tables],
            [(table.whole_held_out, table.whole) for table in tables],
        )
    )
    print(
        f"{len(every.whole)} draws: median {np.median(every.smaller):.1f} times smaller, rise "
        f"{np.median(rise):.2f} % (at most 1 % in {np.mean(rise <= 1):.3f}, largest {rise.max():.1f}), "
        f"errors {every.errors.mean():+.2f} points,\n"
        f"below fresh in {np.mean(to_fresh < 0):.3f}, more than 1 % above it in {np.mean(to_fresh > 1):.3f} "
        f"(largest {to_fresh.max():.1f} %, mean log {np.mean(np.log1p(to_fresh / 100)):.3f}), worst table "
        f"{100 * above[0]:+.1f} ± {100 * above[1]:.1f} %,\n"
        f"held-out loss {bias} of the test loss (mean of tables; of the whole {of_whole}),\n"
        f"time {np.median(every.seconds):.2f} of training"
    )


def mean_of_tables(pairs):
    """Mean over tables of the relative error of estimates, and its standard error, in percent."""
    errors = 100 * np.array([ratio_error(*pair) for pair in pairs])
    return f"{errors[:, 0].mean():+.1f} ± {np.linalg.norm(errors[:, 1]) / len(errors):.1f} %"


if __name__ == "__main__":
    main()
