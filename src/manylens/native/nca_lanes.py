"""Vectors of 32 numbers that stay in registers, for loops that a compiler does not vectorize by itself.

The inner loop of NCA holds four rows against a tile of 32 columns: four accumulators per column live in
registers while the dimensions go by. Plain loops over arrays lose that (each accumulator is stored and
loaded again for every dimension, and possible aliasing stops the vectorizer), which costs a factor of eight.
LLVM splits a vector of 32 into what the machine has, so nothing here is tied to one instruction set.
"""

# Numba gives every intrinsic a fixed list of arguments, used or not, and mypy cannot see through it.
# ruff: noqa: ARG001
# mypy: ignore-errors

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model
from numpy.polynomial import chebyshev

LANES = 32
_INDEX = ir.IntType(32)


class Lanes(types.Type):
    """Numba's name for a vector of numbers of one type: `LANES` of them, or half as many."""

    def __init__(self, element, width=LANES):
        super().__init__(name=f"Lanes({element}, {width})")
        self.element = element
        self.width = width

    @property
    def key(self):
        return self.element, self.width


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, lanes):
        super().__init__(manager, lanes, _vector(lanes.element, lanes.width))


def _scalar(element):
    return ir.FloatType() if element == types.float32 else ir.DoubleType()


def _vector(element, width=LANES):
    return ir.VectorType(_scalar(element), width)


def _constant(element, value):
    return ir.Constant(_vector(element), [float(np.dtype(str(element)).type(value))] * LANES)


def _call(builder, name, arguments):
    """Call the LLVM intrinsic `name` for vectors of this kind, such as llvm.fma.v32f32."""
    vector = arguments[0].type
    bits = 32 if vector.element == ir.FloatType() else 64
    kind = ir.FunctionType(vector, [vector] * len(arguments))
    name = f"llvm.{name}.v{vector.count}f{bits}"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def _address(context, builder, array_type, array, offset, width):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [offset]), _vector(array_type.dtype, width).as_pointer())


def _read(context, builder, array_type, array, offset, width):
    place = _address(context, builder, array_type, array, offset, width)
    value = builder.load(place)
    value.align = array_type.dtype.bitwidth // 8
    return value


@intrinsic
def load(typing_context, array, offset):
    """The vector array[offset : offset + LANES] of a flat array."""

    def generate(context, builder, signature, arguments):
        return _read(context, builder, signature.args[0], *arguments, LANES)

    return Lanes(array.dtype)(array, types.intp), generate


@intrinsic
def load_half(typing_context, array, offset):
    """The half vector array[offset : offset + LANES // 2] of a flat array."""

    def generate(context, builder, signature, arguments):
        return _read(context, builder, signature.args[0], *arguments, LANES // 2)

    return Lanes(array.dtype, LANES // 2)(array, types.intp), generate


def _write(context, builder, array_type, array, offset, vector):
    place = _address(context, builder, array_type, array, offset, vector.type.count)
    builder.store(vector, place).align = array_type.dtype.bitwidth // 8


@intrinsic
def store(typing_context, array, offset, vector):
    """Write `vector`, whole or half, to `array` from `offset` on."""

    def generate(context, builder, signature, arguments):
        _write(context, builder, signature.args[0], *arguments)
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), generate


def _repeated(builder, element, width, number):
    empty = ir.Constant(_vector(element, width), ir.Undefined)
    first = builder.insert_element(empty, number, ir.Constant(_INDEX, 0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(_INDEX, width), [0] * width))


@intrinsic
def splat(typing_context, number):
    """`number` in every lane."""

    def generate(context, builder, signature, arguments):
        return _repeated(builder, number, LANES, arguments[0])

    return Lanes(number)(number), generate


@intrinsic
def splat_half(typing_context, number):
    """`number` in every lane of half a vector."""

    def generate(context, builder, signature, arguments):
        return _repeated(builder, number, LANES // 2, arguments[0])

    return Lanes(number, LANES // 2)(number), generate


@intrinsic
def fma(typing_context, x, y, z):
    """x * y + z, lane by lane."""

    def generate(context, builder, signature, arguments):
        return _call(builder, "fma", list(arguments))

    return x(x, y, z), generate


@intrinsic
def add(typing_context, x, y):
    """x + y, lane by lane."""

    def generate(context, builder, signature, arguments):
        return builder.fadd(*arguments)

    return x(x, y), generate


@intrinsic
def mul(typing_context, x, y):
    """x * y, lane by lane."""

    def generate(context, builder, signature, arguments):
        return builder.fmul(*arguments)

    return x(x, y), generate


def _larger(builder, x, y):
    return builder.select(builder.fcmp_ordered(">", x, y), x, y)


@intrinsic
def maximum(typing_context, x, y):
    """The larger of x and y, lane by lane."""

    def generate(context, builder, signature, arguments):
        return _larger(builder, *arguments)

    return x(x, y), generate


def _picked(builder, vector, begin, end):
    """The lanes `begin` to `end` of a vector."""
    lanes = ir.Constant(ir.VectorType(_INDEX, end - begin), list(range(begin, end)))
    return builder.shuffle_vector(vector, vector, lanes)


def _fold(builder, vector, operation):
    """All lanes combined into one number, halves first: the same order on every machine."""
    width = vector.type.count
    while width > 1:
        width //= 2
        vector = operation(_picked(builder, vector, 0, width), _picked(builder, vector, width, 2 * width))
    return builder.extract_element(vector, ir.Constant(_INDEX, 0))


@intrinsic
def folded(typing_context, x):
    """The upper half of `x` added to the lower: half the registers for a sum that goes on."""

    def generate(context, builder, signature, arguments):
        half = LANES // 2
        parts = [_picked(builder, arguments[0], begin, begin + half) for begin in (0, half)]
        return builder.fadd(*parts)

    return Lanes(x.element, LANES // 2)(x), generate


@intrinsic
def total(typing_context, x):
    """Sum over the lanes."""

    def generate(context, builder, signature, arguments):
        return _fold(builder, arguments[0], builder.fadd)

    return x.element(x), generate


@intrinsic
def largest(typing_context, x):
    """Maximum over the lanes."""

    def generate(context, builder, signature, arguments):
        return _fold(builder, arguments[0], lambda a, b: _larger(builder, a, b))

    return x.element(x), generate


@intrinsic
def add_folded(typing_context, array, offset, x, y):
    """Add x * y, its upper half folded onto the lower, to array[offset : offset + LANES // 2].

    Half as many numbers to load and store as lanes: the loops that use it are bound by stores.
    """

    def generate(context, builder, signature, arguments):
        half = LANES // 2
        value = _read(context, builder, signature.args[0], *arguments[:2], half)
        for begin in (0, half):
            parts = [_picked(builder, vector, begin, begin + half) for vector in arguments[2:]]
            value = _call(builder, "fma", [*parts, value])
        _write(context, builder, signature.args[0], *arguments[:2], value)
        return context.get_dummy_value()

    return types.void(array, types.intp, x, y), generate


@intrinsic
def with_lane(typing_context, x, lane, number):
    """`x` with one lane replaced by `number`."""

    def generate(context, builder, signature, arguments):
        return builder.insert_element(arguments[0], arguments[2], builder.trunc(arguments[1], _INDEX))

    return x(x, types.intp, x.element), generate


def _exp2_polynomial(degree):
    """Coefficients, constant first, of a polynomial near 2**f on [-1/2, 1/2]."""
    series = chebyshev.chebinterpolate(lambda t: np.exp2(t / 2), degree)
    coefficients = chebyshev.cheb2poly(series)
    return coefficients * 2.0 ** np.arange(len(coefficients))


@intrinsic
def exp2(typing_context, x):
    """2**x, lane by lane, for x <= 0; below the smallest normal number it stays at that number.

    x = i + f with i the nearest integer: a polynomial gives 2**f to the last bit or two, and adding i to the
    exponent field multiplies by 2**i.
    """

    def generate(context, builder, signature, arguments):
        element = x.element
        single = element == types.float32
        lowest, mantissa, degree = (-126, 23, 5) if single else (-1022, 52, 11)
        integers = ir.VectorType(ir.IntType(element.bitwidth), LANES)
        value = _larger(builder, arguments[0], _constant(element, lowest))
        whole = _call(builder, "nearbyint", [value])
        rest = builder.fsub(value, whole)
        coefficients = _exp2_polynomial(degree)
        power = _constant(element, coefficients[-1])
        for coefficient in coefficients[-2::-1]:
            power = _call(builder, "fma", [power, rest, _constant(element, coefficient)])
        exponent = builder.shl(builder.fptosi(whole, integers), ir.Constant(integers, [mantissa] * LANES))
        return builder.bitcast(builder.add(builder.bitcast(power, integers), exponent), _vector(element))

    return x(x), generate
