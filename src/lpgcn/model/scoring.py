"""What users' vectors are multiplied with where items are ranked."""

from __future__ import annotations

from typing import Final

import numpy as np

from lpgcn.array_types import Float64
from lpgcn.config import EXPONENT_STEP
from lpgcn.model.kernels import Floats, Kernels

_ROWS_AT_ONCE: Final = 1 << 11
"""A device has a catalogue in memory, but not several in float64."""


def scoring(items: Floats, exponent: float, kernels: Kernels) -> Floats:
    """e_i ‖e_i‖^(p−1), so that y_ui = e_u·e_i ‖e_i‖^(p−1) = ‖e_u‖ cos(e_u, e_i) ‖e_i‖^p.

    p = 1 is the inner product (Eq. 4), p = 0 ranks by the cosine. The loss that is trained on
    cosines says nothing about lengths: the graph makes them, longer for items with many users,
    whose sum is divided by √|U_i| only (Eq. 2). How much of that a ranking takes is a setting.
    """
    if exponent == 1:
        return items
    scaled = np.empty_like(items)
    for first in range(0, len(items), _ROWS_AT_ONCE):
        some = items[first : first + _ROWS_AT_ONCE]
        scaled[first : first + len(some)] = some / _lengths(some, 1 - exponent, kernels)[:, None]
    return scaled


def _lengths(vectors: Floats, exponent: float, kernels: Kernels) -> Float64:
    """‖e‖^exponent; 1 where e·e is 0, so that what has no length keeps its score of zero."""
    every = np.arange(len(vectors))
    squares = kernels.dots(vectors, vectors, every, every)
    quarter = np.sqrt(np.sqrt(np.sqrt(squares)))
    power = np.ones_like(quarter)
    for _ in range(round(exponent / EXPONENT_STEP)):
        power *= quarter
    power[squares == 0] = 1
    return power
