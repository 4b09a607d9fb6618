"""Nearest neighbours by all modules together: candidates from a few coordinates, re-ranked by all."""

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_scalar, gen_batches, get_tags
from sklearn.utils.validation import check_is_fitted, validate_data

from manylens.ensembles.backends import BACKENDS, over_blocks
from manylens.ensembles.composite import composite_axes
from manylens.ensembles.growing import GrowingRows
from manylens.ensembles.index_files import load_index, save_index
from manylens.ensembles.representation import fitted_modules, module_views
from manylens.modules.kernel_pca import ModularKernelPCA
from manylens.native.nearest import rerank, rerank_union

METHODS = ("nested", "exact", "paper")
AT_ONCE = 16384  # queries whose candidates are held at a time
# Leading coordinates, and candidates for each neighbour asked for, where the user sets none.
LEADING = {("nested", "numpy"): 48, ("exact", "numpy"): 96, ("nested", "faiss"): 128}
CANDIDATES = {("nested", "numpy"): 4, ("exact", "numpy"): 10, ("nested", "faiss"): 6}


class ModuleNeighbors(BaseEstimator):
    """Search index over modules: the rows of least mean squared distance over all modules.

    That distance is a plain one between coordinates on the principal axes of the modules side by side, whose
    variances fall; the leading ones find candidates and all of them rank these.

    Parameters
    ----------
    modules : transformer with `split`
        Fitted (used as it is) or not (a copy is fitted to the rows). By default `ModularKernelPCA()`.
    n_neighbors : int
        Neighbours where `kneighbors` is not told otherwise.
    method : {"nested", "exact", "paper"}
        "nested" takes the candidates of the leading coordinates. "exact" also proves, from partial sums,
        that no other row is nearer, and searches on for the few queries where that is not so. "paper" takes
        as candidates each module's own nearest neighbours; every module could be a worker of its own.
    backend : {"numpy", "faiss"}
        What finds candidates: a scan in tiles, or the approximate lists of the package faiss (on its own
        threads).
    n_leading : int, optional
        Leading coordinates: by default 48, for "exact" 96, for faiss 128.
    n_candidates : int, optional
        Candidates for a query: by default 4 for each neighbour asked for, for "exact" 10, for faiss 6 (as if
        at least five were asked for). "paper" takes as many of each module as neighbours are asked for.
    n_jobs : int
        Threads of the scan.

    Attributes
    ----------
    modules_ : transformer
        The modules in use.
    composite_ : CompositeAxes
        From modules side by side to coordinates.
    coordinates_ : ndarray, shape (n, D)
        Coordinates of the base.
    n_samples_fit_ : int
        Rows of the base.
    proven_share_ : float
        Of the last search with method="exact", the share of queries proven by their candidates alone.

    Notes
    -----
    Memory for a base of n rows is n (D + n_leading) numbers; a search holds some thousand queries'
    candidates. On one machine it is the order of the coordinates that saves time, not the modules: it would
    serve kernel PCA as well. Across machines each module (method="paper") is a worker of its own.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manylens import ModularKernelPCA, ModuleNeighbors
    >>> X = load_digits().data
    >>> lenses = ModularKernelPCA(n_modules=10, n_components=5, diversity=0.99, random_state=0).fit(X)
    >>> index = ModuleNeighbors(lenses).fit(X)
    >>> distances, rows = index.kneighbors(X[:3], n_neighbors=5)
    >>> rows[:, 0]
    array([0, 1, 2])
    """

    def __init__(
        self,
        modules=None,
        n_neighbors=10,
        *,
        method="nested",
        backend="numpy",
        n_leading=None,
        n_candidates=None,
        n_jobs=-1,
    ):
        self.modules = modules
        self.n_neighbors = n_neighbors
        self.method = method
        self.backend = backend
        self.n_leading = n_leading
        self.n_candidates = n_candidates
        self.n_jobs = n_jobs

    def fit(self, X, y=None):
        """Fit the modules, if they are not, and index the rows.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            The base.
        y : array-like, optional
            For modules that want targets.

        Returns
        -------
        self
            Fitted.
        """
        self._check_parameters()
        X = self._rows(X, reset=True)
        modules = ModularKernelPCA() if self.modules is None else self.modules
        self.modules_ = fitted_modules(modules, X, y)
        Z = np.asarray(self.modules_.transform(X))
        views = module_views(self.modules_, Z[:1])
        self.widths_ = np.array([view.shape[1] for view in views])
        self.composite_ = composite_axes(Z, len(views))
        self._rows_held = GrowingRows(self.composite_.coordinates(Z))
        kind = BACKENDS[self.backend]
        self._finders = [
            kind(self._seen_by(m, self.coordinates_), self.n_jobs) for m in range(self._n_finders())
        ]
        # A row and its coordinates, by which `load` tells whether it was given the right modules.
        self.probe_ = np.asarray(X[:1].toarray() if sparse.issparse(X) else X[:1]).copy()
        return self

    def partial_fit(self, X, y=None):
        """Add rows to the base; the first call is `fit`, later ones leave the modules as they are.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (m, d)
            Rows; they are numbered on from those that are there.
        y : None
            Not used.

        Returns
        -------
        self
            With more rows.
        """
        if not hasattr(self, "composite_"):
            return self.fit(X, y)
        coordinates = self.coordinates(X)
        self._rows_held.append(coordinates)
        for m, finder in enumerate(self._finders):
            finder.add(self._seen_by(m, coordinates))
        return self

    def coordinates(self, X):
        """Coordinates whose squared distances are the mean squared distances over modules.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n, D)
            The most telling first.
        """
        check_is_fitted(self)
        return self.composite_.coordinates(np.asarray(self.modules_.transform(self._rows(X))))

    def search(self, coordinates, n_neighbors=None):
        """Neighbours of rows that are given by their coordinates.

        Parameters
        ----------
        coordinates : ndarray, shape (n_queries, D)
            From `coordinates`.
        n_neighbors : int, optional
            How many.

        Returns
        -------
        distances : ndarray, shape (n_queries, n_neighbors)
            Root of the mean squared distance over modules, ascending.
        rows : ndarray of int64, shape (n_queries, n_neighbors)
            Rows of the base; of equally near ones the first.
        """
        check_is_fitted(self)
        k = self._check_neighbors(self.n_neighbors if n_neighbors is None else n_neighbors)
        distances = np.empty((len(coordinates), k), dtype=self.coordinates_.dtype)
        rows = np.empty(distances.shape, dtype=np.int64)
        find = self._search_modules if self.method == "paper" else self._search_leading
        proven = 0
        for batch in gen_batches(len(coordinates), AT_ONCE):
            queries = np.ascontiguousarray(coordinates[batch], dtype=self.coordinates_.dtype)
            proven += find(queries, distances[batch], rows[batch])
        if self.method == "exact":
            self.proven_share_ = proven / max(1, len(coordinates))
        return np.sqrt(distances, out=distances), rows

    def _search_leading(self, queries, distances, rows):
        (finder,) = self._finders
        leading, points, k = self._seen_by(0, queries), self.coordinates_, distances.shape[1]
        keys, candidates = finder.candidates(leading, self._how_many(k))
        bounded = finder.proves and self.method == "exact"
        shift = (
            finder.lower_bound_shift(leading, queries.shape[1]) if finder.proves else np.zeros(len(queries))
        )
        proven = np.empty(len(queries), dtype=bool)

        def rank(block):
            lists = (distances[block], rows[block], proven[block])
            rerank(queries[block], points, keys[block], candidates[block], shift[block], *lists)

        over_blocks(rank, len(queries), self.n_jobs)
        # Fewer candidates than neighbours can come from approximate lists: those queries are scanned whole.
        left = np.flatnonzero(~proven) if bounded else np.flatnonzero(rows[:, -1] < 0)
        if len(left) and bounded:
            near, which = distances[left], rows[left]
            finder.search_on(leading[left], shift[left], queries[left], points, near, which)
            distances[left], rows[left] = near, which
        elif len(left):
            distances[left], rows[left] = scan_whole(queries[left], points, k, self.n_jobs)
        return len(queries) - len(left)

    def _search_modules(self, queries, distances, rows):
        k = distances.shape[1]
        found = [self.module_candidates(queries, m, k) for m in range(len(self._finders))]
        self.rank_candidates(queries, np.concatenate(found, axis=1), distances, rows)
        return len(queries)

    def module_candidates(self, queries, module, n_neighbors):
        """With method="paper", the nearest rows according to one module: the part of one worker.

        Parameters
        ----------
        queries : ndarray, shape (n_queries, D)
            From `coordinates`.
        module : int
            Which module.
        n_neighbors : int
            How many.

        Returns
        -------
        ndarray of int64, shape (n_queries, n_neighbors)
            Rows, in no order.
        """
        return self._finders[module].candidates(self._seen_by(module, queries), n_neighbors)[1]

    def rank_candidates(self, queries, candidates, distances, rows):
        """The nearest of given candidates by all modules: what is left to do where workers found them.

        Parameters
        ----------
        queries : ndarray, shape (n_queries, D)
            From `coordinates`.
        candidates : ndarray of int64, shape (n_queries, m)
            Rows, which may repeat.
        distances : ndarray, shape (n_queries, k)
            Squared distances, filled in place.
        rows : ndarray of int64, shape (n_queries, k)
            Neighbours, filled in place.
        """
        points = self.coordinates_

        def rank(block):
            rerank_union(queries[block], points, candidates[block], distances[block], rows[block])

        over_blocks(rank, len(queries), self.n_jobs)

    def kneighbors(self, X=None, n_neighbors=None, return_distance=True):
        """Nearest rows of the base.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n_queries, d), optional
            Queries; without them, the base's own rows, none of which is its own neighbour.
        n_neighbors : int, optional
            How many; by default `n_neighbors` of the index.
        return_distance : bool
            Whether distances are wanted too.

        Returns
        -------
        distances : ndarray, shape (n_queries, n_neighbors)
            Root of the mean squared distance over modules, ascending; left out if not wanted.
        rows : ndarray of int64, shape (n_queries, n_neighbors)
            Rows of the base.
        """
        check_is_fitted(self)
        k = self.n_neighbors if n_neighbors is None else n_neighbors
        if X is None:
            self._check_neighbors(k, others_only=True)
            distances, rows = without_self(*self.search(self.coordinates_, k + 1))
        else:
            self._check_neighbors(k)
            distances, rows = self.search(self.coordinates(X), k)
        return (distances, rows) if return_distance else rows

    def kneighbors_graph(self, X=None, n_neighbors=None, mode="connectivity"):
        """Neighbours as a sparse matrix.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n_queries, d), optional
            Queries; without them, the base's own rows.
        n_neighbors : int, optional
            How many.
        mode : {"connectivity", "distance"}
            Ones, or distances.

        Returns
        -------
        CSR matrix, shape (n_queries, n)
            With n_neighbors entries a row.
        """
        if mode not in ("connectivity", "distance"):
            raise ValueError(f"mode={mode!r} is unknown: give 'connectivity' or 'distance'.")
        distances, rows = self.kneighbors(X, n_neighbors)
        values = distances if mode == "distance" else np.ones_like(distances)
        starts = np.arange(0, rows.size + 1, rows.shape[1])
        return sparse.csr_matrix(
            (values.ravel(), rows.ravel(), starts), shape=(len(rows), self.n_samples_fit_)
        )

    def save(self, folder):
        """Write the index to a folder of .npy files and one of JSON; the modules with skops, if installed.

        Parameters
        ----------
        folder : str or path
            Made where it is not there.
        """
        check_is_fitted(self)
        save_index(self, folder)

    @classmethod
    def load(cls, folder, modules=None, mmap=True):
        """Read an index that `save` wrote. Nothing in the folder is executed.

        Parameters
        ----------
        folder : str or path
            Where it was saved.
        modules : transformer, optional
            The fitted modules, where they were not saved with the index.
        mmap : bool
            Whether rows stay in their files and are read as they are searched.

        Returns
        -------
        ModuleNeighbors
            Ready to search.
        """
        return load_index(cls, folder, modules, mmap)

    @property
    def coordinates_(self):
        """Coordinates of the base, a view."""
        return self._rows_held.array

    @property
    def n_samples_fit_(self):
        """Rows of the base."""
        return len(self._rows_held)

    def _n_finders(self):
        return len(self.widths_) if self.method == "paper" else 1

    def _seen_by(self, finder, coordinates):
        """The columns that a finder looks at: the leading coordinates, or one module's own."""
        if self.method != "paper":
            return coordinates[:, : self.n_leading or LEADING[self.method, self.backend]]
        end = int(self.widths_[: finder + 1].sum())
        return self.composite_.columns(coordinates, slice(end - self.widths_[finder], end))

    def _how_many(self, k):
        share = CANDIDATES[self.method, self.backend]
        wanted = self.n_candidates or share * max(k, 5)
        return min(max(wanted, k), self.n_samples_fit_)

    def _rows(self, X, reset=False):
        return validate_data(self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32])

    def _check_parameters(self):
        if self.method not in METHODS:
            raise ValueError(f"method={self.method!r} is unknown: give one of {', '.join(METHODS)}.")
        if self.backend not in BACKENDS:
            raise ValueError(f"backend={self.backend!r} is unknown: give one of {', '.join(BACKENDS)}.")
        if self.method == "exact" and not BACKENDS[self.backend].proves:
            raise ValueError(
                f"method='exact' needs bounds on the rows not seen, which backend={self.backend!r} does not "
                "give: use backend='numpy', or method='nested'."
            )
        for name in ("n_leading", "n_candidates"):
            if getattr(self, name) is not None:
                check_scalar(getattr(self, name), name, (int, np.integer), min_val=1)

    def _check_neighbors(self, k, others_only=False):
        check_scalar(k, "n_neighbors", (int, np.integer), min_val=1)
        most = self.n_samples_fit_ - others_only
        if k > most:
            raise ValueError(
                f"n_neighbors={k} is more than the {most} rows to choose from: ask for at most {most}, or "
                "add rows with partial_fit."
            )
        return int(k)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        inputs = None if self.modules is None else get_tags(self.modules).input_tags
        tags.input_tags.sparse = inputs is None or inputs.sparse
        tags.input_tags.pairwise = inputs is not None and inputs.pairwise
        return tags


def scan_whole(queries, points, n_neighbors, n_jobs):
    """Nearest neighbours by all coordinates, without candidates.

    Parameters
    ----------
    queries, points : ndarray, shape (n_queries, D) and (n, D)
        Coordinates.
    n_neighbors : int
        How many.
    n_jobs : int
        Threads.

    Returns
    -------
    distances : ndarray, shape (n_queries, n_neighbors)
        Squared, ascending.
    rows : ndarray of int64, shape (n_queries, n_neighbors)
        The neighbours.
    """
    scan = BACKENDS["numpy"](points, n_jobs)
    distances = np.full((len(queries), n_neighbors), np.inf, dtype=queries.dtype)
    rows = np.full(distances.shape, -1, dtype=np.int64)
    shift = scan.lower_bound_shift(queries, queries.shape[1])
    scan.search_on(queries, shift, queries, points, distances, rows)
    return distances, rows


def without_self(distances, rows):
    """Neighbours of the base's own rows, each row taken off its own list; the farthest where it is not on it.

    Parameters
    ----------
    distances, rows : ndarray, shape (n, k + 1)
        Neighbours of row 0, 1, ...

    Returns
    -------
    distances, rows : ndarray, shape (n, k)
        Without the row itself.
    """
    own = rows == np.arange(len(rows))[:, None]
    own[~own.any(axis=1), -1] = True
    shape = (len(rows), rows.shape[1] - 1)
    return distances[~own].reshape(shape), rows[~own].reshape(shape)
