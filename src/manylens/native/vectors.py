"""Vectors of numbers in the instructions of a processor, for loops that numba cannot compile well.

An operation generates LLVM instructions, which LLVM adapts to the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils as untyped_cgutils
from numba.extending import intrinsic

INT32 = ir.IntType(32)
cgutils: Any = untyped_cgutils  # numba is not annotated
operation: Any = intrinsic  # decorates a function that generates the instructions of an operation


def host_has(feature: str) -> bool:
    """Whether the processor has a feature, as LLVM names it; False if LLVM cannot tell."""
    try:
        return bool(binding.get_host_cpu_features().get(feature))
    except RuntimeError:
        return False


HAS_AVX512 = host_has("avx512f")  # 32 registers of 512 bits; others have 16 of 256, or 32 of 128


def vector_type(element: Any, width: int) -> ir.VectorType:
    floats = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}
    return ir.VectorType(floats.get(element) or ir.IntType(element.bitwidth), width)


def constant(vector: ir.VectorType, value: float) -> ir.Constant:
    single = vector.element == ir.FloatType()
    return ir.Constant(vector, [float(np.float32(value)) if single else float(value)] * vector.count)


def call(builder: Any, name: str, *arguments: Any) -> Any:
    """Call the LLVM intrinsic `name` for vectors of this kind, such as llvm.fma.v32f32."""
    vector = arguments[0].type
    bits = 32 if vector.element == ir.FloatType() else 64
    kind = ir.FunctionType(vector, [vector] * len(arguments))
    name = f"llvm.{name}.v{vector.count}f{bits}"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def splat(builder: Any, number: Any, width: int) -> Any:
    """`number` in every lane."""
    empty = ir.Constant(ir.VectorType(number.type, width), ir.Undefined)
    first = builder.insert_element(empty, number, ir.Constant(INT32, 0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(INT32, width), [0] * width))


def lanes(builder: Any, vector: Any, begin: int, end: int) -> Any:
    """The lanes begin to end - 1 of a vector."""
    chosen = ir.Constant(ir.VectorType(INT32, end - begin), list(range(begin, end)))
    return builder.shuffle_vector(vector, vector, chosen)


class Memory:
    """Numbers and vectors of a flat array, read and written at an offset."""

    def __init__(self, context: Any, builder: Any, array_type: Any, array: Any) -> None:
        self.builder, self.element = builder, array_type.dtype
        self.data = context.make_array(array_type)(context, builder, array).data

    def number(self, offset: Any, step: int = 0) -> Any:
        return self.builder.load(self._place(offset, step))

    def set_number(self, offset: Any, step: int, value: Any) -> None:
        self.builder.store(value, self._place(offset, step))

    def vector(self, offset: Any, step: int, width: int) -> Any:
        value = self.builder.load(self._vector_place(offset, step, width))
        value.align = self.element.bitwidth // 8
        return value

    def set_vector(self, offset: Any, step: int, value: Any) -> None:
        place = self._vector_place(offset, step, value.type.count)
        self.builder.store(value, place).align = self.element.bitwidth // 8

    def _place(self, offset: Any, step: int) -> Any:
        offset = self.builder.add(offset, ir.Constant(offset.type, step)) if step else offset
        return self.builder.gep(self.data, [offset])

    def _vector_place(self, offset: Any, step: int, width: int) -> Any:
        return self.builder.bitcast(self._place(offset, step), vector_type(self.element, width).as_pointer())


def generator(function: Callable[..., Any]) -> Callable[..., Any]:
    """The generator of `function(builder, *arguments)`, which gets flat arrays as `Memory`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values = [
            Memory(context, builder, kind, value) if isinstance(kind, types.Array) else value
            for kind, value in zip(signature.args, arguments, strict=True)
        ]
        result = function(builder, *values)
        return context.get_dummy_value() if result is None else result

    return generate
