"""A neighbour's whole list, from the first of its vectors that is a mean of item vectors: an owner.

    LightGCN+   x_u^(0) = 1/|I_u| · Σ_{i ∈ I_u} W_i             the very first push
    LightGCN    x_u^(1) = 1/|I_u| · Σ_{i ∈ I_u} V_i·|U_i|^-½     one exchange later

Solved for coefficients that are not negative over all items whose initial vector is known: of which
the owner's own are known with their bits, and are taken off first. Must succeed on lists that are
short beside d where all initial vectors are known, as they were when every client drew them from
one seed; has nothing to go on where each owner draws its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lpgcn.array_types import Bits, Float64, Int64
from lpgcn.privacy.solvers import non_negative
from lpgcn.privacy.views import View
from lpgcn.protocol.phases import Phase
from lpgcn.protocol.suite import Kind


@dataclass(frozen=True, eq=False)
class Solved:
    """For one neighbour a score for each candidate."""

    handle: int
    candidates: Int64
    scores: Float64


def first_means(view: View, *, builds_users: bool) -> tuple[Int64, Float64] | None:
    """Handles, and the first means of item vectors that they pushed."""
    layer = 0 if builds_users else 1
    for sent, handles, vectors in view.vectors(Kind.USER_FORWARD):
        if sent.phase == Phase.FORWARD and sent.layer == layer:
            return handles, vectors
    return None


def solved(
    view: View, initial: Float64, known: Bits, handles: Int64, *, builds_users: bool
) -> list[Solved]:
    """`initial` has the initial vectors of the `known` places; the bits of verification say what of
    the owner's own items is real."""
    means = first_means(view, builds_users=builds_users)
    if means is None:
        return []
    row_of = {handle: row for row, handle in enumerate(means[0].tolist())}
    bits = {whose: (asked, real) for whose, asked, real in view.known}
    places = np.flatnonzero(known)
    found = []
    for handle in handles.tolist():
        asked, real = bits[handle]
        virtual = np.isin(places, asked[~real])
        possible = places[~virtual]
        coefficients = non_negative(initial[possible], means[1][row_of[handle]])
        open_ = ~np.isin(possible, asked)
        found.append(Solved(handle, possible[open_], coefficients[open_]))
    return found
