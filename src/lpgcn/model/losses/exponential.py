"""e^x by one sequence of IEEE operations: NumPy's own has other last bits on other processors."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from lpgcn.array_types import Float64

_LOG2_E: Final = 1.4426950408889634
_LN2_HIGH: Final = float.fromhex("0x1.62e42fee00000p-1")
_LN2_LOW: Final = float.fromhex("0x1.a39ef35793c76p-33")
"""Together ln 2; the high part has so few digits that its product with any k is exact."""
_TAYLOR: Final = tuple(1 / math.factorial(n) for n in range(13, -1, -1))
_FARTHEST: Final = 700.0
"""Beyond that it is nothing in any precision."""


def exponential(falling: Float64) -> Float64:
    """e^x for x ≤ 0: 2^k·e^r with |r| ≤ ½ ln 2, and e^r its Taylor series."""
    x = np.maximum(falling, -_FARTHEST)
    k = np.rint(x * _LOG2_E)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    series = np.full_like(r, _TAYLOR[0])
    for coefficient in _TAYLOR[1:]:
        series = series * r + coefficient
    return np.ldexp(series, k.astype(np.int64))
