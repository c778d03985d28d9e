"""Exact sums: numbers as multiples of 2^-32, added as integers modulo 2^64.

A floating-point sum depends on its order, and a federation has none: parties add masked numbers
that nobody can look at. Integers have the same sum in any order, under any masks, on any party.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from lpgcn.errors import LpgcnError

ONE: Final = 1 << 32
_LARGEST: Final = 2.0**31


class DivergedError(LpgcnError):
    """A number that is too large for any sum, or none at all."""


def encode(values: npt.NDArray[np.float64]) -> npt.NDArray[np.uint64]:
    """Every value, rounded to the nearest multiple of 2^-32; negative ones wrap around."""
    if not (np.abs(values) < _LARGEST).all():
        raise DivergedError(
            "a loss or a metric is not a number below 2^31: the training has diverged; lower the "
            "learning rate, or raise the regulariser"
        )
    return np.rint(values * ONE).astype(np.int64).astype(np.uint64)


def total(values: npt.NDArray[np.float64]) -> int:
    """The sum of all encoded values, in [0, 2^64)."""
    return int(encode(values).sum(dtype=np.uint64))


def decode(encoded: int) -> float:
    """The number that a sum modulo 2^64 stands for, in [−2^31, 2^31)."""
    wrapped = encoded % (1 << 64)
    return (wrapped - (1 << 64) if wrapped >> 63 else wrapped) / ONE
