"""Real or virtual, by solving for the bits: whoever reads item vectors and user vectors of a pass.

On the way back a user's push is the mean of what its *real* items pushed, and what its loss added:

    x_u^(l) − x_u^(L) = 1/|I_u| · Σ_{i ∈ L_u} b_ui y_i^(l+1),   b_ui = 1 if i is real, else 0

(the loss adds the same at every layer, as long as layers weigh the same). On the way forward the
same without x_u^(L). That is d equations a layer and step for |L_u| unknowns that are not negative.
Must succeed in suite `paper`, where the server reads both ends, once there are as many equations as
unknowns; finds nothing where either is sealed.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from lpgcn.array_types import Float64, Int64
from lpgcn.privacy.solvers import non_negative
from lpgcn.privacy.views import View
from lpgcn.protocol.phases import Phase
from lpgcn.protocol.suite import SUITES, Kind, OwnerPush
from lpgcn.protocol.wire.encoding import Header
from lpgcn.ragged import Ragged

MOST_EQUATIONS: Final = 12
"""Layers and steps that are used at most."""


def scores(view: View, lists: Ragged, users: Int64) -> Float64 | None:
    """b_ui/|I_u| of every entry of these users, 0 for others; None if there are no equations."""
    if SUITES[view.config.suite].owner_push is not OwnerPush.ROW_PER_ITEM:
        return None
    items = _tables(view, Kind.PUSH, view.n_items)
    found, equations = np.zeros(len(lists.values)), []
    for kind in (Kind.USER_FORWARD, Kind.USER_BACKWARD):
        vectors = _tables(view, kind, len(lists))
        equations += list(_matched(items, vectors, view.config.layers))
    if not equations:
        return None
    for user in users.tolist():
        listed = lists[user]
        known = [(y[listed], x[user]) for y, x in equations if np.isfinite(x[user]).all()]
        if known:
            dictionary = np.concatenate([y for y, _ in known[:MOST_EQUATIONS]], axis=1)
            target = np.concatenate([x for _, x in known[:MOST_EQUATIONS]])
            found[lists.offsets[user] : lists.offsets[user + 1]] = non_negative(dictionary, target)
    return found


def _tables(view: View, kind: Kind, count: int) -> dict[Header, Float64]:
    """For each phase a row for each user or item, NaN where it was not read."""
    tables: dict[Header, Float64] = {}
    for sent, about, vectors in view.vectors(kind):
        table = tables.setdefault(sent, np.full((count, vectors.shape[1]), np.nan))
        table[about] = vectors
    return tables


def _matched(
    items: dict[Header, Float64], users: dict[Header, Float64], layers: int
) -> list[tuple[Float64, Float64]]:
    """What items pushed, and what users pushed in the exchange after it. Items that had nothing to
    push are zero."""
    found = []
    for sent, table in users.items():
        before = _before(sent, layers)
        if before is None or before not in items:
            continue
        target = table
        if sent.phase >= Phase.GRADIENT:
            first = users.get(Header(sent.pass_number, Phase.GRADIENT))
            target = table - (0 if first is None else np.nan_to_num(first))
        found.append((np.nan_to_num(items[before]), target))
    return found


def _before(sent: Header, layers: int) -> Header | None:
    """The exchange before, in the same direction."""
    if sent.phase == Phase.FORWARD and sent.layer > 0:
        return Header(sent.pass_number, Phase.FORWARD, sent.layer - 1)
    if sent.phase == Phase.BACKWARD:
        if sent.layer > 1:
            return Header(sent.pass_number, Phase.BACKWARD, sent.layer - 1)
        return Header(sent.pass_number, Phase.GRADIENT)
    return None
