"""One client's part in the loss (Algorithm 9): as a user of the batch, and as an owner of items.

What is the same for every loss is here: the positives of a client, whose vectors its owners grant
it, and what it tells these about them. What a loss does with negatives is in `samples` and `pool`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Int64
from lpgcn.crypto import SecretKey
from lpgcn.model.kernels import Floats
from lpgcn.model.losses.gradient import LossGradient
from lpgcn.protocol.client.owner import Contribution, Owner
from lpgcn.protocol.client.passing import OwnLoss, Pass
from lpgcn.protocol.client.profile import Profile
from lpgcn.protocol.client.sealing import Keys
from lpgcn.protocol.client.standing import Standing
from lpgcn.protocol.client.user import User
from lpgcn.protocol.client.wishes import Drawn, Wishes
from lpgcn.protocol.errors import MalformedMessageError
from lpgcn.protocol.phases import Phase
from lpgcn.protocol.suite import Kind
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire import reading
from lpgcn.protocol.wire.encoding import Header
from lpgcn.protocol.wire.sizes import Sizes


class LossPart(ABC):
    """What a client wishes for and says about its samples, and what it hears about its items."""

    def __init__(
        self, about: Profile, standing: Standing, keys: Keys, user: User, owner: Owner | None
    ) -> None:
        self._standing = standing
        self._config, self._n_items = about.config, about.n_items
        self._keys, self._sizes = keys, Sizes.of(about.config)
        self._user, self._owner = user, owner

    # As a user of the batch.

    @abstractmethod
    def draw(self, message: m.Exchange) -> Drawn | None:
        """The positives of this client in a step; None outside the batch."""

    @abstractmethod
    def wish(self, header: Header, drawn: Drawn) -> bytes:
        """What each owner is asked for."""

    def _to_owners(self, header: Header, kind: Kind, drawn: Drawn, content: bytes) -> bytes:
        """The slots of each owner, sealed to it."""
        a_slot, _ = self._sizes.slots(kind)
        messages = reading.cut(content, [a_slot * count for count in drawn.slots], kind.name)
        return self._keys.seal(header, kind, self._keys.owners, range(len(messages)), messages)

    def _cut_slots(self, field: bytes, kind: Kind, slots: Iterable[int], name: str) -> list[bytes]:
        """The messages of a field, each with its slots, as they were sealed."""
        a_slot, besides = self._sizes.slots(kind)
        return reading.cut(field, [a_slot * count + besides for count in slots], name)

    @abstractmethod
    def reply(self, message: m.Samples, header: Header, now: Pass) -> tuple[m.Gradients, OwnLoss]:
        """What the items' owners are told. Something is sent in every slot, so that traffic does
        not tell which items were used."""

    def _positives(
        self, message: m.Samples, header: Header, now: Pass, drawn: Drawn
    ) -> list[bytes]:
        """Final vectors of the positives: those wished for, and those of its own items."""
        keys, sent = self._keys, Header(header.pass_number, Phase.FINAL)
        granted = self._cut_slots(message.granted, Kind.GRANT, drawn.slots, "granted")
        opened = keys.open(sent, Kind.GRANT, keys.owners, range(len(granted)), granted)
        slots = reading.split(b"".join(opened), self._sizes.final, "granted")
        vectors = [b""] * drawn.count
        for number, slot in zip(drawn.wished, drawn.slot, strict=True):
            vectors[number] = slots[slot]
        if drawn.own:
            assert now.final_items is not None
            shown = self._show(now.final_items[drawn.own_rows]).astype(self._sizes.shown)
            for number, row in zip(drawn.own, in_rows(shown), strict=True):
                vectors[number] = row
        return vectors

    def _show(self, vectors: Floats) -> Floats:
        """What others get to see of final vectors."""
        return vectors

    def _content(self, shown: Floats) -> bytes:
        return shown.astype(self._sizes.shown).tobytes()

    def _vectors(self, rows: Sequence[bytes]) -> Floats:
        """What others showed."""
        content = np.frombuffer(b"".join(rows), dtype=self._sizes.shown)
        return content.reshape(-1, self._sizes.dim).astype(self._config.dtype)

    def _scalars(self, header: Header, drawn: Drawn, about: Sequence[bytes]) -> bytes:
        """s and n of each positive, in the slot in which it was wished for."""
        slots = [bytes(self._sizes.pair.itemsize)] * sum(drawn.slots)
        for number, slot in zip(drawn.wished, drawn.slot, strict=True):
            slots[slot] = about[number]
        return self._to_owners(header, Kind.SCALARS, drawn, b"".join(slots))

    # As an owner of items.

    @abstractmethod
    def open_wishes(self, message: m.Finish, sent: Header, now: Pass) -> Wishes | None:
        """What the batch's neighbours wish for; None for a client that owns nothing."""

    def seal_finals(
        self, header: Header, now: Pass, places: Sequence[int], finals: Floats
    ) -> bytes:
        """The final vectors of some owned items, for everybody who needs them."""
        return self._keys.seal_finals(header, places, in_rows(finals))

    def grant(self, header: Header, wishes: Wishes, finals: Floats) -> bytes:
        """The final vectors that were wished for, to each neighbour in its slots."""
        shown = self._show(finals)
        content = self._content(np.where(wishes.items[:, None] < 0, 0, shown[wishes.items]))
        lengths = (self._sizes.final * wishes.slots).tolist()
        messages = reading.cut(content, lengths, "granted")
        return self._keys.seal(
            header, Kind.GRANT, self._keys.pairs, wishes.handles.tolist(), messages
        )

    @abstractmethod
    def item_gradient(
        self, message: m.LossRows, header: Header, now: Pass
    ) -> tuple[LossGradient, list[SecretKey]]:
        """∂Loss/∂e_i from what the batch sent, and the keys of contacts that are new."""

    def _open_scalars(
        self, message: m.LossRows, sent_in: Header, wishes: Wishes
    ) -> tuple[Floats, Contribution]:
        keys, handles = self._keys, wishes.handles.tolist()
        width = self._sizes.row(Kind.USER_FINAL)
        rows = reading.split(message.users, width, "users", count=len(handles))
        finals = self._vectors(keys.open(sent_in, Kind.USER_FINAL, keys.neighbours, handles, rows))
        slots = wishes.slots.tolist()
        sealed = self._cut_slots(message.scalars, Kind.SCALARS, slots, "scalars")
        opened = keys.open(sent_in, Kind.SCALARS, keys.pairs, handles, sealed)
        pairs = np.frombuffer(b"".join(opened), dtype=self._sizes.pair)
        if not self._could_be(pairs, wishes.items):
            raise MalformedMessageError("scalars that no client has about what was wished for")
        senders = np.repeat(np.arange(len(handles)), wishes.slots)
        return finals, Contribution.of(wishes.items, senders, pairs)

    @abstractmethod
    def _could_be(self, pairs: npt.NDArray[np.void], items: Int64) -> bool:
        """Whether the loss can give these s and n for owned items, -1 where a slot has none."""

    def _from_self(self, now: Pass, row: int) -> tuple[Floats, Contribution]:
        """What this client's own samples say about positives that it owns itself."""
        if now.own_loss is None or now.drawn is None or now.final_user is None:
            none = np.empty(0, dtype=np.int64)
            empty = np.empty(0, dtype=self._sizes.pair)
            return self._vectors([]), Contribution.of(none, none, empty)
        rows = np.array(now.drawn.own_rows, dtype=np.int64)
        senders = np.full(len(rows), row)
        return self._show(now.final_user), Contribution.of(rows, senders, now.own_loss.own_pairs)


def in_rows(table: npt.NDArray[np.generic]) -> list[bytes]:
    """The bytes of each row."""
    content, width = table.tobytes(), table.shape[1] * table.itemsize
    return [content[start : start + width] for start in range(0, len(content), width)]
