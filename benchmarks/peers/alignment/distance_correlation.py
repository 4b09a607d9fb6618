"""Distance correlation of two modules, against dcor."""

from benchmarks.harness import Claim, Comparison, ratio, result
from manylens import ModularKernelPCA, distance_correlation
from manylens.datasets import load_dataset


class DistanceCorrelation(Comparison):
    """Two modules of ten dimensions, n = 5,000 rows of MNIST, float64."""

    needs = ("mnist",)
    warm_up = ("ours",)
    contenders = ("ours", "dcor")
    needs_packages = {"dcor": "dcor"}
    claims = (
        Claim("times as fast as dcor", ratio("dcor", "ours"), at_least=10),
        Claim("largest difference from dcor", result("dcor", "difference_from_ours"), at_most=1e-10),
    )

    def make_data(self):
        X = load_dataset("mnist").X[: 500 if self.quick else 5000] / 255.0
        lenses = ModularKernelPCA(2, 10, diversity=0.9, random_state=0).fit(X)
        return lenses.split(lenses.transform(X))

    def ours(self, views):
        return distance_correlation(views[:, 0], views[:, 1])

    def dcor(self, views):
        from dcor import distance_correlation as theirs

        return float(theirs(views[:, 0].copy(), views[:, 1].copy()))

    def score(self, views, value):
        if not hasattr(self, "our_value"):
            self.our_value = value
        return {"correlation": value, "difference_from_ours": abs(value - self.our_value)}
