"""
Train ten small networks as a team
==================================

Ten networks with four hidden units each are trained on handwritten digits with one common loss. At diversity
0 each network is trained independently. With more diversity each of them may make larger errors, as long as
the errors cancel in the mean of all networks. How much is gained?
"""

import importlib.util
import sys

if importlib.util.find_spec("torch") is None:
    print("skipped: torch is not installed")
    sys.exit(0)

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from manylens import NegativeCorrelationClassifier
from manylens.plotting import CurveDisplay

torch.set_num_threads(1)
X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X.astype(np.float32), y, test_size=0.4, stratify=y, random_state=0
)

diversities = [0.0, 0.5, 0.8, 0.9, 0.95, 0.99]
x = [f"{diversity:g}" for diversity in diversities]
models = [
    NegativeCorrelationClassifier(10, hidden=4, diversity=diversity, random_state=0).fit(X_train, y_train)
    for diversity in diversities
]

# %%
# The squared error of the mean is exactly the mean error of the networks minus their spread.
parts = [model.ambiguity(X_test, y_test) for model in models]
CurveDisplay(
    x,
    {
        "mean of ten networks": [part.ensemble for part in parts],
        "one network, mean": [part.individual for part in parts],
    },
    references={"spread: the difference": [part.diversity for part in parts]},
    x_label="diversity",
    y_label="squared error on held-out digits",
).plot().ax_.set_ylim(bottom=0)

# %%
# The accuracy of the team increases, although its members become worse. The band shows the best and the worst
# network.
alone = np.array([model.individual_scores(X_test, y_test) for model in models])
CurveDisplay(
    x,
    {
        "mean of ten networks": [model.score(X_test, y_test) for model in models],
        "one network, mean": alone.mean(axis=1),
    },
    bands={"one network, mean": (alone.min(axis=1), alone.max(axis=1))},
    x_label="diversity",
    y_label="accuracy on held-out digits",
).plot()
plt.show()
