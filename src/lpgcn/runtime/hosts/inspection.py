"""What an experiment asks of a client besides the protocol: to look into it, behind `Inspector`.

A deployment has no such door: there the state of a client stays on its device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from lpgcn.model.adam import states
from lpgcn.protocol.client.client import Client
from lpgcn.runtime.arrays import packed

Action = Callable[[Client, bytes], bytes]


def handle(client: Client, request: bytes) -> bytes:
    """The protocol."""
    return client.handle(request)


def export(client: Client, request: bytes) -> bytes:
    """Its parameters and their Adam state."""
    return packed(states(client.party.tables()) | {"rows": client.party.owned_items()})


def vectors(client: Client, request: bytes) -> bytes:
    """Its final vectors, after a forward pass."""
    return packed({**client.party.finals(), "rows": client.party.owned_items()})


def recommend(client: Client, request: bytes) -> bytes:
    """The best k items of its user, by the vectors of the last prediction."""
    return msgspec.msgpack.encode(client.party.recommend(msgspec.msgpack.decode(request, type=int)))


ACTIONS: Final[Mapping[str, Action]] = {
    action.__name__: action for action in (handle, export, vectors, recommend)
}
