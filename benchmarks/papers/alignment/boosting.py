"""Chapter 4, Figures 4.16 to 4.21: boosted ensembles, pruned by alignment and by stacking."""

import numpy as np
from sklearn.ensemble import AdaBoostRegressor, GradientBoostingRegressor
from sklearn.tree import DecisionTreeRegressor

from benchmarks.data.ensembles import Setting
from benchmarks.harness import Findings, Reproduction, Statement, curve, panel
from benchmarks.papers.alignment import PAPER
from benchmarks.papers.alignment.pruning import METHODS, RESULT, SIZES, pruned
from manylens import AlignmentPruner
from manylens.datasets import make_friedman


def some(wanted, holds):
    """Evaluate a statement on the rows whose name contains `wanted`."""
    return lambda found: {row: holds(cells) for row, cells in found[RESULT].items() if wanted in row}


def stage_errors(setting):
    """Training and test errors of the first 1, 2, ... stages, with the weights of boosting."""
    weights = setting.members.baseline[: setting.sizes[-1]]
    trained, tested = (
        np.cumsum(part[:, : len(weights), 0] * weights, axis=1, dtype=np.float64)
        for part in (setting.P, setting.T)
    )
    if setting.members.additive:
        start = setting.Y.mean() - trained.mean(axis=0)  # the initial prediction, so that means agree
        trained, tested = trained + start, tested + start
    else:
        trained, tested = (scores / np.cumsum(weights) for scores in (trained, tested))
    return [np.mean((p - y) ** 2, axis=0) for p, y in ((trained, setting.Y), (tested, setting.truth))]


def stopping_stage(errors):
    """Number of stages after which ten more lower the error by less than 1 %; all stages if there is none."""
    gained = errors[:-10] - errors[10:]
    small = np.flatnonzero(gained < 0.01 * errors[:-10])
    return int(small[0]) + 1 if len(small) else len(errors)


class PrunedBoosting(Reproduction):
    """Gradient boosting (10, 20 and 50 % of the rows per stage) and AdaBoost with up to 256 trees of 1, 3 and
    10 levels, on Friedman's function."""

    paper = PAPER
    where = "Figures 4.16 to 4.21"
    reduced = (
        "2,000 training rows, one draw of the data, and at most 256 stages instead of 1,024, to save time."
    )
    differs = """The targets of the training rows are used without an anchor, as in the thesis; our defaults
    choose the anchor. Errors are relative to the full model. The thesis does not give its rule for early
    stopping; here training stops once ten more stages lower the training error by less than 1 %. AdaBoost
    predicts the weighted mean, as in pruning, instead of the weighted median."""
    statements = (
        Statement(
            "gradient boosting: the error after alignment is at most 1 % above that of boosting",
            quote="Our proposed LKA is able to perform as well as boosting",
            source="Figure 4.16",
            cases=some("gradient", lambda cells: cells["LKA error"] <= 1.01),
            ours=some("gradient", lambda cells: cells["default error"] <= 1.01),
        ),
        Statement(
            "gradient boosting: alignment improves on boosting at the smallest ratio",
            quote="and improves the performance of boosting when the bootstrap ratio is small",
            source="Figure 4.16",
            cases=some("10%", lambda cells: cells["LKA error"] < 1),
            ours=some("10%", lambda cells: cells["default error"] < 1),
        ),
        Statement(
            "gradient boosting: stacking is worse than boosting with 1 and 3 levels at a ratio of 50 %",
            quote="""Stacked Generalisation gives worse performance than boosting itself when 3-layer
            trees or tree stumps are applied in learning with a bootstrap ratio 50%.""",
            source="Figure 4.16",
            cases=lambda found: {
                row: cells["stacking error"] > 1
                for row, cells in found[RESULT].items()
                if "50%" in row and "10 levels" not in row
            },
        ),
        Statement(
            "alignment keeps fewer stages than stacking",
            quote="LKA prunes more predictors than Stacked Generalisation does",
            source="Figures 4.17 and 4.19",
            cases=some("", lambda cells: cells["LKA kept"] < cells["stacking kept"]),
            ours=some("", lambda cells: cells["default kept"] < cells["stacking kept"]),
        ),
        Statement(
            "gradient boosting: alignment keeps at most 60 % of the stages",
            quote="LKA is able to prune around half of the predictors",
            source="Figure 4.20",
            cases=some("gradient", lambda cells: cells["LKA kept"] <= 0.6 * cells["members"]),
            ours=some("gradient", lambda cells: cells["default kept"] <= 0.6 * cells["members"]),
        ),
        Statement(
            "AdaBoost: alignment and stacking both reach a lower error",
            quote="Both LKA and Stacked Generalisation reach lower test error than AdaBoost does",
            source="Section 4.5.3",
            cases=some("AdaBoost", lambda cells: cells["LKA error"] < 1 and cells["stacking error"] < 1),
            ours=some("AdaBoost", lambda cells: cells["default error"] < 1 and cells["stacking error"] < 1),
        ),
        Statement(
            "gradient boosting: stacking keeps all stages",
            quote="""Stacked Generalisation always keeps the entirety of the predictors for the inference
            time""",
            source="Figure 4.20",
            cases=some("gradient", lambda cells: cells["stacking kept"] == cells["members"]),
        ),
        Statement(
            "AdaBoost: alignment and stacking both keep less than half of the stages",
            some(
                "AdaBoost",
                lambda cells: max(cells["LKA kept"], cells["stacking kept"]) < 0.5 * cells["members"],
            ),
            some(
                "AdaBoost",
                lambda cells: max(cells["default kept"], cells["stacking kept"]) < 0.5 * cells["members"],
            ),
            quote="Both LKA and Stacked Generalisation prune more than half of the predictors",
            source="Figure 4.21",
        ),
        Statement(
            "AdaBoost: stopping early is worse than alignment and than stacking",
            quote="""with early stopping, AdaBoost doesn't perform as well as LKA or Stacked
            Generalisation on the test set""",
            source="Figure 4.21",
            cases=some(
                "AdaBoost",
                lambda cells: (
                    cells["early stopping error"] > max(cells["LKA error"], cells["stacking error"])
                ),
            ),
            ours=some("AdaBoost", lambda cells: cells["early stopping error"] > cells["default error"]),
        ),
    )

    def compute(self):
        rows, figures = {}, {}
        n, stages = (200, 16) if self.quick else (2_000, 256)
        parts = [make_friedman(size, random_state=2 * self.seed + k) for k, size in enumerate((n, 1_000))]
        for depth in (1,) if self.quick else (1, 3, 10):
            tree = DecisionTreeRegressor(max_depth=depth)
            models = {
                f"gradient, {depth} levels, {share:.0%}": GradientBoostingRegressor(
                    n_estimators=stages, max_depth=depth, subsample=share, random_state=self.seed
                )
                for share in (0.1, 0.2, 0.5)
            }
            models[f"AdaBoost, {depth} levels"] = AdaBoostRegressor(
                tree, n_estimators=stages, random_state=self.seed
            )
            for name, model in models.items():
                setting = Setting(model, *parts, SIZES)
                cells, kept, errors = {"members": setting.sizes[-1]}, {}, {}
                for label, method in METHODS.items():
                    outcome, _ = pruned(setting, method)
                    cells |= {f"{label} kept": int(outcome[-1, 0]), f"{label} error": outcome[-1, 1]}
                    kept[label] = curve(setting.sizes, outcome[:, 0], style="o-")
                    errors[label] = curve(setting.sizes, outcome[:, 1], style="o-")
                trained, tested = stage_errors(setting)
                default = AlignmentPruner(model).fit(*parts[0])
                error = setting.error(default.predict(parts[1][0])[:, np.newaxis])
                cells |= {"default kept": default.n_kept_, "default error": error / tested[-1]}
                stop, relative = stopping_stage(trained), tested / tested[-1]
                cells |= {"early stopping kept": stop, "early stopping error": relative[stop - 1]}
                rows[name] = cells
                dots = {
                    label: curve([cells[f"{label} kept"]], [cells[f"{label} error"]], style="o")
                    for label in (*METHODS, "early stopping")
                }
                line = {"all stages so far": curve(range(1, len(relative) + 1), relative)}
                if "20%" not in name:
                    figures[f"{name}: stage by stage"] = panel(
                        "stages", "relative error", line | dots, log="y"
                    )
                    figures[f"{name}: kept"] = panel("stages", "kept", kept, log="xy")
                    figures[f"{name}: error"] = panel("stages", "relative error", errors, log="x")
        return Findings({RESULT: rows}, figures)
