"""Save, load and export an index."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from manylens.ensembles.faiss_finder import import_faiss
from manylens.ensembles.search_coordinates import resolve_modules
from manylens.ensembles.search_index import SearchIndex, check_same_modules, index_file
from manylens.persistence.save_and_load import load, save
from manylens.typing import ModuleSet
from manylens.validation import check_flag


class IndexFiles:
    """Methods of an index that write it to a file, read it, and export it."""

    if TYPE_CHECKING:
        index_: SearchIndex
        modules: ModuleSet | None
        modules_: Any
        probe_: Any

        def _check_layout(self) -> None: ...
        def _check_parameters(self) -> None: ...

    def save(self, path: str | PathLike[str], *, save_modules: bool = True) -> None:
        """Write the index with its modules to one file; after a crash it holds the old or the new index.

        Parameters
        ----------
        path : str or path-like
            The file; its folder is created if it does not exist. If the path is an existing folder, the file
            is index.manylens in that folder.
        save_modules : bool, default=True
            Whether the file contains the modules. Use False for modules that cannot be saved, and pass them
            to `load`.
        """
        check_is_fitted(self)
        self._check_layout()
        check_flag(save_modules, "save_modules")
        path = index_file(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        saved = copy(self)
        if not save_modules and self.modules is not None:
            saved.modules = saved.modules_ = None
        save(saved, path)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        modules: ModuleSet | None = None,
        mmap: bool = True,
        *,
        trusted: Iterable[type | str] = (),
    ) -> Self:
        """Read an index that `save` wrote, without running code from the file.

        Parameters
        ----------
        path : str or path-like
            The file, or the folder, given to `save`.
        modules : transformer, default=None
            The fitted modules. None means those saved with the index.
        mmap : bool, default=True
            Whether to map the rows from the file instead of reading them into memory. Checksums are verified
            for everything but mapped rows; `manylens.persistence.verify` verifies those, too.
        trusted : iterable of classes or str, default=()
            Classes of modules that manylens does not know, as for `manylens.load`.

        Returns
        -------
        ModuleNeighbors
            The fitted index.
        """
        index = load(index_file(path), trusted=trusted, mmap=mmap)
        if not isinstance(index, cls) or not hasattr(index, "index_"):
            raise ValueError(f"{path} contains {type(index).__name__}, not a fitted {cls.__name__}.")
        if modules is not None:
            index.modules = index.modules_ = resolve_modules(modules)
        if index.modules_ is None:
            raise ValueError(
                f"{path} was saved without its modules: pass the fitted modules, "
                "ModuleNeighbors.load(path, modules)."
            )
        message = "These modules (%(name)s) are not fitted: call modules.fit(X) first."
        check_is_fitted(index.modules_, msg=message)
        index._check_parameters()
        check_same_modules(index.index_, index.modules_, index.probe_)
        return index

    def to_faiss(self, description: str = "HNSW24") -> Any:
        """A faiss index of the leading coordinates, for programs that serve with faiss.

        It finds candidates for queries `index.coordinates(X)[:, : index.n_leading_]`, which
        `rank_candidates` ranks by all coordinates.

        Parameters
        ----------
        description : str, default="HNSW24"
            Description of the index for `faiss.index_factory`.

        Returns
        -------
        faiss.Index
            An index of `n_leading_` dimensions; row numbers are those of the base.
        """
        check_is_fitted(self)
        faiss, index = import_faiss(), self.index_
        rows = index.to_module_units(index.coordinates[:, : index.plan.n_leading])
        with np.errstate(over="ignore"):
            rows = np.ascontiguousarray(rows, dtype=np.float32)
        if not np.isfinite(rows).all():
            raise ValueError(
                "Coordinates of this index are beyond the range of float32, which faiss computes with: fit "
                "it to smaller rows."
            )
        try:
            made = faiss.index_factory(rows.shape[1], description)
        except (RuntimeError, TypeError) as error:
            raise ValueError(
                f"description={description!r} is none that faiss understands: see faiss.index_factory."
            ) from error
        made.train(rows)
        made.add(rows)
        return made
