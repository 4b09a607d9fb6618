"""The README's code runs, its names exist, and its numbers are those of the records."""

import re
from pathlib import Path

import manylens
from benchmarks.harness import records, report

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text()


def test_the_code_runs_in_order():
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", TEXT, flags=re.S):
        exec(compile(block, str(README), "exec"), names)


def names_in_table():
    table = TEXT.split("## Contents")[1].split("Further names")[0]
    return set(re.findall(r"`([A-Za-z_]+)`", table))


def test_the_table_lists_all_public_names_and_no_others():
    assert names_in_table() == set(manylens.__all__) - {"__version__"}


def measured_sentences():
    """Pairs of a sentence with numbers and the benchmark that it cites."""
    for paragraph in re.findall(r"\*Measured:\*(.*?)\n\n", TEXT, flags=re.S):
        parts = re.split(r"\(\[(\w+)\]\(benchmarks/RESULTS\.md#\w+\)\)", " ".join(paragraph.split()))
        yield from zip(parts[::2], parts[1::2], strict=False)


def numbers_of(record):
    """Numbers of a record as text, in the formats that a sentence may use, and those of its description."""
    tables = [record["results"]] if "results" in record else record["tables"].values()
    values = [value for table in tables for row in table.values() for value in row.values()]
    values = [value for value in values if isinstance(value, int | float)]
    values += [claim["value"] for claim in record.get("claims", ())]
    printed = {form(value) for value in values for form in (lambda v: f"{v:.3g}", lambda v: f"{v:,.0f}")}
    return printed | set(re.findall(r"[\d,.]*\d", record["about"]))


def test_every_measured_number_is_in_the_cited_record():
    kept = records.read_records()
    sentences = list(measured_sentences())
    assert len(sentences) >= 5
    for sentence, benchmark in sentences:
        for number in re.findall(r"(?<![\w-])\d[\d,.]*(?:e-?\d+)?(?<![.,])(?![\w-])", sentence):
            assert number in numbers_of(kept[benchmark]), f"{benchmark} has no {number}"


def test_the_results_table_is_the_generated_one():
    from benchmarks.harness.benchmark import discover

    written = TEXT.split(report.START)[1].split(report.END)[0].strip().splitlines()
    lines = report.readme_lines(report.ordered(records.current_records(discover())))
    assert written == lines, "run `python -m benchmarks report`"


def test_no_page_has_the_name_of_a_page_that_sphinx_writes_itself():
    pages = {path.stem for path in Path(__file__).parents[1].joinpath("docs").glob("*.md")}
    assert not pages & {"search", "genindex", "py-modindex"}
