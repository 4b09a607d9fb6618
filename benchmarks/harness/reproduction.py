"""A table or a figure of a paper, done again: our numbers beside the printed ones, and a computed verdict.

A subclass of `Reproduction` computes tables and figures; what the paper claims of them is a `Statement` whose
cases (one a data set, say) are decided by a predicate on our numbers. All cases: "yes"; at least half of
them: "partly"; fewer: "no". Nobody types a verdict.
"""

from dataclasses import dataclass

import numpy as np

from benchmarks.harness.benchmark import Benchmark


@dataclass(frozen=True)
class Statement:
    """One thing the paper says.

    Parameters
    ----------
    text : str
        In our words.
    cases : callable
        From the findings to a dict name -> whether it is so there.
    """

    text: str
    cases: object

    def judge(self, findings):
        cases = {str(name): bool(held) for name, held in self.cases(findings).items()}
        return {"text": self.text, "cases": cases, "verdict": verdict_of(list(cases.values()))}


def verdict_of(held):
    """The word for a list of cases, each held or not."""
    if not held:
        raise ValueError("A verdict needs at least one case.")
    share = np.mean(held)
    return "yes" if share == 1 else "partly" if share >= 0.5 else "no"


def verdict_on_all(statements):
    """The word for a whole table: yes or no where every statement has it, else partly."""
    words = {statement["verdict"] for statement in statements}
    return words.pop() if len(words) == 1 else "partly"


@dataclass(frozen=True)
class Findings:
    """What was computed.

    Parameters
    ----------
    tables : dict of dict of dict
        Title -> row -> column -> number.
    figures : dict of dict
        Title -> panel, as `benchmarks.figures.panel` makes it.
    """

    tables: dict
    figures: dict

    def __getitem__(self, title):
        return self.tables[title]

    def column(self, title, name):
        """One column of a table, by row."""
        return {row: cells[name] for row, cells in self.tables[title].items() if name in cells}


class Reproduction(Benchmark):
    """Base of every table or figure of a paper."""

    abstract = True
    kind = "reproduction"
    alone = False
    paper = ""  # short title
    where = ""  # which tables and figures
    differs = ""  # what differs from the paper: data, sizes, machine
    printed: dict[str, dict] = {}  # the paper's own numbers: title -> row -> column -> number
    statements: tuple[Statement, ...] = ()

    def compute(self):
        """Our numbers, as `Findings`."""
        raise NotImplementedError

    def measure(self):
        """Compute and judge."""
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
