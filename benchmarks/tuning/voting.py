"""How the modules' votes are combined: one vote per module, or all neighbors in one count.

    python -m benchmarks.tuning.voting

Prints the accuracy of `ModuleVotingClassifier` with `voting="hard"` and `voting="soft"`, for five neighbors
(where the soft vote counts the M k neighbors of all modules together) and for logistic regression. Rows are
training rows only: 3,000 to fit, 500 to choose the diversity for each vote, 500 to judge; three splits.
"""

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from benchmarks.data.image_sets import NAMES, load_parts
from manylens import ModularKernelPCA, ModuleVotingClassifier, ScanNeighborsClassifier
from manylens.datasets import load_dataset

TABLES = ("letter", "isolet", "usps", "optdigits")
ESTIMATORS = {  # with the diversities to choose from
    "5 neighbors": (ScanNeighborsClassifier(5), (0.2, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999)),
    "logistic": (LogisticRegression(max_iter=100, tol=1e-3), (0.5, 0.99)),
}
VOTES = ("hard", "soft")
N_SPLITS = 3


def training_rows(name):
    """At most 4,000 training rows of a set, with classes 0, 1, ..."""
    if name in NAMES:
        parts = load_parts(name, 4_000, 0, 0)
        return parts.X, parts.y
    data = load_dataset(name)
    rows = np.random.default_rng(0).permutation(getattr(data, "n_train", len(data.X)))[:4_000]
    X = StandardScaler().fit_transform(data.X[rows].reshape(len(rows), -1)).astype(np.float32)
    return X, np.unique(data.y[rows], return_inverse=True)[1]


def accuracies(estimator, diversities, X, y, seed):
    """Accuracy (%) of both votes on rows used neither to fit nor to choose the diversity."""
    X, X_held, y, y_held = train_test_split(X, y, test_size=0.25, random_state=seed, stratify=y)
    first = np.arange(len(y_held)) < len(y_held) // 2
    lenses = ModularKernelPCA(15, 20, rank=500, random_state=seed).fit(X)
    tried = {vote: [] for vote in VOTES}
    for at_diversity in lenses.diversity_path(diversities):
        model = ModuleVotingClassifier(at_diversity, estimator, "soft").fit(X, y)
        for vote in VOTES:
            right = model.set_params(voting=vote).predict(X_held) == y_held
            tried[vote].append([np.mean(right[first]), np.mean(right[~first])])
    return [100 * max(pairs, key=lambda pair: pair[0])[1] for pairs in tried.values()]


def main():
    """Print one row per set."""
    print("| data | " + " | ".join(f"{e}, {v}" for e in ESTIMATORS for v in VOTES) + " |")
    table = []
    for name in (*NAMES, *TABLES):
        X, y = training_rows(name)
        cells = [
            np.mean([accuracies(*kind, X, y, seed) for seed in range(N_SPLITS)], axis=0)
            for kind in ESTIMATORS.values()
        ]
        table.append(np.concatenate(cells))
        print(f"| {name} | " + " | ".join(f"{value:.1f}" for value in table[-1]) + " |", flush=True)
    print("| mean | " + " | ".join(f"{value:.2f}" for value in np.mean(table, axis=0)) + " |")


if __name__ == "__main__":
    main()
