"""The experiment as a table: columns, rows of text, and which cells are the best of their column."""

from dataclasses import dataclass

COLUMNS = (
    "method",
    "diversity",
    "precision %",
    "vote %",
    "precision of one %",
    "accuracy of one %",
    "gap",
    "ms",
)


@dataclass(frozen=True)
class Row:
    """One representation.

    Parameters
    ----------
    cells : tuple of str
        One for each of `COLUMNS`.
    best : frozenset of int
        Columns in which no other row is better.
    modular : bool
        Whether it is one of ours.
    """

    cells: tuple
    best: frozenset
    modular: bool


def table_rows(experiment):
    """Rows of the table: what modules are measured against, then modules by diversity.

    Parameters
    ----------
    experiment : Experiment
        What was measured.

    Returns
    -------
    list of Row
        In the order to show them.
    """
    everything = [*experiment.baselines, *experiment.path]
    precision = max(percent(measured.scores.precision) for measured in everything)
    accuracy = max(percent(measured.scores.accuracy) for measured in everything)
    rows = []
    for measured in everything:
        scores, model = measured.scores, measured.model
        modular = measured in experiment.path
        single = experiment.baselines[0] is measured
        cells = (
            measured.name,
            f"{model.diversity_:g}" if modular else "",
            percent(scores.precision),
            percent(scores.accuracy),
            "" if single else percent(scores.module_precision),
            "" if single else percent(scores.module_accuracy),
            gap_text(model.optimality_gap_) if modular else "",
            f"{'+' if modular else ''}{1000 * measured.seconds:.0f}",
        )
        best = frozenset(
            column for column, value in ((2, precision), (3, accuracy)) if cells[column] == value
        )
        rows.append(Row(cells, best, modular))
    return rows


def percent(share):
    """A share as a percentage with one decimal, such as " 97.6".

    Parameters
    ----------
    share : float
        In [0, 1].

    Returns
    -------
    str
        Five characters, so that texts are in the order of numbers.
    """
    return f"{100 * share:5.1f}"


def gap_text(gap):
    """An optimality gap in two digits; "0" where it is none.

    Parameters
    ----------
    gap : float
        At least 0.

    Returns
    -------
    str
        Such as "3e-13".
    """
    return "0" if gap == 0 else f"{gap:.0e}"
