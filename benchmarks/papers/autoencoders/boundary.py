"""Figures 3, 4 and 5: three clusters, two modules of one hidden node, and their joint decision boundary."""

import numpy as np
from sklearn.linear_model import LogisticRegression

from benchmarks.harness import Findings, Reproduction, Statement, curve, panel
from benchmarks.papers.autoencoders.convergence import PAPER
from manylens import ModularAutoencoder

ERROR, SAME = "Test error (%)", "Correlation of the two features"
MEANS = np.array([[-2.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
DEVIATION = 0.9


def clusters(n, rng):
    """Three equally likely spherical Gaussians at the corners of a triangle."""
    y = rng.integers(3, size=n)
    return MEANS[y] + DEVIATION * rng.standard_normal((n, 2)), y


class Together:
    """A softmax classifier on each module's single feature; the mean of their probabilities decides."""

    def __init__(self, diversity, X, y):
        self.lens = ModularAutoencoder(2, 1, diversity, random_state=0).fit(X)
        self.members = [LogisticRegression(C=1e3).fit(view, y) for view in self.views(X)]

    def views(self, X):
        return self.lens.split(self.lens.transform(X)).swapaxes(0, 1)

    def predict(self, X):
        shares = [
            member.predict_proba(view) for member, view in zip(self.members, self.views(X), strict=True)
        ]
        return np.mean(shares, axis=0).argmax(axis=1)


class DecisionBoundary(Reproduction):
    """Three Gaussian clusters in the plane, two modules with one hidden node, averaged softmax
    classifiers, at diversity 0 and 0.5; mean of twenty draws of 500 training and 2,000 test points."""

    paper = PAPER
    where = "Figures 3, 4 and 5"
    differs = """The paper does not give the positions of its clusters; here their means are (-2, 0), (2,
    0) and (0, 2), with a standard deviation of 0.9."""
    printed = {ERROR: {"diversity 0": {"mean": 21.3}, "diversity 0.5": {"mean": 12.8}}}
    statements = (
        Statement(
            "without diversity both features are the same",
            lambda found: {"diversity 0": found[SAME]["diversity 0"]["mean"] > 0.999},
        ),
        Statement(
            "at a diversity of 0.5 the features differ",
            lambda found: {"diversity 0.5": found[SAME]["diversity 0.5"]["mean"] < 0.9},
        ),
        Statement(
            "a diversity of 0.5 reduces the test error by at least a quarter (paper: from 21.3 to 12.8 %)",
            lambda found: {
                "mean": found[ERROR]["diversity 0.5"]["mean"] <= 0.75 * found[ERROR]["diversity 0"]["mean"]
            },
        ),
    )

    def compute(self):
        tables, figures = {ERROR: {}, SAME: {}}, {}
        n_draws = 2 if self.quick else 20
        for diversity in (0.0, 0.5):
            errors, same = [], []
            for draw in range(n_draws):
                rng = np.random.default_rng([self.seed, draw])
                (X, y), (T, t) = clusters(500, rng), clusters(2_000, rng)
                model = Together(diversity, X, y)
                errors.append(100 * np.mean(model.predict(T) != t))
                same.append(abs(np.corrcoef(*model.views(T)[..., 0])[0, 1]))
                if draw == 0:
                    figures |= self.panels(diversity, model, T[:300], t[:300])
            row = f"diversity {diversity:g}"
            tables[ERROR][row] = {"mean": np.mean(errors), "standard deviation": np.std(errors)}
            tables[SAME][row] = {"mean": np.mean(same)}
        return Findings(tables, figures)

    def panels(self, diversity, model, T, t):
        """The classes on the two features, and the regions of the decision."""
        first, second = model.views(T)[..., 0]
        features = {f"class {c + 1}": curve(first[t == c], second[t == c], style=".") for c in range(3)}
        axis = np.linspace(-5, 5, 41)
        grid = np.stack(np.meshgrid(axis, axis), axis=-1)
        regions = model.predict(grid.reshape(-1, 2)).reshape(41, 41)
        points = {f"class {c + 1}": curve(*T[t == c].T, style=".") for c in range(3)}
        return {
            f"diversity {diversity:g}: features": panel("module 1", "module 2", features),
            f"diversity {diversity:g}: decision": panel(
                "x", "y", points, image=regions, extent=(-5, 5, -5, 5)
            ),
        }
