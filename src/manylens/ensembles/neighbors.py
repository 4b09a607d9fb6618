"""Nearest neighbors by all modules together: candidates from a few coordinates, re-ranked by all."""

from numbers import Real

import numpy as np
from scipy import sparse
from sklearn.utils import check_scalar, get_tags
from sklearn.utils.validation import check_is_fitted, validate_data

from manylens.ensembles.backends import BACKENDS
from manylens.ensembles.candidate_choice import candidates_of_lists, choose_scan, judges_of
from manylens.ensembles.composite import composite_axes
from manylens.ensembles.composite_search import CANDIDATES, FEWEST, LEADING, CompositeSearch
from manylens.ensembles.growing import GrowingRows
from manylens.ensembles.index_files import load_index, save_index
from manylens.ensembles.representation import (
    check_modules,
    fitted_modules,
    module_views,
    refuse_other_names,
    transformed,
)
from manylens.ensembles.retrieval import without_self
from manylens.modules.kernel_pca import ModularKernelPCA

METHODS = ("nested", "exact", "paper")


class ModuleNeighbors(CompositeSearch):
    """Search index over modules: the rows of least mean squared distance over all modules.

    That distance is a plain one between coordinates on the principal axes of the modules side by side, whose
    variances fall; the leading ones find candidates and all of them rank these.

    Parameters
    ----------
    modules : transformer with `split`
        Fitted (used as it is) or not (a copy is fitted to the rows). By default `ModularKernelPCA()`.
    n_neighbors : int
        Neighbors where `kneighbors` is not told otherwise.
    method : {"nested", "exact", "paper"}
        "nested" takes the candidates of the leading coordinates. "exact" also proves, from partial sums,
        that no other row is nearer, and searches on for the few queries where that is not so. "paper" takes
        as candidates each module's own nearest neighbors; every module could be a worker of its own.
    backend : {"numpy", "faiss"}
        What finds candidates: a scan in tiles, or the approximate lists of the package faiss (on its own
        threads).
    n_leading : int, optional
        Leading coordinates: by default as many as make the search cheap at the wanted recall, for "exact"
        and for faiss 96.
    n_candidates : int, optional
        Candidates for a query: by default as many as the wanted recall takes, for "exact" 10 for each
        neighbor asked for. "paper" takes as many of each module as neighbors are asked for.
    recall : float
        Share of the nearest rows that "nested" shall find, 0 to 1. `fit` judges it by some of its own rows,
        whose neighbors it finds by all coordinates; `tune` by queries of yours. With faiss, the share of
        what its lists name at all.
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
    n_leading_ : int
        Leading coordinates in use (of no use to "paper").
    candidates_per_neighbor_ : float
        Candidates for each neighbor asked for, as if at least five were (of no use to "paper").
    fitted_as_ : dict
        The parameters that decide what is stored; a search after others were set is refused.
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
        recall=0.99,
        n_jobs=-1,
    ):
        self.modules = modules
        self.n_neighbors = n_neighbors
        self.method = method
        self.backend = backend
        self.n_leading = n_leading
        self.n_candidates = n_candidates
        self.recall = recall
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
        modules = ModularKernelPCA() if self.modules is None else self.modules
        check_modules(modules)
        X = self._rows(X, reset=True)
        refuse_other_names(modules, self)
        self.modules_, self.fitted_as_ = fitted_modules(modules, X, y), self._layout()
        Z = transformed(self.modules_, X)
        views = module_views(self.modules_, Z[:1])
        self.widths_ = np.array([view.shape[1] for view in views])
        self.composite_ = composite_axes(Z, len(views))
        self._rows_held = GrowingRows(self.composite_.coordinates(Z))
        self._finders = []
        self._settle()
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
        self._refuse_other_layout()
        coordinates = self.coordinates(X)
        self._rows_held.append(coordinates)
        for m, finder in enumerate(self._finders):
            finder.add(self._seen_by(m, coordinates))
        if self.n_samples_fit_ >= 2 * self._settled_at:  # the fuller the base, the more candidates it takes
            self._settle()
        return self

    def tune(self, X):
        """Choose leading coordinates and candidates for queries like these, instead of like the base's rows.

        Worth its time where queries are of another kind than the base, such as clean ones in a noisy base.
        Only what the parameters leave open is chosen, and it holds until `partial_fit` has doubled the base.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n_queries, d)
            Queries; some hundred tell enough, and of more than 256 only so many are used.

        Returns
        -------
        self
            Tuned.
        """
        check_is_fitted(self)
        self._refuse_other_layout()
        if self.method != "nested":
            raise ValueError(f"method={self.method!r} has nothing to tune: tune is for method='nested'.")
        self._settle(self.coordinates(X))
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
        return self.composite_.coordinates(transformed(self.modules_, self._rows(X)))

    def kneighbors(self, X=None, n_neighbors=None, return_distance=True):
        """Nearest rows of the base.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n_queries, d), optional
            Queries; without them, the base's own rows, none of which is its own neighbor.
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
            distances, rows = self.search(self.coordinates_, k + 1)
            rows, distances = without_self(np.arange(len(rows)), rows, distances)
        else:
            self._check_neighbors(k)
            distances, rows = self.search(self.coordinates(X), k)
        return (distances, rows) if return_distance else rows

    def kneighbors_graph(self, X=None, n_neighbors=None, mode="connectivity"):
        """Neighbors as a sparse matrix.

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
        self._refuse_other_layout()
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

    def _rows(self, X, reset=False):
        return validate_data(self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32])

    def _settle(self, queries=None):
        """Choose what the parameters leave open, by queries or by rows of the base; have finders for it."""
        points, kind = self.coordinates_, BACKENDS[self.backend]
        self._settled_at = len(points)
        n_leading, share = min(self.n_leading or LEADING, points.shape[1]), CANDIDATES
        asked = (max(self.n_neighbors, FEWEST), self.recall)
        if self.method == "nested" and kind.proves:
            n_leading, share = choose_scan(
                points, judges_of(points, queries), *asked, self.n_leading, self.n_candidates
            )
        if not self._finders or n_leading != self.n_leading_:
            self.n_leading_ = n_leading
            self._finders = [kind(self._seen_by(m, points), self.n_jobs) for m in range(self._n_finders())]
        if self.method == "nested" and not kind.proves and self.n_candidates is None:
            share = candidates_of_lists(
                self._finders[0], points, n_leading, judges_of(points, queries), *asked
            )
        self.candidates_per_neighbor_ = share

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
        check_scalar(self.recall, "recall", Real, min_val=0, max_val=1, include_boundaries="right")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        inputs = None if self.modules is None else get_tags(self.modules).input_tags
        tags.input_tags.sparse = inputs is None or inputs.sparse
        tags.input_tags.pairwise = inputs is not None and inputs.pairwise
        return tags
