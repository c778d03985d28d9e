"""Suites: one table from the kind of a row to the key that protects it.

Nothing else in the protocol asks which suite runs. What a suite does not protect goes
through `rows.Clear`, everything else through the channels of `crypto`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, Literal

from lpgcn.protocol.errors import SuiteError

SuiteName = Literal["sealed", "paper"]
Suite = Mapping["Kind", "Key"]


class Kind(Enum):
    """What a row says."""

    ITEM = auto()
    """y_i, forward and backward, final e_i, W_i."""
    USER_FORWARD = auto()
    """x_u on the way forward."""
    USER_BACKWARD = auto()
    """x_u on the way back."""
    USER_FINAL = auto()
    """e_u, for the loss of the items' owners."""
    LOSS = auto()
    """s_ui and n_ui of each listed item, and all that is said about a negative."""


class Key(Enum):
    """Who can open a row."""

    CLEAR = auto()
    """Everybody who sees it, the server included."""
    GROUP = auto()
    """Every client: a key from S that senders do not share nonces of."""
    SENDER = auto()
    """The sender's convolution-clients: K_u."""
    PAIRWISE = auto()
    """The one owner it is for."""


SUITES: Final[Mapping[SuiteName, Suite]] = {
    "paper": {
        Kind.ITEM: Key.CLEAR,
        Kind.USER_FORWARD: Key.GROUP,
        Kind.USER_BACKWARD: Key.CLEAR,
        Kind.USER_FINAL: Key.CLEAR,
        Kind.LOSS: Key.CLEAR,
    },
    "sealed": {
        Kind.ITEM: Key.GROUP,
        Kind.USER_FORWARD: Key.SENDER,
        Kind.USER_BACKWARD: Key.SENDER,
        Kind.USER_FINAL: Key.SENDER,
        Kind.LOSS: Key.PAIRWISE,
    },
}


def user_key(suite: Suite) -> Key:
    """What K_u, under which a client seals all of its own vectors, is made from."""
    users = {suite[kind] for kind in (Kind.USER_FORWARD, Kind.USER_BACKWARD, Kind.USER_FINAL)}
    keys = users - {Key.CLEAR} or {Key.CLEAR}
    possible = (
        keys < {Key.CLEAR, Key.GROUP, Key.SENDER}
        and len(keys) == 1
        and suite[Kind.ITEM] in (Key.CLEAR, Key.GROUP)
        and suite[Kind.LOSS] in (Key.CLEAR, Key.PAIRWISE)
    )
    if not possible:
        table = ", ".join(f"{kind.name} {key.name}" for kind, key in suite.items())
        raise SuiteError(
            f"no client can keep to a suite of {table}; expected ITEM clear or GROUP, LOSS clear "
            "or PAIRWISE, and all user vectors that are not clear under one key, GROUP or SENDER"
        )
    return keys.pop()
