"""Table 3.6: layers of networks trained on one task, used for other tasks."""

import numpy as np
from sklearn.neural_network import MLPClassifier

from benchmarks.data.image_sets import load_parts
from benchmarks.harness import Findings, Reproduction, Statement
from benchmarks.papers.alignment import PAPER
from benchmarks.papers.alignment.training import UNITS, hidden
from manylens import LayerRidgeClassifier
from manylens.papers.linear_kernel_alignment import layer_ridge

ACCURACY = "Accuracy (%), rows: trained on, columns: used for"
OURS = "The same, with our defaults"
MANY = ("MNIST", "turned")  # tasks with many rows


def better_than_its_own(table):
    """For each network of another task, whether it is better for the task with few rows than its own."""
    return {source: table[source]["few turned"] > table["few turned"]["few turned"] for source in MANY}


def best_is_its_own(table):
    """For each task with many rows, whether its own network is the best."""
    return {task: table[task][task] == max(row[task] for row in table.values()) for task in MANY}


class TransferWithinDomain(Reproduction):
    """Networks with three hidden layers, trained on 4,000 digits, on 4,000 rotated digits and on 300
    rotated digits; ridge regression on their hidden layers for each of the three tasks, 1,500 test rows."""

    paper = PAPER
    where = "Table 3.6"
    needs = ("mnist",)
    differs = """Small dense networks and digits instead of ResNets and photographs; "few turned" plays
    the role of STL-10, whose training set is small. The thesis's table is shown separately."""
    reduced = "4,000 rows and one draw, to train on two cores."
    printed = {
        "The thesis's accuracies (%)": {
            "CIFAR10": {"CIFAR10": 94.61, "CIFAR100": 57.16, "STL10": 82.81},
            "CIFAR100": {"CIFAR10": 87.85, "CIFAR100": 76.21, "STL10": 80.63},
            "STL10": {"CIFAR10": 73.72, "CIFAR100": 43.65, "STL10": 67.85},
        }
    }
    statements = (
        Statement(
            "for a task with few rows, networks trained on other tasks are better than its own",
            quote="""as the dataset itself has very few images in the training set, models trained on
            CIFAR10 and CIFAR100 give better generalisation on STL10 than those trained on STL10 itself""",
            source="Section 3.7.3, Table 3.6",
            cases=lambda found: better_than_its_own(found[ACCURACY]),
            ours=lambda found: better_than_its_own(found[OURS]),
        ),
        Statement(
            "for a task with many rows, its own network is best",
            quote="CIFAR10: 94.61, 87.85, 73.72; CIFAR100: 57.16, 76.21, 43.65",
            source="Table 3.6, columns",
            cases=lambda found: best_is_its_own(found[ACCURACY]),
            ours=lambda found: best_is_its_own(found[OURS]),
        ),
    )

    def compute(self):
        sizes = (200, 100, 75) if self.quick else (4_000, 300, 1_500)
        straight, turned = (load_parts(name, *sizes, seed=self.seed) for name in ("MNIST", "Rotations"))
        # The 300 rows are not part of the 4,000, and no network is trained on test rows.
        few = turned._replace(X=turned.X_choose, y=turned.y_choose)
        parts = {"MNIST": straight, "turned": turned, "few turned": few}
        tables = {ACCURACY: {}, OURS: {}}
        for source, own in parts.items():
            network = MLPClassifier(UNITS, batch_size=50, random_state=self.seed)
            for _ in range(2 if self.quick else 15):
                network.partial_fit(own.X, own.y, classes=np.arange(10))
            found = {task: self.accuracies(network, used) for task, used in parts.items()}
            for number, title in enumerate(tables):
                tables[title][source] = {task: both[number] for task, both in found.items()}
        return Findings(tables, {})

    def accuracies(self, network, parts):
        """Accuracies (%) of ridge on the layers of a network: the thesis's, and that of the library."""
        train, test = (
            {f"layer {k}": layer.astype(np.float32) for k, layer in enumerate(hidden(network, X))}
            for X in (parts.X, parts.X_test)
        )
        thesis = layer_ridge(train, parts.y, test, seed=self.seed).labels
        ours = LayerRidgeClassifier(random_state=self.seed).fit(train, parts.y).predict(test)
        return [100 * np.mean(labels == parts.y_test) for labels in (thesis, ours)]
