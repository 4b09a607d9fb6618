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
    reduced = "Two sets instead of eight, to save time."
    printed = {"error": {"digits": {"small": 20.0, "large": "10 ± 2"}}}
    statements = (
        Statement(
            "error falls",
            lambda found: {r: c["large"] < c["small"] for r, c in found["error"].items()},
            lambda found: {"digits": found["error"]["digits"]["large"] < 10},
            quote="The error falls with the size.",
            source="Section 1",
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


@pytest.mark.parametrize(("n_held", "word"), [(7, "yes"), (5, "yes"), (4, "partly"), (2, "no")])
def test_a_sentence_about_five_of_eight_cases_needs_five_of_them(n_held, word):
    assert verdict_of([k < n_held for k in range(8)], share=5 / 8) == word


def test_a_table_has_the_verdict_of_its_statements_only_if_they_agree():
    yes, no = {"paper": {"verdict": "yes"}, "ours": None}, {"paper": {"verdict": "no"}, "ours": None}
    assert verdict_on_all([no, no], "paper") == "no"
    assert verdict_on_all([no, yes], "paper") == "partly"
    assert verdict_on_all([no, yes], "ours") == ""


def test_the_record_judges_the_papers_sentence_in_two_columns():
    record = benchmark.run(Falling(quick=True))
    statement = record["statements"][0]
    assert statement["paper"]["cases"] == {"digits": True, "letters": False}
    assert statement["ours"] == {"cases": {"digits": True}, "verdict": "yes"}
    assert record["verdict"] == {"paper": "partly", "ours": "yes"}
    line = tables.statement_line(statement)
    assert "“The error falls with the size.” (Section 1)" in line
    assert "Paper's algorithm: partly (1 of 2, not letters); our defaults: yes." in line


def test_the_verdict_follows_the_numbers():
    class Better(Falling):
        """Error falls everywhere."""

        errors = {"digits": (21.0, 9.0), "letters": (6.0, 5.0)}

    assert benchmark.run(Better())["verdict"]["paper"] == "yes"


def test_our_number_comes_before_the_papers_number():
    lines = tables.reproduction_tables(benchmark.run(Falling()))
    assert "| digits | 21 (20) | 9 (10 ± 2) |" in lines
    assert "| letters | 5 | 6 |" in lines


def test_means_over_draws_come_with_their_standard_errors():
    draws = [{"error": {"digits": {"small": value}}} for value in (19.0, 20.0, 21.0)]
    found = Findings.over_draws(draws, {})
    assert found["error"]["digits"]["small"] == 20
    assert found.errors["error"]["digits"]["small"] == pytest.approx(1 / 3**0.5)
    record = {"tables": found.tables, "errors": found.errors, "printed": {}}
    assert "| digits | 20 ± 0.58 |" in tables.reproduction_tables(record)


def test_a_saved_record_makes_the_page(tmp_path):
    records.save(benchmark.run(Falling()), tmp_path)
    kept = report.ordered(records.read_records(tmp_path))
    text = report.page(kept, {"Falling": "a.png"})
    assert "![Table 1](a.png)" in text
    assert "Reduced: Two sets instead of eight, to save time." in text
    assert "paper's algorithm: **partly**; our defaults: **yes**." in text


def test_a_report_judges_the_recorded_numbers_by_the_code(tmp_path):
    record = benchmark.run(Falling())
    record["statements"][0] |= {"quote": "Nobody wrote this.", "paper": {"cases": {}, "verdict": "yes"}}
    records.save(record, tmp_path)
    (read,) = records.current_records({"Falling": Falling}, tmp_path).values()
    assert read["statements"] == benchmark.run(Falling())["statements"]


def test_a_record_without_the_numbers_of_a_statement_is_not_given_a_verdict(tmp_path):
    record = benchmark.run(Falling())
    record["tables"] = {"another title": {}}
    records.save(record, tmp_path)
    (read,) = records.current_records({"Falling": Falling}, tmp_path).values()
    assert read["verdict"] == {"paper": "rerun", "ours": "rerun"}
    assert "With a record that lacks numbers: Falling." in report.page([read])


REPRODUCTIONS = [k for k in benchmark.discover().values() if k.kind == "reproduction"]


@pytest.mark.parametrize("kind", REPRODUCTIONS, ids=lambda kind: kind.__name__)
def test_every_reproduction_says_what_differs_and_quotes_the_paper_in_every_statement(kind):
    assert all((kind.paper, kind.where, kind.differs, kind.reduced))
    assert kind.statements
    for statement in kind.statements:
        assert statement.quote, statement.text
        assert statement.source, statement.text
        assert statement.cases or statement.ours, statement.text


def test_figures_are_drawn_from_the_record(tmp_path):
    pytest.importorskip("matplotlib")
    path = draw(benchmark.run(Falling()), tmp_path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert draw({"name": "nothing", "figures": {}}, tmp_path) is None
