# What numba compiles has the types that numba finds for it.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
"""c_ij = Σ_{u ∈ U_i ∩ U_j} v_u: what the users who have both items weigh, compiled by numba.

A row of it is made from the lists of the item's users, in a buffer of one number for each item.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from lpgcn.evaluation.compiled import replace_worst, sort_best

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
    the greatest, then the lowest. Not i itself. `near` and `value` hold -1 and -inf."""
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
        # Ascending, so that of equal ones the lowest stay.
        for j in np.sort(met[:count]):
            if j != i:
                similarity = total[j] / (scale[i] * scale[j] + shrinkage)
                if similarity > value[i, 0]:
                    replace_worst(near[i], value[i], k, j, similarity)
            total[j] = 0.0
        sort_best(near[i], value[i])
