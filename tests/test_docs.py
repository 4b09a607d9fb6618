"""Every guide starts from a job, and its measured numbers are those of the cited records."""

import re
from pathlib import Path

import pytest

from benchmarks.harness import records
from tests.test_readme import numbers_of

DOCS = Path(__file__).parents[1] / "docs"
GUIDES = ("ensembles", "alignment", "transfer", "pruning", "nca", "networks")


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_has_a_job_code_a_measured_sentence_and_a_limit(guide):
    text = (DOCS / f"{guide}.md").read_text()
    parts = ("**Job:**", "```python", "**Measured:**", "**When not to use it:**")
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert places[-1] < 1500


def cited_sentences(guide):
    """Pairs of a sentence with decimal numbers and the benchmarks that it cites."""
    text = " ".join(re.sub(r"```.*?```", "", (DOCS / f"{guide}.md").read_text(), flags=re.DOTALL).split())
    known = records.read_records()
    for sentence in re.split(r"(?<=[.)])\s+(?=[A-Z*])|\*\*", text):
        cited = [name for name in re.findall(r"\b[A-Z]\w+\b", sentence) if name in known]
        if cited and "|" not in sentence:
            yield sentence, cited


@pytest.mark.parametrize("guide", GUIDES)
def test_the_decimals_of_a_sentence_are_in_the_records_it_cites(guide):
    kept = records.read_records()
    sentences = list(cited_sentences(guide))
    assert sentences
    for sentence, cited in sentences:
        known = set().union(*(numbers_of(kept[name]) for name in cited))
        for number in re.findall(r"(?<![\w.-])\d+\.\d+(?:e-?\d+)?(?![\w-])", sentence):
            assert number in known, f"{', '.join(cited)}: no {number}"
