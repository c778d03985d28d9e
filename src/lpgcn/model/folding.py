"""Fold-in: the vector of a user who was not there in training, from its items alone."""

from __future__ import annotations

import numpy as np

from lpgcn.array_types import Float64, Int64
from lpgcn.model.kernels import Floats
from lpgcn.model.propagation import Forward


def folding(items: Forward, building: Floats | None) -> Floats:
    """F, one row for each item, so that a user with the items I has the vector |I|^-½ Σ_{i∈I} F_i.

    Items are as they were trained: who comes later changes nothing about them. Then with
    e_u^(l) = |I|^-½ Σ_i |U_i|^-½ e_i^(l-1) (Eq. 1) and e_u = Σ_l α_l e_u^(l) (Eq. 3),

        F_i = α_0 W_i + Σ_{l=1…L} α_l |U_i|^-½ e_i^(l-1)

    where users are built, e_u^(0) = |I|^-½ Σ_i W_i (Eq. 6): a user who was there in training has
    its own vector again, but for rounding. Where e_u^(0) is a parameter that a new user does not
    have, its term is left out. An item that nobody exchanged in training, for it had no user or
    fewer than `min_degree`, says nothing: its F is zero. `items` is a forward pass before its last
    exchange; what it pushes is |U_i|^-½ e_i^(l).
    """
    nodes, unit = items.nodes, items.grid.unit
    total: Float64 = np.zeros((len(nodes), nodes.dim))
    if building is not None:
        total += nodes.linear.layer_weight(0) * building
    for layer, push in enumerate(items.pushes, 1):
        total += nodes.linear.layer_weight(layer) * unit * push
    exchanged = nodes.segments.lengths > 0
    return np.where(exchanged[:, None], total, 0).astype(nodes.dtype)


def fold_in(rows: Floats, items: Int64) -> Floats:
    """|I|^-½ Σ_{i∈I} F_i; `rows` is F."""
    total: Float64 = rows[items].astype(np.float64).sum(axis=0) / np.sqrt(max(1, len(items)))
    return total.astype(rows.dtype)
