"""Comparing the layers of two networks in one pass, in memory that depends neither on rows nor on widths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import tee, zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from manylens.alignment.comparing import SimilarityMatrix
from manylens.alignment.feature_sets import centered, constant_message
from manylens.transfer.layer_choice import LayerChoice, choose_layers, is_auto
from manylens.transfer.layer_pooling import Pooling
from manylens.transfer.network_calls import Forward, in_batches, with_progress
from manylens.transfer.network_layers import Batch, LayerPass
from manylens.typing import FloatArray
from manylens.validation import safe_scale, times_power

if TYPE_CHECKING:
    from torch import nn

BLOCK_ROWS = 512  # batches are joined up to this number of rows
BLOCK_BYTES = 2**28  # if the rows of all layers then take no more memory than this
N_GROUPS = 20  # of blocks, for standard errors
MIN_ROWS = 4  # in a block, for unbiased inner products


def compare_models(
    model_a: nn.Module,
    model_b: nn.Module,
    batches: Iterable[Any],
    layers: LayerChoice = "auto",
    *,
    layers_b: LayerChoice | None = None,
    batches_b: Iterable[Any] | None = None,
    pooling: Pooling = "auto",
    forward: Forward | None = None,
    verbose: bool | int = False,
) -> SimilarityMatrix:
    """Linear CKA of every layer of one network with every layer of another, in one pass.

    Both networks run batch by batch. Batches are joined into blocks of at most 512 rows, in which inner
    products of the kernels are estimated without bias (Song et al. 2012); CKA is the ratio of their sums
    (Nguyen, Raghu and Kornblith 2021). With up to 512 rows this is `cka(..., estimator="unbiased")`. Rows and
    kernels of one block are in memory, at most 2^28 bytes of rows unless a single batch takes more.

    Parameters
    ----------
    model_a, model_b : torch.nn.Module
        The networks.
    batches : iterable
        Inputs of both networks, as in `collect_layers`, in random order: rows are compared within blocks.
    layers : "auto", sequence of str, or callable, default="auto"
        Layers of both networks, as in `collect_layers`.
    layers_b : "auto", sequence of str, or callable, default=None
        Layers of the second network, if its names differ.
    batches_b : iterable, default=None
        Inputs of the second network, if they differ: the same samples, in batches of the same sizes.
    pooling : {"auto", "flatten", "mean", "first"}, callable, or dict of them by layer, default="auto"
        How maps and tokens become rows, as in `collect_layers`; a dict must fit both networks.
    forward : callable, default=None
        Called as `forward(model, batch)` to run a model.
    verbose : bool, default=False
        Whether to print the number of batches read, every two seconds.

    Returns
    -------
    SimilarityMatrix
        `values` (p, q) of layers of `model_a` by layers of `model_b`, in the order in which they run;
        `standard_errors`, a jackknife over groups of blocks, if there are at least 3 blocks; `to_frame` and
        `plot`.

    Examples
    --------
    >>> from manylens.transfer import compare_models
    >>> compare_models(resnet, vit, loader).plot()  # doctest: +SKIP
    """
    passes = [
        LayerPass(model, choose_layers(model, chosen), pooling, forward, is_auto(chosen))
        for model, chosen in ((model_a, layers), (model_b, layers if layers_b is None else layers_b))
    ]
    given = in_batches(batches)
    one, other = tee(given) if batches_b is None else (given, in_batches(batches_b))
    one = with_progress(one, verbose, "compare_models", given)
    with closing(passes[0].run(one)) as rows_a, closing(passes[1].run(other)) as rows_b:
        products = BlockProducts()
        for a, b in zip_longest(rows_a, rows_b):
            counts = [0 if part is None else len(next(iter(part.values()))) for part in (a, b)]
            if counts[0] != counts[1]:
                raise ValueError(
                    f"A batch has {counts[0]} rows for the first network and {counts[1]} for the second: "
                    "give the same samples to both, in batches of the same sizes."
                )
            products.add(a, b)
    return products.result()


class BlockProducts:
    """Sums over blocks of rows of the unbiased inner products of the kernels of two sets of layers."""

    def __init__(self) -> None:
        self.names: tuple[list[str], list[str]] = ([], [])
        self.waiting: list[tuple[Batch, Batch]] = []  # batches of the next block
        self.n_blocks = 0
        self.exponents: dict[tuple[int, str], int] = {}  # rows times 2^-exponent are used
        self.sums: list[FloatArray] | None = None  # of products (G, p, q), and of squares (G, p) and (G, q)

    def add(self, a: Batch, b: Batch) -> None:
        """Add a batch of rows of all layers."""
        self.names = list(a), list(b)
        self.waiting.append((a, b))
        rows = sum(len(next(iter(each.values()))) for each, _ in self.waiting)
        n_bytes = sum(part.nbytes for pair in self.waiting for each in pair for part in each.values())
        mean = rows / len(self.waiting)
        if rows + mean > BLOCK_ROWS or n_bytes * (1 + 1 / len(self.waiting)) > BLOCK_BYTES:
            self._close_block()

    def result(self) -> SimilarityMatrix:
        """CKA of all pairs of layers."""
        self._close_block()
        if self.sums is None:
            raise ValueError(f"All batches have fewer than {MIN_ROWS} rows: give larger batches.")
        for names, own in zip(self.names, self.sums[1:], strict=True):
            for name, norm in zip(names, own.sum(axis=0), strict=True):
                if norm <= 0:
                    raise ValueError(constant_message(f"Layer {name!r}", "unbiased"))
        names_a, names_b = self.names
        return SimilarityMatrix(
            cka_from_sums(*(part.sum(axis=0) for part in self.sums)),
            names_a,
            names_b,
            "cka",
            jackknife(self.sums, min(self.n_blocks, N_GROUPS)),
        )

    def _close_block(self) -> None:
        """Add the products of the waiting batches, unless they are too few."""
        waiting, self.waiting = self.waiting, []
        if sum(len(next(iter(a.values()))) for a, _ in waiting) < MIN_ROWS:
            return
        sides: list[FloatArray] = []
        for side, names in enumerate(self.names):
            kernels = []
            for name in names:
                X = np.concatenate([pair[side][name] for pair in waiting])
                exponent = self.exponents.setdefault((side, name), safe_scale(X))
                kernels.append(u_centered_kernel(times_power(X, -exponent)).ravel())
            sides.append(np.stack(kernels))
        a, b = sides
        block = a @ b.T, np.square(a).sum(axis=1), np.square(b).sum(axis=1)
        if self.sums is None:
            self.sums = [np.zeros((N_GROUPS, *part.shape)) for part in block]
        for total, part in zip(self.sums, block, strict=True):
            total[self.n_blocks % N_GROUPS] += part
        self.n_blocks += 1


def u_centered_kernel(X: FloatArray) -> FloatArray:
    """Kernel (m, m) of rows, centered so that inner products are m (m - 3) times the unbiased HSIC.

    K̃_ij = K_ij - r_i - r_j + s for i ≠ j and 0 for i = j, with K_ii = 0, r = K 1 / (m - 2) and
    s = 1ᵀ K 1 / ((m - 1) (m - 2)).
    """
    X = centered(X)  # which changes nothing but rounding
    m = len(X)
    K = (X @ X.T).astype(np.float64)
    np.fill_diagonal(K, 0.0)
    sums = K.sum(axis=1)
    K += sums.sum() / ((m - 1) * (m - 2)) - (sums[:, np.newaxis] + sums) / (m - 2)
    np.fill_diagonal(K, 0.0)
    return K


def cka_from_sums(products: FloatArray, own_a: FloatArray, own_b: FloatArray) -> FloatArray:
    """products_kl / √(own_k own_l), (p, q)."""
    return products / (np.sqrt(own_a)[:, np.newaxis] * np.sqrt(own_b))


def jackknife(sums: Sequence[FloatArray], n_groups: int) -> FloatArray | None:
    """Standard errors (p, q) from the values without each group of blocks; None for fewer than 3 groups."""
    left_out = [[part.sum(axis=0) - part[g] for part in sums] for g in range(n_groups)]
    if n_groups < 3 or min(np.min(own) for _, *both in left_out for own in both) <= 0:
        return None
    return np.sqrt((n_groups - 1) * np.var([cka_from_sums(*each) for each in left_out], axis=0))
