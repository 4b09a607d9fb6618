"""Networks in training: the alignment of their layers with the targets."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from itertools import combinations, product
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from manylens.alignment.streaming import StreamingCKA
from manylens.summaries import CountSketch
from manylens.transfer.layer_choice import LayerChoice, choose_layers, is_auto
from manylens.transfer.layer_pooling import Pooling
from manylens.transfer.network_calls import Forward
from manylens.transfer.network_layers import ColumnHashing, LayerPass
from manylens.typing import AnyArray, FloatArray
from manylens.validation import check_count, distinct_labels, label_column, require_two_classes

if TYPE_CHECKING:
    from torch import nn

TARGETS = "targets"


class AlignmentHistory:
    """Follow the alignment of a network's layers with the targets while it trains.

    After each epoch (or any number of steps), `record` runs the network on probe rows, in evaluation mode and
    without gradients, and stores the linear CKA of each layer with the one-hot targets. The rows are not
    kept: each layer is hashed to `width` columns, of which moments are accumulated batch by batch, so memory
    is layers x width² doubles for any number of rows. The training loop stays as it is.

    Parameters
    ----------
    model : torch.nn.Module
        The network.
    layers : "auto", sequence of str, or callable, default="auto"
        Layers to follow, as in `collect_layers`.
    width : int, default=256
        Columns to which wider layers are hashed. Inner products of hashed rows are unbiased, with an error of
        order 1/sqrt(width).
    pooling, forward
        As in `collect_layers`.

    Attributes
    ----------
    steps_ : list
        Label of each record.
    alignments_ : dict of str to list of float
        Alignment of each layer with the targets, one value per record.
    class_alignments_ : dict of str to list of ndarray of shape (C,)
        Alignment of each layer with each class against the rest.
    similarities_ : list of ndarray of shape (L, L)
        CKA between the layers, one matrix per record.
    classes_ : ndarray, shape (C,)
        Labels of the probe rows.

    Examples
    --------
    >>> from manylens.transfer import AlignmentHistory
    >>> history = AlignmentHistory(network)  # doctest: +SKIP
    >>> for epoch in range(10):  # doctest: +SKIP
    ...     train_one_epoch(network)
    ...     history.record(probe_batches, probe_labels, epoch)
    >>> CurveDisplay(history.steps_, history.alignments_).plot()  # doctest: +SKIP
    """

    def __init__(
        self,
        model: nn.Module,
        layers: LayerChoice = "auto",
        *,
        width: int = 256,
        pooling: Pooling = "auto",
        forward: Forward | None = None,
    ) -> None:
        self.model, self.pooling, self.forward = model, pooling, forward
        self.layers, self._is_auto = choose_layers(model, layers), is_auto(layers)
        if TARGETS in self.layers:
            raise ValueError(f"A layer of the model is named {TARGETS!r}: rename it, or leave it out.")
        self.width = check_count(width, "width")
        self._hash = ColumnHashing(CountSketch(self.width, 1))
        self.classes_: AnyArray = np.empty(0)
        self.steps_: list[Any] = []
        self.alignments_: dict[str, list[float]] = {}
        self.class_alignments_: dict[str, list[FloatArray]] = {}
        self.similarities_: list[FloatArray] = []

    def record(self, batches: Iterable[Any], y: ArrayLike, step: Any = None) -> Self:
        """Run the network on the probe rows and store the alignments.

        Parameters
        ----------
        batches : iterable
            Inputs of the probe rows, as in `collect_layers`; give the same rows each time.
        y : array-like, shape (n,)
            Labels of the probe rows, in the order of the batches.
        step : object, default=None
            Label of the record, such as the epoch; None means the number of records so far.

        Returns
        -------
        AlignmentHistory
        """
        classes, codes = distinct_labels(label_column(y))
        require_two_classes(classes, type(self).__name__)
        if self.steps_ and not np.array_equal(classes, self.classes_):
            raise ValueError("y has other classes than in the first record: probe with the same rows.")
        against: list[Any] = [TARGETS, *range(len(classes))]  # all classes, and each against the rest
        targets, done = np.eye(len(classes))[codes], 0
        steps = LayerPass(self.model, self.layers, self.pooling, self.forward, self._is_auto)
        stream = StreamingCKA()
        with closing(steps.run(batches)) as passes:
            for features in passes:
                if not done:
                    pairs = [*combinations(steps.names, 2), *product(steps.names, against)]
                    stream = StreamingCKA(pairs)
                rows = {
                    name: (self._hash(part, name) if part.shape[1] > self.width else part).astype(np.float64)
                    for name, part in features.items()
                }
                n = len(next(iter(rows.values())))
                own = targets[done : done + n]
                if len(own) < n:
                    raise ValueError(f"y has {len(targets)} labels, but the batches have more rows.")
                stream.update({**rows, TARGETS: own, **{c: own[:, [c]] for c in range(len(classes))}})
                done += n
        if done < len(targets):
            raise ValueError(f"y has {len(targets)} labels, but the batches have only {done} rows.")
        found, self.classes_ = stream.result(), classes
        self.layers, self._is_auto = steps.names, False
        similarities = np.eye(len(self.layers))
        for k, name in enumerate(self.layers):
            self.alignments_.setdefault(name, []).append(found[name, TARGETS])
            by_class = np.array([found[name, c] for c in range(len(classes))])
            self.class_alignments_.setdefault(name, []).append(by_class)
            for m, other in enumerate(self.layers[:k]):
                similarities[k, m] = similarities[m, k] = found[other, name]
        self.similarities_.append(similarities)
        self.steps_.append(len(self.steps_) if step is None else step)
        return self
