"""Figures 5, 8 and 10: precision and accuracy against the diversity."""

from benchmarks.data.image_sets import DIFFERS, NAMES, NEEDS, load_parts
from benchmarks.harness import Findings, Reproduction, Statement, curve, panel
from benchmarks.papers.dimensionality_reduction.views import PAPER, TOTAL, over_diversities, questions

DIVERSITIES = (0.0, 0.2, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0)


def best_at(row):
    """The diversity of the largest number in a row."""
    return float(max(row, key=row.get))


class QualityByDiversity(Reproduction):
    """15 modules of 20 at nine diversities from 0 to 1: precision of ten neighbors and accuracy of
    voting."""

    paper = PAPER
    where = "Figures 5, 8 and 10"
    needs = NEEDS
    differs = DIFFERS + " 4,000 training rows, 1,000 test rows and a rank-500 map."
    statements = (
        Statement(
            "retrieval is best at a diversity just below 1 (0.9 to 0.999)",
            lambda found: {name: 0.9 <= best_at(row) < 1 for name, row in found["precision"].items()},
        ),
        Statement(
            "retrieval is much worse at a diversity of 1 (by more than a tenth)",
            lambda found: {
                name: row["1.0"] < 0.9 * max(row.values()) for name, row in found["precision"].items()
            },
        ),
        Statement(
            "voting is best at a diversity of 0.8 or less on some sets",
            lambda found: {"some set": any(best_at(row) <= 0.8 for row in found["accuracy"].values())},
        ),
        Statement(
            "a diversity above 0 helps both tasks",
            lambda found: {
                f"{name}, {what}": max(row.values()) > row["0.0"]
                for what in ("precision", "accuracy")
                for name, row in found[what].items()
            },
        ),
    )

    def compute(self):
        sizes = (350, 0, 50) if self.quick else (4_000, 0, 1_000)
        rank = 320 if self.quick else 500
        tables, figures = {"precision": {}, "accuracy": {}}, {}
        for name in NAMES[-1:] if self.quick else NAMES:
            parts = load_parts(name, *sizes, seed=self.seed)
            test = questions(parts.X, parts.X_test, parts.y_test)
            (found,) = over_diversities(TOTAL // 20, DIVERSITIES, parts, [test], rank, self.seed)
            for what in tables:
                values = [getattr(answer, what) for answer in found]
                tables[what][name] = dict(zip(map(str, DIVERSITIES), values, strict=True))
            curves = {
                what: curve(range(len(DIVERSITIES)), [getattr(answer, what) for answer in found], style="o-")
                for what in tables
            }
            figures[name] = panel("diversity", "%", curves, ticks=map(str, DIVERSITIES))
        return Findings(tables, figures)
