"""Features of a network's layers from one forward pass, sketched as they come.

A hook stands at every chosen layer. What it sees of a batch is pooled or flattened to rows, added to the
layer's sketch and forgotten, so memory is layers x buckets x width whatever the number of rows. A second pass
maps any rows to the low-rank features that the sketches define.
"""

from collections.abc import Mapping
from contextlib import closing

import numpy as np

from manylens.kernels.spectrum import inverse_root, rank_tolerance
from manylens.summaries import CountSketch
from manylens.transfer.blocks import choose_layers
from manylens.transfer.layer_pass import POOLINGS, LayerPass

HASHED = ("rows", "columns")


def collect_layers(
    model, batches, layers="auto", *, sketch=None, hashed="rows", pooling="auto", forward=None
):
    """Features of the layers of a network, in one forward pass and without its gradients.

    Parameters
    ----------
    model : torch.nn.Module
        The network; it runs in evaluation mode, and is left as it was.
    batches : iterable
        Inputs: a tensor or array is given to the model as it is, a dict by keyword, a tuple by position.
    layers : "auto", sequence of str, or callable, default="auto"
        Names of modules, as `model.named_modules()` spells them; or a predicate of name and module; or
        "auto", the repeated blocks, and the layers with a weight matrix that stand beside them. Of a module
        that runs several times, the last output counts.
    sketch : CountSketch, optional
        How features are made small: rows are hashed into its buckets. None keeps every row.
    hashed : {"rows", "columns"}, default="rows"
        With "rows", S X is collected, from which a second pass gives the Nystroem features
        X (S X)ᵀ (S X Xᵀ Sᵀ)^(-1/2); with "columns", features are hashed into buckets, X Sᵀ, and no second
        pass is needed.
    pooling : {"auto", "flatten", "mean", "first"} or callable, default="auto"
        What becomes of the axes after the first: all flattened; averaged over places, which are the axes
        after the channels in maps (n, channels, height, width) and the middle axis in tokens (n, tokens,
        width); the first place alone. "auto" flattens maps and averages tokens. Where a batch is a dict with
        `attention_mask` (n, tokens), tokens that it marks with zero do not count in the average. A callable
        takes the tensor and returns one of shape (n, d).
    forward : callable, optional
        `forward(model, batch)` runs the model, where batches are not simply its inputs.

    Returns
    -------
    LayerSketches or dict of ndarray
        With hashed rows, the sketches by name, a mapping to arrays (n_buckets, d_l) whose `transform` does
        the second pass; otherwise arrays of one row for each sample, (n, d_l) or (n, n_buckets). In the
        order in which the layers run; float32.

    Notes
    -----
    Memory with a sketch of rows is that of the model, of one batch through it, and of n_buckets x width
    doubles for each layer. The hash is that of the row's number, the same in all layers.

    Examples
    --------
    >>> import torch  # doctest: +SKIP
    >>> from manylens import CountSketch, collect_layers
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4))  # doctest: +SKIP
    >>> batches = torch.randn(10, 32, 8)  # doctest: +SKIP
    >>> sketches = collect_layers(model, batches, sketch=CountSketch(8, 4))  # doctest: +SKIP
    >>> {name: rows.shape for name, rows in sketches.transform(batches).items()}  # doctest: +SKIP
    {'0': (320, 8), '1': (320, 4)}
    """
    if hashed not in HASHED:
        raise ValueError(f"hashed={hashed!r} is unknown: choose 'rows' or 'columns'.")
    if not callable(pooling) and pooling not in POOLINGS:
        raise ValueError(
            f"pooling={pooling!r} is unknown: choose one of {', '.join(POOLINGS)}, or a callable."
        )
    if sketch is not None and not isinstance(sketch, CountSketch):
        raise TypeError(f"sketch={sketch!r} is not a CountSketch: give CountSketch(n_buckets, n_hashes).")
    passes = LayerPass(model, choose_layers(model, layers), pooling, forward)
    if sketch is None:
        return gathered(passes.run(batches))
    if hashed == "columns":
        return gathered(passes.run(batches), ColumnHashes(sketch))
    sketches: dict[str, CountSketch] = {}
    widths: dict[str, int] = {}
    with closing(passes.run(batches)) as run:  # a refusal must not leave hooks behind
        for features in run:
            for name, rows in features.items():
                own = sketches.setdefault(name, sketch.fresh())
                check_width(name, rows, widths.setdefault(name, rows.shape[1]))
                own.update(rows)
    refuse_nothing(sketches)
    return LayerSketches(passes, sketches)


class LayerSketches(Mapping):
    """Sketches S X_l of a network's layers, and the low-rank features that they define.

    A mapping from the layer's name to its sketch, an array of shape (n_buckets, d_l).

    Parameters
    ----------
    passes : LayerPass
        How rows go through the network.
    sketches : dict of CountSketch
        One for each layer.
    """

    def __init__(self, passes, sketches):
        self._passes = passes
        self._rows = {name: own.summary_.astype(np.float32) for name, own in sketches.items()}
        self._roots = {name: sketch_root(rows) for name, rows in self._rows.items()}
        self.n_rows_ = next(iter(sketches.values())).n_rows_

    def __getitem__(self, name):
        return self._rows[name]

    def __iter__(self):
        return iter(self._rows)

    def __len__(self):
        return len(self._rows)

    def transform(self, batches):
        """Low-rank features X_l (S X_l)ᵀ Q Λ^(-1/2), where S X_l X_lᵀ Sᵀ = Q Λ Qᵀ, of any rows.

        Parameters
        ----------
        batches : iterable
            Inputs, as for `collect_layers`; those it was given, or new ones.

        Returns
        -------
        dict of ndarray, each of shape (n, rank_l)
            Features by layer; rank_l is at most the number of buckets. Their inner products are the Nystroem
            approximation of those of the layer's own features.
        """
        return gathered(self._passes.run(batches), self._low_rank)

    def _low_rank(self, rows, name):
        check_width(name, rows, self._rows[name].shape[1])
        return rows @ self._rows[name].T @ self._roots[name]


class ColumnHashes:
    """Features hashed into buckets, X Sᵀ: one S for each width, made when it is first met."""

    def __init__(self, sketch):
        self.sketch = sketch
        self.matrices = {}

    def __call__(self, rows, _name):
        width = rows.shape[1]
        if width not in self.matrices:
            self.matrices[width] = self.sketch.matrix(width).T.tocsr().astype(np.float32)
        return np.asarray(rows @ self.matrices[width])


def sketch_root(rows):
    """A root W (n_buckets, rank), W Wᵀ = (S X Xᵀ Sᵀ)⁺, as Q Λ^(-1/2) is; tiny eigenvalues dropped."""
    wide = rows.astype(np.float64)
    root, _ = inverse_root(wide @ wide.T, rank_tolerance(len(rows), np.float32))
    return root.astype(np.float32)


def gathered(passes, mapped=None):
    """All rows of every layer, one array each, from batches, mapped one by one where a map is given."""
    parts: dict[str, list[np.ndarray]] = {}
    with closing(passes) as run:
        for features in run:
            for name, rows in features.items():
                parts.setdefault(name, []).append(rows if mapped is None else mapped(rows, name))
                check_width(name, parts[name][-1], parts[name][0].shape[1])
    refuse_nothing(parts)
    return {name: np.concatenate(rows) for name, rows in parts.items()}


def check_width(name, rows, width):
    """Refuse a batch whose features are not as many as the first batch's."""
    if rows.shape[1] != width:
        raise ValueError(
            f"Layer {name!r} gave {rows.shape[1]} features for one batch and {width} for another: pad the "
            "inputs to one size, or choose pooling='mean'."
        )


def refuse_nothing(found):
    """Refuse an iterable that held no batches."""
    if not found:
        raise ValueError("batches holds no batch: a generator that was read once is empty the second time.")
