"""A client in initialisation (Algorithms 2, 3 and 8): each life is made whole by the one before it.

Newcomer → KeyHolder → Lister → Placed → (Answered →) (Expectant →) Party; from Placed on in
`verification`. A method answers a message and names the life that goes on; whatever can fail comes
before. In a later term a party goes the same way again, with its belongings.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from lpgcn.array_types import Int64
from lpgcn.crypto import (
    KEY_BYTES,
    ROOT_BYTES,
    AuthenticationError,
    Directory,
    Label,
    PrivateKey,
    SecretKey,
    position,
    proved_key,
    seal,
    tokens,
)
from lpgcn.model.batches import group_count
from lpgcn.model.sampling import catalogue, places
from lpgcn.protocol.client.party import Party
from lpgcn.protocol.client.profile import Device
from lpgcn.protocol.client.sealing import info
from lpgcn.protocol.client.standing import (
    Belongings,
    Standing,
)
from lpgcn.protocol.client.user import draw_virtual_items
from lpgcn.protocol.client.verification import Answered, Expectant, Placed
from lpgcn.protocol.errors import MalformedMessageError, UnexpectedMessageError
from lpgcn.protocol.suite import SUITES, Key
from lpgcn.protocol.wire import encoding, reading
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire.encoding import Header
from lpgcn.protocol.wire.sizes import (
    MASK_REACH,
    SHARED_BYTES,
)

_SHARED: Final = struct.Struct(">32sQ")


@dataclass(frozen=True)
class Newcomer:
    """Has nothing but its data, or is a party of an earlier term with its belongings."""

    device: Device
    belongings: Belongings | None = None

    owns = False
    run = b""

    def make_keys(self, message: m.Begin, header: Header) -> tuple[m.Message, KeyHolder]:
        """Algorithm 2, lines 1–4."""
        term = reading.one_number(message.term, "term")
        members = reading.one_number(message.members, "members", least=1)
        if term == 0 and self.belongings is not None:
            raise UnexpectedMessageError("a first term for a client that has been in one")
        self.device.check_members(members)
        private = PrivateKey.generate()
        holder = KeyHolder(
            self.device, self.belongings, encoding.run_of(message), term, members, private, b""
        )
        return m.PublicKey(key=private.public_bytes), holder


@dataclass(frozen=True)
class KeyHolder:
    """Has a key pair."""

    device: Device
    belongings: Belongings | None
    run: bytes
    term: int
    members: int
    private: PrivateKey
    root: bytes
    """Of the directory, known to u_c alone so far."""

    owns = False

    def share_key(self, message: m.PublicKeys, header: Header) -> tuple[m.Message, KeyHolder]:
        """Algorithm 2, line 6, as u_c: a fresh S, sealed with the clients' seed to every key."""
        if self.term and self.belongings is None:
            raise UnexpectedMessageError("who has just joined does not know the clients' seed")
        publics = reading.split(message.keys, KEY_BYTES, "keys", count=self.members)
        if self.private.public_bytes not in publics:
            raise AuthenticationError("the public keys do not have this client's own among them")
        seed = self.device.about.seed if self.belongings is None else self.belongings.seed
        content = _SHARED.pack(SecretKey.generate().reveal(), seed)
        sealed = [seal(public, content, info("shared key", self.run, public)) for public in publics]
        holder = KeyHolder(
            self.device, self.belongings, self.run, self.term, self.members, self.private,
            Directory(publics).root,
        )  # fmt: skip
        return m.SealedKeys(sealed=b"".join(sealed)), holder

    def list_items(self, message: m.SealedKey, header: Header) -> tuple[m.Message, Lister]:
        """Algorithm 2, lines 8–14. Tokens go up in the order of their bytes, which tells
        nothing."""
        about = self.device.about
        bound = info("shared key", self.run, self.private.public_bytes)
        content = self.private.open(message.sealed, bound)
        if len(content) != SHARED_BYTES:
            raise AuthenticationError(f"a shared key of {len(content)} bytes, not {SHARED_BYTES}")
        secret, seed = _SHARED.unpack(content)
        if self.belongings is not None and seed != self.belongings.seed:
            raise AuthenticationError("the clients' seed is not that of the terms before")
        real = about.items("train")
        listed = np.concatenate((real, draw_virtual_items(about, real)))
        listed_tokens = tokens(SecretKey(secret).derive(Label.ITEM_TOKENS), listed)
        order = np.lexsort(listed_tokens.T[::-1])
        standing = Standing(
            term=self.term,
            members=self.members,
            run=self.run,
            private=self.private.reveal(),
            shared=secret,
            seed=seed,
            data=about.digest,
            uploaded=reading.pack_numbers(listed[order]),
            root=self.root,
        )
        lister = Lister(self.device, self.belongings, standing)
        return m.Tokens(tokens=listed_tokens[order].tobytes()), lister


@dataclass(frozen=True)
class Lister:
    """Has S, and has listed its items."""

    device: Device
    belongings: Belongings | None
    standing: Standing

    owns = False

    @property
    def run(self) -> bytes:
        return self.standing.run

    def list_catalogue(self, message: m.Ask, header: Header) -> tuple[m.Message, Lister]:
        """As u_c: every item's token, so that an item that nobody lists has an owner too."""
        key = SecretKey(self.standing.shared).derive(Label.ITEM_TOKENS)
        return m.Tokens(tokens=tokens(key, self._catalogue()).tobytes()), self

    def _catalogue(self) -> Int64:
        return catalogue(self.standing.seed, self.device.about.n_items)

    def take_place(self, message: m.Placement, header: Header) -> tuple[m.Message, Placed]:
        """Algorithm 3, line 8: what this client owns, and who else listed that."""
        n_items, standing = self.device.about.n_items, self.standing
        listed = reading.numbers(message.places, "places", below=n_items)
        if not np.array_equal(listed, places(self._catalogue())[standing.numbers("uploaded")]):
            raise MalformedMessageError("the places are not those of the items that were listed")
        owned = reading.rising(message.owned, "owned", below=n_items)
        rows = reading.numbers(message.listed, "listed", below=len(owned))
        neighbours = reading.ragged(message.offsets, rows)
        if not neighbours.lengths.all():
            raise MalformedMessageError("field offsets has a neighbour that listed nothing")
        if bool((np.diff(neighbours.rows * len(owned) + rows) <= 0).any()):
            raise MalformedMessageError("field listed holds items of a neighbour that do not rise")
        placed = msgspec.structs.replace(
            standing,
            root=self._root(message),
            veils=position(message.own) == 0,
            places=message.places,
            peers=self._peers(message, "peers", self.standing.members),
            group_peers=self._group_peers(message),
            owned=message.owned,
            neighbour_offsets=reading.pack_numbers(neighbours.offsets),
            neighbour_rows=message.listed,
            sender_key=self._sender_key().reveal(),
        )
        return m.Reply(), Placed(self.device, self.belongings, placed)

    def _root(self, message: m.Placement) -> bytes:
        """That of a directory which has this client's own key."""
        reading.check_length(message.root, "root", 1, ROOT_BYTES)
        if self.standing.root and self.standing.root != message.root:
            raise AuthenticationError("the directory is not that of the keys that u_c was given")
        own = PrivateKey(self.standing.private).public_bytes
        if proved_key(message.own, message.root, self.standing.members) != own:
            raise AuthenticationError("the directory does not have this client's own key")
        return message.root

    def _group_peers(self, message: m.Placement) -> bytes:
        if self.device.about.config.pooled:
            config, members = self.device.about.config, self.standing.members
            crowd = members // group_count(config, members)
            return self._peers(message, "group_peers", crowd)
        reading.check_length(message.group_peers, "group_peers", 0, 0)
        return b""

    def _peers(self, message: m.Placement, name: str, crowd: int) -> bytes:
        """Of those among whom a number is hidden, at least so many, as many as there are to be."""
        own = PrivateKey(self.standing.private).public_bytes
        standing = msgspec.structs.replace(self.standing, root=message.root)
        publics = standing.proved(getattr(message, name), name)
        expected = min(2 * MASK_REACH, crowd - 1)
        if len(publics) < expected:
            raise MalformedMessageError(
                f"field {name} has {len(publics)} peers to mask this client's numbers, expected "
                f"{expected}"
            )
        if len({own, *publics}) != len(publics) + 1:
            raise MalformedMessageError(f"field {name} holds a key twice, or this client's own")
        return b"".join(publics)

    def _sender_key(self) -> SecretKey:
        """K_u."""
        if SUITES[self.device.about.config.suite].user_key is Key.GROUP:
            public = PrivateKey(self.standing.private).public_bytes
            return SecretKey(self.standing.shared).derive(Label.USER_VECTORS, public)
        return SecretKey.generate()


Life = Newcomer | KeyHolder | Lister | Placed | Answered | Expectant | Party
