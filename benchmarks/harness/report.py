"""RESULTS.md, README's table and the site's page from the records; nothing in them is typed by hand."""

import json
import os

from benchmarks.harness import tables
from benchmarks.harness.benchmark import HERE, discover
from benchmarks.harness.figures import draw
from benchmarks.harness.records import read_records

README = HERE.parent / "README.md"
PAGE = HERE.parent / "docs" / "benchmarks.md"  # untracked, like the pictures it shows
PICTURES = HERE.parent / "docs" / "benchmark_figures"
ORDER = {"reproduction": 0, "growth": 1, "comparison": 2}


def write():
    """Rewrite RESULTS.md, and the table in README.md."""
    records = ordered(read_records())
    write_readme(records)
    (HERE / "RESULTS.md").write_text(page(records))


def write_site_page(path=PAGE, pictures=PICTURES):
    """Write the site's page, with every figure drawn from its record."""
    records = ordered(read_records())
    drawn = {record["name"]: draw(record, pictures) for record in records}
    links = {name: os.path.relpath(file, path.parent) for name, file in drawn.items() if file}
    path.write_text(page(records, links))


def ordered(records):
    """Papers first, each as a whole, then growth, then comparisons; by name."""

    def place(record):
        return ORDER[record["kind"]], record.get("paper", ""), record.get("where", ""), record["name"]

    return sorted(records.values(), key=place)


def of_kind(records, kind):
    return [record for record in records if record["kind"] == kind]


def page(records, pictures=None):
    """The whole page as Markdown."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `python -m benchmarks report` from `benchmarks/records`; rerun with `make bench`.",
        "",
        *machine_lines(records),
        *missing_lines(records),
        *paper_lines(of_kind(records, "reproduction"), pictures or {}),
        *growth_lines(of_kind(records, "growth")),
        *comparison_lines(of_kind(records, "comparison")),
    ]
    return "\n".join(lines).rstrip() + "\n"


def machine_lines(records):
    """What the records were taken on, and how long they took."""
    lines = []
    for machine in sorted({json.dumps(record["machine"], sort_keys=True) for record in records}):
        fields = json.loads(machine)
        versions = ", ".join(f"{name} {version}" for name, version in fields["versions"].items())
        lines += [
            f"Machine: {fields['cpu']}, {fields['cores']} cores, {fields['memory_gb']} GB; "
            f"Python {fields['python']}; {versions}.",
            "",
        ]
    timed = [record["duration"] for record in records if "duration" in record]
    if timed:
        lines += [
            f"{len(timed)} of the {len(records)} records say how long they took: {sum(timed):,.0f} s in all.",
            "",
        ]
    return lines


def missing_lines(records):
    """Which benchmarks have no record."""
    missing = sorted(set(discover()) - {record["name"] for record in records})
    if not missing:
        return []
    return [f"No record of a full run yet, so no claim is made: {', '.join(missing)}.", ""]


def paper_lines(records, pictures):
    """What the papers report, done again."""
    if not records:
        return []
    lines = [
        "## The papers' tables and figures",
        "",
        "A number in brackets is the paper's own. The last column is computed: *yes* where a statement held",
        "in every case, *partly* in half of them or more, else *no*.",
        "",
        *tables.statements_table(records),
        "",
    ]
    for record in records:
        lines += [f"### {record['paper']}: {record['where']}", "", record["about"], ""]
        lines += [f"What differs: {record['differs']} Seed {record['seed']}; {record['duration']:.0f} s.", ""]
        lines += tables.reproduction_tables(record)
        if record["name"] in pictures:
            lines += [f"![{record['where']}]({pictures[record['name']]})", ""]
        lines += [f"- {tables.statement_line(statement)}" for statement in record["statements"]]
        lines += ["", f"Did the paper's claims hold here? **{record['verdict']}**.", ""]
    return lines


def growth_lines(records):
    """How cost grows."""
    if not records:
        return []
    return [
        "## How cost grows",
        "",
        "One size varies while the others stay; the exponent is the slope of a log-log line through the",
        "larger half of the points. Every point has a process of its own; memory under 2 MB is not fitted.",
        "",
        *tables.growth_table(records),
        "",
    ]


def comparison_lines(records):
    """Ours against others."""
    lines = [
        "## Against others",
        "",
        "Seconds are the best of the repeats, contenders taken in turn in one process; times the first one's",
        "are the median over the rounds, with the least and the largest; peak MB is memory above the data,",
        "each contender in a process of its own.",
        "",
    ]
    for record in records:
        beside = "" if record.get("alone", True) else " It may run beside another: its seconds tell little."
        about = record["about"] + beside
        lines += [f"### {record['name']}", "", about, "", *tables.comparison_table(record), ""]
        lines += [f"- {tables.verdict(claim)}" for claim in record["claims"]]
        lines.append("")
    return lines


def write_readme(records):
    """Rewrite the table between the two marks in README.md."""
    text = README.read_text()
    start, end = "<!-- benchmarks: written by `python -m benchmarks report` -->", "<!-- end of benchmarks -->"
    before, _, rest = text.partition(start)
    _, _, after = rest.partition(end)
    if rest:
        README.write_text("\n".join([before + start, *tables.claims_table(records), end]) + after)
