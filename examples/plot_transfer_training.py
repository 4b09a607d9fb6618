"""
Watch the layers of a network while it trains
=============================================

How well does each layer of a network separate the classes, and when does it stop improving?
`AlignmentHistory` answers after every epoch, from rows that the network is not trained on.
"""

import importlib.util
import sys

if importlib.util.find_spec("torch") is None:
    print("skipped: torch not installed")
    sys.exit(0)

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits

from manylens.plotting import CurveDisplay, HeatMapDisplay
from manylens.transfer import AlignmentHistory

torch.set_num_threads(1)
torch.manual_seed(0)

# %%
# A training loop with one extra line
# -----------------------------------
X, y = load_digits(return_X_y=True)
X = torch.as_tensor(X / 16, dtype=torch.float32)
train, probe = slice(0, 1200), slice(1200, None)
network = torch.nn.Sequential(
    *(torch.nn.Linear(64, 128), torch.nn.ReLU()),
    *(torch.nn.Linear(128, 64), torch.nn.ReLU()),
    *(torch.nn.Linear(64, 32), torch.nn.ReLU()),
    torch.nn.Linear(32, 10),
)
optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
history = AlignmentHistory(network, ["1", "3", "5"])
accuracy = []
for epoch in range(16):
    history.record(X[probe].split(200), y[probe], epoch)
    with torch.no_grad():
        accuracy.append(float(np.mean(network(X[probe]).argmax(dim=1).numpy() == y[probe])))
    for rows in torch.randperm(1200).split(50):
        loss = torch.nn.functional.cross_entropy(network(X[rows]), torch.as_tensor(y)[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

# %%
# The alignment of the last layer follows the accuracy
# ----------------------------------------------------
figure, axes = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
layers = {f"layer {k + 1}": values for k, values in enumerate(history.alignments_.values())}
CurveDisplay(
    history.steps_,
    layers,
    references={"accuracy": accuracy},
    x_label="epoch",
    y_label="alignment with the targets",
).plot(ax=axes[0])
by_class = np.array(history.class_alignments_["5"])
hardest = np.argsort(by_class[-1])[[0, 1, -2, -1]]
CurveDisplay(
    history.steps_,
    {f"digit {c}": by_class[:, c] for c in hardest},
    x_label="epoch",
    y_label="last layer and one digit",
).plot(ax=axes[1])
HeatMapDisplay(history.similarities_[-1], list(layers), value_name="similarity").plot(ax=axes[2])
plt.show()
