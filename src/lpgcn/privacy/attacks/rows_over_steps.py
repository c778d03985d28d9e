"""Who has items that a client lists but does not own: an owner, by least squares over the steps.

As a user it is sent, in every layer and step, what its own owners push; as an owner it has the
vectors of its neighbours one layer before:

    suite `paper`    y_i^(l+1) = 1/|U_i| · Σ_{u ∈ U_i} x_u^(l)              each item i it lists
    suite `sealed`   p^(l+1) = Σ_{i ∈ O ∩ I} 1/|U_i| · Σ_{u ∈ U_i} x_u^(l)  each of its owners O

Regressed on the x_u of its neighbours, the coefficient of u says whether u has the item, or how
many of the items that the adversary itself really has at that owner, weighed by 1/|U_i|. Must
succeed in suite `paper` with as many equations (d·(L−1) a step) as neighbours; in `sealed` items of
one owner are one sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from lpgcn.array_types import Float64, Int64
from lpgcn.privacy.solvers import least_squares
from lpgcn.privacy.views import View
from lpgcn.protocol.phases import Phase
from lpgcn.protocol.suite import Kind
from lpgcn.protocol.wire.encoding import Header

_RIDGE: Final = 1e-6


@dataclass(frozen=True, eq=False)
class Regressed:
    """A score for each neighbour (column) and each row that can arrive (an owner, or an item)."""

    handles: Int64
    senders: Int64
    scores: Float64
    equations: int


def regressed(view: View) -> Regressed | None:
    """On the forward rows of all passes that the view has."""
    users = {sent: (of, rows) for sent, of, rows in view.vectors(Kind.USER_FORWARD)}
    pushes = {
        sent: (of, rows)
        for sent, of, rows in view.vectors(Kind.PUSH)
        if sent.phase == Phase.FORWARD
    }
    both = [
        (users[before], pushes[sent])
        for sent in sorted(pushes)
        if (before := Header(sent.pass_number, Phase.FORWARD, sent.layer - 1)) in users
        and sent.layer > 0
    ]
    if not both:
        return None
    handles = _common([rows[0] for rows, _ in both])
    senders = _common([rows[0] for _, rows in both])
    known = np.concatenate([_rows(rows, handles) for rows, _ in both], axis=1)
    arrived = np.concatenate([_rows(rows, senders) for _, rows in both], axis=1)
    coefficients = least_squares(known, arrived, _RIDGE)
    return Regressed(handles, senders, coefficients, known.shape[1])


def _common(ids: list[Int64]) -> Int64:
    """What is in all of them; a pass with a batch sends the last layer to some only."""
    found = ids[0]
    for one in ids[1:]:
        found = np.intersect1d(found, one)
    return found


def _rows(rows: tuple[Int64, Float64], wanted: Int64) -> Float64:
    about, vectors = rows
    chosen: Float64 = vectors[np.searchsorted(about, wanted)]
    return chosen
