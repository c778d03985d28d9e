"""The end of initialisation (Algorithm 2, lines 16–18): owners learn which neighbours are real, and
in a later term the state of items that were others' before.

Placed → (Answered →) (Expectant →) Party, as in `newcomer`.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from lpgcn.array_types import Int64
from lpgcn.crypto import (
    KEY_BYTES,
    AuthenticationError,
    PrivateKey,
    SecretKey,
    seal,
)
from lpgcn.model.adam import Adam
from lpgcn.model.sampling import catalogue
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
from lpgcn.protocol.client.user import Listing
from lpgcn.protocol.errors import MalformedMessageError
from lpgcn.protocol.transcript import Opened
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire import reading
from lpgcn.protocol.wire.encoding import Header
from lpgcn.protocol.wire.sizes import (
    ANSWER_KEYS,
    Sizes,
    verification_answer,
)


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
        """Algorithm 2, line 17: which listed items are real, K_u and a fresh pairwise key, sealed
        to the one who asks."""
        standing = self.standing
        listing = Listing.from_standing(self.device.about, standing)
        askers = standing.proved(message.askers, "askers")
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

    def verify(
        self, message: m.SealedAnswers, header: Header
    ) -> tuple[m.Message, Expectant | Party]:
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
        sender_keys = [content[:KEY_BYTES] for content in contents]
        pair_keys = [content[KEY_BYTES:ANSWER_KEYS] for content in contents]
        if len({*sender_keys, *pair_keys}) != 2 * len(contents):
            raise AuthenticationError("one answer came twice: two neighbours have the same key")
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
                neighbour_keys=b"".join(sender_keys),
                pair_keys=b"".join(pair_keys),
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


def _bound(run: bytes, asker: bytes, asked: Int64) -> bytes:
    """What an answer is bound to: the one who asked, and about which items."""
    return info("verification", run, asker, reading.pack_numbers(asked))
