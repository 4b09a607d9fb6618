"""First steps of `DistributedNeighbors.fit`: fit the modules, read a row, make the parts."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from manylens.cluster.blocks import Blocks
from manylens.cluster.blockwise import Blockwise
from manylens.cluster.dask_parts import DaskParts
from manylens.cluster.dask_runner import Runner
from manylens.cluster.index_layout import Layout, RowBlock, first_row, is_in_memory
from manylens.cluster.local_parts import LocalParts, Parts
from manylens.cluster.reduction import named
from manylens.ensembles.search_coordinates import resolve_modules
from manylens.modules.kernel_pca import ModularKernelPCA


def make_parts(client: Any, layout: Layout, modules: Any, patience: float, wait: bool = True) -> Parts:
    """The parts on the workers of a client, or in this process if there is none."""
    if client is None:
        return LocalParts(layout, modules)
    if client.status != "running":
        raise RuntimeError(f"The dask client is {client.status}: create another Client.")
    return DaskParts(client, layout, modules, patience, wait)


def default_modules(n_columns: int) -> ModularKernelPCA:
    """15 linear modules of up to 20 columns, which together keep the distances of the rows on 300 axes.

    They find more of the nearest rows in the input space than modules of a Gaussian kernel, even if only a
    third of them answers (benchmark AnsweringCurveMNIST).
    """
    return ModularKernelPCA(15, min(20, n_columns), diversity=1.0, kernel="linear", random_state=0)


def fitted_modules(
    modules: Any, X: Any, y: Any, blocks: list[RowBlock], n_columns: int, patience: float
) -> Any:
    """The modules if they are fitted, otherwise a copy fitted to the rows, where they live."""
    modules = default_modules(n_columns) if modules is None else resolve_modules(modules)
    try:
        check_is_fitted(modules)
    except NotFittedError:
        if is_in_memory(X):
            return clone(modules).fit(X, y)
        delayed = [block.delayed() for block in blocks]
        return Blockwise(modules, patience=patience).fit(delayed).estimator_
    return modules


def read_first_row(block: RowBlock, patience: float) -> Any:
    """The first row of a block, read where the block lives."""
    if hasattr(block.rows, "__dask_graph__"):
        row = named(first_row, "manylens-first-row")(block.rows)
        return Runner(patience).compute(row, Blocks([(block.rows,)], True))
    return first_row(block.rows)
