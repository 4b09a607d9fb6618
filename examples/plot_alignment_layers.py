"""
Layers of a network: how alike they are, and how many directions they use
=========================================================================

A network with four hidden layers is trained on the digits. The heat map shows the alignment (CKA) between
the pixels, the layers and the classes on held-out digits; beside it stands the stable rank of each layer.
Neighboring layers resemble each other, the last ones resemble the classes, and none uses nearly as many
directions as it has units.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from manylens import AlignmentDisplay, StableRankDisplay

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, random_state=0)
network = MLPClassifier((96, 96, 96, 96), max_iter=60, random_state=0, early_stopping=True)
network.fit(X_train, y_train)

layers = {"pixels": X_test}
activations = X_test
for k, (weights, bias) in enumerate(zip(network.coefs_[:-1], network.intercepts_[:-1], strict=True)):
    activations = np.maximum(activations @ weights + bias, 0)
    layers[f"layer {k + 1}"] = activations

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
AlignmentDisplay.from_representations(layers | {"classes": np.eye(10)[y_test]}, ax=left)
left.set_title("alignment on held-out digits")
StableRankDisplay.from_representations(layers, ax=right)
right.set_title("directions in use")
plt.show()
