"""Second moments of predictions and target, in one pass over rows: all that a choice of predictors needs."""

import numpy as np


class PredictionMoments:
    """Sums over rows from which inner products of centered predictions follow.

    A predictor is a matrix P_k of n rows and C columns (one for regression, one a class otherwise). With the
    target Y as the last of p + 1 such matrices, and entry weights ω (n x C), the centered inner products are
    <A, B> = Σ_ic ω_ic (A_ic - Ā_c)(B_ic - B̄_c), Ā_c the weighted mean of column c. Memory is (p + 1)²,
    however many rows pass.

    Attributes
    ----------
    n_rows_ : int
        Number of rows seen.
    origin_ : ndarray, shape (p + 1, C)
        What is subtracted before summing: the mean of the first block.
    sizes_ : ndarray, shape (C,)
        Sums of the entry weights.
    sums_ : ndarray, shape (p + 1, C)
        Weighted sums about the origin.
    products_ : ndarray, shape (p + 1, p + 1)
        Weighted products about the origin.
    """

    def __init__(self):
        self.n_rows_ = 0

    def _start(self, origin):
        self.origin_ = origin
        self.sizes_ = np.zeros(origin.shape[1])
        self.sums_ = np.zeros(origin.shape)
        self.products_ = np.zeros((len(origin), len(origin)))
        return self

    def update(self, P, Y, weight=None):
        """Add a block of rows.

        Parameters
        ----------
        P : ndarray, shape (n, p, C)
            Predictions.
        Y : ndarray, shape (n, C)
            Target.
        weight : ndarray, shape (n, C), optional
            Weight of every entry; ones by default.

        Returns
        -------
        PredictionMoments
            Itself.
        """
        Q = np.concatenate([P, Y[:, np.newaxis, :]], axis=1, dtype=np.float64)
        if not hasattr(self, "origin_"):
            # about the first row, so that a constant predictor leaves exactly nothing
            self._start(Q[0] + (Q - Q[0]).mean(axis=0))
        Q -= self.origin_
        weight = np.ones(Y.shape) if weight is None else weight
        self.sizes_ += weight.sum(axis=0)
        self.sums_ += np.einsum("ikc,ic->kc", Q, weight)
        Q *= np.sqrt(weight)[:, np.newaxis, :]
        flat = Q.transpose(0, 2, 1).reshape(-1, Q.shape[1])
        self.products_ += flat.T @ flat
        self.n_rows_ += len(Y)
        return self

    def merge(self, other):
        """Add what another has seen of the same predictors on other rows.

        Parameters
        ----------
        other : PredictionMoments
            Moments of other rows.

        Returns
        -------
        PredictionMoments
            Itself.
        """
        if not other.n_rows_:
            return self
        if not hasattr(self, "origin_"):
            self._start(other.origin_)
        step = other.origin_ - self.origin_
        crossed = step @ other.sums_.T
        self.products_ += other.products_ + crossed + crossed.T + (step * other.sizes_) @ step.T
        self.sums_ += other.sums_ + step * other.sizes_
        self.sizes_ = self.sizes_ + other.sizes_
        self.n_rows_ += other.n_rows_
        return self

    def centered(self, among=None):
        """Inner products of the centered predictions with one another and with the target.

        Parameters
        ----------
        among : ndarray of int, optional
            Predictors wanted; all by default.

        Returns
        -------
        G : ndarray, shape (p, p)
            <P_k, P_l>.
        b : ndarray, shape (p,)
            <P_k, Y>.
        total : float
            <Y, Y>.
        """
        products, sums = self.products_, self.sums_
        if among is not None:
            rows = np.append(among, len(sums) - 1)
            products, sums = products[np.ix_(rows, rows)], sums[rows]
        M = products - (sums / self.sizes_) @ sums.T
        return M[:-1, :-1], M[:-1, -1], float(M[-1, -1])

    def means(self):
        """Weighted means of the predictions, (p, C), and of the target, (C,)."""
        means = self.origin_ + self.sums_ / self.sizes_
        return means[:-1], means[-1]


class FoldedMoments:
    """Moments of K parts of the rows, row i in part i mod K, for cross-validation without the rows.

    Memory is K (p + 1)². All parts are summed about one origin, so that a part can be taken out of the whole.

    Parameters
    ----------
    n_folds : int, default=5
        K.
    """

    def __init__(self, n_folds=5):
        self.parts = [PredictionMoments() for _ in range(n_folds)]

    @property
    def n_rows_(self):
        """Number of rows seen."""
        return sum(part.n_rows_ for part in self.parts)

    def update(self, P, Y, weight=None):
        """Add a block of rows; as for `PredictionMoments`."""
        K, first = len(self.parts), self.n_rows_
        for k in range(K):
            rows = slice((k - first) % K, None, K)
            if len(Y[rows]):
                self.parts[k].update(P[rows], Y[rows], None if weight is None else weight[rows])
                if first == 0 and k == 0:
                    for other in self.parts[1:]:
                        other._start(self.parts[0].origin_)
        return self

    def whole(self):
        """Moments of all rows."""
        total = PredictionMoments()
        for part in self.parts:
            total.merge(part)
        return total

    def splits(self, whole):
        """For every part that holds rows: the moments of all others, and its own."""
        for part in self.parts:
            if 0 < part.n_rows_ < whole.n_rows_:
                others = PredictionMoments()._start(whole.origin_)
                others.n_rows_ = whole.n_rows_ - part.n_rows_
                others.sizes_ = whole.sizes_ - part.sizes_
                others.sums_ = whole.sums_ - part.sums_
                others.products_ = whole.products_ - part.products_
                yield others, part


def out_of_bag(P, in_bag, share=None):
    """Predictions from which what a predictor says of its own training rows is taken out.

    With m_i the mean of P_il over the predictors l that had not seen row i, and q_k the share of rows that
    predictor k had not seen, P_ik becomes m_i + (P_ik - m_i)/q_k where it had not seen row i, and m_i
    elsewhere. A deviation from m then counts in sums with the target as if the predictor had not seen any of
    the rows; its square counts 1/q_k times too much, which acts as a ridge toward the mean of all. Unlike
    products over the rows that two predictors have both not seen, the inner products stay positive
    semi-definite.

    Parameters
    ----------
    P : ndarray, shape (n, p, C)
        Predictions.
    in_bag : ndarray of bool, shape (n, p)
        Whether predictor k was trained on row i.
    share : ndarray, shape (p,), optional
        q, where the rows are a block of more; by default that of the rows given.

    Returns
    -------
    filled : ndarray, shape (m, p, C)
        Predictions of the m rows that at least one predictor had not seen.
    rows : ndarray of bool, shape (n,)
        Which rows these are.
    """
    out = ~in_bag
    share = out.mean(axis=0) if share is None else share
    rows = out.any(axis=1)
    P, out = P[rows], out[rows].astype(np.float64)
    others = np.einsum("ikc,ik->ic", P, out) / out.sum(axis=1)[:, np.newaxis]
    own = out / np.where(share > 0, share, 1.0)
    return others[:, np.newaxis] + (P - others[:, np.newaxis]) * own[:, :, np.newaxis], rows
