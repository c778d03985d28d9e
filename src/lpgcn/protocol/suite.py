"""Suites: one table from the kind of a row to the key that protects it, and to what owners push.

Nothing else in the protocol asks which suite runs. What a suite does not protect goes through
`client.sealing.Clear`, everything else through the channels of `crypto`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from typing import Final

from lpgcn.config import SuiteName
from lpgcn.protocol.errors import SuiteError


class Kind(IntEnum):
    """What a row says. Values are part of nonces: each kind goes in one direction only, so that the
    two ends of a pairwise key never share a nonce."""

    USER_FORWARD = 1
    """x_u on the way forward."""
    USER_BACKWARD = 2
    """x_u on the way back."""
    USER_FINAL = 3
    """e_u, for the loss of the items' owners."""
    PUSH = 4
    """What an owner pushes, forward and backward, W_i included."""
    ITEM_FINAL = 5
    """e_i, as a negative or for a prediction."""
    WISH = 6
    """Client to owner: which positives it drew."""
    GRANT = 7
    """Owner to client: their final vectors."""
    SCALARS = 8
    """Client to owner: s_ui and n_ui of each of them."""
    NEGATIVE = 9
    """Client to owner: e_u, s and n of a negative."""
    NUMBERS = 10
    """Masked numbers, which no suite leaves out."""
    ESTATE = 11
    """Owner to heirs: the state of its items, under a fresh key in every suite."""
    POOL = 12
    """Where e_i points, as a negative of a whole group."""
    ANSWERS = 13
    """Masked numbers about the negatives of a pool, which no suite leaves out."""
    COPY = 14
    """The dense weights for those who join, under a key from S in every suite."""


class Key(Enum):
    """Who can open a row."""

    CLEAR = auto()
    """Everybody who sees it, the server included."""
    GROUP = auto()
    """Every client: a key from S that senders do not share nonces of."""
    SENDER = auto()
    """The sender's convolution-clients: K_u."""
    PAIRWISE = auto()
    """The other end of the pair."""


class OwnerPush(Enum):
    """What an owner pushes in an exchange."""

    SUM_PER_NEIGHBOUR = auto()
    """To each neighbour u one row, Σ_{i ∈ I_u ∩ O} y_i."""
    ROW_PER_ITEM = auto()
    """Each item's y_i to everybody who lists it: the paper's embedding synchronisation."""


@dataclass(frozen=True)
class Suite:
    """One column of the table."""

    owner_push: OwnerPush
    keys: Mapping[Kind, Key]

    @property
    def user_key(self) -> Key:
        """What K_u, under which a client seals all of its own vectors, is made from."""
        users = {
            self.keys[kind] for kind in (Kind.USER_FORWARD, Kind.USER_BACKWARD, Kind.USER_FINAL)
        }
        keys = users - {Key.CLEAR} or {Key.CLEAR}
        sums = self.owner_push is OwnerPush.SUM_PER_NEIGHBOUR
        possible = (
            keys < {Key.CLEAR, Key.GROUP, Key.SENDER}
            and len(keys) == 1
            and self.keys[Kind.PUSH] in (Key.CLEAR, Key.PAIRWISE if sums else Key.CLEAR)
            and all(self.keys[kind] in (Key.CLEAR, Key.GROUP) for kind in TO_MANY)
            and all(self.keys[kind] in (Key.CLEAR, Key.PAIRWISE) for kind in _BETWEEN_PAIRS)
        )
        if not possible:
            table = ", ".join(f"{kind.name} {key.name}" for kind, key in self.keys.items())
            raise SuiteError(
                f"no client can keep to a suite of {table}; expected PUSH clear or, for sums, "
                "PAIRWISE, ITEM_FINAL and POOL clear or GROUP, all between a client and an owner "
                "clear or PAIRWISE, and all user vectors that are not clear under one key, GROUP "
                "or SENDER"
            )
        return keys.pop()

    def protects(self, kind: Kind) -> bool:
        return self.keys[kind] is not Key.CLEAR


TO_MANY: Final = (Kind.ITEM_FINAL, Kind.POOL)
"""Rows about one item for everybody who needs them, under the one key that all have."""
_BETWEEN_PAIRS: Final = (Kind.WISH, Kind.GRANT, Kind.SCALARS, Kind.NEGATIVE)

SUITES: Final[Mapping[SuiteName, Suite]] = {
    "paper": Suite(
        OwnerPush.ROW_PER_ITEM,
        {
            Kind.USER_FORWARD: Key.GROUP,
            Kind.USER_BACKWARD: Key.CLEAR,
            Kind.USER_FINAL: Key.CLEAR,
            Kind.PUSH: Key.CLEAR,
            Kind.ITEM_FINAL: Key.CLEAR,
            Kind.POOL: Key.CLEAR,
            Kind.WISH: Key.CLEAR,
            Kind.GRANT: Key.CLEAR,
            Kind.SCALARS: Key.CLEAR,
            Kind.NEGATIVE: Key.CLEAR,
        },
    ),
    "sealed": Suite(
        OwnerPush.SUM_PER_NEIGHBOUR,
        {
            Kind.USER_FORWARD: Key.SENDER,
            Kind.USER_BACKWARD: Key.SENDER,
            Kind.USER_FINAL: Key.SENDER,
            Kind.PUSH: Key.PAIRWISE,
            Kind.ITEM_FINAL: Key.GROUP,
            Kind.POOL: Key.GROUP,
            Kind.WISH: Key.PAIRWISE,
            Kind.GRANT: Key.PAIRWISE,
            Kind.SCALARS: Key.PAIRWISE,
            Kind.NEGATIVE: Key.PAIRWISE,
        },
    ),
}
