"""One client's part in a pass: forward, loss, backward, update (Algorithms 4, 9, 6 and 7).

A request names the stage that it asks for and brings the rows that others pushed in the stage
before. A stage opens all of them before it changes anything.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Container, Iterable
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lpgcn import fixed_point
from lpgcn.config import Config
from lpgcn.crypto import KEY_BYTES, Indices
from lpgcn.model.adam import Adam
from lpgcn.model.loss import LossGradient
from lpgcn.protocol import messages as m
from lpgcn.protocol.errors import MalformedMessageError, UnexpectedMessageError
from lpgcn.protocol.keyring import Contacts, Keyring
from lpgcn.protocol.messages import Header, Phase
from lpgcn.protocol.owner import Contributions, Owner
from lpgcn.protocol.rows import negative_row, to_rows, to_vectors
from lpgcn.protocol.sizes import Sizes
from lpgcn.protocol.suite import Kind
from lpgcn.protocol.transcript import Opened
from lpgcn.protocol.user import LossMessage, Samples, User, no_gradient

Int64 = npt.NDArray[np.int64]
Bits = npt.NDArray[np.bool_]
RATE: Final = struct.Struct("<d")
_FOR_OWNERS: Final = (
    "user_rows", "user_present", "pair_rows", "negatives", "contacts", "order", "introductions",
)  # fmt: skip


class Passes:
    """The nodes that a client owns, and the doors through which their vectors come and go."""

    def __init__(
        self, config: Config, keys: Keyring, user: User, opened: list[Opened] | None = None
    ) -> None:
        self._config, self._keys, self._opened = config, keys, opened
        self.user = user
        self.owner: Owner | None = None
        self._dtype = getattr(torch, config.dtype)
        self._sizes = Sizes.of(config)
        self.loss_total = 0
        """The loss of this client's samples and nodes since it last reported, in fixed point."""
        self.asked: list[Int64] = []
        """For each owner that asked, the uploaded items that it asked about."""
        self._said: LossMessage | None = None
        self._gradient_begun = False
        self._nothing = self._blank(0)
        self._own_final = self._nothing
        self._built_push = torch.empty(0)

    def adams(self) -> dict[str, Adam]:
        """The parameters that this client holds, by the name of their table."""
        own = {} if self.user.adam is None else {"users": self.user.adam}
        return own if self.owner is None else own | self.owner.adam

    def note(self, what: str, senders: Iterable[int], rows: Iterable[bytes]) -> None:
        """For the transcript, if there is one: what could be read, and from whom it is."""
        if self._opened is not None:
            self._opened.append(Opened(what, list(senders), list(rows)))

    # Forward.

    def build(self, message: m.Exchange, header: Header) -> m.Push:
        """LightGCN+: the owner sends W_i (Algorithm 7, line 16)."""
        m.unused(message, "item_rows", "user_rows")
        return self._push(header, self._wanted(message), self._own("item_users"))

    def forward(self, message: m.Exchange, header: Header) -> m.Push:
        """Algorithm 4: absorb what the last layer pushed, push the next."""
        wanted, wants_user = self._wanted(message), m.flag(message.wants_user, "wants_user")
        if header.layer:
            self._absorb(message, Header(header.step, Phase.FORWARD, header.layer - 1))
        else:
            self._begin(message, header)
        return self._push(header, wanted, self._own_push(), wants_user=wants_user)

    def _begin(self, message: m.Exchange, header: Header) -> None:
        user, owner = self.user, self.owner
        m.unused(message, "user_rows")
        if user.adam is None:
            arrived = self._arrived_items(message, Header(header.step, Phase.BUILD))
            user.nodes.build(user.sum(arrived, self._own("item_users")))
        else:
            m.unused(message, "item_rows")
            user.nodes.begin(user.adam.parameter)
        if owner is not None:
            owner.nodes.begin(owner.adam["items"].parameter)
        self._said, self._gradient_begun = None, False

    def finish_forward(self, message: m.Exchange, header: Header) -> m.Push:
        """Absorb the last layer; the owner sends the final vectors that somebody needs."""
        wanted = self._wanted(message)
        self._absorb(message, Header(header.step, Phase.FORWARD, self._config.layers - 1))
        self._own_final = self._nothing if self.owner is None else self.owner.nodes.final()
        return self._push(header, wanted, self._own_final)

    def _absorb(self, message: m.Exchange, pushed: Header) -> None:
        user, owner = self.user, self.owner
        items, users = self._arrived_items(message, pushed), self._arrived_users(message, pushed)
        backward = pushed.phase == Phase.BACKWARD
        if backward and not self._gradient_begun:
            self._begin_gradient(None, 1)
        at_user = user.sum(items, self._own_push())
        if owner is not None:
            at_items = owner.sum(users, user.nodes.push)
            (owner.nodes.absorb_gradient if backward else owner.nodes.absorb)(at_items)
        (user.nodes.absorb_gradient if backward else user.nodes.absorb)(at_user)

    # Loss.

    def loss(self, message: m.Samples, header: Header) -> m.Gradients:
        """Algorithm 9: the loss of this client's samples, and what it says to the items' owners.

        Something is sent for every listed item, so that traffic does not tell which one was used.
        """
        if not len(self.user.real):
            raise UnexpectedMessageError("samples for a client that has no interactions")
        pushed = Header(header.step, Phase.FINAL)
        batch_size = m.one_number(message.batch_size, "batch_size", least=1)
        epoch = m.one_number(message.epoch, "epoch")
        negative_places = m.rising(message.negative_places, "negative_places", below=1 << 32)
        n_negatives = len(negative_places)
        negatives = m.numbers(message.negatives, "negatives", below=n_negatives)
        positions = m.numbers(message.positions, "positions", below=1 << 32, count=len(negatives))
        contacts = m.numbers(message.contacts, "contacts", below=1 << 32, count=n_negatives)
        listed = self._open_items(message.item_rows, pushed, self.user.arriving_indices)
        drawn = self._open_items(message.negative_rows, pushed, Indices(negative_places))
        samples = Samples(epoch, positions, negatives, n_negatives, batch_size)
        said = self.user.loss(samples, listed, self._own_final, drawn)
        publics = m.split(message.new_contacts, KEY_BYTES, "new_contacts")
        met, introductions = self._keys.introduce(
            self._new_contacts(publics, contacts, self._keys.contacts_out)
        )
        total = fixed_point.total(said.loss)
        # Everything is good: from here on nothing fails.
        self._keys.contacts_out |= met
        reply = m.Gradients(
            header=b"",
            user=self._seal_user(header, Kind.LOSS, said.final),
            pair_rows=self._seal_pairs(header, said),
            negatives=self._seal_negatives(header, said, negative_places, contacts),
            introductions=b"".join(introductions),
        )
        self._said = said
        self.loss_total += total
        return reply

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
        context = self._keys.context(header.step, header.phase, 1)
        messages = [said.listed[positions].tobytes() for positions in self.asked]
        return b"".join(self._keys.pairs_out.seal(context, messages))

    def _seal_negatives(
        self, header: Header, said: LossMessage, places: Int64, contacts: Int64
    ) -> bytes:
        rows = np.empty(len(places), dtype=negative_row(self._sizes.vector, self._sizes.pair))
        rows["vector"] = to_rows(said.final)
        rows["place"], rows["pair"] = places, said.negatives
        context = self._keys.context(header.step, header.phase, 2)
        return b"".join(
            self._keys.seal_negative(contact, context, index, row.tobytes())
            for index, (contact, row) in enumerate(zip(contacts.tolist(), rows, strict=True))
        )

    # Backward.

    def begin_backward(self, message: m.LossRows, header: Header) -> m.Push:
        """g^(L): the client's own from its loss, its items' from what the batch clients sent."""
        wanted, wants_user = self._wanted(message), m.flag(message.wants_user, "wants_user")
        batch_size = m.one_number(message.batch_size, "batch_size", least=1)
        if self.owner is None:
            m.unused(message, *_FOR_OWNERS)
            self._begin_gradient(None, batch_size)
        else:
            met = self._meet(message)
            gradient = self._item_gradient(message, header, self._keys.contacts_in | met)
            self._keys.contacts_in |= met
            self._begin_gradient(gradient, batch_size)
        return self._push(header, wanted, self._own_push(), wants_user=wants_user)

    def _begin_gradient(self, items: LossGradient | None, batch_size: int) -> None:
        own = no_gradient(self.user.nodes.push) if self._said is None else self._said.gradient
        self.loss_total += fixed_point.total(self.user.begin_gradient(own, batch_size))
        if self.owner is not None:
            touched = items or no_gradient(self.owner.nodes.push)
            self.loss_total += fixed_point.total(self.owner.begin_gradient(touched, batch_size))
        self._gradient_begun = True

    def _item_gradient(
        self, message: m.LossRows, header: Header, contacts: Contacts
    ) -> LossGradient:
        owner = self.as_owner()
        near = owner.neighbourhood
        present = m.bits(message.user_present, "user_present", near.size)
        said = Header(header.step, Phase.LOSS)
        finals = self._open_users(message.user_rows, said, Kind.LOSS, present)
        from_neighbours = self._open_pairs(message.pair_rows, said, present)
        stranger_finals, from_strangers = self._open_strangers(message, said, contacts)
        own_final, from_self = self._from_self()
        sent = torch.cat((finals, own_final, stranger_finals))
        parts = (from_neighbours, from_self, from_strangers)
        return Contributions.join(parts).gather(sent)

    def _open_pairs(self, field: bytes, said: Header, present: Bits) -> Contributions:
        near = self.as_owner().neighbourhood
        handles = np.flatnonzero(present)
        lengths = self._sizes.pairs(np.diff(near.offsets)[handles])
        messages = m.cut(field, lengths, "pair_rows")
        context = self._keys.context(said.step, said.phase, 1)
        opened = self._keys.pairs_in.open(context, handles.tolist(), messages)
        self.note("pairs", handles.tolist(), opened)
        pairs = np.frombuffer(b"".join(opened), dtype=self._sizes.pair)
        rows = np.flatnonzero(present[near.handles])
        senders = near.handles[rows]
        return Contributions.of(near.items[rows], senders, 2 * near.ranks(senders) + 1, pairs)

    def _open_strangers(
        self, message: m.LossRows, said: Header, contacts: Contacts
    ) -> tuple[Tensor, Contributions]:
        """Clients that had one of the owned items as a negative."""
        owner, width = self.as_owner(), self._sizes.negative
        senders, indices = self._strangers(message)
        count, size = len(senders), owner.neighbourhood.size
        sealed = m.rows(message.negatives, "negatives", count=count, width=width)
        order = m.numbers(message.order, "order", below=size + 2, count=count)
        context = self._keys.context(said.step, said.phase, 2)
        opened = self._keys.open_negatives(contacts, senders, context, indices, sealed)
        self.note("negatives", senders.tolist(), opened)
        content = np.frombuffer(
            b"".join(opened), dtype=negative_row(self._sizes.vector, self._sizes.pair)
        )
        vectors = to_vectors(content["vector"], self._dtype)
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

    def _meet(self, message: m.LossRows) -> Contacts:
        sealed = m.split(message.introductions, self._sizes.introduction, "introductions")
        senders, _ = self._strangers(message)
        return self._keys.meet(self._new_contacts(sealed, senders, self._keys.contacts_in))

    def _from_self(self) -> tuple[Tensor, Contributions]:
        """What this client's own samples say about listed items that it owns itself."""
        user, near = self.user, self.as_owner().neighbourhood
        own = (
            np.flatnonzero(user.own_rows >= 0) if self._said is not None else np.empty(0, np.int64)
        )
        final = self._blank(1) if self._said is None else self._said.final
        pairs = (
            np.empty(0, dtype=self._sizes.pair) if self._said is None else self._said.listed[own]
        )
        senders = np.full(len(own), near.size)
        ranks = np.full(len(own), 2 * near.own_rank + 1)
        return final, Contributions.of(user.own_rows[own], senders, ranks, pairs)

    def backward(self, message: m.Exchange, header: Header) -> m.Push:
        """Algorithm 6: absorb what the last layer pushed, push the next."""
        wanted, wants_user = self._wanted(message), m.flag(message.wants_user, "wants_user")
        self._absorb(message, Header(header.step, Phase.BACKWARD, header.layer - 1))
        return self._push(header, wanted, self._own_push(), wants_user=wants_user)

    # Update.

    def update(self, message: m.Exchange, header: Header) -> m.Push:
        """Algorithm 1, lines 10–15: Adam for the client's own parameters and its items'.

        LightGCN+ (Algorithm 7, line 11): the gradient of e_u^(0) returns to the W_i it is made of.
        """
        rate = _rate(message)
        self._absorb(message, Header(header.step, Phase.BACKWARD, self._config.layers - 1))
        user, owner = self.user, self.owner
        if owner is not None:
            owner.adam["items"].step(owner.nodes.gradient(), rate)
        if user.adam is not None:
            user.adam.step(user.nodes.gradient(), rate)
            return m.Push(header=b"", user=b"", items=b"")
        self._built_push = user.nodes.push_gradient()
        sealed = self._seal_user(header, Kind.USER_BACKWARD, self._built_push)
        return m.Push(header=b"", user=sealed, items=b"")

    def update_built(self, message: m.Exchange, header: Header) -> m.Reply:
        """LightGCN+ (Algorithm 7, line 16): Adam for W_i, at the owner of the item."""
        owner, rate = self.as_owner(), _rate(message)
        m.unused(message, "item_rows")
        arrived = self._arrived_users(message, Header(header.step, Phase.UPDATE))
        owner.adam["item_users"].step(owner.sum(arrived, self._built_push), rate)
        return m.Reply(header=b"")

    # Rows in and out.

    def as_owner(self) -> Owner:
        if self.owner is None:
            raise UnexpectedMessageError("a message for a convolution-client, but nothing is owned")
        return self.owner

    def _blank(self, count: int) -> Tensor:
        return torch.zeros((count, self._config.dim), dtype=self._dtype)

    def _own(self, name: str) -> Tensor:
        return self._nothing if self.owner is None else self.owner.adam[name].parameter

    def _own_push(self) -> Tensor:
        return self._nothing if self.owner is None else self.owner.nodes.push

    def _open_items(self, field: bytes, pushed: Header, places: Indices) -> Tensor:
        rows = m.rows(field, "item_rows", count=len(places.packed), width=self._sizes.item)
        context = self._keys.context(pushed.step, pushed.phase, pushed.layer)
        opened = self._keys.items.open_rows(context, places, rows)
        if self._opened is not None:
            self.note("items", map(int.from_bytes, places.packed), map(bytes, opened))
        return to_vectors(opened, self._dtype)

    def open_catalogue(self, field: bytes, step: int, n_items: int) -> Tensor:
        """The final vectors of all items, in the order of the catalogue."""
        return self._open_items(field, Header(step, Phase.FINAL), Indices(np.arange(n_items)))

    def _arrived_items(self, message: m.Exchange, pushed: Header) -> Tensor:
        user = self.user
        if not message.item_present:
            return self._open_items(message.item_rows, pushed, user.arriving_indices)
        present = m.bits(message.item_present, "item_present", len(user.arriving_places))
        some = Indices(user.arriving_places[present])
        opened = self._open_items(message.item_rows, pushed, some)
        return self._filled(opened, present)

    def _open_users(self, field: bytes, pushed: Header, kind: Kind, present: Bits) -> Tensor:
        count = int(present.sum())
        rows = m.rows(field, "user_rows", count=count, width=self._sizes.user(kind))
        context = self._keys.context(pushed.step, pushed.phase, pushed.layer)
        handles = np.flatnonzero(present).tolist()
        opened = self._keys.neighbours(kind).open_rows(context, handles, rows)
        if self._opened is not None:
            self.note("users", handles, map(bytes, opened))
        return self._filled(to_vectors(opened, self._dtype), present)

    def _arrived_users(self, message: m.Exchange, pushed: Header) -> Tensor:
        kind = Kind.USER_FORWARD if pushed.phase == Phase.FORWARD else Kind.USER_BACKWARD
        if self.owner is None:
            m.unused(message, "user_rows", "user_present")
            return self._nothing
        size = self.owner.neighbourhood.size
        present = m.bits(message.user_present, "user_present", size)
        return self._open_users(message.user_rows, pushed, kind, present)

    def _filled(self, opened: Tensor, present: Bits) -> Tensor:
        """Rows that were not sent are zero."""
        if len(opened) == len(present):
            return opened
        full = self._blank(len(present))
        full[torch.from_numpy(present)] = opened
        return full

    def _seal_user(self, header: Header, kind: Kind, vector: Tensor) -> bytes:
        context = self._keys.context(header.step, header.phase, header.layer)
        return self._keys.own(kind).seal(context, [to_rows(vector).tobytes()])[0]

    def _wanted(self, message: m.Exchange | m.LossRows) -> Bits:
        """Which owned items to push: read before anything changes."""
        return m.bits(message.wanted, "wanted", 0 if self.owner is None else len(self.owner.places))

    def _push(
        self, header: Header, wanted: Bits, items: Tensor, *, wants_user: bool = False
    ) -> m.Push:
        sealed_user = sealed_items = b""
        if wants_user:
            kind = Kind.USER_FORWARD if header.phase == Phase.FORWARD else Kind.USER_BACKWARD
            sealed_user = self._seal_user(header, kind, self.user.nodes.push)
        if self.owner is not None and wanted.any():
            rows = to_rows(items)[wanted]
            context = self._keys.context(header.step, header.phase, header.layer)
            sealed = self._keys.items.seal_rows(context, self.owner.places[wanted], rows)
            sealed_items = sealed.tobytes()
        return m.Push(header=b"", user=sealed_user, items=sealed_items)


def _rate(message: m.Exchange) -> float:
    if len(message.learning_rate) != RATE.size:
        raise MalformedMessageError("an update without a learning rate")
    rate: float = RATE.unpack(message.learning_rate)[0]
    if not 0 <= rate < math.inf:
        raise MalformedMessageError(f"a learning rate of {rate}, expected a number from 0 on")
    return rate
