"""Compare rules for the size limits of TreePruner: `python -m benchmarks.tuning.pruning_limits`.

Forests, LightGBM and XGBoost are pruned to a fifth, a twentieth and a hundredth of their bytes, on tables
of `CHOOSING` only. Options replace constants, for example `--set model_choice.EVIDENCE=0` (no evidence) or
`--set model_choice.EVIDENCE=inf` (always the first trees).
"""

import argparse
import importlib
import warnings

import numpy as np

from benchmarks.peers.pruning.nodes import PrunedBoostingNodes, PrunedNodes, PrunedToLimits, Table
from benchmarks.peers.pruning.tables import VALUES

TABLES = ("friedman", "friedman2", "friedman3", "reg_abalone", "reg_cal_housing", "clusters", "shells")
TEST_ROWS = 3000


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[250, 700])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--set", nargs="*", default=[], metavar="MODULE.NAME=VALUE")
    options = parser.parse_args()
    for each in options.set:
        path, value = each.split("=")
        module, name = path.split(".")
        setattr(importlib.import_module(f"manylens.pruning.{module}"), name, float(value))
    warnings.filterwarnings("ignore")
    limits = PrunedToLimits(False)
    makers = [(False, make) for make in PrunedNodes(False).ensembles()]
    makers += [(True, make) for make in PrunedBoostingNodes(False).ensembles()]
    print("losses relative to the first trees within the same bytes, mean of draws")
    for held_out, make in makers:
        found = []
        for rows in options.rows:
            for name in TABLES:
                data = [
                    Table(name, seed, make(name not in VALUES), rows, held_out, TEST_ROWS)
                    for seed in range(options.draws)
                ]
                ratios = limits.ours(data) / limits.fresh(data)  # draws x shares of the bytes
                found.append(ratios)
                print(type(data[0].ensemble).__name__, rows, name, ratios.mean(axis=0).round(3), flush=True)
        ratios = np.concatenate(found)
        print(
            f"mean log {np.log(ratios).mean():.3f}, more than 1 % worse in {np.mean(ratios > 1.01):.3f} of "
            f"{ratios.size} settings, largest {ratios.max():.3f}, smaller in {np.mean(ratios < 1):.3f}"
        )


if __name__ == "__main__":
    main()
