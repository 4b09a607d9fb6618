"""Table 2.1: layers of many networks, of which few are useful, weighted by alignment."""

import numpy as np
from sklearn.linear_model import RidgeClassifierCV
from sklearn.neural_network import MLPClassifier

from benchmarks.data.image_sets import load_parts
from benchmarks.harness import Findings, Reproduction, Statement
from benchmarks.papers.alignment import PAPER
from benchmarks.papers.alignment.training import hidden
from manylens import CountSketch, align_kernels

ACCURACY, KEPT = "Accuracy (%)", "Networks with a weight (%)"
OURS, OURS_KEPT = "Accuracy (%), our defaults", "Networks with a weight (%), our defaults"
SOURCES = ("MNIST", "Rotations", "Rectangles")
THESIS = {"estimator": "biased", "sketch": CountSketch(512)}


class TransferFromManyNetworks(Reproduction):
    """24 networks with one hidden layer (64 units), eight each trained on 1,000 rows of MNIST, of rotated
    digits and of rectangles; their hidden layers for 1,500 other rows of each task, weighted by alignment
    from sketches of 512 buckets; a ridge classifier on the weighted features, 1,000 test rows. Our defaults:
    the unbiased estimate, without sketches."""

    paper = PAPER
    where = "Table 2.1"
    needs = ("mnist", "rectangles")
    differs = """Small dense networks and digits instead of 152 ResNets and photographs. The printed table
    has other rows and columns (subsets of CIFAR-10, CIFAR-100 and SVHN) and is shown separately."""
    reduced = "24 networks instead of 152, 1,500 rows for each task, one draw, to train on two cores."
    printed = {
        "The thesis's accuracies (%)": {
            source: dict(zip(("STL10", "CIFAR10", "CIFAR100", "SVHN", "FashionMNIST"), values, strict=True))
            for source, *values in (
                ("ImageNet", 96.06, 86.48, 67.31, 47.97, 85.68),
                ("subsets of CIFAR10", 82.17, 95.02, 49.22, 56.70, 84.81),
                ("subsets of CIFAR100", 75.91, 79.80, 79.08, 57.65, 86.77),
                ("subsets of SVHN", 53.00, 58.49, 28.82, 97.00, 86.16),
                ("All models", 96.14, 94.90, 79.12, 97.02, 86.86),
            )
        }
    }
    statements = (
        Statement(
            "all networks together are at most one point below networks of the task's own source",
            quote="""the performance of using all models is similar to that of using only models
            pretrained with data subsampled from the same dataset""",
            source="Section 2.4.4, Table 2.1",
            cases=lambda found: all_as_good_as_own(found[ACCURACY]),
            ours=lambda found: all_as_good_as_own(found[OURS]),
        ),
        Statement(
            "some networks get no weight, and those of the task's own source get more than half of it",
            quote="""when irrelevant feature extractors are presented, the algorithm is capable of pruning
            them for making predictions""",
            source="Table 2.1",
            cases=lambda found: mostly_own(found[KEPT]),
            ours=lambda found: mostly_own(found[OURS_KEPT]),
        ),
    )

    def compute(self):
        sizes, members = ((200, 100, 50), 2) if self.quick else ((8_000, 1_500, 1_000), 8)
        sets = {source: load_parts(source, *sizes, seed=self.seed) for source in SOURCES}
        networks = {source: self.networks(parts, members) for source, parts in sets.items()}
        everything = [network for zoo in networks.values() for network in zoo]
        tables = {title: {row: {} for row in (*SOURCES, "all networks")} for title in (ACCURACY, OURS)}
        tables |= {KEPT: {}, OURS_KEPT: {}}
        for task in SOURCES:
            # The networks are not trained on the rows of the tasks.
            parts = sets[task]._replace(X=sets[task].X_choose, y=sets[task].y_choose)
            own = slice(members * SOURCES.index(task), members * (SOURCES.index(task) + 1))
            for settings, accuracy, kept in ((THESIS, ACCURACY, KEPT), ({}, OURS, OURS_KEPT)):
                for source, zoo in networks.items():
                    tables[accuracy][source][task] = transfer(zoo, parts, settings)[0]
                tables[accuracy]["all networks"][task], weights = transfer(everything, parts, settings)
                share = 100 * weights[own].sum() / weights.sum()
                tables[kept][task] = {"share": 100 * np.mean(weights > 0), "own source": share}
        return Findings(tables, {})

    def networks(self, parts, members):
        """Networks trained on random parts of one data set."""
        n = 100 if self.quick else 1_000
        made = []
        for member in range(members):
            rows = np.random.default_rng([self.seed, member]).permutation(len(parts.X))[:n]
            network = MLPClassifier((64,), batch_size=50, random_state=member)
            for _ in range(2 if self.quick else 15):
                network.partial_fit(parts.X[rows], parts.y[rows], classes=np.unique(parts.y))
            made.append(network)
        return made


def all_as_good_as_own(table):
    """For each task, whether all networks are at most one point below those of its own source."""
    return {task: found >= table[task][task] - 1 for task, found in table["all networks"].items()}


def mostly_own(kept):
    """For each task, whether some networks have no weight and those of its own source more than half."""
    return {task: cells["share"] < 100 and cells["own source"] > 50 for task, cells in kept.items()}


def transfer(networks, parts, settings):
    """Accuracy (%) of ridge on hidden layers weighted by alignment, and the networks' kernel shares."""
    train, test = ([hidden(network, X)[-1] for network in networks] for X in (parts.X, parts.X_test))
    sizes = [np.sqrt(np.mean((layer - layer.mean(axis=0)) ** 2)) + 1e-12 for layer in train]
    train, test = ([layer / size for layer, size in zip(part, sizes, strict=True)] for part in (train, test))
    weights = np.asarray(align_kernels(train, parts.y, **settings))
    joined, joined_test = (
        np.hstack([np.sqrt(w) * layer for w, layer in zip(weights, part, strict=True) if w > 0])
        for part in (train, test)
    )
    model = RidgeClassifierCV(np.logspace(-4, 4, 9)).fit(joined, parts.y)
    return 100 * model.score(joined_test, parts.y_test), weights
