"""Verdicts on the papers' statements are computed from the numbers in the record."""

import pytest

from benchmarks.harness import benchmark, records, report, tables
from benchmarks.harness.figures import curve, draw, panel
from benchmarks.harness.reproduction import Findings, Reproduction, Statement, verdict_of, verdict_on_all


class Falling(Reproduction):
    """Error falls with size."""

    paper = "A paper"
    where = "Table 1"
    differs = "Everything."
    printed = {"error": {"digits": {"small": 20.0, "large": 10.0}}}
    statements = (
        Statement(
            "error falls", lambda found: {r: c["large"] < c["small"] for r, c in found["error"].items()}
        ),
    )
    errors = {"digits": (21.0, 9.0), "letters": (5.0, 6.0)}

    def compute(self):
        table = {name: {"small": small, "large": large} for name, (small, large) in self.errors.items()}
        curves = {name: curve([1, 2], values) for name, values in self.errors.items()}
        return Findings({"error": table}, {"errors": panel("size", "error", curves)})


@pytest.mark.parametrize(
    ("held", "word"),
    [([True], "yes"), ([False], "no"), ([True, False], "partly"), ([True, False, False], "no")],
)
def test_the_verdict_is_yes_for_all_cases_partly_for_half_and_no_for_fewer(held, word):
    assert verdict_of(held) == word


def test_a_statement_without_cases_is_refused():
    with pytest.raises(ValueError, match="at least one case"):
        verdict_of([])


def test_a_table_has_the_verdict_of_its_statements_only_if_they_agree():
    assert verdict_on_all([{"verdict": "no"}, {"verdict": "no"}]) == "no"
    assert verdict_on_all([{"verdict": "no"}, {"verdict": "yes"}]) == "partly"


def test_the_record_lists_the_cases_in_which_a_statement_failed():
    record = benchmark.run(Falling(quick=True))
    assert record["statements"][0]["cases"] == {"digits": True, "letters": False}
    assert record["verdict"] == "partly"
    assert "not letters" in tables.statement_line(record["statements"][0])


def test_the_verdict_follows_the_numbers():
    class Better(Falling):
        """Error falls everywhere."""

        errors = {"digits": (21.0, 9.0), "letters": (6.0, 5.0)}

    assert benchmark.run(Better())["verdict"] == "yes"


def test_our_number_comes_before_the_papers_number():
    lines = tables.reproduction_tables(benchmark.run(Falling()))
    assert "| digits | 21 (20) | 9 (10) |" in lines
    assert "| letters | 5 | 6 |" in lines


def test_a_saved_record_makes_the_page(tmp_path):
    records.save(benchmark.run(Falling()), tmp_path)
    kept = report.ordered(records.read_records(tmp_path))
    text = report.page(kept, {"Falling": "a.png"})
    assert "![Table 1](a.png)" in text
    assert "Do the paper's claims hold here? **partly**" in text


def test_figures_are_drawn_from_the_record(tmp_path):
    pytest.importorskip("matplotlib")
    path = draw(benchmark.run(Falling()), tmp_path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert draw({"name": "nothing", "figures": {}}, tmp_path) is None
