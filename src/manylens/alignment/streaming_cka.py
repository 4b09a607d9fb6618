"""Linear CKA of many representations in one pass over batches of rows, exact whatever the batches."""

from collections.abc import Mapping

import numpy as np
from sklearn.exceptions import NotFittedError

from manylens.alignment.cka import as_returned, check_return, labeled
from manylens.alignment.features import check_feature_sets, out_of_range, undefined
from manylens.alignment.inner_products import ROUNDING, check_convention, without_diagonals
from manylens.summaries import CrossMoments, Summary


class StreamingCKA(Summary):
    """Linear CKA of representations that arrive a batch of rows at a time.

    Keeps the cross-moments of the pairs, not averages of batch-wise scores, so the result is that of all rows
    at once: a short last batch, even of one row, changes nothing.

    Parameters
    ----------
    pairs : iterable of pairs, optional
        Which representations to compare, by name (or position); all with all by default.
    estimator : {"biased", "unbiased"}, default="biased"
        As for `cka`.
    center : bool, default=True
        As for `cka`.

    Attributes
    ----------
    n_rows_ : int
        Number of rows seen.
    names_ : list
        Names of the representations, from the first batch.

    Notes
    -----
    Memory is d_x d_y doubles for each pair and d² for each representation, whatever the number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from manylens import StreamingCKA, cka
    >>> X = np.random.default_rng(0).standard_normal((100, 5))
    >>> stream = StreamingCKA(pairs=[("x", "y")])
    >>> for rows in np.array_split(X, 7):
    ...     _ = stream.update({"x": rows, "y": rows[:, :2]})
    >>> abs(stream.result()["x", "y"] - cka(X, X[:, :2])) < 1e-10
    True
    """

    def __init__(self, pairs=None, estimator="biased", center=True):
        check_convention("linear", estimator, center, np.inf)
        self.pairs = None if pairs is None else [tuple(pair) for pair in pairs]
        self.estimator, self.center = estimator, center
        self.n_rows_ = 0
        self._widths: list[int] = []

    def __sklearn_is_fitted__(self):
        return self.n_rows_ > 0

    def update(self, representations):
        """Add a batch of the same rows in all representations.

        Parameters
        ----------
        representations : dict or sequence of array-like, each of shape (n, d_k)
            The batch; the same names (or number) and widths every time.

        Returns
        -------
        StreamingCKA
            Itself.
        """
        names, arrays = check_feature_sets(representations, accept_sparse=False)
        if not self.n_rows_:
            self._start(names, isinstance(representations, Mapping))
        elif set(names) != set(self.names_):
            raise ValueError(f"This batch has {names}; the first had {self.names_}.")
        ordered = [arrays[names.index(name)] for name in self.names_]
        widths = [array.shape[1] for array in ordered]
        if self.n_rows_ and widths != self._widths:
            raise ValueError(f"This batch has widths {widths}; the first had {self._widths}.")
        self._widths = widths
        self._moments.update(ordered)
        self.n_rows_ += ordered[0].shape[0]
        return self

    def _start(self, names, named):
        self.names_, self._named = names, named
        place = {name: k for k, name in enumerate(names)}
        if self.pairs is None:
            wanted = [(k, m) for k in range(len(names)) for m in range(k, len(names))]
        else:
            unknown = {name for pair in self.pairs for name in pair} - set(names)
            if unknown:
                raise ValueError(f"pairs names {sorted(map(str, unknown))}, not among {names}.")
            both = [(place[one], place[other]) for one, other in self.pairs]
            wanted = [(min(pair), max(pair)) for pair in both]
        own = [(k, k) for k in range(len(names))]
        self._moments = CrossMoments(own + wanted)

    def fresh(self):
        """An empty stream with the same settings."""
        return type(self)(self.pairs, self.estimator, self.center)

    def merge(self, other):
        """Add what another stream of the same representations has seen.

        Parameters
        ----------
        other : StreamingCKA
            With the same settings, of other rows.

        Returns
        -------
        StreamingCKA
            Itself.
        """
        if (self.pairs, self.estimator, self.center) != (other.pairs, other.estimator, other.center):
            raise ValueError("Streams with different pairs, estimator or center do not merge.")
        if not other.n_rows_:
            return self
        if not self.n_rows_:
            self._start(other.names_, other._named)
            self._widths = other._widths
        if (self.names_, self._widths) != (other.names_, other._widths):
            raise ValueError(
                f"Streams of {self.names_} with widths {self._widths} and of {other.names_} with widths "
                f"{other._widths} do not merge."
            )
        self._moments.merge(other._moments)
        self.n_rows_ += other.n_rows_
        return self

    def result(self, return_="score"):
        """The alignments of all rows seen so far.

        Parameters
        ----------
        return_ : {"score", "angle"}, default="score"
            As for `cka`.

        Returns
        -------
        ndarray, shape (p, p), pandas.DataFrame or dict
            A matrix (a data frame for named representations); with `pairs`, a dict from pair to value.
        """
        check_return(return_)
        if not self.n_rows_:
            raise NotFittedError("This StreamingCKA has seen no rows: call update first.")
        check_convention("linear", self.estimator, self.center, self.n_rows_)
        products = self._products()
        own = {k: products[k, k] for k in range(len(self.names_))}
        scores = np.eye(len(self.names_))
        for (k, m), product in products.items():
            if k != m:
                scores[k, m] = scores[m, k] = product / np.sqrt(own[k]) / np.sqrt(own[m])
        scores = as_returned(np.clip(scores, -1.0, 1.0), return_)
        if self.pairs is None:
            return labeled(scores, self.names_, dict.fromkeys(self.names_) if self._named else self.names_)
        place = {name: k for k, name in enumerate(self.names_)}
        return {(one, other): float(scores[place[one], place[other]]) for one, other in self.pairs}

    def _products(self):
        """Inner products of the kernels of each pair, biased or unbiased."""
        n = self.n_rows_
        means = self._moments.means()
        points = means if self.center else [np.zeros_like(mean) for mean in means]
        products = {}
        for (k, m), A in self._moments.about(points).items():
            product = np.vdot(A[1:-1, 1:-1], A[1:-1, 1:-1])
            if k == m:
                vanished = A[0, -1] > 0 and product < np.finfo(np.float64).tiny
                if vanished or not np.isfinite(A).all() or not np.isfinite(product):
                    raise ValueError(out_of_range(self.names_[k]))
                rounding = (8 * np.finfo(np.float64).eps) ** 2 * n * float(means[k] @ means[k])
                if A[0, -1] <= rounding or product <= 0:
                    raise ValueError(undefined(self.names_[k]))
            if self.estimator == "unbiased":
                # A[0, -1] and A[-1, 0] are the two traces, A[-1, -1] the product of the diagonals
                traces = np.array([A[-1, 0], A[0, -1]])
                pair = without_diagonals(np.full((2, 2), product), A[-1, -1], traces, n, self.center)
                if k == m and pair[0, 1] <= ROUNDING["unbiased"] * product:
                    raise ValueError(undefined(self.names_[k], "unbiased"))
                product = pair[0, 1]
            products[k, m] = float(product)
        return products
