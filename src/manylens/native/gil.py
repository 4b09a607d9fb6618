"""Let compiled loops decide whether to release Python's lock: short ones lose more by handing it over.

A thread that releases the lock among many waits until all others have had it, many times the length of a
short search. Loops that use this are compiled with `nogil=False`, and may not raise while the lock is free.
"""

# ruff: noqa: ARG001 (numba passes a fixed list of arguments)

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

operation: Any = intrinsic  # numba is not annotated


def release(wanted: bool) -> int:
    """Release the lock if wanted; pass the result to `retake`. Does nothing in plain Python."""
    return 0


def retake(state: int) -> None:
    """Take the lock again if `release` has released it."""


@overload(release, strict=False)
def compiled_release(wanted: Any) -> Any:
    """`release` in compiled loops."""
    return lambda wanted: save_thread(wanted)


@overload(retake, strict=False)
def compiled_retake(state: Any) -> Any:
    """`retake` in compiled loops."""
    return lambda state: restore_thread(state)


@operation
def save_thread(typing: Any, wanted: Any) -> Any:
    """Release the lock if wanted: the address of the thread's state, or 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = context.get_value_type(types.intp)
        state = builder.alloca(number)
        builder.store(ir.Constant(number, 0), state)
        with builder.if_then(builder.trunc(arguments[0], ir.IntType(1))):
            address = context.get_python_api(builder).save_thread()
            builder.store(builder.ptrtoint(address, number), state)
        return builder.load(state)

    return types.intp(types.boolean), generate


@operation
def restore_thread(typing: Any, state: Any) -> Any:
    """Take the lock again with the state from `save_thread`, unless it is 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = arguments[0].type
        with builder.if_then(builder.icmp_unsigned("!=", arguments[0], ir.Constant(number, 0))):
            api = context.get_python_api(builder)
            api.restore_thread(builder.inttoptr(arguments[0], api.voidptr))
        return context.get_dummy_value()

    return types.void(types.intp), generate
