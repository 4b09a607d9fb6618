"""Records as Markdown tables and as lines on a terminal."""

from statistics import median

import numpy as np

from benchmarks.harness.comparison import SAMPLES, rounds
from benchmarks.harness.reproduction import COLUMNS


def number(value):
    """Format a number with few digits."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bool) or value is None:
        return "" if value is None else str(value)
    if isinstance(value, int | float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value)


def inline(values):
    return ", ".join(f"{key} {number(value)}" for key, value in values.items())


def summary(record):
    """Summarize a run in a few lines."""
    if record["kind"] == "growth":
        return [
            f"{name}: time ~ {name}^{number(axis['time_exponent'])}, memory ~ {name}^"
            f"{number(axis['memory_exponent'])}"
            for name, axis in record["axes"].items()
        ]
    if record["kind"] == "reproduction":
        lines = [
            f"{title}, {row}: {inline(cells)}"
            for title, table in record["tables"].items()
            for row, cells in table.items()
        ]
        return lines + [statement_line(statement) for statement in record["statements"]]
    lines = []
    for contender, values in record["results"].items():
        shown = {key: value for key, value in values.items() if key not in SAMPLES}
        lines.append(f"{contender} {inline(shown)}")
    return lines + [verdict(claim) for claim in record["claims"]]


def verdict(claim):
    """Say in one line whether a claim held."""
    bounds = []
    if claim["at_least"] is not None:
        bounds.append(f"at least {number(claim['at_least'])}")
    if claim["at_most"] is not None:
        bounds.append(f"at most {number(claim['at_most'])}")
    word = "held" if claim["held"] else "FELL SHORT"
    return f"{word}: {claim['text']}: {measured(claim)} (wanted {' and '.join(bounds)})"


def measured(claim):
    """Format the number of a claim with its spread over the repeats, and the scores beside it."""
    spread = claim.get("spread")
    between = f" ({number(spread[0])} to {number(spread[1])})" if spread else ""
    return number(claim["value"]) + between + "".join(f"; {line}" for line in score_lines(claim))


def score_lines(claim):
    """Format the scores of the compared contenders, such as "accuracy 0.715 (ours), 0.726 (sklearn)"."""
    return [
        f"{score.replace('_', ' ')} "
        + ", ".join(f"{number(value)} ({name.replace('_', ' ')})" for name, value in numbers.items())
        for score, numbers in claim.get("scores", {}).items()
    ]


def statement_line(statement):
    """Quote a paper's sentence, and say what was compared and in which cases it held."""
    verdicts = "; ".join(
        f"{label}: {column_line(statement[name])}" for name, label in COLUMNS.items() if statement[name]
    )
    return f"{quoted(statement)} Compared: {statement['text']}. {verdicts[:1].upper()}{verdicts[1:]}."


def quoted(statement):
    """The paper's sentence with its place."""
    return f"“{statement['quote']}” ({statement['source']})"


def column_line(column, most=4):
    """One verdict with the number of cases that held, and the first of those that did not."""
    if column is None:
        return "-"
    cases = column["cases"]
    failed = [name for name, held in cases.items() if not held]
    if len(cases) < 2:
        return column["verdict"]
    where = f"{len(cases) - len(failed)} of {len(cases)}"
    if failed:
        more = f" and {len(failed) - most} more" if len(failed) > most else ""
        where += f", not {'; '.join(failed[:most])}{more}"
    return f"{column['verdict']} ({where})"


def markdown(header, rows):
    """Format a Markdown table."""

    def line(cells):
        return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"

    return [line(header), "|---" * len(header) + "|", *(line(row) for row in rows)]


def comparison_table(record):
    """Tabulate the contenders of one record, with their times relative to the first one."""
    results = record["results"]
    columns = list(dict.fromkeys(key for values in results.values() for key in values if key not in SAMPLES))
    columns.sort(key=lambda key: {"seconds": 0, "peak_mb": 1}.get(key, 2))
    first = next(iter(results))
    rows = []
    for contender, values in results.items():
        cells = [number(values[key]) if key in values else "" for key in columns]
        rows.append([contender.replace("_", " "), times_of(results, contender, first), *cells])
    header = [key.replace("_", " ") for key in columns]
    return markdown(["", f"times {first.replace('_', ' ')}", *header], rows)


def times_of(results, contender, first):
    """Median and range, over the rounds, of a contender's time relative to the first one."""
    if contender == first:
        return "1"
    ratios = rounds(results, contender, first)
    spread = f" ({number(min(ratios))} to {number(max(ratios))})" if len(ratios) > 1 else ""
    return number(median(ratios)) + spread


def reproduction_tables(record):
    """Format each table with the paper's number, if it printed one, in parentheses after ours."""
    lines = []
    for title in dict.fromkeys([*record["tables"], *record["printed"]]):
        table, printed = record["tables"].get(title, {}), record["printed"].get(title, {})
        errors = record.get("errors", {}).get(title, {})
        rows = list(dict.fromkeys([*table, *printed]))
        columns = list(
            dict.fromkeys(key for part in (table, printed) for row in part.values() for key in row)
        )
        cells = [
            [
                row,
                *(beside(*(part.get(row, {}).get(c) for part in (table, printed, errors))) for c in columns),
            ]
            for row in rows
        ]
        lines += [f"**{title}**", "", *markdown(["", *columns], cells), ""]
    return lines


def beside(ours, printed, error=None):
    """Our number with its standard error, and the paper's in parentheses."""
    mine = number(ours) + (f" ± {error:.2g}" if error else "")
    return mine if printed is None else f"{mine or '-'} ({number(printed)})"


def growth_table(records):
    """Tabulate growth, one line per estimator and size."""
    rows = []
    for record in records:
        for name, axis in record["axes"].items():
            values, seconds, memory = axis["values"], axis["seconds"], axis["peak_mb"]
            rows.append(
                [
                    record["estimator"],
                    name,
                    f"{number(values[0])} to {number(values[-1])}",
                    number(axis["time_exponent"]),
                    f"{number(seconds[0])} to {number(seconds[-1])}",
                    number(axis["memory_exponent"]) or "-",
                    f"{number(memory[0])} to {number(memory[-1])}",
                    inline(axis["fixed"]),
                ]
            )
    header = ["", "size", "values", "time ~ size^", "seconds", "memory ~ size^", "peak MB", "other sizes"]
    return markdown(header, rows)


def claims_table(rows):
    """Tabulate pairs of a benchmark's name and a judged claim."""
    cells = []
    for name, claim in rows:
        wanted = f"≥ {number(claim['at_least'])}" if claim["at_least"] is not None else ""
        wanted += f" ≤ {number(claim['at_most'])}" if claim["at_most"] is not None else ""
        word = "held" if claim["held"] else "**fell short**"
        cells.append([name, claim["text"], measured(claim), wanted.strip(), word])
    return markdown(["benchmark", "claim", "measured", "wanted", ""], cells)


def statements_table(records):
    """Tabulate every sentence of the papers with both verdicts."""
    rows = [
        [record["paper"], quoted(statement), statement["text"], *verdict_cells(statement)]
        for record in records
        for statement in record["statements"]
    ]
    return markdown(["paper", "the paper's sentence", "compared", *COLUMNS.values()], rows)


def verdict_cells(statement):
    """The verdicts of both columns."""
    return [column_line(statement[name]) for name in COLUMNS]
