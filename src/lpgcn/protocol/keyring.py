"""The keys of one client, and the doors that they open: nothing else in the protocol has one."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from lpgcn.crypto import (
    KEY_BYTES,
    AuthenticationError,
    Channel,
    Channels,
    Context,
    Label,
    Masks,
    PrivateKey,
    SecretKey,
    seal,
    tokens,
)
from lpgcn.protocol.rows import Clear
from lpgcn.protocol.suite import SUITES, Key, Kind, SuiteName, user_key

Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]
Contacts = dict[int, Channel]

_SHARED: Final = struct.Struct(">32sQ")
SHARED_BYTES: Final = _SHARED.size
"""The shared key S and the seed that all clients, and not the server, draw from."""
ANSWER_KEYS: Final = 2 * KEY_BYTES
"""A verification answer carries K_u and a fresh pairwise key before its bits."""
CLEAR: Final = Clear()


class Keyring:
    """Made when a client starts; grows in initialisation."""

    def __init__(self, suite: SuiteName) -> None:
        self._suite = SUITES[suite]
        self._private = PrivateKey.generate()
        self.contacts_out: Contacts = {}
        self.contacts_in: Contacts = {}
        self._masks: Masks | None = None
        self.run = b""

    @property
    def public(self) -> bytes:
        return self._private.public_bytes

    def protects(self, kind: Kind) -> bool:
        return self._suite[kind] is not Key.CLEAR

    def context(self, step: int, phase: int, layer: int = 0) -> Context:
        return Context(self.run, step, phase, layer, 0)

    def _info(self, purpose: str, *parts: bytes) -> bytes:
        return b"lpgcn " + purpose.encode() + b"\0" + self.run + b"".join(parts)

    # The shared key S (Algorithm 2, lines 5–9).

    def share(self, publics: Sequence[bytes], seed: int) -> list[bytes]:
        """As u_c: a fresh S, sealed with the clients' seed to every public key."""
        content = _SHARED.pack(SecretKey.generate().reveal(), seed)
        return [seal(public, content, self._info("shared key", public)) for public in publics]

    def accept(self, sealed: bytes) -> int:
        """S arrives; from it the keys of tokens and item vectors. Returns the clients' seed."""
        opened = self._private.open(sealed, self._info("shared key", self.public))
        if len(opened) != SHARED_BYTES:
            raise AuthenticationError(f"a shared key of {len(opened)} bytes, not {SHARED_BYTES}")
        secret, seed = _SHARED.unpack(opened)
        shared = SecretKey(secret)
        self._token_key = shared.derive(Label.ITEM_TOKENS)
        item_key = shared.derive(Label.ITEM_VECTORS)
        self.items: Channel | Clear = Channel(item_key) if self.protects(Kind.ITEM) else CLEAR
        group = user_key(self._suite) is Key.GROUP
        self._sender_key = (
            shared.derive(Label.USER_VECTORS, self.public) if group else SecretKey.generate()
        )
        self._own = Channels([self._sender_key])
        return int(seed)

    def tokens(self, items: Int64) -> UInt8:
        return tokens(self._token_key, items)

    def own(self, kind: Kind) -> Channels | Clear:
        """The door of this client's own vectors."""
        return self._own if self.protects(kind) else CLEAR

    # Verification (Algorithm 2, lines 16–18).

    def answer(
        self, askers: Sequence[bytes], questions: Sequence[bytes], bits: Sequence[bytes]
    ) -> list[bytes]:
        """For each asker: the bits, K_u and a fresh pairwise key, sealed to the asker."""
        pairs = [SecretKey.generate() for _ in askers]
        sealed = [
            seal(
                asker,
                self._sender_key.reveal() + pair.reveal() + flags,
                self._info("verification", asker, question),
            )
            for asker, question, flags, pair in zip(askers, questions, bits, pairs, strict=True)
        ]
        self.contacts_out = _for_negatives(pairs)
        self.pairs_out: Channels | Clear = Channels(pairs) if self.protects(Kind.LOSS) else CLEAR
        return sealed

    def verify(self, answers: Sequence[bytes], questions: Sequence[bytes]) -> list[bytes]:
        """The bits of each answer; its keys open the neighbour's vectors from now on."""
        opened = [
            self._private.open(sealed, self._info("verification", self.public, question))
            for sealed, question in zip(answers, questions, strict=True)
        ]
        senders = [SecretKey(content[:KEY_BYTES]) for content in opened]
        pairs = [SecretKey(content[KEY_BYTES:ANSWER_KEYS]) for content in opened]
        self._neighbours = Channels(senders)
        self.contacts_in = _for_negatives(pairs)
        self.pairs_in: Channels | Clear = Channels(pairs) if self.protects(Kind.LOSS) else CLEAR
        return [content[ANSWER_KEYS:] for content in opened]

    def neighbours(self, kind: Kind) -> Channels | Clear:
        """The door of the neighbours' vectors, by handle."""
        return self._neighbours if self.protects(kind) else CLEAR

    # Owners of a client's negatives. The first contacts are the askers, and the neighbours, with
    # whom a pairwise key is shared already; the key for negatives is derived from it.

    def introduce(self, publics: Mapping[int, bytes]) -> tuple[Contacts, list[bytes]]:
        """Fresh pairwise keys for owners that are no neighbours, and each sealed to its owner.

        Like those of `meet`, they are the caller's to keep, once all of its message is good.
        """
        keys = {contact: SecretKey.generate() for contact in publics}
        sealed = [
            seal(public, keys[contact].reveal(), self._info("introduction", public))
            for contact, public in publics.items()
        ]
        return {contact: Channel(key) for contact, key in keys.items()}, sealed

    def meet(self, introductions: Mapping[int, bytes]) -> Contacts:
        info = self._info("introduction", self.public)
        return {
            contact: Channel(SecretKey(self._private.open(sealed, info)))
            for contact, sealed in introductions.items()
        }

    def seal_negative(self, contact: int, context: Context, index: int, content: bytes) -> bytes:
        if not self.protects(Kind.LOSS):
            return content
        return self.contacts_out[contact].seal(context, index, content)

    def open_negatives(
        self, contacts: Contacts, senders: Int64, context: Context, indices: Int64, sealed: UInt8
    ) -> list[bytes]:
        rows = [row.tobytes() for row in sealed]
        if not self.protects(Kind.LOSS):
            return rows
        each = zip(senders.tolist(), indices.tolist(), rows, strict=True)
        return [contacts[sender].open(context, index, row) for sender, index, row in each]

    # Sums.

    def peer_up(self, publics: Sequence[bytes]) -> None:
        """Masks with these peers; of two, the one with the smaller public key adds."""
        agreed = [self._private.agree(public, self._info("mask")) for public in publics]
        peers: list[tuple[SecretKey, Literal[1, -1]]] = [
            (key, 1 if self.public < public else -1)
            for key, public in zip(agreed, publics, strict=True)
        ]
        # A federation of one has nobody to hide among: the sum is its own number.
        self._masks = Masks(peers) if peers else None

    def mask(self, context: Context, values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        return values if self._masks is None else values + self._masks.mask(context, len(values))


def _for_negatives(pairs: Sequence[SecretKey]) -> Contacts:
    """A key of its own for each purpose: scalars and negatives never share nonces."""
    return {i: Channel(pair.derive(Label.NEGATIVES)) for i, pair in enumerate(pairs)}
