"""One client's part in the loss (Algorithm 9): as a user of the batch, and as an owner of items."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lpgcn import fixed_point
from lpgcn.crypto import KEY_BYTES, Indices
from lpgcn.model.loss import LossGradient
from lpgcn.protocol import messages as m
from lpgcn.protocol.doors import Doors
from lpgcn.protocol.errors import MalformedMessageError, UnexpectedMessageError
from lpgcn.protocol.keyring import Contacts
from lpgcn.protocol.messages import Header, Phase
from lpgcn.protocol.owner import Contributions, Neighbourhood, Owner
from lpgcn.protocol.rows import negative_row, to_rows, to_vectors
from lpgcn.protocol.suite import Kind
from lpgcn.protocol.user import LossMessage, Samples, User

Int64 = npt.NDArray[np.int64]
Bits = npt.NDArray[np.bool_]
_SCALARS: Final = 1
_NEGATIVES: Final = 2
"""Scalars and negatives are sealed in contexts of their own: layers of the phase LOSS."""


class LossStage:
    """What a client says about its samples, and what it hears about the items that it owns."""

    def __init__(self, doors: Doors, user: User) -> None:
        self._doors, self._keys, self._sizes = doors, doors.keys, doors.sizes
        self._user = user
        self.asked: list[Int64] = []
        """For each owner that asked, the uploaded items that it asked about."""
        self.said: LossMessage | None = None
        """In a batch: what this client's samples gave."""

    # As a user of the batch.

    def say(self, message: m.Samples, header: Header, own_final: Tensor) -> tuple[m.Gradients, int]:
        """What the items' owners are told, and the loss of this client's samples in fixed point.

        Something is sent for every listed item, so that traffic does not tell which one was used.
        """
        if not len(self._user.real):
            raise UnexpectedMessageError("samples for a client that has no interactions")
        pushed = Header(header.step, Phase.FINAL)
        batch_size = m.one_number(message.batch_size, "batch_size", least=1)
        epoch = m.one_number(message.epoch, "epoch")
        negative_places = m.rising(message.negative_places, "negative_places", below=1 << 32)
        n_negatives = len(negative_places)
        negatives = m.numbers(message.negatives, "negatives", below=n_negatives)
        positions = m.numbers(message.positions, "positions", below=1 << 32, count=len(negatives))
        contacts = m.numbers(message.contacts, "contacts", below=1 << 32, count=n_negatives)
        listed = self._doors.open_items(message.item_rows, pushed, self._user.arriving_indices)
        drawn = self._doors.open_items(message.negative_rows, pushed, Indices(negative_places))
        samples = Samples(epoch, positions, negatives, n_negatives, batch_size)
        said = self._user.loss(samples, listed, own_final, drawn)
        publics = m.split(message.new_contacts, KEY_BYTES, "new_contacts")
        met, introductions = self._keys.introduce(
            self._new_contacts(publics, contacts, self._keys.contacts_out)
        )
        total = fixed_point.total(said.loss)
        # Everything is good: from here on nothing fails.
        self._keys.contacts_out |= met
        reply = m.Gradients(
            header=b"",
            user=self._doors.seal_user(header, Kind.USER_FINAL, said.final),
            pair_rows=self._seal_pairs(header, said),
            negatives=self._seal_negatives(header, said, negative_places, contacts),
            introductions=b"".join(introductions),
        )
        self.said = said
        return reply, total

    def _new_contacts(
        self, parts: list[bytes], contacts: Int64, known: Container[int]
    ) -> dict[int, bytes]:
        """Contacts that are met now are the last ones of a message, in the order of their handles.

        Where the suite leaves the loss in the clear there is nobody to meet.
        """
        mentioned = np.unique(contacts).tolist() if self._sizes.introduction else []
        new = [contact for contact in mentioned if contact not in known]
        if len(new) != len(parts) or new != mentioned[len(mentioned) - len(new) :]:
            raise MalformedMessageError(
                f"{len(parts)} introductions for {len(new)} contacts that are new here"
            )
        return dict(zip(new, parts, strict=True))

    def _seal_pairs(self, header: Header, said: LossMessage) -> bytes:
        """To each owner s and n of every listed item that it owns, used or not."""
        context = self._keys.context(header.step, header.phase, _SCALARS)
        messages = [said.listed[positions].tobytes() for positions in self.asked]
        return b"".join(self._keys.pairs_out.seal(context, messages))

    def _seal_negatives(
        self, header: Header, said: LossMessage, places: Int64, contacts: Int64
    ) -> bytes:
        rows = np.empty(len(places), dtype=negative_row(self._sizes.vector, self._sizes.pair))
        rows["vector"] = to_rows(said.final)
        rows["place"], rows["pair"] = places, said.negatives
        context = self._keys.context(header.step, header.phase, _NEGATIVES)
        return b"".join(
            self._keys.seal_negative(contact, context, index, row.tobytes())
            for index, (contact, row) in enumerate(zip(contacts.tolist(), rows, strict=True))
        )

    # As an owner of items.

    def item_gradient(
        self, message: m.LossRows, header: Header, owner: Owner
    ) -> tuple[LossGradient, Contacts]:
        """∂Loss/∂e_i of the owned items, from what all batch clients say about them; and who of
        these is a new contact, for the caller to keep."""
        near, strangers = owner.neighbourhood, self._strangers(message)
        met = self._meet(message.introductions, strangers[0])
        contacts = self._keys.contacts_in | met
        present = m.bits(message.user_present, "user_present", near.size)
        said = Header(header.step, Phase.LOSS)
        finals = self._doors.open_users(message.user_rows, said, Kind.USER_FINAL, present)
        from_neighbours = self._open_pairs(message.pair_rows, said, near, present)
        stranger_finals, from_strangers = self._open_strangers(
            message, said, owner, strangers, contacts
        )
        own_final, from_self = self._from_self(near)
        sent = torch.cat((finals, own_final, stranger_finals))
        parts = (from_neighbours, from_self, from_strangers)
        return Contributions.join(parts).gather(sent), met

    def _open_pairs(
        self, field: bytes, said: Header, near: Neighbourhood, present: Bits
    ) -> Contributions:
        handles = np.flatnonzero(present)
        lengths = self._sizes.pairs(np.diff(near.offsets)[handles])
        messages = m.cut(field, lengths, "pair_rows")
        context = self._keys.context(said.step, said.phase, _SCALARS)
        opened = self._keys.pairs_in.open(context, handles.tolist(), messages)
        self._doors.note("pairs", handles.tolist(), opened)
        pairs = np.frombuffer(b"".join(opened), dtype=self._sizes.pair)
        rows = np.flatnonzero(present[near.handles])
        senders = near.handles[rows]
        return Contributions.of(near.items[rows], senders, 2 * near.ranks(senders) + 1, pairs)

    def _open_strangers(
        self,
        message: m.LossRows,
        said: Header,
        owner: Owner,
        strangers: tuple[Int64, Int64],
        contacts: Contacts,
    ) -> tuple[Tensor, Contributions]:
        """Clients that had one of the owned items as a negative."""
        senders, indices = strangers
        count, size = len(senders), owner.neighbourhood.size
        sealed = m.rows(message.negatives, "negatives", count=count, width=self._sizes.negative)
        order = m.numbers(message.order, "order", below=size + 2, count=count)
        context = self._keys.context(said.step, said.phase, _NEGATIVES)
        opened = self._keys.open_negatives(contacts, senders, context, indices, sealed)
        self._doors.note("negatives", senders.tolist(), opened)
        content = np.frombuffer(
            b"".join(opened), dtype=negative_row(self._sizes.vector, self._sizes.pair)
        )
        vectors = to_vectors(content["vector"], self._doors.dtype)
        items = owner.rows_of(content["place"].astype(np.int64))
        rows = size + 1 + np.arange(count)
        return vectors, Contributions.of(items, rows, 2 * order, content["pair"])

    def _strangers(self, message: m.LossRows) -> tuple[Int64, Int64]:
        """For each negative its sender's handle, and its number among those of its sender."""
        count = len(message.contacts) // 8
        about = m.numbers(message.contacts, "contacts", below=1 << 32, count=2 * count)
        if len(set(m.split(message.contacts, 8, "contacts"))) != count:
            raise MalformedMessageError("field contacts holds a negative twice")
        return about[0::2], about[1::2]

    def _meet(self, introductions: bytes, senders: Int64) -> Contacts:
        sealed = m.split(introductions, self._sizes.introduction, "introductions")
        return self._keys.meet(self._new_contacts(sealed, senders, self._keys.contacts_in))

    def _from_self(self, near: Neighbourhood) -> tuple[Tensor, Contributions]:
        """What this client's own samples say about listed items that it owns itself."""
        user = self._user
        own = np.flatnonzero(user.own_rows >= 0) if self.said is not None else np.empty(0, np.int64)
        final = self._doors.blank(1) if self.said is None else self.said.final
        pairs = np.empty(0, dtype=self._sizes.pair) if self.said is None else self.said.listed[own]
        senders = np.full(len(own), near.size)
        ranks = np.full(len(own), 2 * near.own_rank + 1)
        return final, Contributions.of(user.own_rows[own], senders, ranks, pairs)
