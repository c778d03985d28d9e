"""A client in initialisation (Algorithms 2, 3 and 8): each life is made whole by the one before it.

Newcomer → KeyHolder → Lister → Placed → (Answered →) Party. A method answers a message and names
the life that goes on; whatever can fail comes before.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from lpgcn.crypto import (
    KEY_BYTES,
    AuthenticationError,
    Channels,
    Label,
    Masks,
    PrivateKey,
    SecretKey,
    seal,
    tokens,
)
from lpgcn.model.sampling import catalogue, places
from lpgcn.protocol.client.owner import Owner
from lpgcn.protocol.client.party import Party
from lpgcn.protocol.client.profile import Profile
from lpgcn.protocol.client.sealing import Keys, info
from lpgcn.protocol.client.user import Listing, User, draw_virtual_items
from lpgcn.protocol.errors import MalformedMessageError
from lpgcn.protocol.suite import SUITES, Key
from lpgcn.protocol.transcript import Opened
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire import reading
from lpgcn.protocol.wire.messages import Header
from lpgcn.protocol.wire.sizes import ANSWER_KEYS, SHARED_BYTES, verification_answer
from lpgcn.ragged import Int64, Ragged

UInt8 = npt.NDArray[np.uint8]
_SHARED: Final = struct.Struct(">32sQ")


@dataclass(frozen=True)
class Newcomer:
    """Has nothing but its data."""

    about: Profile
    opened: list[Opened] | None

    owns = False
    run = b""

    def make_keys(self, message: m.Ask, header: Header) -> tuple[m.Message, KeyHolder]:
        """Algorithm 2, lines 1–4."""
        private = PrivateKey.generate()
        holder = KeyHolder(self.about, self.opened, m.run_of(message), private)
        return m.PublicKey(key=private.public_bytes), holder


@dataclass(frozen=True)
class KeyHolder:
    """Has a key pair."""

    about: Profile
    opened: list[Opened] | None
    run: bytes
    private: PrivateKey

    owns = False

    def share_key(self, message: m.PublicKeys, header: Header) -> tuple[m.Message, KeyHolder]:
        """Line 6, as u_c: a fresh S, sealed with the clients' seed to every public key."""
        publics = reading.split(message.keys, KEY_BYTES, "keys", count=self.about.n_users)
        content = _SHARED.pack(SecretKey.generate().reveal(), self.about.seed)
        sealed = [seal(public, content, info("shared key", self.run, public)) for public in publics]
        return m.SealedKeys(sealed=b"".join(sealed)), self

    def list_items(self, message: m.SealedKey, header: Header) -> tuple[m.Message, Lister]:
        """Lines 8–14. Tokens go up in the order of their bytes, which tells nothing."""
        about, real = self.about, self.about.items("train")
        bound = info("shared key", self.run, self.private.public_bytes)
        content = self.private.open(message.sealed, bound)
        if len(content) != SHARED_BYTES:
            raise AuthenticationError(f"a shared key of {len(content)} bytes, not {SHARED_BYTES}")
        secret, seed = _SHARED.unpack(content)
        shared = SecretKey(secret)
        listed = np.concatenate((real, draw_virtual_items(about, real)))
        listed_tokens = tokens(shared.derive(Label.ITEM_TOKENS), listed)
        order = np.lexsort(listed_tokens.T[::-1])
        lister = Lister(about, self.opened, self.run, self.private, shared, seed, listed[order])
        return m.Tokens(tokens=listed_tokens[order].tobytes()), lister


@dataclass(frozen=True)
class Lister:
    """Has S, and has listed its items."""

    about: Profile
    opened: list[Opened] | None
    run: bytes
    private: PrivateKey
    shared: SecretKey
    seed: int
    """The clients' own, which came with S."""
    uploaded: Int64

    owns = False

    def list_catalogue(self, message: m.Ask, header: Header) -> tuple[m.Message, Lister]:
        """As u_c: every item's token, so that an item that nobody lists has an owner too."""
        key = self.shared.derive(Label.ITEM_TOKENS)
        return m.Tokens(tokens=tokens(key, self._catalogue()).tobytes()), self

    def _catalogue(self) -> Int64:
        return catalogue(self.seed, self.about.n_items)

    def take_place(self, message: m.Placement, header: Header) -> tuple[m.Message, Placed]:
        """Algorithm 3, line 8: what this client owns, and who else listed that."""
        about, items = self.about, self._catalogue()
        listed = reading.numbers(message.places, "places", below=about.n_items)
        if not np.array_equal(listed, places(items)[self.uploaded]):
            raise MalformedMessageError("the places are not those of the items that were listed")
        owned = reading.rising(message.owned, "owned", below=about.n_items)
        rows = reading.numbers(message.listed, "listed", below=len(owned))
        neighbours = reading.ragged(message.offsets, rows)
        if not neighbours.lengths.all():
            raise MalformedMessageError("field offsets has a neighbour that listed nothing")
        if bool((np.diff(neighbours.rows * len(owned) + rows) <= 0).any()):
            raise MalformedMessageError("field listed holds items of a neighbour that do not rise")
        masks = self._masks(reading.split(message.peers, KEY_BYTES, "peers"))
        listing = Listing.of(about.items("train"), self.uploaded, listed, owned)
        placed = Placed(
            about, self.seed, self._keys(masks), self._sender_key(), listing,
            items[owned], owned, neighbours,
        )  # fmt: skip
        return m.Reply(), placed

    def _masks(self, publics: list[bytes]) -> Masks | None:
        """Masks with these peers; of two, the one with the smaller public key adds."""
        own = self.private.public_bytes
        if not publics and self.about.n_users > 1:
            raise MalformedMessageError("no peers: this client's numbers would not be masked")
        if len({own, *publics}) != len(publics) + 1:
            raise MalformedMessageError("field peers holds a key twice, or this client's own")
        peers: list[tuple[SecretKey, Literal[1, -1]]] = [
            (self.private.agree(public, info("mask", self.run)), 1 if own < public else -1)
            for public in publics
        ]
        return Masks(peers) if peers else None

    def _sender_key(self) -> SecretKey:
        """K_u."""
        if SUITES[self.about.config.suite].user_key is Key.GROUP:
            return self.shared.derive(Label.USER_VECTORS, self.private.public_bytes)
        return SecretKey.generate()

    def _keys(self, masks: Masks | None) -> Keys:
        """All but those that verification brings."""
        return Keys(
            run=self.run,
            suite=SUITES[self.about.config.suite],
            private=self.private,
            own=Channels(),
            items=Channels([self.shared.derive(Label.ITEM_VECTORS)]),
            owners=Channels(),
            neighbours=Channels(),
            pairs=Channels(),
            masks=masks,
            opened=self.opened,
        )


@dataclass(frozen=True)
class Placed:
    """Knows what it owns, and who listed that."""

    about: Profile
    seed: int
    keys: Keys
    sender_key: SecretKey
    listing: Listing
    items: Int64
    places: Int64
    neighbours: Ragged

    @property
    def owns(self) -> bool:
        return len(self.items) > 0

    @property
    def run(self) -> bytes:
        return self.keys.run

    def answer(self, message: m.Questions, header: Header) -> tuple[m.Message, Answered | Party]:
        """Lines 16–18: which listed items are real, K_u and a fresh pairwise key, sealed to the one
        who asks."""
        listing = self.listing
        askers = reading.split(message.askers, KEY_BYTES, "askers")
        positions = reading.numbers(message.positions, "positions", below=len(listing.uploaded))
        if not np.array_equal(np.sort(positions), listing.elsewhere):
            raise MalformedMessageError("the questions are not about all items that others own")
        asked = reading.ragged(message.offsets, positions, rows=len(askers))
        if not asked.lengths.all() or len({self.keys.private.public_bytes, *askers}) <= len(askers):
            raise MalformedMessageError(
                "an asker asks about nothing, asks twice, or is this client itself"
            )
        is_real, pairs = listing.is_real, [SecretKey.generate() for _ in askers]
        sealed = [
            seal(
                asker,
                self.sender_key.reveal() + pair.reveal() + np.packbits(is_real[part]).tobytes(),
                _bound(self.run, asker, listing.places[part]),
            )
            for asker, pair, part in zip(
                askers, pairs, map(asked.__getitem__, range(len(askers))), strict=True
            )
        ]
        keys = replace(self.keys, own=Channels([self.sender_key]), owners=Channels(pairs))
        user = User(self.about, listing, asked)
        reply = m.Answers(answers=b"".join(sealed))
        if self.owns:
            return reply, Answered(self, keys, user)
        return reply, Party(self.about, keys, user, None, self.seed)


@dataclass(frozen=True)
class Answered:
    """An owner that waits for the answers of its neighbours."""

    placed: Placed
    keys: Keys
    user: User

    owns = True

    @property
    def run(self) -> bytes:
        return self.keys.run

    def verify(self, message: m.SealedAnswers, header: Header) -> tuple[m.Message, Party]:
        """Learn which neighbours are real. Lengths follow from what was asked."""
        placed, private = self.placed, self.keys.private
        near = placed.neighbours
        answers = reading.cut(
            message.answers, verification_answer(near.lengths).tolist(), "answers"
        )
        contents = [
            private.open(
                sealed, _bound(self.run, private.public_bytes, placed.places[near[handle]])
            )
            for handle, sealed in enumerate(answers)
        ]
        bits = [content[ANSWER_KEYS:] for content in contents]
        if self.keys.opened is not None:
            self.keys.opened.append(Opened("BITS", list(range(len(bits))), bits))
        real = [
            reading.bits(flags, "bits", count)
            for flags, count in zip(bits, near.lengths.tolist(), strict=True)
        ]
        keys = replace(
            self.keys,
            neighbours=Channels(SecretKey(one[:KEY_BYTES]) for one in contents),
            pairs=Channels(SecretKey(one[KEY_BYTES:ANSWER_KEYS]) for one in contents),
        )
        owner = Owner(
            placed.about, placed.seed, placed.items, placed.places, near,
            np.concatenate((np.empty(0, dtype=np.bool_), *real)), placed.listing.really_owned,
        )  # fmt: skip
        return m.Reply(), Party(placed.about, keys, self.user, owner, placed.seed)


def _bound(run: bytes, asker: bytes, asked: Int64) -> bytes:
    """What an answer is bound to: the one who asked, and about which items."""
    return info("verification", run, asker, reading.pack_numbers(asked))
