# What numba compiles has the types that numba finds for it.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
"""A ← A − L·Rᵀ of large matrices, compiled, on threads that wait without spinning.

A BLAS does the same on its own threads, which beside another job take many times as long.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from lpgcn.model.kernels import Floats
from lpgcn.model.kernels.products import STRIP, TILE, multiply
from lpgcn.model.kernels.threads import Threads

ROWS = 16 * TILE
"""That a thread takes at a time: with a strip of R they are in its cache."""


def subtract_product(
    matrix: Floats, left: Floats, right: Floats, threads: Threads, *, lower: bool = False
) -> None:
    """A_ij ← A_ij − Σ_c L_ic R_jc for all i and j; with `lower` only for j ≤ i, and for some j that
    are a little to the right of it."""
    n = len(matrix)
    rows = np.pad(left, ((0, -n % TILE), (0, 0)))
    padded = np.pad(right, ((0, -len(right) % STRIP), (0, 0)))
    strips = np.ascontiguousarray(padded.reshape(-1, STRIP, right.shape[1]).swapaxes(1, 2))
    threads.each(
        lambda first, last: _subtract(first, last, matrix, rows, strips, lower),
        [*range(0, n, ROWS), n],
    )


@njit(nogil=True, cache=True, error_model="numpy")
def _subtract(first, last, matrix, rows, strips, lower):
    columns = matrix.shape[1]
    products = np.empty((TILE, STRIP), matrix.dtype)
    for start in range(0, min(last, columns) if lower else columns, STRIP):
        for tile in range(first, last, TILE):
            multiply(rows[tile : tile + TILE], strips[start // STRIP], products)
            for r in range(min(TILE, last - tile)):
                for j in range(start, min(start + STRIP, columns)):
                    matrix[tile + r, j] -= products[r, j - start]
