"""The machinery behind every benchmark: a file gives the data, ours and the others; this gives the rest.

A benchmark is a subclass of `Comparison` (ours against others, in `benchmarks/peers`), `Growth` (how cost
grows, in `benchmarks/scaling`) or `Reproduction` (a table or figure of a paper, in `benchmarks/papers`).
"""

from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.comparison import Claim, Comparison, gain, present, ratio, result
from benchmarks.harness.figures import curve, panel
from benchmarks.harness.growth import Growth
from benchmarks.harness.reproduction import Findings, Reproduction, Statement

__all__ = [
    "Benchmark",
    "Claim",
    "Comparison",
    "Findings",
    "Growth",
    "Reproduction",
    "Statement",
    "curve",
    "gain",
    "panel",
    "present",
    "ratio",
    "result",
]
