# What numba compiles has the types that numba finds for it.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
"""Matrix products in registers, for loops that a thread runs in its own cache.

The threads of a BLAS spin while they wait for one another: alone they are fast, and beside another
job they take many times as long. These have no threads.
"""

from __future__ import annotations

import itertools

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
"""Numbers of a vector: one register of 512 bits, or two of 256, for float32."""

STRIP = 2 * LANES
"""Items whose products are computed together."""

TILE = 4
"""Users whose products are computed together: TILE · STRIP totals are kept in registers."""


@intrinsic
def multiply(_typing, users, strip, products):
    """products[r, j] = Σ_c users[r, c] · strip[c, j], (TILE, d) · (d, STRIP), rounded anyhow.

    Written in vectors, because LLVM does not by itself keep the totals in registers.
    """

    def build(context, builder, signature, arguments):
        number, index = context.get_value_type(users.dtype), context.get_value_type(types.intp)
        vector, size = ir.VectorType(number, LANES), users.dtype.bitwidth // 8
        arrays = [
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args, arguments, strict=True)
        ]
        user_data, strip_data, product_data = (array.data for array in arrays)
        d = cgutils.unpack_tuple(builder, arrays[0].shape)[1]

        def places(data, row):
            """Where the vectors of a row of STRIP numbers are."""
            begin = builder.gep(data, [builder.mul(row, index(STRIP))])
            begin = builder.bitcast(begin, vector.as_pointer())
            return [builder.gep(begin, [index(v)]) for v in range(STRIP // LANES)]

        def spread(value):
            one = builder.insert_element(vector(ir.Undefined), value, ir.IntType(32)(0))
            everywhere = ir.VectorType(ir.IntType(32), LANES)(None)
            return builder.shuffle_vector(one, vector(ir.Undefined), everywhere)

        totals = [
            [cgutils.alloca_once(builder, vector) for _ in range(STRIP // LANES)]
            for _ in range(TILE)
        ]
        for total in itertools.chain(*totals):
            builder.store(vector(None), total)
        with cgutils.for_range(builder, d) as loop:
            columns = [builder.load(p, align=size) for p in places(strip_data, loop.index)]
            for r in range(TILE):
                at = builder.add(builder.mul(index(r), d), loop.index)
                factor = spread(builder.load(builder.gep(user_data, [at])))
                for total, column in zip(totals[r], columns, strict=True):
                    product = builder.fmul(factor, column, flags=("contract",))
                    added = builder.fadd(builder.load(total), product, flags=("contract",))
                    builder.store(added, total)
        for r in range(TILE):
            for place, total in zip(places(product_data, index(r)), totals[r], strict=True):
                builder.store(builder.load(total), place, align=size)
        return context.get_dummy_value()

    return types.void(users, strip, products), build
