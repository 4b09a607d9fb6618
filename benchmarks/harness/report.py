"""RESULTS.md, the README's table and the site's page, all generated from the records."""

import json
import os

from benchmarks.harness import tables
from benchmarks.harness.benchmark import HERE, discover
from benchmarks.harness.figures import draw
from benchmarks.harness.records import current_records
from benchmarks.harness.reproduction import COLUMNS, OUTDATED

README = HERE.parent / "README.md"
PAGE = HERE.parent / "docs" / "benchmarks.md"  # untracked, like the pictures it shows
PICTURES = HERE.parent / "docs" / "benchmark_figures"
ORDER = {"reproduction": 0, "growth": 1, "comparison": 2}
START, END = "<!-- benchmarks: written by `python -m benchmarks report` -->", "<!-- end of benchmarks -->"
# Claims in the README: benchmark -> texts of claims; at most 12 in total.
HEADLINES: dict[str, tuple[str, ...]] = {
    "SearchMNIST": ("default: times as fast as a flat scan",),
    "MemoryMappedSearch": ("peak memory in MB beyond the mapped files",),
    "VotingMNIST": ("points of accuracy lost by voting",),
    "ModuleSolver": ("times as fast as Algorithm 1",),
    "CKAMatrix": (
        "times as fast as torch_cka's formula on all rows (its time for one pair times 210 pairs)",
    ),
    "TransferObjects": ("default: gain in accuracy over logistic regression",),
    "TransferText": ("default: gain in accuracy over logistic regression on the last layer",),
    "TransferFewLabels": ("default: gain in accuracy over labeled rows alone",),
    "PrunedForestSpeed": ("times as fast as the whole forest",),
    "PeerPruning": ("error relative to as many trees chosen by rank",),
    "NCAMNIST": ("times as fast as scikit-learn on a sixth of the rows",),
    "PeerNCA": ("times as fast as scikit-learn",),
}


def write():
    """Rewrite RESULTS.md and the table in README.md."""
    records = ordered(current_records(discover()))
    write_readme(records)
    (HERE / "RESULTS.md").write_text(page(records))


def write_site_page(path=PAGE, pictures=PICTURES):
    """Write the site's page, with every figure."""
    records = ordered(current_records(discover()))
    drawn = {record["name"]: draw(record, pictures) for record in records}
    links = {name: os.path.relpath(file, path.parent) for name, file in drawn.items() if file}
    path.write_text(page(records, links))


def ordered(records):
    """Sort by kind (papers, growth, comparisons), then by paper and name."""

    def place(record):
        return ORDER[record["kind"]], record.get("paper", ""), record.get("where", ""), record["name"]

    return sorted(records.values(), key=place)


def of_kind(records, kind):
    return [record for record in records if record["kind"] == kind]


def page(records, pictures=None):
    """Format the whole page as Markdown."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `python -m benchmarks report` from `benchmarks/records`; rerun with `make bench`.",
        "",
        *machine_lines(records),
        *missing_lines(records),
        *short_lines(records),
        *paper_lines(of_kind(records, "reproduction"), pictures or {}),
        *growth_lines(of_kind(records, "growth")),
        *comparison_lines(of_kind(records, "comparison"), pictures or {}),
    ]
    return "\n".join(lines).rstrip() + "\n"


def machine_lines(records):
    """Describe the machines of the records and the time they took."""
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
            f"{len(records)} records; the runs took {sum(timed):,.0f} s in total.",
            "",
        ]
    return lines


def missing_lines(records):
    """List benchmarks that have no record, or one that lacks numbers."""
    missing = sorted(set(discover()) - {record["name"] for record in records})
    outdated = [r["name"] for r in of_kind(records, "reproduction") if OUTDATED in r["verdict"].values()]
    named = {"Without a record of a full run": missing, "With a record that lacks numbers": sorted(outdated)}
    return [line for label, names in named.items() if names for line in (f"{label}: {', '.join(names)}.", "")]


def paper_lines(records, pictures):
    """Tables and figures of the papers."""
    if not records:
        return []
    lines = [
        "## The papers' tables and figures",
        "",
        "Each sentence is the paper's. It is judged twice: with the *paper's algorithm* under the paper's",
        'protocol, and with *our defaults*; "-" means that it is not judged there. Verdicts are computed:',
        "*yes* if the sentence holds in every case (or in as many as it speaks of), *partly* if in at least",
        "half, otherwise *no*; *rerun* if the record lacks numbers that the code now judges by. Numbers in",
        "parentheses are the paper's; ± is one standard error.",
        "",
        *tables.statements_table(records),
        "",
    ]
    for record in records:
        lines += [f"### {record['paper']}: {record['where']}", "", record["about"], ""]
        lines += [f"Differs from the paper: {record['differs']}", "", f"Reduced: {record['reduced']}", ""]
        lines += [f"Seed {record['seed']}; {record['duration']:.0f} s.", ""]
        lines += tables.reproduction_tables(record)
        if record["name"] in pictures:
            lines += [f"![{record['where']}]({pictures[record['name']]})", ""]
        lines += [f"- {tables.statement_line(statement)}" for statement in record["statements"]]
        words = [f"{COLUMNS[name]}: **{word}**" for name, word in record["verdict"].items() if word]
        lines += ["", f"Do the paper's sentences hold here? {'; '.join(words)}.", ""]
    return lines


def growth_lines(records):
    """Tabulate how time and memory grow."""
    if not records:
        return []
    return [
        "## How cost grows",
        "",
        "One size varies at a time; the exponent is the slope of a log-log line through the larger half of",
        "the points. Every point runs in its own process; memory below 2 MB is not fitted.",
        "",
        *tables.growth_table(records),
        "",
    ]


def comparison_lines(records, pictures):
    """Comparisons with other libraries and methods."""
    lines = [
        "## Comparisons",
        "",
        "Seconds are the best of the repeats; contenders run in turn in one process. The column *times ...*",
        "is the median over the rounds, with the smallest and the largest. Peak MB is memory above the data,",
        "with each contender in its own process.",
        "",
    ]
    for record in records:
        beside = (
            ""
            if record.get("alone", True)
            else " It ran beside another benchmark: compare scores, not seconds."
        )
        about = record["about"] + beside
        lines += [f"### {record['name']}", "", about, "", *tables.comparison_table(record), ""]
        if record["name"] in pictures:
            lines += [f"![{record['name']}]({pictures[record['name']]})", ""]
        lines += [f"- {tables.verdict(claim)}" for claim in record["claims"]]
        lines.append("")
    return lines


def claims_of(records):
    """Pairs of a benchmark's name and a judged claim."""
    return [(record["name"], claim) for record in records for claim in record.get("claims", ())]


def short_lines(records):
    """List the claims that fell short; empty if all held."""
    claims = claims_of(records)
    short = [(name, claim) for name, claim in claims if not claim["held"]]
    lines = [f"{len(claims) - len(short)} of {len(claims)} claims held.", ""]
    if short:
        lines += ["These fell short:", "", *tables.claims_table(short), ""]
    return lines


def write_readme(records):
    """Rewrite the table between the two marks in README.md."""
    text = README.read_text()
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    if rest:
        README.write_text("\n".join([before + START, *readme_lines(records), END]) + after)


def readme_lines(records):
    """Tabulate the headline claims, with how many claims held in total."""
    claims = claims_of(records)
    shown = [(name, claim) for name, claim in claims if claim["text"] in HEADLINES.get(name, ())]
    order = list(HEADLINES)
    shown.sort(key=lambda row: order.index(row[0]))
    held = sum(claim["held"] for _, claim in claims)
    return [*tables.claims_table(shown), "", f"{held} of {len(claims)} claims held."]
