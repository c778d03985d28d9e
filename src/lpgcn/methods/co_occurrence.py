# What numba compiles has the types that numba finds for it.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
"""c_ij = Σ_{u ∈ U_i ∩ U_j} v_u: what the users who have both items weigh, compiled by numba.

A row of it is made from the lists of the item's users, in a buffer of one number for each item.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_compiled = njit(nogil=True, cache=True, error_model="numpy")


@_compiled
def fill_lower(first, last, users_of, users, items_of, items, out):
    """out_ij = c_ij for the rows from first to last, j ≤ i, with v = 1. Items of a user ascend."""
    for i in range(first, last):
        for u in users[users_of[i] : users_of[i + 1]]:
            for j in items[items_of[u] : items_of[u + 1]]:
                if j > i:
                    break
                out[i, j] += 1


@_compiled
def nearest(first, last, users_of, users, items_of, items, weight, scale, shrinkage, near, value):
    """The k items with the greatest c_ij / (s_i·s_j + h) for each item i from first to last, first
    the greatest, then the lowest; -1 where there are no more with any. Not i itself."""
    n, k = len(users_of) - 1, near.shape[1]
    total, met = np.zeros(n), np.empty(n, np.int64)
    for i in range(first, last):
        count = 0
        for u in users[users_of[i] : users_of[i + 1]]:
            for j in items[items_of[u] : items_of[u + 1]]:
                if total[j] == 0.0 and weight[u] != 0.0:
                    met[count] = j
                    count += 1
                total[j] += weight[u]
        found = 0
        # Ascending, so that of equal ones the lowest comes first.
        for j in np.sort(met[:count]):
            if j != i:
                similarity = total[j] / (scale[i] * scale[j] + shrinkage)
                found = _insert(near[i], value[i], found, k, j, similarity)
            total[j] = 0.0


@_compiled
def _insert(near, value, found, k, item, similarity):
    """Into a list that falls; returns its new length."""
    if found == k and similarity <= value[k - 1]:
        return found
    place = min(found, k - 1)
    while place > 0 and value[place - 1] < similarity:
        near[place], value[place] = near[place - 1], value[place - 1]
        place -= 1
    near[place], value[place] = item, similarity
    return min(found + 1, k)
