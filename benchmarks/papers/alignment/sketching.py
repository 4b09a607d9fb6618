"""Figure 2.2: CKA from sketches against CKA from all rows."""

import numpy as np

from benchmarks.harness import Findings, Reproduction, Statement, curve, panel
from benchmarks.papers.alignment import PAPER
from manylens import CountSketch, cka, sketched_cka
from manylens.papers import linear_kernel_alignment as thesis

DIFFERENCE = "Difference from CKA"
ONE, THREE = "one sketch", "three sketches"  # as in the thesis, and `sketched_cka`


class SketchedAlignment(Reproduction):
    """CKA of X (10,000 x 128) and X T for 100 random maps T, and estimates from sketches of 512 buckets
    with four hashes: from one sketch, as in the thesis, and from three, without bias (`sketched_cka`)."""

    paper = PAPER
    where = "Figure 2.2"
    differs = "The thesis does not say how its data and maps are drawn."
    reduced = "128 columns instead of 512 and 100 maps instead of 250, to save time."
    statements = (
        Statement(
            "no difference is above 0.05",
            quote="""It empirically verifies that the absolute difference between CKA and Sketched CKA is
            small.""",
            source="Figure 2.2",
            cases=lambda found: {"100 maps": found[DIFFERENCE][ONE]["largest"] <= 0.05},
            ours=lambda found: {"100 maps": found[DIFFERENCE][THREE]["largest"] <= 0.05},
        ),
        Statement(
            "values are larger by at most 0.05 on average",
            quote="""value pairs are very close to each other with Sketched CKA values being slightly
            larger than CKA ones""",
            source="Section 2.3.4",
            cases=lambda found: {"100 maps": 0 < found[DIFFERENCE][ONE]["excess"] <= 0.05},
        ),
    )

    def compute(self):
        rng = np.random.default_rng(self.seed)
        n, d, n_maps = (500, 16, 4) if self.quick else (10_000, 128, 100)
        X = rng.standard_normal((n, d)) / np.sqrt(np.arange(1, d + 1))
        X -= X.mean(axis=0)
        makers = [CountSketch(512, 4, random_state=r) for r in range(3)]
        sketches = [maker.fresh().update(X) for maker in makers]
        scores = []
        for power in np.linspace(0, 3, n_maps):
            T = np.linalg.qr(rng.standard_normal((d, d)))[0] / np.arange(1, d + 1) ** power
            Y = X @ T
            others = [maker.fresh().update(Y) for maker in makers]
            once = thesis.sketched_cka(sketches[0].summary_, others[0].summary_)
            scores.append([cka(X, Y), once, sketched_cka(sketches, others).value])
        exact, once, thrice = np.array(scores).T
        kinds = {ONE: once, THREE: thrice}
        rows = {
            name: {
                "mean": np.mean(np.abs(found - exact)),
                "largest": np.max(np.abs(found - exact)),
                "excess": np.mean(found - exact),
            }
            for name, found in kinds.items()
        }
        curves = {name: curve(exact, found, style=".") for name, found in kinds.items()}
        curves["equal"] = curve([0, 1], [0, 1], style="k--")
        return Findings({DIFFERENCE: rows}, {"sketched CKA": panel("CKA", "sketched CKA", curves)})
