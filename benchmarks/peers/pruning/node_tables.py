"""Node pruning on larger draws of all tables, among them those on which its rules were chosen."""

from benchmarks.harness import Claim, result
from benchmarks.peers.pruning.nodes import PrunedBoostingNodes, PrunedNodes, Table
from benchmarks.peers.pruning.tables import VALUES

MANY = (
    Claim(
        "largest loss of a single draw relative to fresh, at least 400 test rows",
        result("ours", "many_worst_to_fresh"),
        at_most=1.01,
    ),
    Claim(
        "mean relative error of held_out_loss_, at least 400 test rows",
        result("ours", "many_held_out_error"),
        at_most=0.02,
    ),
    Claim(
        "pruning time / training time, all tables together",
        result("ours", "total_share_of_time"),
        at_most=0.3,
    ),
)


class LargeDraws:
    """Five draws of each table, with up to 4,000 test rows; claims are about all of them."""

    most_rows, most_test_rows = 4000, 4000
    tables = (
        *("letter", "yeast", "optdigits", "glass", "ionosphere"),
        *("reg_cal_housing", "reg_kin8nm", "reg_abalone", "friedman"),
    )
    slow_tables = ("isolet",)  # of these, one draw

    def make_data(self):
        if self.quick:
            names, most = [("wine", 0), ("friedman", 0)], 400
        else:
            names = [(name, seed) for name in self.tables for seed in range(self.draws)]
            names, most = names + [(name, 0) for name in self.slow_tables], self.most_rows
        made = [
            Table(name, seed, make(name not in VALUES), most, self.held_out, self.most_test_rows)
            for make in self.ensembles()
            for name, seed in names
        ]
        for table in made:
            table.judged = True
        return made


class PrunedForestTables(LargeDraws, PrunedNodes):
    """PrunedNodes with up to 2,000 training rows and 4,000 test rows: letter, isolet, yeast, optdigits,
    glass, ionosphere, California housing, kin8nm, abalone and Friedman's function, five draws each. Rules
    were chosen on small draws of six of these tables (benchmarks.tuning.pruning_nodes); the four others are
    isolet, glass, ionosphere and kin8nm. All tables but glass (72) and ionosphere (117) have at least 400
    test rows."""

    claims = (*PrunedNodes.claims, *MANY)
    most_rows = 2000
    tables = (*LargeDraws.tables, *LargeDraws.slow_tables)
    slow_tables = ()


class PrunedBoostingTables(LargeDraws, PrunedBoostingNodes):
    """PrunedBoostingNodes on tables with up to 4,000 training rows (1,000 of them to prune by) and 4,000 test
    rows, so that test losses tell more: letter, yeast, optdigits, glass, ionosphere, California housing,
    kin8nm, abalone and Friedman's function, five draws each, and one of isolet, on which boosting takes a
    minute. All claims are about all of them, but for those about tables with at least 400 test rows, all but
    glass (72) and ionosphere (117)."""

    claims = (*PrunedBoostingNodes.claims, *MANY)


class PrunedManyRows(PrunedNodes):
    """Up to 16,000 training rows: RandomForest(500) of California housing (13,760 rows), Friedman's function
    and letter (13,333 rows), and LightGBM and XGBoost with 500 rounds of the first two, pruned on a quarter
    of these rows. One draw each, at most 4,000 test rows. "fresh" is a forest of as many bytes, or boosting
    stopped early there."""

    contenders = ("ours", "fresh")
    claims = (
        Claim("median factor of bytes", result("ours", "times_smaller"), at_least=2.5),
        Claim("largest test loss relative to the whole", result("ours", "largest_loss"), at_most=1.01),
        Claim("largest loss relative to fresh", result("ours", "worst_to_fresh"), at_most=1.01),
        Claim("mean relative error of held_out_loss_", result("ours", "held_out_error"), at_most=0.02),
        Claim("median of pruning time / training time", result("ours", "share_of_time"), at_most=0.3),
        MANY[-1],
    )
    most_rows, most_test_rows = 16_000, 4000
    tables, forest_tables = ("reg_cal_housing", "friedman"), ("letter",)

    def make_data(self):
        names, most = (("friedman", "wine"), 400) if self.quick else (self.tables, self.most_rows)
        made = []
        for held_out, kind in ((False, PrunedNodes), (True, PrunedBoostingNodes)):
            some = names if held_out or self.quick else (*names, *self.forest_tables)
            for make in kind(self.quick).ensembles():
                made += [
                    Table(name, 0, make(name not in VALUES), most, held_out, self.most_test_rows)
                    for name in some
                ]
        for table in made:
            table.judged = True
        return made
