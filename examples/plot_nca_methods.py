"""
Choose a method for learning a metric
=====================================

NCA can be trained exactly, with trees, on mini-batches and in other ways. Which of them gives the best
accuracy for the time? Letters and MNIST are used if $MANYLENS_DATA has them, and scikit-learn's digits
otherwise. To keep this example short only a few thousand rows are used; the benchmarks contain the full runs.
"""

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from manylens import NCA
from manylens.datasets import data_available, load_dataset
from manylens.metric import MiniBatch
from manylens.plotting.style import color, marker

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


def load_data():
    """Title, number of dimensions, training rows and test rows of each data set."""
    if not data_available("letter", "mnist"):
        X, y = load_digits(return_X_y=True)
        yield "digits", 8, X[:1200], y[:1200], X[1200:], y[1200:]
        return
    for name, d, n_train in (("letter", 8, 3000), ("mnist", 10, 1500)):
        data = load_dataset(name)
        X = data.X.astype(np.float32) / (255 if data.image_shape else 1)
        test = slice(data.n_train, data.n_train + 2000)
        yield f"{name}, {n_train:,} rows", d, X[:n_train], data.y[:n_train], X[test], data.y[test]


# %%
# Every method is run for ten iterations (one epoch for the stochastic method), and the learned metric is used
# by five nearest neighbors.
data = [(title, d, X.astype(np.float32), y, *test) for title, d, X, y, *test in load_data()]
figure, axes = plt.subplots(1, len(data), figsize=(5.5 * len(data), 4.2), layout="constrained", squeeze=False)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the fits are stopped early on purpose
    for parameters in METHODS.values():  # compile first, so that compilation is not measured
        NCA(2, **{**parameters, "max_iter": 1}).fit(data[0][2][:100], data[0][3][:100])
    for ax, (title, d, X, y, X_test, y_test) in zip(axes[0], data, strict=True):
        for number, (name, parameters) in enumerate(METHODS.items()):
            start = time.perf_counter()
            nca = NCA(d, random_state=0, **{"max_iter": 10, **parameters}).fit(X, y)
            seconds = time.perf_counter() - start
            accuracy = 100 * nca.neighbor_classifier(X, y).score(X_test, y_test)
            ax.scatter(seconds, accuracy, color=color(number), marker=marker(number), s=60, label=name)
        ax.set(title=f"{title}, {d} dimensions", xlabel="training time, s", ylabel="test accuracy, %")
        ax.set_xlim(left=0)
        ax.grid(alpha=0.3)
axes[0, -1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()
