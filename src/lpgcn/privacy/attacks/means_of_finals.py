"""A user's list, from its vectors in a pass and the final vectors of items: an owner, alone or not.

Propagation is linear: what an owner reads of a neighbour in layers 1 to L−1 adds up to

    Σ_{l=1}^{L−1} x_u^(l) = 1/|I_u| · Σ_{i ∈ I_u} |U_i|^-½ Σ_{l=0}^{L−2} e_i^(l)
                          ≈ Σ_{i ∈ I_u} c_i e_i,   c_i ≥ 0

with e_i, the mean over all layers, in place of the sum over some. Solved for c over the candidates:
what u lists, if the server takes part, else all items. Must succeed on short lists with L large or
e_i^(0) small; an approximation everywhere else.
"""

from __future__ import annotations

import numpy as np

from lpgcn.array_types import Float64, Int64
from lpgcn.privacy.solvers import non_negative
from lpgcn.privacy.views import View
from lpgcn.protocol.phases import Phase
from lpgcn.protocol.suite import Kind
from lpgcn.ragged import Ragged


def summed_pushes(view: View, pass_number: int) -> dict[int, Float64]:
    """For each user whose vectors of a pass the view has, Σ_{l=1}^{L−1} x_u^(l)."""
    totals: dict[int, Float64] = {}
    for sent, whose, vectors in view.vectors(Kind.USER_FORWARD):
        if sent.pass_number == pass_number and sent.phase == Phase.FORWARD and sent.layer > 0:
            for user, vector in zip(whose.tolist(), vectors, strict=True):
                totals[user] = totals.get(user, 0.0) + vector
    return totals


def solved(
    totals: dict[int, Float64], finals: Float64, candidates: Ragged, users: Int64
) -> Float64:
    """c_i of every candidate of these users, 0 for others: row r of `candidates` is users[r]'s."""
    vectors, found = np.nan_to_num(finals), np.zeros(len(candidates.values))
    for row, user in enumerate(users.tolist()):
        if user in totals:
            solution = non_negative(vectors[candidates[row]], totals[user], 1e-4)
            found[candidates.offsets[row] : candidates.offsets[row + 1]] = solution
    return found
