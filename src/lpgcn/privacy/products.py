"""Sums over the graph of who lists what, over too many pairs of items for NumPy."""

from __future__ import annotations

import numpy as np

from lpgcn.array_types import Float64
from lpgcn.privacy.compiled import add_rows, walk
from lpgcn.ragged import Ragged


def product(lists: Ragged, table: Float64, weight: Float64) -> Float64:
    """A·X: for each row the sum of the weighted rows of a table that it lists."""
    out = np.zeros((len(lists), table.shape[1]))
    add_rows(lists.offsets, lists.values, table, weight, out)
    return out


def shared_weight(lists: Ragged, by_item: Ragged, weight: Float64, at: Ragged) -> Float64:
    """For each (u, t) of `at` the sum over other users v who list t, and over other items s that
    both u and v list, of weight[s]: Σ_{s ∈ L_u, s ≠ t} weight[s]·|U_s ∩ U_t \\ {u}|."""
    out = np.zeros(len(at.values))
    walk(
        lists.offsets, lists.values, by_item.offsets, by_item.values, weight, at.offsets,
        at.values, out,
    )  # fmt: skip
    return out
