"""The loops of the attacks, compiled by numba."""

from __future__ import annotations

import numpy as np
from numba import njit

_compiled = njit(nogil=True, cache=True, error_model="numpy")


@_compiled
def add_rows(offsets, values, table, weight, out):
    for row in range(len(offsets) - 1):
        for entry in range(offsets[row], offsets[row + 1]):
            item = values[entry]
            for column in range(table.shape[1]):
                out[row, column] += weight[item] * table[item, column]


@_compiled
def walk(offsets, values, item_offsets, users, weight, at_offsets, at_values, out):
    shared = np.zeros(len(offsets) - 1)
    listed = np.zeros(len(item_offsets) - 1, dtype=np.bool_)
    for user in range(len(offsets) - 1):
        shared[:] = 0.0
        for entry in range(offsets[user], offsets[user + 1]):
            item = values[entry]
            listed[item] = True
            for other in range(item_offsets[item], item_offsets[item + 1]):
                shared[users[other]] += weight[item]
        for entry in range(at_offsets[user], at_offsets[user + 1]):
            item = at_values[entry]
            own = weight[item] if listed[item] else 0.0
            total = 0.0
            for other in range(item_offsets[item], item_offsets[item + 1]):
                if users[other] != user:
                    total += shared[users[other]] - own
            out[entry] = total
        for entry in range(offsets[user], offsets[user + 1]):
            listed[values[entry]] = False


# Sums in any order, for the sake of wide registers: an attack has no bits to keep.
@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _dot(table, row, second):
    total = 0.0
    for column in range(table.shape[1]):
        total += table[row, column] * second[column]
    return total


@_compiled
def descended(dictionary, target, ridge, sweeps, between):
    found, rest = np.zeros(len(dictionary)), -target
    curvature = np.empty(len(dictionary))
    for one in range(len(dictionary)):
        curvature[one] = _dot(dictionary, one, dictionary[one]) + ridge
    for sweep in range(sweeps):
        everywhere = sweep % between == 0
        largest = 0.0
        for one in range(len(dictionary)):
            if not everywhere and found[one] == 0.0:
                continue
            slope = _dot(dictionary, one, rest) + ridge * found[one]
            change = max(0.0, found[one] - slope / curvature[one]) - found[one]
            if change != 0.0:
                for column in range(dictionary.shape[1]):
                    rest[column] += change * dictionary[one, column]
                found[one] += change
                largest = max(largest, abs(change))
        if everywhere and largest <= 1e-9 * found.max():
            break
    return found
