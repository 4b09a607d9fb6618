"""
Accuracy against training time, for every method
================================================

Every method on the letters and on MNIST, where $MANYLENS_DATA has them, and on the digits otherwise. To keep
this example short only the first few thousand rows are used, where all pairs are still cheap; the benchmarks
hold the full runs, where they are not.
"""

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from manylens import NCA
from manylens.datasets import data_available, load_dataset
from manylens.metric import MiniBatch

METHODS = {
    "exact": {"method": "exact"},
    "tree": {"method": "tree"},
    "sub-sample": {"method": "subsample"},
    "mini-batch": {"method": "minibatch"},
    "mini-batch, rpc": {"method": MiniBatch(batching="rpc")},
    "mini-batch, fpc": {"method": MiniBatch(batching="fpc")},
    "stochastic": {"method": "stochastic", "max_iter": 1},
    "compact": {"method": "compact"},
    "compact, background": {"method": "compact-background"},
}


def panels():
    """Name, d, and training and test rows of each data set at hand."""
    if not data_available("letter", "mnist"):
        X, y = load_digits(return_X_y=True)
        yield "digits", 8, X[:1200], y[:1200], X[1200:], y[1200:]
        return
    for name, d, n_train in (("letter", 8, 3000), ("mnist", 10, 1500)):
        found = load_dataset(name)
        test = slice(found.n_train, found.n_train + 2000)
        train_rows, test_rows = (
            found.X[rows].astype(np.float32) / (255 if found.image_shape else 1)
            for rows in (slice(n_train), test)
        )
        yield f"{name}, {n_train:,} rows", d, train_rows, found.y[:n_train], test_rows, found.y[test]


data = list(panels())
figure, axes = plt.subplots(1, len(data), figsize=(5.5 * len(data), 4.2), layout="constrained", squeeze=False)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for parameters in METHODS.values():  # compile first, so that no method pays for it
        NCA(2, **{**parameters, "max_iter": 1}).fit(data[0][2][:100].astype(np.float32), data[0][3][:100])
    for ax, (title, d, X, y, X_test, y_test) in zip(axes[0], data, strict=True):
        X = X.astype(np.float32)
        for number, (name, parameters) in enumerate(METHODS.items()):
            start = time.perf_counter()
            nca = NCA(d, random_state=0, **{"max_iter": 10, **parameters}).fit(X, y)
            seconds = time.perf_counter() - start
            accuracy = 100 * nca.neighbor_classifier(X, y).score(X_test, y_test)
            marker = "osD^v<>PX"[number]
            ax.scatter(seconds, accuracy, color=f"C{number}", marker=marker, s=60, label=name)
        ax.set(title=f"{title}, d = {d}", xlabel="training time (s)", ylabel="test 5-NN accuracy (%)")
        ax.set_xlim(left=0)
        ax.grid(alpha=0.3)
axes[0, -1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()
