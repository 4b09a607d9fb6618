"""Figures 2, 3, 4, 6, 7 and 9: precision, accuracy and test time against the width of a module."""

from benchmarks.data.image_sets import DIFFERS, NAMES, NEEDS, load_parts
from benchmarks.harness import Findings, Reproduction, Statement, curve, panel
from benchmarks.papers.dimensionality_reduction.views import (
    BASELINES,
    PAPER,
    TOTAL,
    ask,
    chosen,
    fitted,
    monolithic,
    over_diversities,
    questions,
)

WIDTHS = (5, 10, 15, 20, 30, 50, 100)
MODULAR = "Modular"


def cases_by_width(found, title, holds):
    """Every data set and width as a case: whether `holds(row, width)`."""
    return {
        f"{name} H={width}": holds(row, width)
        for name, row in by_set(found, title).items()
        for width in WIDTHS
        if f"{MODULAR} {width}" in row
    }


def by_set(found, title):
    return found.tables[title]


def best_of_modular(row, width):
    """Whether the modular method is the best of the four, or level with it."""
    return row[f"{MODULAR} {width}"] >= max(row[f"{other} {width}"] for other in BASELINES)


class QualityByModuleWidth(Reproduction):
    """Modules of 5 to 100 dimensions, 300 in total: precision, accuracy of voting, and test time of both."""

    paper = PAPER
    where = "Figures 2, 3, 4, 6, 7 and 9"
    needs = NEEDS
    differs = (
        DIFFERS
        + """ 4,000 training rows, 500 test rows and a rank-500 map; the diversity is chosen among 0.9, 0.99
    and 0.999 on 300 other rows for every width. Times are of one thread, one module's share of the work and
    the ranking."""
    )
    statements = (
        Statement(
            "precision is typically higher than with the other kinds of modules at every width",
            lambda found: cases_by_width(found, "precision", best_of_modular),
        ),
        Statement(
            "with wider modules precision approaches that of the top 300 components (within 3 points at 100)",
            lambda found: {
                name: abs(row[f"{MODULAR} {max(widths(row))}"] - row["Monolithic"]) <= 3
                for name, row in by_set(found, "precision").items()
            },
        ),
        Statement(
            "voting is more accurate than with the other kinds of modules at every width",
            lambda found: cases_by_width(found, "accuracy", best_of_modular),
        ),
        Statement(
            "the time of voting increases with the width",
            lambda found: {
                name: row[f"vote {max(widths(row, 'vote'))}"] > row[f"vote {min(widths(row, 'vote'))}"]
                for name, row in by_set(found, "milliseconds").items()
            },
        ),
        Statement(
            "the time of retrieval first decreases with the width (many modules give many candidates)",
            lambda found: {
                name: row[f"retrieval {min(widths(row, 'retrieval'))}"]
                > min(row[f"retrieval {w}"] for w in widths(row, "retrieval"))
                for name, row in by_set(found, "milliseconds").items()
            },
        ),
    )

    def compute(self):
        tables, figures = {"precision": {}, "accuracy": {}, "milliseconds": {}}, {}
        widths_tried = WIDTHS[2:4] if self.quick else WIDTHS
        for name in NAMES[-1:] if self.quick else NAMES:
            found, whole = self.on(name, widths_tried)
            for what in ("precision", "accuracy"):
                row = {
                    f"{label} {width}": getattr(answer, what)
                    for label, answers in found.items()
                    for width, answer in zip(widths_tried, answers, strict=True)
                }
                tables[what][name] = {**row, "Monolithic": getattr(whole, what)}
                figures[f"{name}: {what}"] = self.panel(found, whole, widths_tried, what, f"{what} (%)")
            mine = dict(zip(widths_tried, found[MODULAR], strict=True))
            tables["milliseconds"][name] = {
                **{f"retrieval {w}": 1e3 * answer.retrieval_seconds for w, answer in mine.items()},
                **{f"vote {w}": 1e3 * answer.vote_seconds for w, answer in mine.items()},
                "retrieval Monolithic": 1e3 * whole.retrieval_seconds,
                "vote Monolithic": 1e3 * whole.vote_seconds,
            }
            times = {
                label: curve(widths_tried, [1e3 * getattr(a, field) for a in mine.values()], style="o-")
                for label, field in (("retrieval", "retrieval_seconds"), ("vote", "vote_seconds"))
            }
            figures[f"{name}: test time"] = panel("H", "milliseconds", times, log="x")
        return Findings(tables, figures)

    def on(self, name, tried):
        """Answers of every method at every width, and of the monolithic one."""
        sizes = (350, 30, 50) if self.quick else (4_000, 300, 500)
        rank = 320 if self.quick else 500
        parts = load_parts(name, *sizes, seed=self.seed)
        choose = questions(parts.X, parts.X_choose, parts.y_choose)
        test = questions(parts.X, parts.X_test, parts.y_test)
        found = {label: [] for label in (*BASELINES, MODULAR)}
        for width in tried:
            n_modules = TOTAL // width
            for label, kind in BASELINES.items():
                found[label].append(ask(fitted(kind, n_modules, parts.X, rank, self.seed), parts, test))
            path = over_diversities(n_modules, (0.9, 0.99, 0.999), parts, [choose, test], rank, self.seed)
            best = {what: chosen(path[0], what) for what in ("precision", "accuracy")}
            retrieval, vote = path[1][best["precision"]], path[1][best["accuracy"]]
            found[MODULAR].append(retrieval._replace(accuracy=vote.accuracy, vote_seconds=vote.vote_seconds))
        return found, monolithic(parts, test, rank, self.seed)

    def panel(self, found, whole, tried, what, label):
        curves = {
            method: curve(tried, [getattr(answer, what) for answer in answers], style="o-")
            for method, answers in found.items()
        }
        level = getattr(whole, what)
        curves["Monolithic"] = curve([tried[0], tried[-1]], [level, level], style="k--")
        return panel("H", label, curves, log="x")


def widths(row, of=MODULAR):
    """The widths that a row of a table speaks of."""
    return [width for width in WIDTHS if f"{of} {width}" in row]
