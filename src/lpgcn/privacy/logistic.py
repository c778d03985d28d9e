"""Logistic regression by Newton's method, with a ridge: the classifier of the attacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Float64

Model = Callable[[Float64], Float64]

_STEPS: Final = 25
RIDGE: Final = 1e-3
"""Times the number of examples."""


def fitted(features: Float64, labels: npt.ArrayLike, ridge: float = RIDGE) -> Model:
    """argmin_w Σ log(1 + exp(−(2y − 1)(w·z + b))) + ½·ridge·n·‖w‖², z the standardised features;
    the model gives w·z + b."""
    truth = np.asarray(labels, dtype=np.float64)
    mean, deviation = features.mean(axis=0), features.std(axis=0)
    deviation = np.where(deviation > 0, deviation, 1.0)

    def standardised(rows: Float64) -> Float64:
        return np.column_stack(((rows - mean) / deviation, np.ones(len(rows))))

    z = standardised(features)
    weights, penalty = np.zeros(z.shape[1]), np.full(z.shape[1], ridge * len(z))
    penalty[-1] = 1e-9
    for _ in range(_STEPS):
        chance = 1 / (1 + np.exp(-np.clip(z @ weights, -30, 30)))
        gradient = z.T @ (chance - truth) + penalty * weights
        curvature = (z * (chance * (1 - chance))[:, None]).T @ z + np.diag(penalty)
        step = np.linalg.solve(curvature + 1e-9 * np.eye(len(weights)), gradient)
        weights = weights - step
        if np.abs(step).max() < 1e-6:
            break
    return lambda rows: standardised(rows) @ weights
