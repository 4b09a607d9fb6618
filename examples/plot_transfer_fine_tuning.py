"""
Fine-tune or not?
=================

A network was trained on the digits 0 to 4. Should it be fine-tuned for another task, or is ridge regression
on its frozen layers enough? Both learn from three quarters of the labeled rows and predict the others;
`fine_tuning_gain` decides whether the difference is large enough, or estimates how many rows would be needed
to decide.
"""

import copy
import importlib.util
import sys

if importlib.util.find_spec("torch") is None:
    print("skipped: torch not installed")
    sys.exit(0)

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits

from manylens import LayerRidgeClassifier, collect_layers
from manylens.plotting import CurveDisplay
from manylens.transfer import fine_tuning_gain

torch.set_num_threads(1)


# %%
# A pretrained network
# --------------------
def trained(network, X, y, n_steps):
    """The network after some steps of Adam on batches of 50."""
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    rows, labels = torch.as_tensor(X), torch.as_tensor(y)
    for _ in range(n_steps):
        some = torch.randint(len(X), (50,))
        loss = torch.nn.functional.cross_entropy(network(rows[some]), labels[some])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network


torch.manual_seed(0)
X, y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)
pretrained = torch.nn.Sequential(
    *(torch.nn.Linear(64, 128), torch.nn.ReLU()),
    *(torch.nn.Linear(128, 32), torch.nn.ReLU()),
    torch.nn.Linear(32, 5),
)
trained(pretrained, X[y < 5], y[y < 5], 600)


# %%
# Two tasks, and more and more labels
# -----------------------------------
# The digits 5 to 9 are like those that the network knows. In the other task the pixels are shuffled.
def both(rows, labels, unseen):
    """Classes that the fine-tuned network and ridge regression on its frozen layers predict."""
    tuned = copy.deepcopy(pretrained)
    tuned[-1] = torch.nn.Linear(32, int(y.max()) + 1)
    scores = trained(tuned, rows, labels, 300)(torch.as_tensor(unseen))
    layers, new = (collect_layers(pretrained, [part], ["1", "3"]) for part in (rows, unseen))
    ridge = LayerRidgeClassifier(random_state=0).fit(layers, labels)
    return scores.argmax(dim=1).numpy(), ridge.predict(new)


order = np.random.default_rng(0).permutation(64)
tasks = {"digits 5 to 9": (X[y >= 5], y[y >= 5]), "shuffled pixels": (X[:, order], y)}
counts = (150, 600)
figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
for ax, (name, (rows, labels)) in zip(axes, tasks.items(), strict=True):
    accuracy = {"fine-tuned": [], "frozen": []}
    for n in counts:
        learn, judge = slice(0, 3 * n // 4), slice(3 * n // 4, n)
        found = fine_tuning_gain(*both(rows[learn], labels[learn], rows[judge]), labels[judge])
        later = "too close" if found.rows_needed is None else f"ask again at {found.rows_needed} such rows"
        verdict = {True: "fine-tune", False: "keep it frozen", None: later}
        print(
            f"{name}, {n} labels: gain {found.gain:+.3f} ± {found.standard_error:.3f} "
            f"on {found.n_rows} rows: {verdict[found.worth_it]}"
        )
        for values, predicted in zip(accuracy.values(), both(rows[:n], labels[:n], rows[650:]), strict=True):
            values.append(np.mean(predicted == labels[650:]))
    CurveDisplay(counts, accuracy, x_label="labeled rows", y_label="test accuracy").plot(ax=ax)
    ax.set_title(name)
plt.show()
