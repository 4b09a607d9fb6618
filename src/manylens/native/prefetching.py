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


@overload(fetch, strict=False)
def compiled_fetch(rows: Any, row: Any) -> Any:
    """`fetch` in compiled loops."""
    return lambda rows, row: fetch_lines(rows, row)


@operation
def fetch_lines(typing: Any, rows: Any, row: Any) -> Any:
    """Ask the processor to load the first cache lines of a row of rows (n, d)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind, (array, place) = signature.args[0], arguments
        structure = context.make_array(kind)(context, builder, array)
        pair = cgutils.unpack_tuple(builder, structure.shape)
        whole, address, flag = pair[1].type, ir.IntType(8).as_pointer(), ir.IntType(32)
        most = ir.Constant(whole, 8 * FETCHED // kind.dtype.bitwidth)
        width = builder.select(builder.icmp_signed("<", pair[1], most), pair[1], most)
        called = ir.FunctionType(ir.VoidType(), [address, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, called, "llvm.prefetch.p0i8")
        flags = [ir.Constant(flag, value) for value in (0, 3, 1)]  # to read, keep in all caches, data
        step = ir.Constant(whole, 8 * LINE // kind.dtype.bitwidth)
        with cgutils.for_range_slice(builder, ir.Constant(whole, 0), width, step, whole) as (column, _):
            pointer = cgutils.get_item_pointer(context, builder, kind, structure, [place, column])
            builder.call(function, [builder.bitcast(pointer, address), *flags])
        return context.get_dummy_value()

    return types.void(rows, types.intp), generate
