"""Load rows into the cache before they are needed: rows of a graph lie anywhere in memory."""

# ruff: noqa: ARG001 (numba passes a fixed list of arguments)

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils as untyped_cgutils
from numba.extending import intrinsic, overload

from manylens.typing import AnyArray

LINE = 64  # bytes of a cache line
FETCHED = 512  # most bytes of a row to fetch ahead; the processor itself fetches what follows
AHEAD = 8  # rows between the one that is measured and the one that is fetched

cgutils: Any = untyped_cgutils  # numba is not annotated
operation: Any = intrinsic


def fetch(rows: AnyArray, row: int) -> None:
    """Load the beginning of a row (n, d) while other work goes on; does nothing in plain Python."""


@overload(fetch)
def compiled_fetch(rows: Any, row: Any) -> Any:
    """`fetch` in compiled loops."""
    step, most = 8 * LINE // rows.dtype.bitwidth, 8 * FETCHED // rows.dtype.bitwidth

    def loop(rows: Any, row: Any) -> Any:
        for column in range(0, min(rows.shape[1], most), step):
            fetch_line(rows, row, column)

    return loop


@operation
def fetch_line(typing: Any, rows: Any, row: Any, column: Any) -> Any:
    """Ask the processor to load the cache line of one number of rows (n, d)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind, (array, *place) = signature.args[0], arguments
        structure = context.make_array(kind)(context, builder, array)
        pointer = cgutils.get_item_pointer(context, builder, kind, structure, place)
        address, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        called = ir.FunctionType(ir.VoidType(), [address, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, called, "llvm.prefetch.p0i8")
        flags = [ir.Constant(flag, value) for value in (0, 3, 1)]  # to read, keep in all caches, data
        builder.call(function, [builder.bitcast(pointer, address), *flags])
        return context.get_dummy_value()

    return types.void(rows, types.intp, types.intp), generate
