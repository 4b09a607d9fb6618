"""
Compare the layers of a network
===============================

Which layers of a network carry the same information, and how many directions does each of them use? A network
with four hidden layers is trained on handwritten digits, and its layers are compared on held-out digits.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from manylens import stable_rank
from manylens.plotting import CurveDisplay, HeatMapDisplay

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, random_state=0)
network = MLPClassifier((96, 96, 96, 96), max_iter=60, random_state=0, early_stopping=True)
network.fit(X_train, y_train)

layers = {"pixels": X_test}
activations = X_test
for k, (weights, bias) in enumerate(zip(network.coefs_[:-1], network.intercepts_[:-1], strict=True)):
    activations = np.maximum(activations @ weights + bias, 0)
    layers[f"layer {k + 1}"] = activations

# %%
# The centered kernel alignment (CKA) of two layers is 1 if they contain the same information up to a
# rotation. Neighboring layers are similar, and the last layers are the most similar to the classes.
HeatMapDisplay.from_representations(layers | {"classes": np.eye(10)[y_test]}).ax_.set_title(
    "CKA on held-out digits"
)

# %%
# The stable rank counts the directions that a layer uses. It is far below the number of units.
CurveDisplay(
    list(layers),
    {"stable rank": [stable_rank(layer) for layer in layers.values()]},
    references={"units": [layer.shape[1] for layer in layers.values()]},
    y_label="number of directions",
    y_scale="log",
).plot().ax_.set_title("directions in use, and units of the layer")
plt.show()
