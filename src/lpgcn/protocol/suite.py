"""Suites: one table from the kind of a row to the key that protects it.

Nothing else in the protocol asks which suite runs. What a suite does not protect goes
through `rows.Clear`, everything else through the channels of `crypto`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, Literal

SuiteName = Literal["sealed", "paper"]


class Kind(Enum):
    """What a row says."""

    ITEM = auto()
    """y_i, forward and backward, final e_i, W_i."""
    USER_FORWARD = auto()
    """x_u on the way forward."""
    USER_BACKWARD = auto()
    """x_u on the way back."""
    LOSS = auto()
    """The loss gradients: e_u, and s_ui and n_ui of each item."""


class Key(Enum):
    """Who can open a row."""

    CLEAR = auto()
    """Everybody who sees it, the server included."""
    GROUP = auto()
    """Every client: a key from S that senders do not share nonces of."""
    SENDER = auto()
    """The sender's convolution-clients: K_u."""
    PAIRWISE = auto()
    """The one owner it is for. The user's vector, which goes to several owners, is under K_u."""


SUITES: Final[Mapping[SuiteName, Mapping[Kind, Key]]] = {
    "paper": {
        Kind.ITEM: Key.CLEAR,
        Kind.USER_FORWARD: Key.GROUP,
        Kind.USER_BACKWARD: Key.CLEAR,
        Kind.LOSS: Key.CLEAR,
    },
    "sealed": {
        Kind.ITEM: Key.GROUP,
        Kind.USER_FORWARD: Key.SENDER,
        Kind.USER_BACKWARD: Key.SENDER,
        Kind.LOSS: Key.PAIRWISE,
    },
}
