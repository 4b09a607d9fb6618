"""Reproductions of a paper's tables and figures: our numbers beside the printed ones, and computed verdicts.

A subclass of `Reproduction` computes tables and figures. What the paper claims about them is a `Statement`,
with cases (one per data set, say) that a predicate decides from our numbers. The verdict is "yes" if all
cases hold, "partly" if at least half do, and "no" otherwise.
"""

from dataclasses import dataclass

import numpy as np

from benchmarks.harness.benchmark import Benchmark


@dataclass(frozen=True)
class Statement:
    """One claim of the paper.

    Parameters
    ----------
    text : str
        The claim, in our words.
    cases : callable
        Computes a dict case -> whether the claim holds, from the findings.
    """

    text: str
    cases: object

    def judge(self, findings):
        cases = {str(name): bool(held) for name, held in self.cases(findings).items()}
        return {"text": self.text, "cases": cases, "verdict": verdict_of(list(cases.values()))}


def verdict_of(held):
    """Summarize cases, each of which held or not, in one word."""
    if not held:
        raise ValueError("A verdict needs at least one case.")
    share = np.mean(held)
    return "yes" if share == 1 else "partly" if share >= 0.5 else "no"


def verdict_on_all(statements):
    """Summarize all statements about a table: yes or no if they agree, otherwise partly."""
    words = {statement["verdict"] for statement in statements}
    return words.pop() if len(words) == 1 else "partly"


@dataclass(frozen=True)
class Findings:
    """Computed tables and figures.

    Parameters
    ----------
    tables : dict of dict of dict
        Title -> row -> column -> number.
    figures : dict of dict
        Title -> panel, as made by `benchmarks.harness.panel`.
    """

    tables: dict
    figures: dict

    def __getitem__(self, title):
        return self.tables[title]

    def column(self, title, name):
        """Return one column of a table; a dict row -> number."""
        return {row: cells[name] for row, cells in self.tables[title].items() if name in cells}


class Reproduction(Benchmark):
    """Base of all reproductions."""

    abstract = True
    kind = "reproduction"
    alone = False
    paper = ""  # short title
    where = ""  # which tables and figures
    differs = ""  # what differs from the paper: data, sizes, machine
    printed: dict[str, dict] = {}  # the paper's own numbers: title -> row -> column -> number
    statements: tuple[Statement, ...] = ()

    @classmethod
    def reworded(cls, record):
        texts = [statement.text for statement in cls.statements]
        kept = record["statements"]
        if len(texts) == len(kept):
            kept = [old | {"text": text} for old, text in zip(kept, texts, strict=True)]
        described = {"paper": cls.paper, "where": cls.where, "differs": " ".join(cls.differs.split())}
        return super().reworded(record) | described | {"statements": kept}

    def compute(self):
        """Return our numbers as `Findings`."""
        raise NotImplementedError

    def measure(self):
        """Compute tables and figures, and judge the statements."""
        findings = self.compute()
        judged = [statement.judge(findings) for statement in self.statements]
        return {
            "paper": self.paper,
            "where": self.where,
            "differs": " ".join(self.differs.split()),
            "tables": findings.tables,
            "printed": self.printed,
            "figures": findings.figures,
            "statements": judged,
            "verdict": verdict_on_all(judged),
        }
