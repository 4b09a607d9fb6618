"""RESULTS.md from the records: tables and verdicts; nothing in it is typed by hand."""

import json

from benchmarks.harness import HERE, RECORDS, discover


def number(value):
    """A number in four digits or fewer."""
    if isinstance(value, int | float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value)


def inline(values):
    return ", ".join(f"{key} {number(value)}" for key, value in values.items())


def verdict(claim):
    """One line that says whether a claim held."""
    bounds = []
    if claim["at_least"] is not None:
        bounds.append(f"at least {number(claim['at_least'])}")
    if claim["at_most"] is not None:
        bounds.append(f"at most {number(claim['at_most'])}")
    word = "held" if claim["held"] else "FELL SHORT"
    return f"{word}: {claim['text']}: {number(claim['value'])} (wanted {' and '.join(bounds)})"


def table(record):
    """The contenders of one record as a Markdown table."""
    results = record["results"]
    columns = list(
        dict.fromkeys(key for values in results.values() for key in values if key != "all_seconds")
    )
    columns.sort(key=lambda key: {"seconds": 0, "peak_mb": 1}.get(key, 2))
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for contender, values in results.items():
        cells = [number(values[key]) if key in values else "" for key in columns]
        lines.append(f"| {contender.replace('_', ' ')} | " + " | ".join(cells) + " |")
    return lines


def claims_table(records):
    """Every claim with its number, as a Markdown table."""
    lines = ["| benchmark | claim | measured | wanted | |", "|---|---|---|---|---|"]
    for record in records:
        for claim in record["claims"]:
            wanted = f"≥ {number(claim['at_least'])}" if claim["at_least"] is not None else ""
            wanted += f"≤ {number(claim['at_most'])}" if claim["at_most"] is not None else ""
            word = "held" if claim["held"] else "**fell short**"
            lines.append(
                f"| {record['name']} | {claim['text']} | {number(claim['value'])} | {wanted} | {word} |"
            )
    return lines


def write_readme(records):
    """Rewrite the table between the two marks in README.md."""
    path = HERE.parent / "README.md"
    text = path.read_text()
    start, end = "<!-- benchmarks: written by `python -m benchmarks report` -->", "<!-- end of benchmarks -->"
    before, _, rest = text.partition(start)
    _, _, after = rest.partition(end)
    if rest:
        path.write_text("\n".join([before + start, *claims_table(records), end]) + after)


def write():
    """Rewrite RESULTS.md, and the table in README.md."""
    records = [json.loads(path.read_text()) for path in sorted(RECORDS.glob("*.json"))]
    write_readme(records)
    lines = [
        "# Benchmarks",
        "",
        "Written by `python -m benchmarks report` from `benchmarks/records`; rerun with `make bench`.",
        "Seconds are the best of the repeats, contenders taken in turn in one process; peak MB is memory",
        "above the data, each contender in a process of its own.",
        "",
    ]
    for machine in {json.dumps(record["machine"], sort_keys=True) for record in records}:
        fields = json.loads(machine)
        versions = ", ".join(f"{name} {version}" for name, version in fields["versions"].items())
        lines += [
            f"Machine: {fields['cpu']}, {fields['cores']} cores, {fields['memory_gb']} GB; "
            f"Python {fields['python']}; {versions}.",
            "",
        ]
    missing = sorted(set(discover()) - {record["name"] for record in records})
    if missing:
        lines += [f"No record of a full run yet, so no claim is made: {', '.join(missing)}.", ""]
    for record in records:
        lines += [f"## {record['name']}", "", record["about"], "", *table(record), ""]
        lines += [f"- {verdict(claim)}" for claim in record["claims"]]
        lines.append("")
    (HERE / "RESULTS.md").write_text("\n".join(lines).rstrip() + "\n")
