"""Figures 2, 6, 7 and 8: error of votes, error of single modules, and distance correlations."""

import numpy as np
from sklearn.model_selection import KFold

from benchmarks.data.image_sets import DIFFERS, IMAGE_NAMES, NEEDS, load_parts
from benchmarks.harness import Findings, Reproduction, Statement, curve, panel
from benchmarks.papers.autoencoders.convergence import PAPER
from benchmarks.papers.dimensionality_reduction.views import nearest
from manylens import ModularAutoencoder, distance_correlation_matrix
from manylens.baselines import BaggingAutoencoder
from manylens.ensembles.voting import modal_class

DIVERSITIES = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
ENSEMBLE, SINGLE = "Error of the vote (%)", "Mean error of a module (%)"
TO_INPUT, TO_EACH_OTHER = "Distance correlation with the input", "Distance correlation of two modules"
COLUMNS = tuple(map(str, DIVERSITIES))


def errors(base, asked, y, answers):
    """Error (%) of voting by one-nearest-neighbor classifiers, one per module, and their mean error."""
    votes = np.array(
        [y[nearest(base[:, m], asked[:, m], 1)[0][:, 0]] for m in range(base.shape[1])], dtype=np.int64
    )
    vote = modal_class(votes, int(y.max()) + 1)
    return 100 * float(np.mean(vote != answers)), 100 * float(np.mean(votes != answers))


def correlations(X, views):
    """Mean distance correlation of the modules with the input, and with one another."""
    matrix = distance_correlation_matrix([X, *views.swapaxes(0, 1)])
    off_diagonal = ~np.eye(len(matrix) - 1, dtype=bool)
    return float(matrix[0, 1:].mean()), float(matrix[1:, 1:][off_diagonal].mean())


def along(row):
    """The numbers of a row at the diversities, in their order."""
    return [row[column] for column in COLUMNS if column in row]


class AutoencoderVoting(Reproduction):
    """Ten modules with ten hidden nodes and a majority vote of one-nearest-neighbor classifiers, one per
    module, compared with bagged autoencoders. Five-fold cross-validation; distance correlations on the
    test rows of the first fold."""

    paper = PAPER
    where = "Figures 2, 6, 7 and 8"
    needs = NEEDS[:2]
    differs = (
        DIFFERS.split(";")[0]
        + "; Rotations, Background, Random and Convex are regenerated. 3,000 rows of each."
    )
    statements = (
        Statement(
            "at some diversity the error of voting is below that of bagged autoencoders",
            lambda found: {n: min(along(row)) < row["Bagging"] for n, row in found[ENSEMBLE].items()},
        ),
        Statement(
            "the error increases again as the diversity approaches 1",
            lambda found: {n: row["1.0"] > min(along(row)) for n, row in found[ENSEMBLE].items()},
        ),
        Statement(
            "the error of a single module is larger at diversity 0.9 than at 0",
            lambda found: {name: row["0.9"] > row["0.0"] for name, row in found[SINGLE].items()},
        ),
        Statement(
            "the error of voting decreases first (at some diversity up to 0.5)",
            lambda found: {
                name: min(row[c] for c in ("0.1", "0.2", "0.3", "0.5")) < row["0.0"]
                for name, row in found[ENSEMBLE].items()
            },
        ),
        Statement(
            "the distance correlation of modules with the input decreases with the diversity",
            lambda found: {n: row["0.0"] > row["0.5"] > row["0.99"] for n, row in found[TO_INPUT].items()},
        ),
        Statement(
            "the distance correlation between modules decreases with the diversity",
            lambda found: {
                n: row["0.0"] > row["0.5"] > row["0.99"] for n, row in found[TO_EACH_OTHER].items()
            },
        ),
    )

    def compute(self):
        tables = {title: {} for title in (ENSEMBLE, SINGLE, TO_INPUT, TO_EACH_OTHER)}
        figures = {}
        for name in IMAGE_NAMES[-1:] if self.quick else IMAGE_NAMES:
            found = self.on(name)
            for title, table in tables.items():
                table[name] = found[title]
            curves = {
                label: curve(range(len(COLUMNS)), along(found[title]), style="o-")
                for label, title in (("vote", ENSEMBLE), ("a module", SINGLE))
            }
            level = found[ENSEMBLE]["Bagging"]
            curves["bagging"] = curve([0, len(COLUMNS) - 1], [level, level], style="k--")
            figures[f"{name}: error"] = panel("diversity", "%", curves, ticks=COLUMNS)
        for title in (TO_INPUT, TO_EACH_OTHER):
            curves = {name: curve(range(len(COLUMNS)), along(row)) for name, row in tables[title].items()}
            figures[title] = panel("diversity", "correlation", curves, ticks=COLUMNS)
        return Findings(tables, figures)

    def on(self, name):
        """Rows of the four tables for one data set."""
        n, n_folds = (200, 2) if self.quick else (3_000, 5)
        parts = load_parts(name, min(n, 1_200), 0, n - min(n, 1_200), seed=self.seed)
        X, y = np.vstack([parts.X, parts.X_test]), np.concatenate([parts.y, parts.y_test])
        votes, singles, found = [], [], {}
        for fold, (train, test) in enumerate(KFold(n_folds, shuffle=True, random_state=self.seed).split(X)):
            model = ModularAutoencoder(10, 10, random_state=self.seed).fit(X[train])
            path = [
                [lens.split(lens.transform(X[rows])) for rows in (train, test)]
                for lens in [
                    *model.diversity_path(DIVERSITIES),
                    BaggingAutoencoder(10, 10, random_state=self.seed).fit(X[train]),
                ]
            ]
            pairs = [errors(base, asked, y[train], y[test]) for base, asked in path]
            votes.append([vote for vote, _ in pairs])
            singles.append([single for _, single in pairs])
            if fold == 0:
                measured = [correlations(X[test], asked) for _, asked in path]
        columns = (*COLUMNS, "Bagging")
        for title, values in (
            (ENSEMBLE, np.mean(votes, axis=0)),
            (SINGLE, np.mean(singles, axis=0)),
            (TO_INPUT, [to_input for to_input, _ in measured]),
            (TO_EACH_OTHER, [other for _, other in measured]),
        ):
            found[title] = dict(zip(columns, map(float, values), strict=True))
        return found
