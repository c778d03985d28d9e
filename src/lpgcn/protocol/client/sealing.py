"""The keys of one client, and what they seal and open: nothing else in the protocol has one.

Rows are opened here, and all of a message's before anything changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lpgcn.array_types import UInt64
from lpgcn.crypto import Channels, Context, Label, Masks, PrivateKey, SecretKey, seal
from lpgcn.protocol.client.standing import Standing
from lpgcn.protocol.suite import TO_MANY, Kind, Suite
from lpgcn.protocol.transcript import Opened
from lpgcn.protocol.wire.encoding import Header


class Clear:
    """Leaves everything as it is: in place of the keys of what a suite does not protect."""

    def seal(
        self, context: Context, which: Sequence[int], messages: Sequence[bytes],
        indices: Sequence[int] | None = None,
    ) -> list[bytes]:  # fmt: skip
        return list(messages)

    def open(
        self, context: Context, which: Sequence[int], sealed: Sequence[bytes],
        indices: Sequence[int] | None = None, *, more: Sequence[SecretKey] = (),
    ) -> list[bytes]:  # fmt: skip
        return list(sealed)


CLEAR = Clear()


def masks_with(private: PrivateKey, publics: Sequence[bytes], run: bytes) -> Masks | None:
    """Masks with these peers; of two, the one with the smaller public key adds."""
    own = private.public_bytes
    peers: list[tuple[SecretKey, Literal[1, -1]]] = [
        (private.agree(public, info("mask", run)), 1 if own < public else -1) for public in publics
    ]
    return Masks(peers) if peers else None


def info(purpose: str, run: bytes, *parts: bytes) -> bytes:
    """What an HPKE message is bound to."""
    return b"lpgcn " + purpose.encode() + b"\0" + run + b"".join(parts)


@dataclass(frozen=True)
class Keys:
    """All keys of a client that has been verified."""

    run: bytes
    suite: Suite
    private: PrivateKey
    own: Channels
    """K_u, the one key of this list, under which this client's vectors travel."""
    items: Channels
    """K_item, the one key of this list."""
    owners: Channels
    """Pairwise keys with the owners of its items, then with those of its negatives, by contact."""
    neighbours: Channels
    """K_u of each neighbour, by handle."""
    pairs: Channels
    """Pairwise keys with its neighbours, by handle, then with others who had its items as
    negatives."""
    masks: Masks | None
    """None in a federation of one, which has nobody to hide among: the sum is its own number."""
    group_masks: Masks | None
    """With those of its group, if negatives are in pools."""
    veils: Masks
    """Under a key from S, which all clients have: what hides a sum from the server alone."""
    copies: Channels
    """A key from S for the dense weights, the one key of this list."""
    opened: list[Opened] | None = field(default=None)
    """What could be read of the present message, if there is a transcript."""

    @classmethod
    def of(cls, standing: Standing, suite: Suite, opened: list[Opened] | None) -> Keys:
        def channels(name: str) -> Channels:
            return Channels(map(SecretKey, standing.keys(name)))

        private = PrivateKey(standing.private)
        return cls(
            run=standing.run,
            suite=suite,
            private=private,
            own=channels("sender_key"),
            items=Channels([SecretKey(standing.shared).derive(Label.ITEM_VECTORS)]),
            owners=channels("owner_keys"),
            neighbours=channels("neighbour_keys"),
            pairs=channels("pair_keys"),
            masks=masks_with(private, standing.keys("peers"), standing.run),
            group_masks=masks_with(private, standing.keys("group_peers"), standing.run),
            copies=Channels([SecretKey(standing.shared).derive(Label.SHARED_WEIGHTS)]),
            veils=Masks([(SecretKey(standing.shared).derive(Label.SHARED_SUMS), 1)]),
            opened=opened,
        )

    def context(self, header: Header, kind: Kind) -> Context:
        return Context(self.run, header.pass_number, header.phase, header.layer, kind)

    def _protecting(self, kind: Kind, keys: Channels) -> Channels | Clear:
        return keys if self.suite.protects(kind) else CLEAR

    def note(self, kind: Kind, senders: Iterable[int], rows: Iterable[bytes]) -> None:
        """For the transcript, if there is one: what could be read, and from whom it is."""
        if self.opened is not None:
            self.opened.append(Opened(kind.name, list(senders), list(rows)))

    def seal(
        self, header: Header, kind: Kind, keys: Channels, which: Sequence[int],
        messages: Sequence[bytes], indices: Sequence[int] | None = None,
    ) -> bytes:  # fmt: skip
        sealing = self._protecting(kind, keys)
        return b"".join(sealing.seal(self.context(header, kind), which, messages, indices))

    def open(
        self, header: Header, kind: Kind, keys: Channels, which: Sequence[int],
        sealed: Sequence[bytes], indices: Sequence[int] | None = None,
        *, more: Sequence[SecretKey] = (),
    ) -> list[bytes]:  # fmt: skip
        """`header` is that of the phase in which it was sealed; see `Channels.open`."""
        opening = self._protecting(kind, keys)
        opened = opening.open(self.context(header, kind), which, sealed, indices, more=more)
        self.note(kind, indices if indices and kind in TO_MANY else which, opened)
        return opened

    def seal_finals(
        self, header: Header, places: Sequence[int], rows: Sequence[bytes],
        kind: Kind = Kind.ITEM_FINAL,
    ) -> bytes:  # fmt: skip
        """Under K_item, which several clients seal with, the index is the item's place."""
        return self.seal(header, kind, self.items, [0] * len(places), rows, places)

    def open_finals(
        self, header: Header, places: Sequence[int], rows: Sequence[bytes],
        kind: Kind = Kind.ITEM_FINAL,
    ) -> list[bytes]:  # fmt: skip
        return self.open(header, kind, self.items, [0] * len(places), rows, places)

    def introduce(self, publics: Sequence[bytes]) -> tuple[list[SecretKey], list[bytes]]:
        """Fresh keys for owners that are no neighbours, and each sealed to its owner."""
        keys = [SecretKey.generate() for _ in publics]
        return keys, [
            seal(public, key.reveal(), info("introduction", self.run, public))
            for public, key in zip(publics, keys, strict=True)
        ]

    def meet(self, introductions: Sequence[bytes]) -> list[SecretKey]:
        bound = info("introduction", self.run, self.private.public_bytes)
        return [SecretKey(self.private.open(sealed, bound)) for sealed in introductions]

    def mask(self, header: Header, values: UInt64) -> bytes:
        """Numbers that the server learns only the sum of, over everybody."""
        return self._masked(self.masks, self.context(header, Kind.NUMBERS), values)

    def veil(self, header: Header, count: int) -> UInt64:
        """Numbers that one client adds, and all can take away again from a sum."""
        return self.veils.mask(self.context(header, Kind.NUMBERS), count)

    def seal_copy(self, header: Header, content: bytes) -> bytes:
        """In every suite."""
        (sealed,) = self.copies.seal(self.context(header, Kind.COPY), [0], [content])
        return sealed

    def open_copy(self, header: Header, sealed: bytes) -> bytes:
        (content,) = self.copies.open(self.context(header, Kind.COPY), [0], [sealed])
        return content

    def mask_in_group(self, header: Header, values: UInt64) -> bytes:
        """Over the clients of a group."""
        return self._masked(self.group_masks, self.context(header, Kind.ANSWERS), values)

    @staticmethod
    def _masked(masks: Masks | None, context: Context, values: UInt64) -> bytes:
        if masks is not None:
            mask = masks.mask(context, len(values))
            mask += values
            values = mask
        return values.astype("<u8", copy=False).tobytes()
