"""Reproductions of a paper's tables and figures: our numbers beside the printed ones, and computed verdicts.

A subclass of `Reproduction` computes tables and figures. What the paper says about them is a `Statement`:
the paper's sentence, and cases (one per data set, say) that a predicate decides from our numbers, once for
the paper's algorithm under the paper's protocol and once for the library's defaults. The verdict is "yes" if
the sentence holds in all cases (or in the share of them that it speaks of), "partly" in at least half of
them, else "no".
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from benchmarks.harness.benchmark import Benchmark

COLUMNS = {"paper": "paper's algorithm", "ours": "our defaults"}  # the two verdicts on a sentence
OUTDATED = "rerun"  # instead of a verdict, if a record lacks numbers that the code judges by


@dataclass(frozen=True)
class Statement:
    """One sentence of the paper, and how it is judged.

    Parameters
    ----------
    text : str
        The comparison, in our words.
    cases : callable, optional
        Computes a dict case -> whether the sentence holds, from findings with the paper's algorithm.
    ours : callable, optional
        The same with the library's defaults.
    quote : str
        The sentence, or the part of it that is judged, word for word; "..." marks what is left out.
    source : str
        Section, table or theorem of the quotation.
    share : float
        Share of the cases in which the sentence claims to hold, such as 5/8 for "five out of eight sets".
    """

    text: str
    cases: Callable | None = None
    ours: Callable | None = None
    quote: str = ""
    source: str = ""
    share: float = 1.0

    def judge(self, findings):
        """Decide all cases of both columns."""
        columns = {"paper": self.cases, "ours": self.ours}
        return self.described() | {name: self.column(holds, findings) for name, holds in columns.items()}

    def judge_again(self, findings):
        """Like `judge`, for a record that may lack tables, rows or columns that the code now judges by."""
        try:
            return self.judge(findings)
        except (KeyError, IndexError, ValueError):
            columns = {"paper": self.cases, "ours": self.ours}
            stale = {"cases": {}, "verdict": OUTDATED}
            return self.described() | {name: stale if holds else None for name, holds in columns.items()}

    def described(self):
        """The words of the statement, for a record."""
        return {"quote": " ".join(self.quote.split()), "source": self.source, "text": self.text}

    def column(self, holds, findings):
        """Cases and verdict of one column; None if it is not judged."""
        if holds is None:
            return None
        cases = {str(name): bool(held) for name, held in holds(findings).items()}
        return {"cases": cases, "verdict": verdict_of(list(cases.values()), self.share)}


def verdict_of(held, share=1.0):
    """Summarize cases, each of which held or not, in one word."""
    if not held:
        raise ValueError("A verdict needs at least one case.")
    held_share = np.mean(held)
    return "yes" if held_share >= share else "partly" if held_share >= 0.5 else "no"


def verdict_on_all(statements, column):
    """Summarize a column of the statements about a table: yes or no if they agree, otherwise partly."""
    words = {statement[column]["verdict"] for statement in statements if statement[column]}
    if OUTDATED in words:
        return OUTDATED
    return words.pop() if len(words) == 1 else "partly" if words else ""


@dataclass(frozen=True)
class Findings:
    """Computed tables and figures.

    Parameters
    ----------
    tables : dict of dict of dict
        Title -> row -> column -> number.
    figures : dict of dict
        Title -> panel, as made by `benchmarks.harness.panel`.
    errors : dict of dict of dict
        Standard errors of numbers in the tables, in the same places.
    """

    tables: dict
    figures: dict
    errors: dict = field(default_factory=dict)

    def __getitem__(self, title):
        return self.tables[title]

    def column(self, title, name):
        """Return one column of a table; a dict row -> number."""
        return {row: cells[name] for row, cells in self.tables[title].items() if name in cells}

    @classmethod
    def over_draws(cls, draws, figures):
        """Means and standard errors of tables computed once per draw; a list of dicts of tables."""
        means, errors = {}, {}
        for title, table in draws[0].items():
            for row, cells in table.items():
                values = {name: [draw[title][row][name] for draw in draws] for name in cells}
                means.setdefault(title, {})[row] = {name: float(np.mean(v)) for name, v in values.items()}
                if len(draws) > 1:
                    errors.setdefault(title, {})[row] = {
                        name: float(np.std(v, ddof=1) / np.sqrt(len(v))) for name, v in values.items()
                    }
        return cls(means, figures, errors)


class Reproduction(Benchmark):
    """Base of all reproductions."""

    abstract = True
    kind = "reproduction"
    alone = False
    paper = ""  # short title
    where = ""  # which tables and figures
    differs = ""  # what differs from the paper and cannot be had: data, machine, what the paper does not give
    reduced = ""  # what is smaller than in the paper (sets, rows, draws), and why; "Nothing." if nothing is
    printed: dict[str, dict] = {}  # the paper's own numbers: title -> row -> column -> number, or text with ±
    statements: tuple[Statement, ...] = ()

    @classmethod
    def described(cls):
        """The words of the benchmark, for a record."""
        words = {"paper": cls.paper, "where": cls.where, "differs": cls.differs, "reduced": cls.reduced}
        return {name: " ".join(text.split()) for name, text in words.items()} | {"printed": cls.printed}

    @classmethod
    def reworded(cls, record):
        findings = Findings(record["tables"], record["figures"], record.get("errors", {}))
        judged = [statement.judge_again(findings) for statement in cls.statements]
        return super().reworded(record) | cls.described() | verdicts(judged)

    def compute(self):
        """Return our numbers as `Findings`."""
        raise NotImplementedError

    def measure(self):
        """Compute tables and figures, and judge the statements."""
        findings = self.compute()
        found = {"tables": findings.tables, "errors": findings.errors, "figures": findings.figures}
        return self.described() | found | verdicts([each.judge(findings) for each in self.statements])


def verdicts(judged):
    """Judged statements with a verdict on each column, for a record."""
    return {"statements": judged, "verdict": {name: verdict_on_all(judged, name) for name in COLUMNS}}
