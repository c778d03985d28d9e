"""Adam on the rows that one owner holds (Kingma & Ba, 2015), dense: every row at every step."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

_LANES = 16
"""The fused kernel rounds the elements of a last, partial vector register in another order than
the others. Rows padded to whole registers give the same bits alone and among all rows."""


class Adam:
    """θ ← θ − γ·m̂ / (√v̂ + ε), with m and v the decaying means of the gradient and its square."""

    def __init__(self, parameter: Tensor) -> None:
        self._dim = parameter.shape[1]
        self._padded = self._pad(parameter).contiguous().clone()
        self._mean = torch.zeros_like(self._padded)
        self._square = torch.zeros_like(self._padded)
        self._steps = torch.zeros((), dtype=torch.float32)

    def _pad(self, rows: Tensor) -> Tensor:
        missing = -self._dim % _LANES
        return pad(rows, (0, missing)) if missing else rows

    @property
    def parameter(self) -> Tensor:
        return self._padded[:, : self._dim]

    def step(self, gradient: Tensor, learning_rate: float) -> None:
        self._steps.add_(1)
        # `torch.optim.adam.adam` is this call behind checks that take longer than a client's row.
        torch._fused_adam_(
            [self._padded],
            [self._pad(gradient)],
            [self._mean],
            [self._square],
            [],
            [self._steps],
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=learning_rate,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )

    def state(self) -> dict[str, Tensor]:
        """Everything that the next step depends on."""
        return {
            "parameter": self.parameter.clone(),
            "mean": self._mean[:, : self._dim].clone(),
            "square": self._square[:, : self._dim].clone(),
            "steps": self._steps.clone(),
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        self._padded, self._mean, self._square = (
            self._pad(state[name]).clone() for name in ("parameter", "mean", "square")
        )
        self._steps = state["steps"].clone()
