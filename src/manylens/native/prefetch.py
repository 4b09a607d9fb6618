"""Asking for memory before it is needed, where the addresses jump about but are known ahead."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def prefetch_for_update(typingctx, array, place):  # noqa: ARG001 (Numba's form of an intrinsic)
    """Bring the cache line of `array[place]`, a place in a 1-d array, near for reading and writing."""

    def codegen(context, builder, signature, arguments):
        array_type = signature.args[0]
        data = context.make_array(array_type)(context, builder, arguments[0]).data
        word = ir.IntType(32)
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, word, word, word])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], kind)
        builder.call(function, [pointer, word(1), word(3), word(1)])  # to write, into every level, data
        return context.get_dummy_value()

    return types.void(array, types.intp), codegen
