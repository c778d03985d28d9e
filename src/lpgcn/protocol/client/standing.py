"""What a member has of its own between two messages: its standing in a term, and its belongings.

The standing is what initialisation gave it, keys first of all: a party is built from it, on this
day or after a restart. The belongings are what training made: parameters and their Adam states.
They go into a checkpoint, which stays with the client, and from one term to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Int64
from lpgcn.config import Config
from lpgcn.crypto import KEY_BYTES, PrivateKey, entry_bytes, proved_key
from lpgcn.model.adam import STATE, Adam
from lpgcn.model.backbones import backbone_of
from lpgcn.model.kernels.plain import Plain
from lpgcn.protocol.client.shared import SharedWeights
from lpgcn.protocol.errors import MalformedMessageError
from lpgcn.protocol.wire import reading
from lpgcn.protocol.wire.sizes import Sizes
from lpgcn.ragged import Ragged

Nodes = npt.NDArray[np.void]
"""The state of some nodes, a row each (see `Sizes.node`)."""
FORMAT: Final = 4


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers are packed as they travel."""

    term: int
    members: int
    run: bytes
    private: bytes
    shared: bytes
    """S."""
    seed: int
    """The clients' own, which came with S."""
    data: bytes
    """The digest of the user's own data, as they were then."""
    uploaded: bytes
    """I_u ∪ I'_u in the order of their tokens."""
    root: bytes = b""
    """Of the directory of public keys."""
    veils: bool = False
    """Whether it adds the veil for all: the first of the directory does."""
    places: bytes = b""
    """Of what was uploaded."""
    peers: bytes = b""
    """Public keys of those that share masks."""
    group_peers: bytes = b""
    """Of those that do within its group."""
    owned: bytes = b""
    """Places of the items that this client owns, rising."""
    neighbour_offsets: bytes = b""
    neighbour_rows: bytes = b""
    """For each neighbour the owned rows that it listed."""
    neighbour_is_real: bytes = b""
    """A byte for each of them."""
    asked_offsets: bytes = b""
    asked_positions: bytes = b""
    """For each of its owners the positions of the uploaded items that it asked about."""
    sender_key: bytes = b""
    """K_u."""
    owner_keys: bytes = b""
    """Shared with its owners, then with those of its negatives that it has met."""
    neighbour_keys: bytes = b""
    """K_u of its neighbours."""
    pair_keys: bytes = b""
    """Shared with its neighbours, then with others whose negatives it owns."""

    def __repr__(self) -> str:
        return f"Standing(term={self.term}, members={self.members}, keys hidden)"

    @property
    def neighbours(self) -> Ragged:
        return Ragged(_read(self.neighbour_offsets), _read(self.neighbour_rows))

    @property
    def asked(self) -> Ragged:
        return Ragged(_read(self.asked_offsets), _read(self.asked_positions))

    def proved(self, field: bytes, name: str, count: int | None = None) -> list[bytes]:
        """The public keys of entries of the directory, all of them or so many."""
        entries = reading.split(field, entry_bytes(self.members), name, count=count)
        return [proved_key(entry, self.root, self.members) for entry in entries]

    def numbers(self, name: str) -> Int64:
        return _read(getattr(self, name))

    def keys(self, name: str) -> list[bytes]:
        return reading.split(getattr(self, name), KEY_BYTES, name)


def _read(field: bytes) -> Int64:
    return reading.numbers(field, "of a standing", below=1 << 32)


@dataclass(frozen=True)
class FormerIdentity:
    """Who a client was in the term before: copies of items were sealed to that key."""

    run: bytes
    private: PrivateKey


@dataclass(frozen=True)
class Belongings:
    """Of a member of an earlier term; `items` are the ids of those that it owned."""

    former: FormerIdentity
    seed: int
    user: dict[str, Adam]
    items: Int64
    item_tables: dict[str, Adam]
    shared: SharedWeights

    def __repr__(self) -> str:
        return "Belongings(hidden)"


class ClientSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A client's checkpoint, as it lies in its own folder."""

    format: int
    standing: Standing
    user: bytes
    items: bytes
    shared: list[bytes] = []
    """Of the dense weights."""
    loss_total: str
    """Of unlimited size, so in decimal."""

    def __repr__(self) -> str:
        return f"ClientSnapshot({self.standing}, all else hidden)"


def user_tables(config: Config) -> list[str]:
    """The names of the tables in which a user has a row."""
    return sorted(backbone_of(config).held("users"))


def item_tables(config: Config) -> list[str]:
    return sorted(backbone_of(config).held("items"))


def node_rows(tables: Mapping[str, Adam], sizes: Sizes, count: int) -> Nodes:
    """The state of nodes, one row each, to be sent or written."""
    rows = np.zeros(count, dtype=sizes.node(list(tables)))
    for name, adam in tables.items():
        for key, value in adam.state().items():
            rows[name][key] = value
    return rows


def node_tables(rows: Nodes) -> dict[str, Adam]:
    """And back."""
    names = rows.dtype.names or ()
    return {name: Adam.restored({key: rows[name][key] for key in STATE}, Plain()) for name in names}


def read_rows(content: bytes, tables: list[str], sizes: Sizes, count: int) -> Nodes:
    kind = sizes.node(tables)
    if len(content) != count * kind.itemsize:
        raise MalformedMessageError(
            f"{len(content)} bytes of node states, expected {count} of {kind.itemsize}"
        )
    return np.frombuffer(content, dtype=kind) if kind.itemsize else np.zeros(count, dtype=kind)
