"""Adam on the rows that one owner holds (Kingma & Ba, 2015), dense: every row at every step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lpgcn.model.kernels import BETA1, BETA2, Float64, Floats, Integers, Kernels


@dataclass(frozen=True)
class Gradient:
    """∂Loss/∂θ = factor·integers + decay·θ: what arrived on the grid, and the regulariser."""

    integers: Integers
    factor: Float64
    """For each row: the step of the grid, the scaling of the node, and 1/B."""
    decay: Float64
    """For each row n·λ/B, of a node in n samples."""


class Adam:
    """θ ← θ − γ·m̂ / (√v̂ + ε), with m and v the decaying means of the gradient and its square.

    `Kernels.adam` has the one order of its operations.
    """

    def __init__(self, parameter: Floats, kernels: Kernels) -> None:
        self.parameter = np.ascontiguousarray(parameter)
        self._mean, self._square = np.zeros_like(parameter), np.zeros_like(parameter)
        self._steps = 0
        self._kernels = kernels

    def step(self, gradient: Gradient, learning_rate: float) -> None:
        self._steps += 1
        self._kernels.adam(
            self.parameter,
            self._mean,
            self._square,
            gradient.integers,
            gradient.factor,
            gradient.decay,
            learning_rate / (1 - _power(BETA1, self._steps)),
            1 / math.sqrt(1 - _power(BETA2, self._steps)),
        )

    def state(self) -> dict[str, npt.NDArray[np.generic]]:
        """Everything that the next step depends on, as copies."""
        return {
            "parameter": self.parameter.copy(),
            "mean": self._mean.copy(),
            "square": self._square.copy(),
            "steps": np.array(self._steps, dtype=np.int64),
        }

    def restore(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        kind = self.parameter.dtype
        self.parameter, self._mean, self._square = (
            np.array(state[name], dtype=kind) for name in ("parameter", "mean", "square")
        )
        self._steps = int(state["steps"])


def _power(base: float, exponent: int) -> float:
    """base^exponent by squaring: every C library has its own last bits of `pow`."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base, exponent = base * base, exponent >> 1
    return result
