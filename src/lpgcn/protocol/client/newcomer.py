"""A client in initialisation (Algorithms 2, 3 and 8): each life is made whole by the one before it.

Newcomer → KeyHolder → Lister → Placed → (Answered →) (Expectant →) Party. A method answers a
message and names the life that goes on; whatever can fail comes before. In a later term a party
goes the same way again, with its belongings.
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
    entry_bytes,
    position,
    proved_key,
    seal,
    tokens,
)
from lpgcn.model.adam import Adam
from lpgcn.model.batches import group_count
from lpgcn.model.sampling import catalogue, places
from lpgcn.protocol.client.estate import bequeath
from lpgcn.protocol.client.party import Party
from lpgcn.protocol.client.profile import Device
from lpgcn.protocol.client.sealing import info
from lpgcn.protocol.client.standing import (
    Belongings,
    Nodes,
    Standing,
    item_tables,
    node_rows,
    node_tables,
    read_rows,
)
from lpgcn.protocol.client.user import Listing, draw_virtual_items
from lpgcn.protocol.errors import MalformedMessageError, UnexpectedMessageError
from lpgcn.protocol.suite import SUITES, Key
from lpgcn.protocol.transcript import Opened
from lpgcn.protocol.wire import encoding, reading
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire.encoding import Header
from lpgcn.protocol.wire.sizes import (
    ANSWER_KEYS,
    MASK_REACH,
    SHARED_BYTES,
    Sizes,
    verification_answer,
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
        """Line 6, as u_c: a fresh S, sealed with the clients' seed to every public key."""
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
        """Lines 8–14. Tokens go up in the order of their bytes, which tells nothing."""
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
        if proved_key(message.own, message.root) != own:
            raise AuthenticationError("the directory does not have this client's own key")
        if position(message.own) >= self.standing.members:
            raise AuthenticationError(
                f"the directory has more keys than the {self.standing.members} members that there "
                "are said to be"
            )
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
        own, members = PrivateKey(self.standing.private).public_bytes, self.standing.members
        entries = reading.split(getattr(message, name), entry_bytes(members), name)
        publics = [proved_key(entry, message.root) for entry in entries]
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


@dataclass(frozen=True)
class Placed:
    """Knows what it owns, and who listed that."""

    device: Device
    belongings: Belongings | None
    standing: Standing

    @property
    def owns(self) -> bool:
        return bool(self.standing.owned)

    @property
    def run(self) -> bytes:
        return self.standing.run

    def answer(self, message: m.Questions, header: Header) -> tuple[m.Message, Answered | Party]:
        """Lines 16–18: which listed items are real, K_u and a fresh pairwise key, sealed to the one
        who asks."""
        standing = self.standing
        listing = Listing.from_standing(self.device.about, standing)
        entries = reading.split(message.askers, entry_bytes(standing.members), "askers")
        askers = [proved_key(entry, standing.root) for entry in entries]
        positions = reading.numbers(message.positions, "positions", below=len(listing.uploaded))
        if not np.array_equal(np.sort(positions), listing.elsewhere):
            raise MalformedMessageError("the questions are not about all items that others own")
        asked = reading.ragged(message.offsets, positions, rows=len(askers))
        own = PrivateKey(standing.private).public_bytes
        if not asked.lengths.all() or len({own, *askers}) <= len(askers):
            raise MalformedMessageError(
                "an asker asks about nothing, asks twice, or is this client itself"
            )
        is_real, pairs = listing.is_real, [SecretKey.generate().reveal() for _ in askers]
        sealed = [
            seal(
                asker,
                standing.sender_key + pair + np.packbits(is_real[asked[number]]).tobytes(),
                _bound(self.run, asker, listing.places[asked[number]]),
            )
            for number, (asker, pair) in enumerate(zip(askers, pairs, strict=True))
        ]
        answered = Answered(
            self.device,
            self.belongings,
            msgspec.structs.replace(
                standing,
                asked_offsets=reading.pack_numbers(asked.offsets),
                asked_positions=message.positions,
                owner_keys=b"".join(pairs),
            ),
        )
        reply = m.Answers(answers=b"".join(sealed))
        return reply, answered if self.owns else answered.complete()


@dataclass(frozen=True)
class Answered:
    """An owner that waits for the answers of its neighbours."""

    device: Device
    belongings: Belongings | None
    standing: Standing

    owns = True

    @property
    def run(self) -> bytes:
        return self.standing.run

    def verify(self, message: m.SealedAnswers, header: Header) -> tuple[m.Message, Life]:
        """Learn which neighbours are real. Lengths follow from what was asked."""
        standing, private = self.standing, PrivateKey(self.standing.private)
        near, owned = standing.neighbours, standing.numbers("owned")
        answers = reading.cut(
            message.answers, verification_answer(near.lengths).tolist(), "answers"
        )
        contents = [
            private.open(sealed, _bound(self.run, private.public_bytes, owned[near[handle]]))
            for handle, sealed in enumerate(answers)
        ]
        bits = [content[ANSWER_KEYS:] for content in contents]
        if self.device.opened is not None:
            self.device.opened.append(Opened("BITS", list(range(len(bits))), bits))
        real = [
            reading.bits(flags, "bits", count)
            for flags, count in zip(bits, near.lengths.tolist(), strict=True)
        ]
        answered = Answered(
            self.device,
            self.belongings,
            msgspec.structs.replace(
                standing,
                neighbour_is_real=np.concatenate((np.empty(0, dtype=np.bool_), *real)).tobytes(),
                neighbour_keys=b"".join(one[:KEY_BYTES] for one in contents),
                pair_keys=b"".join(one[KEY_BYTES:ANSWER_KEYS] for one in contents),
            ),
        )
        expectant = Expectant(answered)
        return m.Reply(), expectant if len(expectant.missing) else answered.complete()

    def complete(self) -> Party:
        """A party that draws its parameters, or has them from the term before."""
        inherited = self.standing.term and self.standing.owned
        return self.with_items(node_tables(self.known_rows()) if inherited else None)

    def with_items(self, items: dict[str, Adam] | None) -> Party:
        device, standing, kept = self.device, self.standing, self.belongings
        if kept is None:
            return Party(device, standing, items=items)
        return Party(
            device, standing, former=kept.former, user=kept.user, items=items, shared=kept.shared
        )

    def owned_items(self) -> Int64:
        order = catalogue(self.standing.seed, self.device.about.n_items)
        return order[self.standing.numbers("owned")]

    def known_rows(self) -> Nodes:
        """The state of its items as far as it owned them before; zeros elsewhere."""
        items, config = self.owned_items(), self.device.about.config
        sizes = Sizes.of(config)
        rows = np.zeros(len(items), dtype=sizes.node(item_tables(config)))
        if self.belongings is not None and len(self.belongings.items):
            former = self.belongings.items
            has, where = np.isin(items, former), np.argsort(former)
            found = where[np.searchsorted(former[where], items[has])]
            rows[has] = node_rows(self.belongings.item_tables, sizes, len(former))[found]
        return rows


@dataclass(frozen=True)
class Expectant:
    """An owner, in a later term, of items that were others' before."""

    answered: Answered

    owns = True

    @property
    def run(self) -> bytes:
        return self.answered.run

    @property
    def missing(self) -> Int64:
        """Rows of the owned items whose state is elsewhere."""
        answered = self.answered
        if not answered.standing.term:
            return np.empty(0, dtype=np.int64)
        kept = answered.belongings
        former = np.empty(0, dtype=np.int64) if kept is None else kept.items
        return np.flatnonzero(~np.isin(answered.owned_items(), former))

    def bequeath(self, message: m.Estates, header: Header) -> tuple[m.Message, Expectant]:
        answered = self.answered
        former = None if answered.belongings is None else answered.belongings.former
        return bequeath(answered.device, answered.standing, former, message), self

    def inherit(self, message: m.Bequests, header: Header) -> tuple[m.Message, Party]:
        """The state of all items that it did not own before."""
        answered, about = self.answered, self.answered.device.about
        names, sizes = item_tables(about.config), Sizes.of(about.config)
        private = PrivateKey(answered.standing.private)
        counts = reading.numbers(message.counts, "counts", below=1 << 31)
        wanted = reading.numbers(message.rows, "rows", below=about.n_items)
        if not np.array_equal(np.sort(wanted), self.missing) or counts.sum() != len(wanted):
            raise MalformedMessageError("the bequests are not the items that this owner lacks")
        each, besides = sizes.package(names)
        packages = reading.cut(message.packages, (each * counts + besides).tolist(), "packages")
        bound = info("bequest", self.run, private.public_bytes)
        opened = b"".join(private.open(package, bound) for package in packages)
        rows = answered.known_rows()
        rows[wanted] = read_rows(opened, names, sizes, len(wanted))
        return m.Reply(), answered.with_items(node_tables(rows))


Life = Newcomer | KeyHolder | Lister | Placed | Answered | Expectant | Party


def _bound(run: bytes, asker: bytes, asked: Int64) -> bytes:
    """What an answer is bound to: the one who asked, and about which items."""
    return info("verification", run, asker, reading.pack_numbers(asked))
