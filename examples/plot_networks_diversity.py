"""
Networks that leave each other something to do
==============================================

Ten small networks read handwritten digits, trained together by one loss. At diversity 0 each is trained for
itself; as diversity grows each may err more, so long as the errors of all cancel in their mean. The error of
the mean is, exactly, the mean error of the networks less their spread.
"""

import importlib.util
import sys

if importlib.util.find_spec("torch") is None:
    print("left out: torch is not installed")
    sys.exit(0)

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from manylens import NegativeCorrelationClassifier

torch.set_num_threads(1)
X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X.astype(np.float32), y, test_size=0.4, stratify=y, random_state=0
)

diversities = [0.0, 0.5, 0.8, 0.9, 0.95, 0.99]
parts, alone, together = [], [], []
for diversity in diversities:
    model = NegativeCorrelationClassifier(10, hidden=4, diversity=diversity, random_state=0)
    model.fit(X_train, y_train)
    parts.append(model.ambiguity(X_test, y_test))
    alone.append(model.individual_scores(X_test, y_test))
    together.append(model.score(X_test, y_test))

# %%
# On the held-out rows: what the networks lose by themselves, and what their mean gains.
figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.8), layout="constrained")
places = np.arange(len(diversities))
left.plot(places, [part.individual for part in parts], "^-", color="C2", label="one network, mean")
left.plot(places, [part.ensemble for part in parts], "o-", color="C0", label="mean of ten networks")
left.plot(places, [part.diversity for part in parts], ":", color="0.5", label="spread: the difference")
left.set(ylabel="squared error", ylim=(0, None), title="error = mean error − spread", xlabel="diversity")
right.plot(places, together, "o-", color="C0", label="mean of ten networks")
right.plot(places, np.mean(alone, axis=1), "^-", color="C2", label="one network, mean")
right.fill_between(places, np.min(alone, axis=1), np.max(alone, axis=1), alpha=0.2, color="C2", lw=0)
right.set(ylabel="accuracy", title="digits told right", xlabel="diversity")
for ax in (left, right):
    ax.set_xticks(places, [f"{diversity:g}" for diversity in diversities])
    ax.legend(frameon=False)
plt.show()
