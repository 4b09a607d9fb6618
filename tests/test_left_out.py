"""The last line of a test run names the packages that tests were skipped for."""

from pathlib import Path

from tests.conftest import left_out_line

TESTS = Path(__file__).parent
MISSING = "could not import 'torch': No module named 'torch'"


def test_nothing_is_printed_if_no_package_is_missing():
    assert left_out_line({"test_a.py::test_b": "this machine has one core"}, TESTS) == ""


def test_tests_are_counted_and_packages_named():
    skipped = {"a.py::test_one": MISSING, "a.py::test_two": "the faiss back end needs faiss"}
    line = left_out_line(skipped, TESTS)
    assert (
        line
        == "2 tests left out (torch, faiss not installed): `make check` installs them and runs all tests."
    )


def test_all_tests_of_a_skipped_file_are_counted():
    assert left_out_line({"test_left_out.py": MISSING}, TESTS).startswith("3 tests left out (torch")
