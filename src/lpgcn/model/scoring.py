"""What users' vectors are multiplied with where items are ranked."""

from __future__ import annotations

import numpy as np

from lpgcn.config import EXPONENT_STEP
from lpgcn.model.kernels import Floats, Kernels


def scoring(items: Floats, exponent: float, kernels: Kernels) -> Floats:
    """e_i ‖e_i‖^(p−1), so that y_ui = e_u·e_i ‖e_i‖^(p−1) = ‖e_u‖ cos(e_u, e_i) ‖e_i‖^p.

    p = 1 is the inner product (Eq. 4), p = 0 ranks by the cosine. The loss that is trained on
    cosines says nothing about lengths: the graph makes them, longer for items with many users, and
    how much of that the ranking should take is a setting.
    """
    if exponent == 1:
        return items
    every = np.arange(len(items))
    root = np.sqrt(np.sqrt(np.sqrt(kernels.dots(items, items, every, every))))  # ‖e_i‖^¼
    divisor = root.copy()
    for _ in range(round((1 - exponent) / EXPONENT_STEP) - 1):
        divisor *= root
    # What has no length has no direction, and keeps its score of zero.
    divisor[divisor == 0] = 1
    return (items / divisor[:, None]).astype(items.dtype)
