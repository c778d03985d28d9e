"""Backbones: which tables a model has, and whether its users are built from item vectors.

Everything else about LightGCN (He et al., 2020; Eqs. 1–4) and LightGCN+ (Eq. 6) is the same
propagation, in `propagation.py`. Nothing else in the house asks for a backbone by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from lpgcn.config import ConfigError
from lpgcn.random import Purpose

NodeKind = Literal["users", "items"]


@dataclass(frozen=True)
class Table:
    """Parameters with one row for every node of a kind, held by whoever owns the node."""

    kind: NodeKind
    purpose: Purpose


@dataclass(frozen=True)
class Backbone:
    """`tables` by name. `items` are e_i^(0); `users`, where there are, are e_u^(0)."""

    tables: Mapping[str, Table]

    @property
    def builds_users(self) -> bool:
        """e_u^(0) = |I_u|^-½ Σ_{i ∈ I_u} W_i (Eq. 6): a half exchange at each end of a step."""
        return BUILDING in self.tables

    def held(self, kind: NodeKind) -> dict[str, Table]:
        """The tables of the nodes of one kind."""
        return {name: table for name, table in self.tables.items() if table.kind == kind}


BUILDING: Final = "item_users"
"""W, the item vectors that users are built from."""
_ITEMS: Final = Table("items", Purpose.ITEM_EMBEDDING)

BACKBONES: Final[Mapping[str, Backbone]] = {
    "lightgcn": Backbone({"items": _ITEMS, "users": Table("users", Purpose.USER_EMBEDDING)}),
    "lightgcn+": Backbone({"items": _ITEMS, BUILDING: Table("items", Purpose.ITEM_USER_EMBEDDING)}),
}


def backbone_of(model: str) -> Backbone:
    """By its name in a configuration."""
    if model not in BACKBONES:
        raise ConfigError(
            f"model is {model!r}, which is no backbone; expected {' or '.join(BACKBONES)}: other "
            "models are trained as `lpgcn train --model` runs them, and in no federation of ours"
        )
    return BACKBONES[model]
