"""A client's part in the loss of samples that have a negative each (BPR).

Who owns a negative may be a stranger, whom the server then introduces: a key for the two of them
is sealed to the owner with the first sample that they have in common.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from lpgcn import fixed_point
from lpgcn.array_types import Int64
from lpgcn.crypto import SecretKey
from lpgcn.model.kernels import Floats
from lpgcn.model.losses.bpr import Pairs, pair_gradients
from lpgcn.model.losses.gradient import LossGradient
from lpgcn.protocol.client.loss import LossPart, in_rows
from lpgcn.protocol.client.owner import Contribution, Owner
from lpgcn.protocol.client.passing import OwnLoss, Pass
from lpgcn.protocol.client.wishes import Drawn, Wishes
from lpgcn.protocol.errors import MalformedMessageError, UnexpectedMessageError
from lpgcn.protocol.phases import Phase
from lpgcn.protocol.suite import Kind
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire import reading
from lpgcn.protocol.wire.encoding import Header


class SampledLoss(LossPart):
    """See `LossPart`."""

    def draw(self, message: m.Exchange) -> Drawn | None:
        """The positives of this client's samples; None outside the batch."""
        if not message.positions:
            reading.nothing_in(message, "epoch")
            return None
        positions = reading.numbers(message.positions, "positions", below=1 << 32)
        if not self._user.n_real:
            raise UnexpectedMessageError("samples for a client that has no interactions")
        return self._user.draw(reading.one_number(message.epoch, "epoch"), positions)

    def wish(self, header: Header, drawn: Drawn) -> bytes:
        """To each owner the numbers of the positives that it owns, in as many slots as it expects
        of any client with so many samples."""
        content = struct.pack(f"<{len(drawn.wishes)}I", *drawn.wishes)
        return self._to_owners(header, Kind.WISH, drawn, content)

    def open_wishes(self, message: m.Finish, sent: Header, now: Pass) -> Wishes | None:
        """What the batch's neighbours wish for; None for a client that owns nothing."""
        owner, keys = self._owner, self._keys
        if owner is None:
            reading.nothing_in(message, "wishing", "slots", "wishes")
            return None
        handles = np.empty(0, dtype=np.int64)
        if message.slots or message.wishing:
            wishing = reading.bits(message.wishing, "wishing", len(owner.neighbours))
            handles = np.flatnonzero(wishing)
        slots = reading.numbers(message.slots, "slots", below=1 << 31, count=len(handles))
        sealed = self._cut_slots(message.wishes, Kind.WISH, slots.tolist(), "wishes")
        opened = keys.open(sent, Kind.WISH, keys.pairs, handles.tolist(), sealed)
        wishes = reading.numbers(b"".join(opened), "wishes", below=1 << 32)
        return Wishes(handles, slots, owner.wished_items(handles, slots, wishes))

    def reply(self, message: m.Samples, header: Header, now: Pass) -> tuple[m.Gradients, OwnLoss]:
        """What the items' owners are told. Something is sent in every slot, so that traffic does
        not tell which items were used."""
        drawn, final, keys = now.drawn, now.final_user, self._keys
        if drawn is None or final is None:
            raise UnexpectedMessageError("vectors of samples for a client outside the batch")
        places = reading.rising(message.negative_places, "negative_places", below=self._n_items)
        count = len(places)
        negative = reading.numbers(
            message.negatives, "negatives", below=count, count=len(drawn.positive)
        )
        contacts = reading.numbers(message.contacts, "contacts", below=1 << 32, count=count)
        vectors = self._vectors(
            self._positives(message, header, now, drawn) + self._negatives(message, header, places)
        )
        strangers = self._standing.proved(message.new_contacts, "new_contacts")
        self._check_introduced(len(strangers), "new_contacts", len(keys.owners), contacts)
        new, introductions = keys.introduce(strangers)
        pairs = Pairs(
            np.zeros(drawn.count + count, dtype=np.int64),
            np.arange(drawn.count + count),
            drawn.positive,
            drawn.count + negative,
        )
        table, own_loss = self._own_loss(drawn, pairs, final, vectors)
        # Everything is good: from here on nothing fails.
        keys.owners.extend(new)
        vector, about = final.tobytes(), in_rows(table[:, None])
        numbers = reading.split(message.negative_places, reading.NUMBER_BYTES, "negative_places")
        negatives = [
            vector + place + pair for place, pair in zip(numbers, about[drawn.count :], strict=True)
        ]
        return m.Gradients(
            user=keys.seal(header, Kind.USER_FINAL, keys.own, [0], [vector]),
            scalars=self._scalars(header, drawn, about),
            negatives=keys.seal(
                header, Kind.NEGATIVE, keys.owners, contacts.tolist(), negatives, range(count)
            ),
            introductions=b"".join(introductions),
        ), own_loss

    def _own_loss(
        self, drawn: Drawn, pairs: Pairs, final: Floats, vectors: Floats
    ) -> tuple[npt.NDArray[np.void], OwnLoss]:
        """s and n of every pair, and what stays with the client."""
        kernels, grid = self._user.nodes.kernels, self._user.nodes.backward_grid
        found = pair_gradients(pairs, final, vectors, kernels)
        samples = len(drawn.positive)
        gradient = LossGradient.of_one(found.coefficient, samples, vectors, grid, kernels)
        table = np.empty(len(pairs), dtype=self._sizes.pair)
        table["coefficient"], table["count"] = found.coefficient, found.count
        return table, OwnLoss(gradient, table[drawn.own], fixed_point.total(found.loss))

    def _negatives(self, message: m.Samples, header: Header, places: Int64) -> list[bytes]:
        keys, sent = self._keys, Header(header.pass_number, Phase.FINAL)
        width = self._sizes.row(Kind.ITEM_FINAL)
        rows = reading.split(message.negative_rows, width, "negative_rows", count=len(places))
        return keys.open_finals(sent, places.tolist(), rows)

    def _check_introduced(self, count: int, name: str, known: int, contacts: Int64) -> None:
        """The contacts of a message that are met now have the next numbers after those that are
        known. Where negatives travel in the clear there is nobody to meet."""
        met = {contact for contact in contacts.tolist() if contact >= known}
        if not self._sizes.introduction:
            met = set()
        if met != set(range(known, known + count)):
            raise MalformedMessageError(
                f"field {name} introduces {count} contacts; {len(met)} are new here"
            )

    def item_gradient(
        self, message: m.LossRows, header: Header, now: Pass
    ) -> tuple[LossGradient, list[SecretKey]]:
        """∂Loss/∂e_i from what the batch sent, and the keys of contacts that are new."""
        reading.nothing_in(message, "answered", "answers")
        owner, wishes = self._owner, now.wishes
        if owner is None or wishes is None:
            reading.nothing_in(
                message, "users", "scalars", "negatives", "contacts", "introductions"
            )
            return LossGradient.none(self._sizes.dim), []
        sent_in = Header(header.pass_number, Phase.LOSS)
        neighbours, from_neighbours = self._open_scalars(message, sent_in, wishes)
        contacts, from_contacts, met = self._open_negatives(
            message, sent_in, owner, len(neighbours)
        )
        own, from_self = self._from_self(now, len(neighbours) + len(contacts))
        sent = np.concatenate((neighbours, contacts, own))
        parts = (from_neighbours, from_contacts, from_self)
        return owner.loss_gradient(parts, sent, owner.nodes.backward_grid), met

    def _could_be(self, pairs: npt.NDArray[np.void], items: Int64) -> bool:
        return not bool(((items < 0) & (pairs["count"] > 0)).any())

    def _open_negatives(
        self, message: m.LossRows, sent_in: Header, owner: Owner, first: int
    ) -> tuple[Floats, Contribution, list[SecretKey]]:
        """From clients that had an owned item as a negative; their rows begin at `first`."""
        keys = self._keys
        rows = reading.split(message.negatives, self._sizes.row(Kind.NEGATIVE), "negatives")
        about = reading.numbers(message.contacts, "contacts", below=1 << 32, count=2 * len(rows))
        senders, numbers = about[0::2], about[1::2]
        if len(set(zip(senders.tolist(), numbers.tolist(), strict=True))) != len(rows):
            raise MalformedMessageError("field contacts holds a negative twice")
        width, known = self._sizes.introduction, len(keys.pairs)
        introductions = reading.split(message.introductions, width, "introductions")
        self._check_introduced(len(introductions), "introductions", known, senders)
        met = keys.meet(introductions)
        handles = senders.tolist()
        opened = keys.open(
            sent_in, Kind.NEGATIVE, keys.pairs, handles, rows, numbers.tolist(), more=met
        )
        content = np.frombuffer(b"".join(opened), dtype=self._sizes.negative_content)
        vectors = self._vectors([np.ascontiguousarray(content["vector"]).tobytes()])
        items = owner.rows_of(content["place"].astype(np.int64))
        return vectors, Contribution.of(items, first + np.arange(len(rows)), content["pair"]), met
