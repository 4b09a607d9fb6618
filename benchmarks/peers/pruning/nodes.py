"""Node pruning compared with fresh, depth-pruned and cost-complexity-pruned ensembles of the same size."""

import copy
import time
import warnings

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from benchmarks.harness import Claim, Comparison, ratio, result
from benchmarks.peers.pruning.tables import CHOOSING, JUDGED, NEEDED, VALUES, draw
from manylens.datasets import make_friedman
from manylens.pruning import PrunedTrees, TreePruner
from manylens.pruning.node_path import Nodes, open_nodes, renumbered
from manylens.pruning.path_losses import first_sizes, nodes_size
from manylens.pruning.pruned_trees import find_format, tree_bytes

MOST_ROWS = 1500  # of training, and of testing
MANY_ROWS = 400  # test rows from which scores that start with many_ count a table
NORMAL = float(np.sqrt(2 / np.pi))  # mean absolute value of a normal variable, in standard deviations


class Table:
    """One table and draw: a fitted ensemble, and the losses of others relative to it."""

    def __init__(self, name, seed, ensemble, most, held_out, most_test=None):
        self.name, self.classes, self.judged = name, name not in VALUES, name in JUDGED
        X, y, self.T, self.truth = draw(name, seed, most, most_test)
        if held_out:  # boosting is pruned on rows that it was not fitted to
            X, self.X, y, self.y = train_test_split(
                X, y, test_size=0.25, random_state=seed, stratify=y if self.classes else None
            )
        else:
            self.X, self.y = X, y
        self.train = X, y
        start = time.perf_counter()
        self.ensemble = clone(ensemble).fit(X, y)
        self.seconds = time.perf_counter() - start
        form = find_format(self.ensemble)
        self.whole = form.read(self.ensemble)
        self.whole_loss = self.loss(self.as_model(self.whole))
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="No smaller model")
            self.pruner = TreePruner(self.ensemble, random_state=seed).fit(self.X, self.y)
        self.pruning_seconds = time.perf_counter() - start

    def as_model(self, trees):
        """A model that predicts with these trees."""
        model = PrunedTrees(trees, None, True)
        model.n_features_in_ = self.T.shape[1]
        return model

    def loss(self, model):
        """Test loss: log loss or squared error."""
        if not self.classes:
            return float(np.mean((model.predict(self.T) - self.truth) ** 2))
        known = np.isin(self.truth, model.classes_)
        P = model.predict_proba(self.T[known])
        return float(log_loss(self.truth[known], P, labels=model.classes_))

    def row_losses(self, model):
        """Test losses of single rows."""
        if not self.classes:
            return (model.predict(self.T) - self.truth) ** 2
        known = np.isin(self.truth, model.classes_)
        P = model.predict_proba(self.T[known])
        own = P[np.arange(len(P)), np.searchsorted(model.classes_, self.truth[known])]
        return -np.log(np.maximum(own, np.finfo(P.dtype).eps))

    def test_error(self):
        """Standard error of the test loss, relative to it: what the number of test rows leaves open."""
        losses = self.row_losses(self.pruner)
        return relative_error(losses, losses.mean())

    def errors_above_fresh(self):
        """By how many of its standard errors the test loss is above that of fresh, row by row."""
        difference = self.row_losses(self.pruner) - self.row_losses(self.as_model(self.fresh()))
        return float(difference.mean() / max(relative_error(difference, 1.0), 1e-300))

    def rise_of_errors(self, model=None):
        """By how much the share of wrong classes of a model (the pruned one) is above that of the whole."""
        model = self.pruner if model is None else model
        return float(
            np.mean(model.predict(self.T) != self.truth)
            - np.mean(self.ensemble.predict(self.T) != self.truth)
        )

    def relative(self, trees):
        """Test loss relative to that of the whole ensemble."""
        return self.loss(self.as_model(trees)) / self.whole_loss

    def fresh(self):
        """The first trees of the ensemble with as many bytes: a forest, or boosting stopped early."""
        return self.first_trees(self.pruner.n_bytes_)

    def first_trees(self, most):
        """As many first trees (whole stages of boosting) as have at most this many bytes; at least one."""
        stage = 1 if self.whole.averages else self.whole.n_outputs
        sizes = first_sizes(self.whole)[stage - 1 :: stage, 2]
        count = stage * max(1, int(np.searchsorted(sizes, most, side="right")))
        return open_nodes(self.whole, count).ensemble()

    def depth_pruned(self):
        """The best of forests whose trees end at some depth, with as many bytes, by their test loss."""
        found = []
        for share in (1, 2, 4, 8):
            nodes = open_nodes(self.whole, max(1, len(self.whole.trees.roots) // share))
            for depth in range(1, 30):
                model = ended_at(nodes, depth)
                if nodes_size(model)[2] > self.pruner.n_bytes_:
                    break
                found.append(self.relative(model.ensemble()))
        return min(found, default=np.nan)

    def cost_complexity_pruned(self):
        """A forest with as many bytes, by scikit-learn's ccp_alpha; the largest that fits.

        The fitted trees are pruned, as a fit with ccp_alpha would do after growing the same trees.
        """
        low, high, found = -9.0, 1.0, np.nan
        scale = 1.0 if self.classes else float(np.var(self.train[1]))
        for step in range(BISECTIONS):
            middle = (low + high) / 2
            part = 10 if step < BISECTIONS - 2 else 1  # first by a tenth of the trees
            trees = cost_complexity(self.ensemble, scale * 10**middle, part)
            if part * tree_bytes(trees.trees) <= self.pruner.n_bytes_:
                high = middle
                found = self.relative(trees) if part == 1 else found
            else:
                low = middle
        if np.isnan(found):
            found = self.relative(cost_complexity(self.ensemble, scale * 10 ** (high + 0.1), 1))
        return found


BISECTIONS = 10


def cost_complexity(forest, alpha, part):
    """Every part-th tree of a forest, pruned by minimal cost complexity."""
    pruned = copy.copy(forest)
    pruned.estimators_ = [copy.copy(tree) for tree in forest.estimators_[::part]]
    for tree in pruned.estimators_:
        tree.ccp_alpha = alpha
        tree._prune_tree()  # sets a new tree_; there is no public way that does not fit again
    return find_format(pruned).read(pruned)


def inner_levels(children, roots):
    """The inner nodes of all trees, level by level from the roots down."""
    level = roots[children[roots, 0] != roots]
    while len(level):
        yield level
        below = children[level].ravel()
        level = below[children[below, 0] != below]


def ended_at(nodes: Nodes, depth):
    """Trees whose nodes at a depth are leaves with the mean of what is below."""
    cut = np.zeros(len(nodes.children), dtype=bool)
    for level in [*inner_levels(nodes.children, nodes.roots[:-1])][depth:]:
        cut[level] = True
    return renumbered(nodes, nodes.value, cut)[0]


def relative_error(values, scale):
    """Standard error of the mean of values, relative to a scale."""
    return float(np.std(values) / np.sqrt(max(1, len(values) - 1)) / scale)


class PrunedNodes(Comparison):
    """RandomForest(500), at most 1,500 training and 1,500 test rows: bytes of all arrays of nodes, counted in
    the same way for all, and test loss (log loss or squared error) relative to the whole forest. "fresh",
    "depth" (best of all depths and of 500, 250, 125 and 62 trees, chosen by the test loss) and
    "cost_complexity" (ccp_alpha) have at most as many bytes as "ours". All claims are about tables on which
    no rule was chosen: isolet, usps, glass, ionosphere, ecoli, balance, breast cancer, wine, kin8nm and
    diabetes, five draws each. Scores that start with chosen_ are of one draw each of the tables by which
    rules were chosen (benchmarks.tuning.pruning_nodes): letter, yeast, optdigits, digits, abalone, California
    housing and five generated ones. Forest and pruning both use all cores. Standard errors are over tables
    and draws. Seven of the ten tables have only 60 to 209 test rows: "test error" is the mean standard error
    of a test loss, relative to it; "rise of errors" is by how much the share of wrong classes is above that
    of the whole, and "fresh rise of errors" the same for fresh; "held out error" is the mean of
    held_out_loss_ / test loss, less one, and "held out error of the truth" what it would be if held_out_loss_
    were exact (the mean of 1/test loss is larger than 1/mean); "held out absolute error" is the mean of
    |held_out_loss_ / test loss - 1|, and "absolute error of the truth" what the number of test rows alone
    would make of it; "held out pooled error" is that of the sum of held_out_loss_ over all settings, relative
    to the sum of the test losses (both relative to the whole). Whether held_out_loss_ is biased is measured
    by PrunedNodesHeldOut, with more draws. "errors above fresh" is the largest difference to fresh, in its
    own standard errors. "table worst to fresh" is the largest ratio of the losses of a table, summed over its
    draws, to those of fresh, "table worst error" its standard error over draws, and "worst to fresh" the
    largest ratio of a single draw."""

    contenders = ("ours", "fresh", "depth", "cost_complexity")
    claims = (
        Claim("median factor of bytes", result("ours", "times_smaller"), at_least=8),
        Claim("median test loss relative to the whole", result("ours", "relative_loss"), at_most=1.01),
        Claim("settings with a smaller loss than fresh", result("ours", "below_fresh"), at_least=0.85),
        Claim(
            "largest loss of a table (sum over its draws) relative to fresh",
            result("ours", "table_worst_to_fresh"),
            at_most=1.01,
        ),
        Claim(
            "largest loss of a single draw relative to fresh", result("ours", "worst_to_fresh"), at_most=1.01
        ),
        Claim("settings with a smaller loss than depth pruning", result("depth", "beaten"), at_least=0.8),
        Claim(
            "settings with a smaller loss than cost-complexity pruning",
            result("cost_complexity", "beaten"),
            at_least=0.8,
        ),
        Claim("mean relative error of held_out_loss_", result("ours", "held_out_error"), at_most=0.02),
        Claim("median of pruning time / training time", result("ours", "share_of_time"), at_most=0.3),
    )
    needs = NEEDED
    memory = False
    warm_up = False
    repeats = 1
    held_out = False
    draws = 5
    most_rows = MOST_ROWS
    chosen_tables = CHOOSING

    def ensembles(self):
        size = 30 if self.quick else 500
        yield lambda classes: (RandomForestClassifier if classes else RandomForestRegressor)(
            size, random_state=0, n_jobs=-1
        )

    def make_data(self):
        if self.quick:
            names, most = [("digits", 0), ("wine", 0), ("diabetes", 0)], 300
        else:
            names = [(name, seed) for name in JUDGED for seed in range(self.draws)]
            names, most = names + [(name, 0) for name in self.chosen_tables], self.most_rows
        return [
            Table(name, seed, make(name not in VALUES), most, self.held_out)
            for make in self.ensembles()
            for name, seed in names
        ]

    def ours(self, data):
        return np.array([table.loss(table.pruner) / table.whole_loss for table in data])

    def fresh(self, data):
        return np.array([table.relative(table.fresh()) for table in data])

    def depth(self, data):
        return np.array([table.depth_pruned() if table.judged else np.nan for table in data])

    def cost_complexity(self, data):
        return np.array([table.cost_complexity_pruned() if table.judged else np.nan for table in data])

    def score(self, data, outcome):
        judged = np.array([table.judged for table in data])
        ours, fresh = self.ours(data), self.fresh(data)
        if np.array_equal(outcome, ours):
            chosen = {} if judged.all() else scores_of(data, ours, fresh, ~judged)
            return scores_of(data, ours, fresh, judged) | {f"chosen_{key}": chosen[key] for key in chosen}
        ours, outcome = ours[judged], outcome[judged]
        return relative_loss(outcome) | {"beaten": float(np.mean(~(ours >= outcome)))}


def relative_loss(losses):
    """Median, and standard error of the mean."""
    return {
        "relative_loss": float(np.nanmedian(losses)),  # of settings with a model as small
        "standard_error": float(np.nanstd(losses) / np.sqrt(max(1, len(losses)))),
    }


def scores_of(data, ours, fresh, wanted):
    """Scores of "ours" on some of the tables."""
    tables, ours, fresh = [data[k] for k in np.flatnonzero(wanted)], ours[wanted], fresh[wanted]
    pruners = [table.pruner for table in tables]
    estimated = np.array([t.pruner.held_out_loss_ / t.loss(t.pruner) for t in tables])
    smaller = np.array([pruner.whole_bytes_ / max(1, pruner.n_bytes_) for pruner in pruners])
    classes = [t for t in tables if t.classes]
    many = np.array([len(t.T) >= MANY_ROWS for t in tables])
    above, above_error = worst_table(tables, ours, fresh)
    if many.any():
        found = {
            "many_worst_to_fresh": float(np.max((ours / fresh)[many])),
            "many_held_out_error": float(abs(np.mean(estimated[many]) - 1)),
            "many_below_fresh": float(np.mean((ours < fresh)[many])),
        }
    else:
        found = {}
    return (
        relative_loss(ours)
        | found
        | {
            "times_smaller": float(np.median(smaller)),
            "least_times_smaller": float(smaller.min()),
            "times_fewer_nodes": float(
                np.median([each.whole_nodes_ / max(1, each.n_nodes_) for each in pruners])
            ),
            "largest_loss": float(ours.max()),
            "not_above_101_percent": float(np.mean(ours <= 1.01)),
            "rise_of_errors": float(np.mean([t.rise_of_errors() for t in classes])),
            "fresh_rise_of_errors": float(
                np.mean([t.rise_of_errors(t.as_model(t.fresh())) for t in classes])
            ),
            "below_fresh": float(np.mean(ours < fresh)),
            "table_worst_to_fresh": 1 + above,
            "table_worst_error": above_error,
            "worst_to_fresh": float(np.max(ours / fresh)),
            "held_out_error": float(abs(np.mean(estimated) - 1)),
            "held_out_standard_error": float(np.std(estimated) / np.sqrt(len(estimated))),
            "held_out_absolute_error": float(np.mean(abs(estimated - 1))),
            "absolute_error_of_the_truth": float(np.mean([NORMAL * t.test_error() for t in tables])),
            "held_out_median_error": float(abs(np.median(estimated) - 1)),
            "held_out_pooled_error": float(abs(np.sum(estimated * ours) / np.sum(ours) - 1)),
            "held_out_error_of_the_truth": float(np.mean([t.test_error() ** 2 for t in tables])),
            "test_error": float(np.mean([t.test_error() for t in tables])),
            "errors_above_fresh": float(np.max([t.errors_above_fresh() for t in tables])),
            "share_of_time": float(np.median([t.pruning_seconds / t.seconds for t in tables])),
            "total_share_of_time": sum(t.pruning_seconds for t in tables) / sum(t.seconds for t in tables),
        }
    )


def worst_table(tables, ours, fresh):
    """By how much the summed losses of a table are above those of fresh, at most, and the standard error.

    `ours` and `fresh` are losses relative to the whole ensemble.
    """
    found = {}
    for table, *losses in zip(tables, ours, fresh, strict=True):
        draws = found.setdefault((table.name, type(table.ensemble).__name__), [])
        draws.append(table.whole_loss * np.array(losses))
    return max(ratio_error(*np.transpose(draws)) for draws in found.values())


class PrunedNodesHeldOut(Comparison):
    """Is held_out_loss_ biased? RandomForest(500), on the ten tables on which no rule was chosen. Tables with
    at most 625 rows are drawn 20 times (a third of the rows are for testing), so that almost every row is a
    test row in several draws; isolet, usps and kin8nm are drawn five times, with 600 training rows and at
    most 4,000 test rows. The error of a table is that of the sum of held_out_loss_ over its draws, relative
    to the sum of the test losses, with the standard error of a ratio over draws; draws of a small table share
    rows, so it is a rough one. "bias" is the mean over tables, weighted by 1/(standard error² + 0.02²), "mean
    of tables" the plain mean. "ours" is the pruned forest, "whole" the forest itself, whose loss is estimated
    by out-of-bag rows. "absolute error" is the mean of |held_out_loss_ / test loss - 1| over draws, and
    "absolute error of the truth" what the number of test rows alone would make of it. "above fresh" is by how
    much the sum of test losses is above that of fresh forests of the same bytes, in the worst table."""

    contenders = ("ours", "whole")
    claims = (
        Claim("bias of held_out_loss_, weighted by precision", result("ours", "bias_size"), at_most=0.02),
        Claim(
            "bias of held_out_loss_, plain mean of tables",
            result("ours", "mean_of_tables"),
            at_least=-0.02,
            at_most=0.02,
        ),
        Claim("largest loss of a table relative to fresh", result("ours", "above_fresh"), at_most=0.01),
    )
    needs = NEEDED
    memory = False
    warm_up = False
    repeats = 1
    many = ("isolet", "usps", "reg_kin8nm")  # tables with thousands of rows
    training, testing = 600, 4000

    def make_data(self):
        names = ("wine", "diabetes") if self.quick else JUDGED
        found = []
        for name in names:
            kind = RandomForestRegressor if name in VALUES else RandomForestClassifier
            forest = kind(30 if self.quick else 500, random_state=0, n_jobs=-1)
            for seed in range(3 if self.quick else 5 if name in self.many else 20):
                table = Table(name, seed, forest, self.training, False, self.testing)
                fresh = table.loss(table.as_model(table.fresh()))
                losses = table.pruner.held_out_loss_, table.loss(table.pruner)
                whole = table.pruner.whole_loss_, table.whole_loss
                found.append((name, *losses, *whole, table.test_error(), fresh))  # the forests are let go
        return found

    def ours(self, data):
        return [(each[0], each[1], each[2]) for each in data]

    def whole(self, data):
        return [(each[0], each[3], each[4]) for each in data]

    def score(self, data, outcome):
        names = list(dict.fromkeys(each[0] for each in data))
        estimate, test = (np.array([each[k] for each in outcome]) for k in (1, 2))
        of = {name: np.array([each[0] == name for each in data]) for name in names}
        errors = np.array([ratio_error(estimate[of[name]], test[of[name]]) for name in names])
        weight = 1 / (errors[:, 1] ** 2 + LEAST_ERROR**2)
        weight /= weight.sum()
        bias, count = float(weight @ errors[:, 0]), len(names)
        found = {
            "bias": bias,
            "bias_size": abs(bias),
            "bias_error": float(np.linalg.norm(weight * errors[:, 1])),
            "mean_of_tables": float(errors[:, 0].mean()),
            "mean_of_tables_error": float(np.linalg.norm(errors[:, 1]) / count),
            "absolute_error": float(np.mean(abs(estimate / test - 1))),
        }
        if np.array_equal(estimate, [each[1] for each in data]):
            fresh = np.array([each[6] for each in data])
            found["absolute_error_of_the_truth"] = float(np.mean([NORMAL * each[5] for each in data]))
            found["above_fresh"] = max(ratio_error(test[k], fresh[k])[0] for k in of.values())
            found["not_above_fresh"] = float(np.mean(test <= fresh))
        return found | dict(zip(names, errors[:, 0].tolist(), strict=True))


LEAST_ERROR = 0.02  # added to standard errors, so that no single table decides


def ratio_error(estimates, truths):
    """Σ estimates / Σ truths - 1 over draws, and its standard error."""
    share = float(estimates.sum() / truths.sum())
    return share - 1, relative_error(estimates - share * truths, truths.mean())


class PrunedBoostingNodes(PrunedNodes):
    """LightGBM and XGBoost with 500 rounds and their defaults, like PrunedNodes: five draws of at most 800
    rows of each table on which no rule was chosen, and of yeast and Friedman's function (chosen_). They are
    pruned on a quarter of the training rows, which they are not fitted to. "fresh" is boosting stopped early
    at as many bytes."""

    contenders = ("ours", "fresh")
    claims = (
        Claim("median factor of nodes", result("ours", "times_fewer_nodes"), at_least=2.5),
        Claim("median test loss relative to the whole", result("ours", "relative_loss"), at_most=1.01),
        Claim(
            "largest loss of a table (sum over its draws) relative to early stopping",
            result("ours", "table_worst_to_fresh"),
            at_most=1.01,
        ),
        Claim(
            "largest loss of a single draw relative to early stopping",
            result("ours", "worst_to_fresh"),
            at_most=1.01,
        ),
        Claim("mean relative error of held_out_loss_", result("ours", "held_out_error"), at_most=0.02),
        Claim("median of pruning time / training time", result("ours", "share_of_time"), at_most=0.3),
    )
    held_out = True
    most_rows = 800
    chosen_tables = ("yeast", "friedman")

    def ensembles(self):
        import lightgbm
        import xgboost

        size = 20 if self.quick else 500
        yield lambda classes: (lightgbm.LGBMClassifier if classes else lightgbm.LGBMRegressor)(
            n_estimators=size, verbose=-1
        )
        yield lambda classes: (xgboost.XGBClassifier if classes else xgboost.XGBRegressor)(n_estimators=size)


class PrunedToLimits(Comparison):
    """`max_bytes`: RandomForest(500), LightGBM and XGBoost (500 rounds) pruned to a fifth, a twentieth and a
    hundredth of their bytes, beside a fresh forest of these bytes, or boosting stopped early there. At most
    3,000 training rows of kin8nm, diabetes, ionosphere, breast cancer, usps and Friedman's function, and
    boosting is pruned on a quarter of them. Test losses are relative to the whole; `bytes used` is the mean
    share of the limit."""

    contenders = ("ours", "fresh")
    claims = (
        Claim("settings with a smaller loss than fresh", result("ours", "below_fresh"), at_least=0.85),
        Claim("largest loss relative to fresh", result("ours", "worst_to_fresh"), at_most=1.01),
        Claim("largest share of the bytes that are allowed", result("ours", "most_bytes_used"), at_most=1),
    )
    needs = NEEDED
    memory = False
    warm_up = False
    repeats = 1
    shares = (0.2, 0.05, 0.01)
    tables = ("reg_kin8nm", "diabetes", "ionosphere", "breast_cancer", "usps", "friedman")

    def make_data(self):
        names, most = (("wine", "friedman"), 300) if self.quick else (self.tables, 3000)
        made = []
        for held_out, kind in ((False, PrunedNodes), (True, PrunedBoostingNodes)):
            for make in kind(self.quick).ensembles():
                made += [Table(name, 0, make(name not in VALUES), most, held_out) for name in names]
        return made

    def limited(self, table):
        """Pruners of a table, one per share of the bytes."""
        for share in self.shares:
            most = int(share * tree_bytes(table.whole.trees))
            pruner = TreePruner(table.ensemble, loss=None, max_bytes=most, random_state=0)
            yield most, pruner.fit(table.X, table.y)

    def ours(self, data):
        self.used = []
        losses = []
        for table in data:
            for most, pruner in self.limited(table):
                self.used.append(pruner.n_bytes_ / most)
                losses.append(table.loss(pruner) / table.whole_loss)
        return np.array(losses).reshape(len(data), -1)

    def fresh(self, data):
        losses = []
        for table in data:
            for share in self.shares:
                most = int(share * tree_bytes(table.whole.trees))
                losses.append(table.relative(table.first_trees(most)))
        return np.array(losses).reshape(len(data), -1)

    def score(self, data, outcome):
        found = {f"loss_at_{share}": float(np.median(outcome[:, k])) for k, share in enumerate(self.shares)}
        fresh = self.fresh(data)
        if np.array_equal(outcome, fresh):
            return found
        return found | {
            "below_fresh": float(np.mean(outcome < fresh)),
            "worst_to_fresh": float(np.max(outcome / fresh)),
            "bytes_used": float(np.mean(self.used)),
            "most_bytes_used": float(np.max(self.used)),
        }


class PrunedTreeSpeed(Comparison):
    """Prediction of 10,000 rows with a pruned forest (Friedman's function, 500 trees) in our loops,
    onnxruntime and treelite's GTIL; one thread."""

    contenders = ("ours", "onnxruntime", "treelite")
    claims = (
        Claim("times as fast as onnxruntime", ratio("onnxruntime", "ours"), at_least=1),
        Claim("times as fast as treelite", ratio("treelite", "ours"), at_least=1),
        Claim("largest difference to onnxruntime", result("onnxruntime", "difference"), at_most=1e-5),
    )
    repeats = 5
    memory = False
    rows, calls = 10_000, 1

    def make_data(self):
        import onnxruntime

        X, y = make_friedman(300 if self.quick else 3000, random_state=0)
        forest = RandomForestRegressor(40 if self.quick else 500, random_state=0, n_jobs=-1).fit(X, y)
        small = TreePruner(forest, max_nodes=1000 if self.quick else 30_000, random_state=0).fit(X, y)
        model = small.estimator_
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(model.to_onnx().SerializeToString(), options)
        new = make_friedman(self.rows, random_state=1)[0].astype(np.float32)
        self.wanted = model.predict(new)
        return model, session, model.to_treelite(), new

    def ours(self, data):
        model, _, _, new = data
        return np.concatenate([model.predict(part) for part in np.split(new, self.calls)])

    def onnxruntime(self, data):
        _, session, _, new = data
        parts = np.split(new, self.calls)
        return np.concatenate([session.run(None, {"X": part})[0][:, 0] for part in parts])

    def treelite(self, data):
        import treelite

        *_, model, new = data
        parts = np.split(new, self.calls)
        return np.concatenate([np.ravel(treelite.gtil.predict(model, part, nthread=1)) for part in parts])

    def score(self, data, outcome):
        return {"difference": float(np.max(np.abs(outcome / self.wanted - 1)))}


class PrunedTreeSpeedRowByRow(PrunedTreeSpeed):
    """Like PrunedTreeSpeed, 1,000 calls with one row each."""

    rows = calls = 1000
