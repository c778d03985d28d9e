"""How a learning rate falls, with the same bits on every machine."""

from __future__ import annotations

import math


def half_cosine(share: float) -> float:
    """(1 + cos(π·share)) / 2 = cos²(π·share / 2), for a share in [0, 1].

    Libraries round cosines differently; what is trained does not depend on the machine. So it is
    written down: Taylor's series, of the sine where the cosine is small.
    """
    if share > 0.5:
        sine = _sine(0.5 * math.pi * (1 - share))
        return sine * sine
    sine = _sine(0.5 * math.pi * share)
    return 1 - sine * sine


def _sine(x: float) -> float:
    """Σ (−1)^k x^(2k+1) / (2k+1)!, to the last bit or two for 0 ≤ x ≤ π/4."""
    total, square = 1.0, x * x
    for k in range(8, 0, -1):
        total = 1 - square / (2 * k * (2 * k + 1)) * total
    return x * total
