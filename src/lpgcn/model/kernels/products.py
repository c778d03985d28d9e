# What numba compiles has the types that numba finds for it.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
"""Matrix products in registers, for loops that a thread runs in its own cache.

The threads of a BLAS spin while they wait for one another: alone they are fast, and beside another
job they take many times as long. These have no threads.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

VECTOR_BYTES = 64
"""Of the totals of a row at a time: one register of 512 bits, or two of 256."""

STRIP = 16
"""Items whose products are computed together."""

TILE = 6
"""Users whose products are computed together: with TILE vectors of totals, two registers each, one
of items and one of a user's number, the 16 registers of AVX2 are used but not exceeded."""


@intrinsic
def multiply(_typing, users, strip, products):
    """products[r, j] = Σ_c users[r, c] · strip[c, j], (TILE, d) · (d, STRIP), rounded anyhow.

    Written in vectors, because LLVM does not by itself keep the totals in registers.
    """

    def build(context, builder, signature, arguments):
        number, index = context.get_value_type(users.dtype), context.get_value_type(types.intp)
        size = users.dtype.bitwidth // 8
        lanes = VECTOR_BYTES // size
        vector = ir.VectorType(number, lanes)
        arrays = [
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args, arguments, strict=True)
        ]
        user_data, strip_data, product_data = (array.data for array in arrays)
        d = cgutils.unpack_tuple(builder, arrays[0].shape)[1]

        def place(data, row, begin):
            """Where the vector of a row of STRIP numbers is that begins at a column."""
            at = builder.add(builder.mul(row, index(STRIP)), index(begin))
            return builder.bitcast(builder.gep(data, [at]), vector.as_pointer())

        def spread(value):
            one = builder.insert_element(vector(ir.Undefined), value, ir.IntType(32)(0))
            everywhere = ir.VectorType(ir.IntType(32), lanes)(None)
            return builder.shuffle_vector(one, vector(ir.Undefined), everywhere)

        totals = [cgutils.alloca_once(builder, vector) for _ in range(TILE)]
        for begin in range(0, STRIP, lanes):
            for total in totals:
                builder.store(vector(None), total)
            with cgutils.for_range(builder, d) as loop:
                columns = builder.load(place(strip_data, loop.index, begin), align=size)
                for r, total in enumerate(totals):
                    at = builder.add(builder.mul(index(r), d), loop.index)
                    factor = spread(builder.load(builder.gep(user_data, [at])))
                    product = builder.fmul(factor, columns, flags=("contract",))
                    added = builder.fadd(builder.load(total), product, flags=("contract",))
                    builder.store(added, total)
            for r, total in enumerate(totals):
                builder.store(builder.load(total), place(product_data, index(r), begin), align=size)
        return context.get_dummy_value()

    return types.void(users, strip, products), build
