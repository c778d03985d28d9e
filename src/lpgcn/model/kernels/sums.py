# What numba compiles has the types that numba finds for it.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
"""Sums of rows of a table, compiled by numba.

A sum of rows waits for the memory that the rows lie in. So its running totals stay in registers,
and the rows that come next are asked for in advance. Registers hold twice as many totals of 32 bits
as of 64: 32-bit rows are added up in 32 bits, as many at a time as surely fit (`Totals`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from lpgcn.model.kernels import LINE, Integers
from lpgcn.ragged import Ragged

COLUMNS = 64
"""Columns that are added up at a time: eight registers of 256 bits, if a total has 32."""

AHEAD = 16
"""A row is asked for this many entries before it is added."""

ASKED = 16
"""Numbers that are asked for at a time."""

LEAST_AT_ONCE = 8
"""Entries that 32 bits must have room for, or adding them up in parts is not worth it."""

# The model of errors is about division: Python's would look at every divisor.
_compiled = njit(nogil=True, cache=True, error_model="numpy")
_inlined = njit(nogil=True, cache=True, error_model="numpy", forceinline=True)


class Totals(NamedTuple):
    """How a sum runs: `at_once` entries in numbers like `running`, then all these in ones like
    `whole`. Only their types are looked at."""

    running: np.signedinteger[Any]
    whole: np.signedinteger[Any] | np.float64
    at_once: int


WIDE = Totals(np.int64(0), np.int64(0), 2**62)


def totals_of(segments: Ragged, rows: Integers, largest: int | None) -> Totals:
    """Of 32 bits where they are known to fit. All sums are whole numbers below 2^53, for which
    float64 is exact and needs the fewest conversions."""
    if rows.dtype != np.int32 or largest is None:
        return WIDE
    at_once = (2**31 - 1) // max(1, largest)
    longest = int(segments.lengths.max(initial=0))
    if at_once < LEAST_AT_ONCE or longest * largest >= 2**53:
        return WIDE
    return Totals(np.int32(0), np.float64(0), at_once)


@intrinsic
def _numbers_like(_typing, number):
    """COLUMNS numbers on the stack, where LLVM can see that nobody else has them."""

    def build(context, builder, _signature, _arguments):
        kind = context.get_value_type(number)
        block = cgutils.alloca_once(builder, ir.ArrayType(kind, COLUMNS))
        return builder.bitcast(block, kind.as_pointer())

    return types.CPointer(number)(number), build


@intrinsic
def _ask_for(_typing, rows, row, column):
    """Have the ASKED numbers from rows[row, column] on brought near, without waiting for them."""

    def build(context, builder, signature, arguments):
        table = context.make_array(signature.args[0])(context, builder, arguments[0])
        element = cgutils.get_item_pointer(
            context, builder, signature.args[0], table, arguments[1:], wraparound=False
        )
        byte, number = ir.IntType(8), ir.IntType(32)
        pointer = byte.as_pointer()
        prefetch = builder.module.declare_intrinsic(
            "llvm.prefetch", [pointer], ir.FunctionType(ir.VoidType(), [pointer, *[number] * 3])
        )
        # To be read, to be kept in all caches, data.
        hints = [number(0), number(3), number(1)]
        for start in range(0, ASKED * rows.dtype.bitwidth // 8, LINE):
            line = builder.gep(
                builder.bitcast(element, pointer), [number(start)], source_etype=byte
            )
            builder.call(prefetch, [line, *hints])
        return context.get_dummy_value()

    return types.void(rows, types.intp, types.intp), build


@_inlined
def ask_for_columns(rows, row, column, width):
    """The same for several columns of one row."""
    start, end = np.int64(column), np.int64(column + width)
    while start < end:
        _ask_for(rows, row, start)
        start += ASKED


@_compiled
def reduce_rows(first, last, offsets, values, rows, present, weights, steps, factor, totals, out):
    """out_r = rint(factor_r · Σ rint(weight · rows[j] · steps)), without what is None.

    Entries have weights or may be absent, never both.
    """
    offsets, out = offsets[first : last + 1], out[first:last]
    if factor is not None:
        factor = factor[first:last]
    if present is not None:
        offsets, values = _only_present(offsets, values, present)
    for start in range(0, rows.shape[1], COLUMNS):
        # Unsigned, because what may be a negative index is looked at number by number.
        column, width = np.uint64(start), np.uint64(rows.shape[1] - start)
        # Only if it knows how many there are does LLVM keep the totals in registers.
        if width >= COLUMNS:
            width = np.uint64(COLUMNS)
            _reduce_columns(
                column, width, offsets, values, rows, weights, steps, factor, totals, out
            )
        else:
            _reduce_columns(
                column, width, offsets, values, rows, weights, steps, factor, totals, out
            )


@_inlined
def _reduce_columns(column, width, offsets, values, rows, weights, steps, factor, totals, out):
    """`reduce_rows` for `width` columns, at most COLUMNS."""
    running = carray(_numbers_like(totals.running), COLUMNS)
    whole = carray(_numbers_like(totals.whole), COLUMNS)
    final = len(values) - 1
    for r in range(len(out)):
        for c in range(width):
            whole[c] = 0
        start, end = offsets[r], offsets[r + 1]
        while start < end:
            for c in range(width):
                running[c] = 0
            stop = min(start + totals.at_once, end)
            for entry in range(start, stop):
                ask_for_columns(rows, values[min(entry + AHEAD, final)], column, width)
                j = values[entry]
                for c in range(width):
                    if weights is None:
                        running[c] += rows[j, column + c]
                    else:
                        product = np.float64(weights[entry]) * np.float64(rows[j, column + c])
                        running[c] += np.int64(np.rint(product * steps))
            for c in range(width):
                whole[c] += running[c]
            start = stop
        if factor is None:
            for c in range(width):
                out[r, column + c] = whole[c]
        else:
            scale = factor[r]
            for c in range(width):
                out[r, column + c] = np.rint(whole[c] * scale)


@_compiled
def _only_present(offsets, values, present):
    """The entries whose rows are present; written without a branch, which nobody could foresee."""
    kept = np.empty(offsets[-1] - offsets[0], values.dtype)
    ends = np.zeros_like(offsets)
    count = 0
    for r in range(len(offsets) - 1):
        for entry in range(offsets[r], offsets[r + 1]):
            kept[count] = values[entry]
            count += present[values[entry]]
        ends[r + 1] = count
    return ends, kept[:count]
