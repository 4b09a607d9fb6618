"""Distance correlation of two lenses, against dcor."""

from importlib.util import find_spec

from benchmarks.harness import Claim, Comparison, ratio, result
from manylens import ModularKernelPCA, distance_correlation
from manylens.datasets import load_dataset

HAS_DCOR = find_spec("dcor") is not None
if not HAS_DCOR:
    print("bench_distance_correlation: dcor is not installed and left out, and so the claims")


class DistanceCorrelation(Comparison):
    """Two modules of ten dimensions, n = 5,000 rows of MNIST, float64."""

    needs = ("mnist",)
    warm_up = ("ours",)
    contenders = ("ours", "dcor") if HAS_DCOR else ("ours",)
    claims = (
        (
            Claim("times as fast as dcor", ratio("dcor", "ours"), at_least=10),
            Claim("largest difference from dcor", result("ours", "difference"), at_most=1e-10),
        )
        if HAS_DCOR
        else ()
    )

    def make_data(self):
        X = load_dataset("mnist").X[: 500 if self.quick else 5000] / 255.0
        lenses = ModularKernelPCA(2, 10, diversity=0.9, random_state=0).fit(X)
        return lenses.split(lenses.transform(X))

    def ours(self, views):
        return distance_correlation(views[:, 0], views[:, 1])

    def dcor(self, views):
        from dcor import distance_correlation as theirs

        self.theirs = float(theirs(views[:, 0].copy(), views[:, 1].copy()))
        return self.theirs

    def score(self, views, value):
        if not HAS_DCOR:
            return {}
        return {"difference": abs(value - (self.theirs if hasattr(self, "theirs") else self.dcor(views)))}
