"""Comparisons, claims, records and reports; exponents of growth."""

import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness import (
    Claim,
    Comparison,
    benchmark,
    comparison,
    gain,
    ratio,
    records,
    report,
    result,
    tables,
)
from benchmarks.harness.growth import Growth, exponent
from benchmarks.harness.measuring import PeakMemory
from benchmarks.harness.running import Progress, run_in_full

ROUNDS = {
    "ours": {"all_seconds": [1.0, 2.0], "seconds": 1.0, "error": 0.5},
    "other": {"all_seconds": [4.0, 6.0], "seconds": 4.0, "error": 1.0},
}


class Sums(Comparison):
    """Sums of squares."""

    contenders = ("ours", "loop", "absent")
    needs_packages = {"absent": "no_such_package"}
    memory = False
    claims = (
        Claim("the same sum", result("loop", "total"), at_least=285, at_most=285),
        Claim("of what is not there", result("absent", "total"), at_least=0),
    )

    def make_data(self):
        return np.arange(10)

    def ours(self, data):
        return int(data @ data)

    def loop(self, data):
        return sum(int(value) ** 2 for value in data)

    def score(self, data, total):
        return {"total": total}


def test_a_ratio_of_times_comes_with_its_range_over_the_rounds():
    judged = Claim("faster", ratio("other", "ours"), at_least=3.5).judge(ROUNDS)
    assert judged["value"] == 4.0
    assert judged["spread"] == [3.0, 4.0]
    assert judged["held"]
    assert "(3 to 4)" in tables.verdict(judged)


def test_a_claim_on_speed_shows_the_scores_of_both_contenders():
    judged = Claim("times as fast", ratio("other", "ours"), at_least=3.5).judge(ROUNDS)
    assert judged["scores"] == {"error": {"ours": 0.5, "other": 1.0}}
    assert "error 0.5 (ours), 1 (other)" in tables.verdict(judged)


def test_a_claim_on_memory_shows_the_score():
    results = {"ours": {"all_seconds": [1.0], "seconds": 1.0, "peak_mb": 3.0, "precision": 0.9}}
    judged = Claim("peak MB", result("ours", "peak_mb"), at_most=5).judge(results)
    assert judged["scores"] == {"precision": {"ours": 0.9}}


def test_a_claim_on_a_score_shows_no_other_scores():
    assert Claim("error", ratio("ours", "other", "error"), at_most=1).judge(ROUNDS)["scores"] == {}


def test_a_claim_on_a_gain_shows_both_scores():
    judged = Claim("lost", gain("other", "ours", "error", 100), at_most=60).judge(ROUNDS)
    assert judged["value"] == 50
    assert judged["scores"] == {"error": {"other": 1.0, "ours": 0.5}}


def test_a_comparison_can_name_the_scores_to_show():
    results = {name: values | {"size": 7} for name, values in ROUNDS.items()}
    claim = Claim("times as fast", ratio("other", "ours"), at_least=1)
    assert claim.judge(results, ("size",))["scores"] == {"size": {"ours": 7, "other": 7}}
    assert claim.judge(results, ())["scores"] == {}


def test_a_contender_that_is_not_repeated_counts_with_its_last_run():
    results = {"ours": {"all_seconds": [1.0, 2.0]}, "slow": {"all_seconds": [12.0]}}
    assert comparison.rounds(results, "slow", "ours") == [12.0, 6.0]


class Counted(Comparison):
    """Who runs how often."""

    contenders = ("ours", "slow")
    warm_up = ("ours",)
    memory = False

    def make_data(self):
        return {"ours": 0, "slow": 0}

    def ours(self, data):
        data["ours"] += 1
        return data

    def slow(self, data):
        data["slow"] += 1
        time.sleep(0.02)
        return data

    def score(self, data, _):
        self.data = data
        return {}


def test_only_named_contenders_are_warmed_up_and_long_runs_are_not_repeated(monkeypatch):
    monkeypatch.setattr(comparison, "LONG_ENOUGH", 0.01)
    counted = Counted()
    record = benchmark.run(counted)
    assert counted.data == {"ours": 1 + 3, "slow": 1}
    assert len(record["results"]["slow"]["all_seconds"]) == 1


class Broken(Comparison):
    """Fails."""

    def make_data(self):
        raise ValueError("no data today")


def test_a_failing_benchmark_does_not_stop_the_others(monkeypatch, capsys):
    kinds = {"Broken": Broken, "Sums": Sums}
    saved = []
    monkeypatch.setattr(benchmark, "discover", lambda: kinds)
    monkeypatch.setattr(records, "save", saved.append)
    assert run_in_full(["Broken", "Sums"]) == ["Broken failed: ValueError: no data today"]
    assert [record["name"] for record in saved] == ["Sums"]
    assert "no data today" in capsys.readouterr().err


def test_progress_estimates_what_is_left_from_the_records(capsys):
    class Together(Sums):
        """Runs beside others."""

        alone = False

    kinds = {"first": Together, "second": Together, "third": Sums, "new": Sums}
    known = {"first": {"duration": 600.0}, "second": {"duration": 300.0}, "third": {"duration": 120.0}}
    progress = Progress(kinds, known, n_cores=2)
    assert progress.seconds_left == 600 + 120 + 300  # the first alone takes as long as both on two cores
    progress.done("first")
    assert "[1 of 4 benchmarks; about 12 minutes left]" in capsys.readouterr().out
    for name in ("second", "third", "new"):
        progress.done(name)
    assert "[4 of 4 benchmarks; all done]" in capsys.readouterr().out


def test_other_numbers_have_no_spread():
    assert Claim("better", ratio("other", "ours", "error"), at_least=3).judge(ROUNDS)["spread"] is None


def test_contenders_that_are_not_installed_are_skipped_with_their_claims(capsys):
    record = benchmark.run(Sums())
    assert list(record["results"]) == ["ours", "loop"]
    assert [claim["held"] for claim in record["claims"]] == [True]
    assert "no_such_package is not installed" in capsys.readouterr().out


def test_a_record_is_read_back_as_written_and_describes_the_machine(tmp_path):
    record = benchmark.run(Sums())
    records.save(record, tmp_path)
    read = records.read_records(tmp_path)["Sums"]
    assert read == record
    assert read["machine"]["versions"]["numpy"] == np.__version__
    assert read["duration"] > 0
    assert "### Sums" in report.page([read])


def test_records_of_one_family_share_a_file(tmp_path):
    for kind in (Sums, Counted):
        records.save(benchmark.run(kind()), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["benchmarks.json"]
    assert list(records.read_records(tmp_path)) == ["Counted", "Sums"]


def test_a_report_words_claims_as_the_code_does(tmp_path):
    record = benchmark.run(Sums())
    record["claims"][0] |= {"text": "an outdated sentence", "at_least": 1}
    records.save(record, tmp_path)
    read = records.current_records({"Sums": Sums}, tmp_path)["Sums"]
    assert [claim["text"] for claim in read["claims"]] == ["the same sum"]
    assert read["claims"][0]["value"] == 285
    assert read["results"] == record["results"]


def test_every_record_belongs_to_a_benchmark_and_is_stored_with_its_family():
    found = benchmark.discover()
    kept = records.read_records()
    assert set(kept) <= set(found)
    assert all(record["family"] == found[name].family() for name, record in kept.items())


def test_every_claim_on_speed_or_memory_shows_a_score_if_there_is_one():
    found = benchmark.discover()
    for name, record in records.current_records(found).items():
        claims = {claim.text: claim for claim in getattr(found[name], "claims", ())}
        for judged in record.get("claims", ()):  # without those about contenders that the record has not
            claim = claims[judged["text"]]
            measured = {key for who in claim.contenders for key in record["results"][who]}
            if found[name].scores is None and measured - set(comparison.NOT_SCORES):
                assert judged["scores"] or not claim.contenders, (name, claim.text)


def test_the_readme_table_is_short_and_names_claims_that_exist():
    lines = report.readme_lines(report.ordered(records.current_records(benchmark.discover())))
    rows = [line for line in lines if line.startswith("|")][2:]
    assert len(rows) == sum(map(len, report.HEADLINES.values()))
    assert 0 < len(rows) <= 12


def test_every_record_kept_is_readable():
    report.page(report.ordered(records.current_records(benchmark.discover())))


def test_bases_of_benchmarks_are_not_benchmarks():
    assert not [name for name, kind in benchmark.discover().items() if kind.about().startswith("Base")]


def test_every_benchmark_has_a_docstring():
    found = benchmark.discover()
    assert found
    assert {kind.kind for kind in found.values()} <= set(report.ORDER)
    assert all(kind.__doc__ and kind.__doc__ != kind.__mro__[1].__doc__ for kind in found.values())


@pytest.mark.parametrize("power", [0.5, 1, 2, 3])
def test_the_exponent_of_a_power_is_found(power):
    sizes = np.array([10, 100, 1000])
    assert exponent(sizes, 3e-7 * sizes.astype(float) ** power) == pytest.approx(power)


def test_a_fixed_cost_does_not_hide_the_growth():
    sizes = np.array([10, 30, 100, 300, 1000])
    assert exponent(sizes, 1e-3 + 1e-6 * sizes**2.0) == pytest.approx(2, abs=0.25)


def test_negligible_memory_has_no_exponent():
    assert exponent([10, 100, 1000], [0.1, 0.5, 1.9], negligible=2.0) is None


class Squares(Growth):
    """An array of n rows and d columns."""

    base = {"n": 100, "d": 100}
    axes = {"n": (100, 1000), "d": (100, 1000)}

    def prepare(self, n, d):
        return lambda: np.ones((n, d)).sum()


def test_growth_measures_every_axis():
    record = benchmark.run(Squares(quick=True))
    assert list(record["axes"]) == ["n", "d"]
    assert all(len(axis["seconds"]) == 1 for axis in record["axes"].values())
    assert len(tables.growth_table([record])) == 2 + 2


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from Linux's /proc")
def test_peak_memory_includes_an_array_that_was_freed():
    with PeakMemory() as peak:
        array = np.ones(20 * 2**17)
        time.sleep(0.02)
        del array
    assert peak.megabytes > 15
