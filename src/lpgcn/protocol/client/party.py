"""A client in training: besides its part in a step, what it keeps, measures and predicts."""

from __future__ import annotations

from typing import Self

import msgspec
import numpy as np
import numpy.typing as npt

from lpgcn import fixed_point
from lpgcn.array_types import Int64
from lpgcn.checkpoints import unpacked
from lpgcn.crypto import fingerprint
from lpgcn.evaluation import per_user, top_items
from lpgcn.model.adam import Adam
from lpgcn.model.kernels import Floats
from lpgcn.model.sampling import catalogue, places
from lpgcn.model.scoring import scoring
from lpgcn.protocol.client.estate import bequeath, estate_of
from lpgcn.protocol.client.profile import Device
from lpgcn.protocol.client.shared import SharedWeights
from lpgcn.protocol.client.standing import (
    FORMAT,
    Belongings,
    ClientSnapshot,
    FormerIdentity,
    Nodes,
    item_tables,
    node_rows,
    node_tables,
    read_rows,
    user_tables,
)
from lpgcn.protocol.client.steps import Steps
from lpgcn.protocol.errors import MalformedMessageError, UnexpectedMessageError
from lpgcn.protocol.phases import Phase
from lpgcn.protocol.suite import Kind
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire import reading
from lpgcn.protocol.wire.encoding import Header
from lpgcn.protocol.wire.sizes import HEIRS, Sizes
from lpgcn.ragged import Ragged


class Party(Steps):
    """One verified member of a federation."""

    _kept: tuple[Floats, Floats] | None = None
    """e_u and all e_i of the last prediction."""

    # What is kept, and where to go on.

    def keep(self, message: m.Ask, header: Header) -> tuple[m.Message, Self]:
        """The present parameters are the best so far."""
        for adam in self.tables().values():
            adam.keep()
        return m.Reply(), self

    def go_back(self, message: m.Ask, header: Header) -> tuple[m.Message, Self]:
        for adam in self.tables().values():
            adam.go_back()
        return m.Reply(), self

    def checkpoint(self, message: m.Mark, header: Header) -> tuple[m.Message, Self]:
        """Write all that the next step depends on; as owner, leave a copy for the heirs."""
        number = reading.one_number(message.number, "number", least=1)
        heirs = self._standing.proved(message.heirs, "heirs")
        fewest = 0 if self._owner is None else min(HEIRS + 1, self._standing.members)
        if len(set(heirs)) < max(fewest, len(heirs)) or (heirs and self._owner is None):
            raise MalformedMessageError(f"{len(heirs)} heirs, expected {fewest} different ones")
        items = self._item_rows()
        reply = m.Estate() if self._owner is None else estate_of(items, number, self.run, heirs)
        snapshot = ClientSnapshot(
            format=FORMAT,
            standing=msgspec.structs.replace(
                self._standing,
                owner_keys=self._keys.owners.reveal(),
                pair_keys=self._keys.pairs.reveal(),
            ),
            user=node_rows(self._user.tables, self._sizes, 1).tobytes(),
            items=items.tobytes(),
            shared=self._shared.state(),
            loss_total=str(self._loss_total),
        )
        self._device.checkpoints.write(number, msgspec.msgpack.encode(snapshot))
        return reply, self

    def _item_rows(self) -> Nodes:
        tables = {} if self._owner is None else self._owner.tables
        return node_rows(tables, self._sizes, len(self.owned_items()))

    @classmethod
    def resumed(cls, device: Device, number: int) -> Party:
        """From a checkpoint of its own."""
        content, what = device.checkpoints.read(number), f"checkpoint {number}"
        snapshot = unpacked(content, ClientSnapshot, what, version=FORMAT)
        standing, config = snapshot.standing, device.about.config
        device.check_data(standing.data)
        sizes, owned = Sizes.of(config), len(standing.numbers("owned"))
        user = read_rows(snapshot.user, user_tables(config), sizes, 1)
        items = read_rows(snapshot.items, item_tables(config) if owned else [], sizes, owned)
        return cls(
            device, standing, user=node_tables(user), items=node_tables(items),
            shared=SharedWeights.restored(config, snapshot.shared),
            loss_total=int(snapshot.loss_total),
        )  # fmt: skip

    def bequeath(self, message: m.Estates, header: Header) -> tuple[m.Message, Self]:
        """As heir of somebody in the term before."""
        return bequeath(self._device, self._standing, self._former, message), self

    def belongings(self) -> Belongings:
        """What goes with this client into the next term; the loss is counted anew there, since who
        left has taken its part along."""
        return Belongings(
            FormerIdentity(self.run, self._keys.private), self._seed, self._user.tables,
            self.owned_items(), {} if self._owner is None else self._owner.tables, self._shared,
        )  # fmt: skip

    def hand_on(self, message: m.Ask, header: Header) -> tuple[m.Message, Self]:
        """As u_c: the dense weights for those who join. Who has been there has the same as all of
        these; who has not would seal others under the key and nonce of theirs."""
        if self._former is None:
            raise UnexpectedMessageError("a copy is asked of a client that has just joined")
        content = b"".join(self._shared.state())
        return m.Copy(content=self._keys.seal_copy(header, content)), self

    def take_over(self, message: m.Copied, header: Header) -> tuple[m.Message, Self]:
        """As one who joins: the dense weights as everybody else has them."""
        if self._former is not None:
            raise UnexpectedMessageError("a copy of weights that this client has already")
        sealed_in = Header(header.pass_number, Phase.HAND_ON)
        content = self._keys.open_copy(sealed_in, message.content)
        self._shared = SharedWeights.read_copy(self._config, content)
        return m.Reply(), self

    # Ranking and sums.

    def rank(self, message: m.Catalogue, header: Header) -> tuple[m.Message, Self]:
        """Rank all items locally; only masked numbers about the held-out ones leave the client."""
        part = "valid" if header.phase == Phase.RANK_VALID else "test"
        user, items = self._final_user(), self._open_catalogue(message, header)
        heldout, cutoffs = self._about.items(part), self._config.cutoffs
        masked = self._about.items("train")
        if part == "test" and self._config.mask == "train+valid":
            masked = np.union1d(masked, self._about.items("valid"))
        top, _ = self._top(user, items, masked, max(cutoffs))
        measured = per_user(top, Ragged.single(heldout), cutoffs)
        values = np.array([float(values[0]) for values in measured.values()] + [1.0])
        return self._numbers(header, fixed_point.encode(values * (len(heldout) > 0))), self

    def keep_prediction(self, message: m.Catalogue, header: Header) -> tuple[m.Message, Self]:
        """Final vectors for recommendations on this device."""
        self._kept = self._final_user(), self._open_catalogue(message, header)
        return m.Reply(), self

    def count(self, message: m.Ask, header: Header) -> tuple[m.Message, Self]:
        """|I_u|."""
        size = np.array([float(len(self._about.items("train")))])
        return self._numbers(header, fixed_point.encode(size)), self

    def report_loss(self, message: m.Ask, header: Header) -> tuple[m.Message, Self]:
        """The loss since the last report."""
        values = np.array([self._loss_total % 2**64], dtype=np.uint64)
        reply = self._numbers(header, values)
        self._loss_total = 0
        return reply, self

    def _numbers(self, header: Header, values: npt.NDArray[np.uint64]) -> m.Numbers:
        return m.Numbers(masked=self._keys.mask(header, values))

    def _open_catalogue(self, message: m.Catalogue, header: Header) -> Floats:
        """The final vectors of all items, by item."""
        n_items, pushed = self._about.n_items, Header(header.pass_number, Phase.FINAL)
        width = self._sizes.row(Kind.ITEM_FINAL)
        rows = reading.split(message.items, width, "items", count=n_items)
        opened = self._keys.open_finals(pushed, range(n_items), rows)
        by_place = np.frombuffer(b"".join(opened), dtype=self._config.dtype)
        return by_place.reshape(n_items, -1)[places(catalogue(self._seed, n_items))]

    def _top(self, user: Floats, items: Floats, masked: Int64, k: int) -> tuple[Int64, Floats]:
        """The best k items that are not masked, and their scores."""
        ranked = scoring(items, self._config.length_exponent, self._user.nodes.kernels)
        return top_items(user, ranked, Ragged.single(masked), k)

    # What the client's own device asks of it; nothing here travels.

    @property
    def fingerprint(self) -> str:
        """Of the directory of public keys that the server gave it, in words."""
        return fingerprint(self._standing.root, self._standing.members)

    def tables(self) -> dict[str, Adam]:
        """The parameters that this client holds, by the name of their table."""
        owned = {} if self._owner is None else self._owner.tables
        return self._user.tables | owned | self._shared.tables

    def owned_items(self) -> Int64:
        return np.empty(0, dtype=np.int64) if self._owner is None else self._owner.items

    def finals(self) -> dict[str, Floats]:
        """Its final vectors, after a forward pass."""
        items = self._pass.final_items
        return {"users": self._final_user()} | ({} if items is None else {"items": items})

    def prediction(self) -> tuple[Floats, Floats, Int64] | None:
        """e_u and all e_i of the last prediction, and the items that its user has; if there was
        one."""
        return self._kept and (*self._kept, self._about.items("train"))

    def recommend(self, k: int) -> list[tuple[int, float]]:
        """From the vectors of the last prediction: the best k items and their scores."""
        if self._kept is None:
            raise UnexpectedMessageError("no item vectors yet: ask the server for a prediction")
        top, scores = self._top(*self._kept, self._about.items("train"), k)
        found = zip(top[0].tolist(), scores[0].tolist(), strict=True)
        return [(item, score) for item, score in found if item >= 0]
