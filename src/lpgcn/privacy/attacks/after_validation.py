"""Positives of items that are others': an owner, in the step after a validation.

A validation gives everybody e_i of all items, at the very parameters from which the next step
starts. In that step a batch client pushes, before anything is mixed in,

    x_u^(L) = |I_u|^-½·α_L · ∂Loss/∂e_u = Σ_i c_i e_i,   c_i < 0 for positives, > 0 for negatives

a combination of a few of m known vectors in d dimensions: the sparsest one is it, as long as there
are less than about d/4 samples of u in the batch. Must succeed with small batches right after a
validation; fails with batches in which everybody has many samples, and with other vectors than
those of the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from lpgcn.array_types import Float64, Int64
from lpgcn.privacy.solvers import sparsest
from lpgcn.privacy.views import View
from lpgcn.protocol.phases import Phase
from lpgcn.protocol.suite import Kind

CALLED: Final = 0.01
"""A coefficient of less than this share of the largest is called zero."""
EXACT: Final = 1e-3
"""The largest rest, as a share of the push, of a combination that is called found: what rounding to
the grid leaves is smaller."""


@dataclass(frozen=True, eq=False)
class Positives:
    """For one neighbour −c_i of every place, and the places that are called positives: none if the
    combination that was found does not give the push exactly."""

    whose: int
    scores: Float64
    called: Int64


def gradients(view: View, pass_number: int) -> tuple[Int64, Float64] | None:
    """What the batch's users pushed first on the way back, in one pass."""
    for sent, whose, vectors in view.vectors(Kind.USER_BACKWARD):
        if sent.pass_number == pass_number and sent.phase == Phase.GRADIENT:
            return whose, vectors
    return None


def positives(
    finals: Float64, whose: Int64, pushed: Float64, most: int | None = None
) -> list[Positives]:
    """From final vectors of all places and first pushes; of the first `most` users only."""
    found = []
    for user, target in list(zip(whose.tolist(), pushed, strict=True))[:most]:
        if not target.any():
            continue
        coefficients = sparsest(finals, target)
        support = np.flatnonzero(np.abs(coefficients) > CALLED * np.abs(coefficients).max())
        fit, *_ = np.linalg.lstsq(finals[support].T, target, rcond=None)
        rest = np.linalg.norm(fit @ finals[support] - target) / np.linalg.norm(target)
        exact = rest < EXACT and len(support) < len(target) // 2
        called = support[fit < 0] if exact else support[:0]
        found.append(Positives(user, -coefficients, called))
    return found
