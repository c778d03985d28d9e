"""Propagation of the nodes of one kind that one party owns: one user, a few items, or all.

With s = |N|^-½, N a node's real neighbours, LightGCN (Eqs. 1–3) and its gradient are

    forward    push x = e^(l)·s        e^(l+1) = m·s                e = Σ_l e^(l) / (L + 1)
    backward   push x = g^(l+1)·s      g^(l)   = m·s + ∂Loss/∂e^(l)
    with ∂Loss/∂e^(l) = ∂Loss/∂e / (L + 1) on every layer.

Only what is pushed is ever stored, so the two scalings that meet between two layers are one:
e^(l+1)·s = m·s² = m / |N|. A node without neighbours has s = 1: nothing is pushed or arrives.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lpgcn.model.loss import LossGradient

Float64 = npt.NDArray[np.float64]


class Nodes:
    """The running state of forward, then backward propagation. Rows are nodes."""

    def __init__(self, degrees: Tensor, layers: int, dtype: torch.dtype) -> None:
        degree = degrees.clamp(min=1).to(torch.float64).unsqueeze(1)
        self._scale = degree.rsqrt().to(dtype)
        self._inverse_degree = degree.reciprocal().to(dtype)
        self._readout = (degree.sqrt() / (layers + 1)).to(dtype)
        self._gradient_scale = (degree.rsqrt() / (layers + 1)).to(dtype)
        self._unscale = degree.sqrt().to(dtype)
        self.push = torch.empty(0, dtype=dtype)
        """What the nodes send to their neighbours' owners in the next exchange."""

    def begin(self, initial: Tensor) -> None:
        """e^(0) are parameters of these nodes."""
        self._start(initial * self._scale)

    def build(self, arrived: Tensor) -> None:
        """e^(0) = |I_u|^-½ Σ W_i (Eq. 6), from the sum of the W_i that arrived."""
        self._start(arrived.mul_(self._inverse_degree))

    def _start(self, push: Tensor) -> None:
        self.push = self._first_push = push
        self._total = push.clone()

    def absorb(self, arrived: Tensor) -> None:
        """One layer of forward propagation (Algorithm 4): Eq. 1 for users, Eq. 2 for items."""
        self.push = arrived.mul_(self._inverse_degree)
        self._total.add_(self.push)

    def final(self) -> Tensor:
        """e = Σ_l e^(l) / (L + 1) (Eq. 3)."""
        return self._total * self._readout

    def finish(self, rows: Tensor, arrived: Tensor) -> Tensor:
        """The last layer and e of some nodes only, from what arrived for them; the same bits."""
        total = self._total.index_select(0, rows).add_(
            arrived.mul_(self._inverse_degree.index_select(0, rows))
        )
        return total.mul_(self._readout.index_select(0, rows))

    def initial(self, rows: Tensor) -> Tensor:
        """e^(0) of some nodes."""
        return self._first_push.index_select(0, rows).mul_(self._unscale.index_select(0, rows))

    def norms(self, loss: LossGradient) -> Float64:
        """½·n·‖e^(0)‖² of the nodes that the batch touches, each in n samples: the loss has it λ
        times. Changes nothing."""
        initial = self.initial(torch.from_numpy(loss.rows))
        norms: Float64 = initial.mul_(initial).sum(1).to(torch.float64).numpy()
        return 0.5 * loss.in_samples * norms

    def begin_gradient(self, loss: LossGradient, decay: float) -> None:
        """g^(L) = ∂Loss/∂e / (L + 1), zero where the batch does not touch.

        A node in n samples gets n·decay·e^(0) from the regulariser, decay = λ/B, in g^(0).
        """
        self._rows = torch.from_numpy(loss.rows)
        initial = self.initial(self._rows)
        scale = torch.from_numpy(loss.in_samples * decay).to(initial.dtype)
        self._decayed = initial * scale.unsqueeze(1)
        self._loss_push = loss.gradient * self._gradient_scale.index_select(0, self._rows)
        self.push = torch.zeros_like(self._total).index_copy_(0, self._rows, self._loss_push)

    def absorb_gradient(self, arrived: Tensor) -> None:
        """One layer of backward propagation (Algorithm 6): Eqs. 18–27, all of the same form."""
        self.push = arrived.mul_(self._inverse_degree).index_add_(0, self._rows, self._loss_push)

    def gradient(self) -> Tensor:
        """g^(0), the gradient of the nodes' own parameters."""
        return (self.push * self._unscale).index_add_(0, self._rows, self._decayed)

    def push_gradient(self) -> Tensor:
        """g^(0)·s, what a user of LightGCN+ returns to the W_i that it was built from (Eq. 29)."""
        return self.gradient().mul_(self._scale)
