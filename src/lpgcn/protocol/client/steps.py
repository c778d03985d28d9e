"""A client's part in a training step (Algorithms 4, 9, 6 and 7): forward, loss, backward, update.

A request brings the rows that others pushed in the phase before. A method opens and checks all of
them before it changes anything, so that a message that is refused leaves the client as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Self

import msgspec
import numpy as np

from lpgcn import fixed_point
from lpgcn.array_types import Bits
from lpgcn.config import Loss
from lpgcn.model.adam import Adam
from lpgcn.model.backbones import BUILDING
from lpgcn.model.grid import Grid
from lpgcn.model.kernels import Floats, Integers
from lpgcn.model.losses.gradient import LossGradient
from lpgcn.model.propagation import building_push, gradient_of_building
from lpgcn.model.sampling import catalogue
from lpgcn.protocol.client.loss import LossPart, in_rows
from lpgcn.protocol.client.owner import Owner
from lpgcn.protocol.client.passing import Pass
from lpgcn.protocol.client.pool import PooledLoss
from lpgcn.protocol.client.profile import Device
from lpgcn.protocol.client.samples import SampledLoss
from lpgcn.protocol.client.sealing import Keys
from lpgcn.protocol.client.shared import SharedWeights
from lpgcn.protocol.client.standing import (
    FormerIdentity,
    Standing,
)
from lpgcn.protocol.client.user import Listing, User
from lpgcn.protocol.errors import UnexpectedMessageError
from lpgcn.protocol.phases import Phase, PhaseOrder
from lpgcn.protocol.suite import Kind
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire import reading
from lpgcn.protocol.wire.encoding import Header
from lpgcn.protocol.wire.sizes import Sizes

_LOSSES: Final[Mapping[Loss, type[LossPart]]] = {"bpr": SampledLoss, "softmax": PooledLoss}
_PUSHES: Final = ("pushes", "pushes_present")
_USERS: Final = ("users", "users_present")
_SAMPLES: Final = ("positions", "epoch")


class Steps:
    """A verified member, as far as training steps are concerned."""

    def __init__(
        self,
        device: Device,
        standing: Standing,
        *,
        former: FormerIdentity | None = None,
        user: dict[str, Adam] | None = None,
        items: dict[str, Adam] | None = None,
        shared: SharedWeights | None = None,
        loss_total: int = 0,
    ) -> None:
        """Parameters that are not given are drawn, as in a first term."""
        about = device.about
        self._device, self._standing, self._former = device, standing, former
        self._about, self._config, self._seed = about, about.config, standing.seed
        self._order, self._sizes = PhaseOrder.of(about.config), Sizes.of(about.config)
        keys = self._keys = Keys.of(standing, self._sizes.suite, device.opened)
        listing = Listing.from_standing(about, standing)
        self._shared = shared or SharedWeights(about.config, standing.seed)
        in_all = standing.members + about.n_items
        features = device.features_of_user()
        self._user = User(about, listing, standing.asked, user, in_all, features)
        self._owner = _owner(device, standing, listing, items, in_all) if standing.owned else None
        self._integer = self._user.nodes.forward_grid.integer
        self._nothing = np.zeros((0, self._config.dim), dtype=self._integer)
        self._pass = Pass(self._nothing)
        self._loss = _LOSSES[about.config.loss](about, standing, keys, self._user, self._owner)
        self._loss_total = loss_total
        """The loss of this client's samples and nodes since it last reported, in fixed point."""

    @property
    def owns(self) -> bool:
        return self._owner is not None

    @property
    def run(self) -> bytes:
        return self._keys.run

    @property
    def members(self) -> int:
        return self._standing.members

    def _as_owner(self) -> Owner:
        if self._owner is None:
            raise UnexpectedMessageError("a message for a convolution-client, but nothing is owned")
        return self._owner

    # Forward.

    def build(self, message: m.Exchange, header: Header) -> tuple[m.Message, Self]:
        """LightGCN+: what users are built from goes out (Algorithm 7, line 16)."""
        owner = self._as_owner()
        reading.nothing_in(message, *_PUSHES, *_USERS, *_SAMPLES)
        reading.flag(message.wants_user, "wants_user")
        wanted = reading.bits(message.wanted, "wanted", owner.n_pushes)
        rows, _ = building_push(owner.tables[BUILDING].parameter, owner.nodes)
        grid = owner.nodes.forward_grid
        pushes, own_row = self._pushed(header, wanted, rows, grid, "building users")
        self._pass = Pass(own_row)
        return m.Push(pushes=pushes), self

    def forward(self, message: m.Exchange, header: Header) -> tuple[m.Message, Self]:
        """Algorithm 4: absorb what the last layer pushed, push the next."""
        if header.layer < self._order.layers - 1:
            reading.nothing_in(message, *_SAMPLES)
        drawn = self._loss.draw(message)
        pushed = self._order.pushed_before(header)
        if pushed is None or pushed.phase == Phase.BUILD:
            now = self._begun(message, pushed)
        else:
            now = self._absorbed(self._pass, message, pushed)
        push, now = self._push(message, header, now)
        self._pass = now.with_(drawn=drawn)
        wishes = b"" if drawn is None else self._loss.wish(header, drawn)
        return msgspec.structs.replace(push, wishes=wishes), self

    def _begun(self, message: m.Exchange, built_in: Header | None) -> Pass:
        user, owner, weights = self._user, self._owner, self._shared.weights()
        reading.nothing_in(message, *_USERS)
        if built_in is None:
            reading.nothing_in(message, *_PUSHES)
            of_user = user.nodes.begin(user.tables["users"].parameter, weights)
        else:
            of_user = user.nodes.build(self._arrived_pushes(self._pass, message, built_in), weights)
        of_items = None
        if owner is not None:
            of_items = owner.nodes.begin(owner.tables["items"].parameter, weights)
        return Pass(self._nothing, of_user, of_items)

    def finish_forward(self, message: m.Finish, header: Header) -> tuple[m.Message, Self]:
        """The last layer; the owner sends the final vectors that somebody needs."""
        owner, pushed = self._owner, self._pushed_before(header)
        wanted = reading.bits(message.wanted, "wanted", 0 if owner is None else len(owner.items))
        wishes = self._loss.open_wishes(message, pushed, self._pass)
        present = reading.bits(message.pushes_present, "pushes_present", self._user.n_arriving)
        to_user = self._arrived_pushes(self._pass, message, pushed)
        to_items = self._arrived_users(self._pass, message, pushed)
        # An owner outside the batch gets no pushes: its user's own vector is not needed.
        self._pass = self._pass.finished(to_user if present.all() else None, to_items, wishes)
        if owner is None or wishes is None or self._pass.final_items is None:
            return m.Finals(), self
        which, vectors = owner.places[wanted].tolist(), self._pass.final_items[wanted]
        items = self._loss.seal_finals(header, self._pass, which, vectors)
        granted = self._loss.grant(header, wishes, self._pass.final_items)
        return m.Finals(items=items, granted=granted), self

    # Loss and backward.

    def loss(self, message: m.Samples, header: Header) -> tuple[m.Message, Self]:
        """Algorithm 9: the loss of this client's samples, and what it says to the items' owners."""
        reply, own_loss = self._loss.reply(message, header, self._pass)
        self._pass = self._pass.with_(own_loss=own_loss)
        self._loss_total += own_loss.total
        return reply, self

    def begin_backward(self, message: m.LossRows, header: Header) -> tuple[m.Message, Self]:
        """g^(L): the client's own from its loss, its items' from what the batch clients sent."""
        gradient, met = self._loss.item_gradient(message, header, self._pass)
        now, total = self._turned(gradient)
        reply, self._pass = self._push(message, header, now)
        self._keys.pairs.extend(met)
        self._loss_total += total
        return reply, self

    def backward(self, message: m.Exchange, header: Header) -> tuple[m.Message, Self]:
        """Algorithm 6: absorb what the last layer pushed, push the next."""
        reading.nothing_in(message, *_SAMPLES)
        now, total = self._absorbed_back(message, header)
        reply, self._pass = self._push(message, header, now)
        self._loss_total += total
        return reply, self

    def _turned(self, items: LossGradient) -> tuple[Pass, int]:
        """From forward to backward, and what the regulariser adds to the loss."""
        now = self._pass
        own = LossGradient.none(self._sizes.dim) if now.own_loss is None else now.own_loss.gradient
        of_user, of_items = now.forward
        total = fixed_point.total(of_user.regulariser(own)) if len(own.rows) else 0
        if of_items is not None and len(items.rows):
            total += fixed_point.total(of_items.regulariser(items))
        return now.turned(own, items), total

    def _absorbed_back(self, message: m.Arrivals, header: Header) -> tuple[Pass, int]:
        now, total = self._pass, 0
        if not now.is_backward:
            # Whom the batch does not touch turns here, with no gradient of its own.
            now, total = self._turned(LossGradient.none(self._sizes.dim))
        return self._absorbed(now, message, self._pushed_before(header)), total

    # Update.

    def update(self, message: m.Update, header: Header) -> tuple[m.Message, Self]:
        """Algorithm 1, lines 10–15: Adam for the client's own parameters and its items'.

        LightGCN+ (Algorithm 7, line 11): the gradient of e_u^(0) returns to the W_i it is made of.
        """
        rate, batch_size = _for_adam(message)
        now, total = self._absorbed_back(message, header)
        user, items = now.backward
        built = user.push_to_built() if self._order.builds_users else None
        self._pass = now.with_(built=built)
        self._loss_total += total
        if self._owner is not None and items is not None:
            self._owner.tables["items"].step(items.gradient(batch_size), rate)
        for adam in self._user.tables.values():
            adam.step(user.gradient(batch_size), rate)
        if built is None:
            return m.Push(), self
        return m.Push(user=self._sealed_user(header, Kind.USER_BACKWARD, built)), self

    def update_built(self, message: m.Update, header: Header) -> tuple[m.Message, Self]:
        """LightGCN+ (Algorithm 7, line 16): Adam for W_i, at the owner of the item."""
        owner, (rate, batch_size) = self._as_owner(), _for_adam(message)
        reading.nothing_in(message, *_PUSHES)
        arrived = self._arrived_users(self._pass, message, self._pushed_before(header))
        assert arrived is not None
        gradient = gradient_of_building(owner.nodes, arrived, batch_size)
        owner.tables[BUILDING].step(gradient, rate)
        return m.Reply(), self

    def sum_shared(self, message: m.Ask, header: Header) -> tuple[m.Message, Self]:
        """What its nodes add to the gradients of the dense weights, veiled: not even their sum is
        for the server."""
        part = self._shared.part(one for one in self._pass.backward if one is not None)
        numbers = part.view(np.uint64)
        veil = self._keys.veil(header, len(numbers))
        self._pass = self._pass.with_(veil=veil)
        veiled = numbers + veil if self._standing.veils else numbers
        return m.Numbers(masked=self._keys.mask(header, veiled)), self

    def update_shared(self, message: m.Shared, header: Header) -> tuple[m.Message, Self]:
        """Adam for its copy of them."""
        veil, (rate, batch_size) = self._pass.veil, _for_adam(message)
        assert veil is not None, "the order of phases has summed up before"
        self._shared.step(self._shared.read(message.sums, veil), rate, batch_size)
        return m.Reply(), self

    # What the phases have in common.

    def _pushed_before(self, header: Header) -> Header:
        pushed = self._order.pushed_before(header)
        assert pushed is not None, "only the first phase of a pass has none before it"
        return pushed

    def _absorbed(self, now: Pass, message: m.Arrivals, pushed: Header) -> Pass:
        to_user = self._arrived_pushes(now, message, pushed)
        return now.absorbed(to_user, self._arrived_users(now, message, pushed))

    def _arrived_pushes(self, now: Pass, message: m.Arrivals, pushed: Header) -> Integers:
        """What owners pushed to this user, and in the last row what it pushes to itself."""
        keys, count = self._keys, self._user.n_arriving
        which = _present(message.pushes_present, "pushes_present", count)
        width = self._sizes.row(Kind.PUSH)
        rows = reading.split(message.pushes, width, "pushes", count=len(which))
        opened = keys.open(pushed, Kind.PUSH, keys.owners, which, rows)
        return self._filled(opened, which, count, now.own_row)

    def _arrived_users(self, now: Pass, message: m.Arrivals, pushed: Header) -> Integers | None:
        """The vectors of an owner's neighbours, and in the last row that of its own user."""
        if self._owner is None:
            if message.users or message.users_present:
                reading.nothing_in(message, *_USERS)
            return None
        keys, count = self._keys, len(self._owner.neighbours)
        which = _present(message.users_present, "users_present", count)
        rows = reading.split(message.users, self._sizes.row(now.kind), "users", count=len(which))
        opened = keys.open(pushed, now.kind, keys.neighbours, which, rows)
        return self._filled(opened, which, count, now.own_push)

    def _filled(
        self, opened: list[bytes], which: Sequence[int], count: int, last: Integers
    ) -> Integers:
        """Rows that were not sent are zero; one more row behind them."""
        content = np.frombuffer(b"".join(opened), dtype=self._integer)
        rows = np.zeros((count + 1, self._config.dim), dtype=self._integer)
        rows[which if len(which) < count else slice(count)] = content.reshape(
            len(which), self._config.dim
        )
        rows[count : count + len(last)] = last
        return rows

    def _push(
        self, message: m.Exchange | m.LossRows, header: Header, now: Pass
    ) -> tuple[m.Push, Pass]:
        """The user's vector and the owner's rows, sealed; what goes to its own user is kept."""
        wants_user = reading.flag(message.wants_user, "wants_user")
        pushes, own_row = b"", self._nothing
        if self._owner is None:
            reading.nothing_in(message, "wanted")
        elif now.of_items is not None:
            wanted = reading.bits(message.wanted, "wanted", self._owner.n_pushes)
            items = now.of_items
            pushes, own_row = self._pushed(header, wanted, items.push, items.grid, items.where)
        user = self._sealed_user(header, now.kind, now.own_push) if wants_user else b""
        return m.Push(user=user, pushes=pushes), now.with_(own_row=own_row)

    def _pushed(
        self, header: Header, wanted: Bits, rows: Integers, grid: Grid, where: str
    ) -> tuple[bytes, Integers]:
        """What goes to the neighbours that want it, sealed, and what goes to its own user."""
        push, which = self._as_owner().push(rows, grid, where), np.flatnonzero(wanted)
        sealed = self._keys.seal(
            header, Kind.PUSH, self._keys.pairs, which.tolist(), in_rows(push[which])
        )
        return sealed, push[-1:]

    def _sealed_user(self, header: Header, kind: Kind, vector: Integers) -> bytes:
        return self._keys.seal(header, kind, self._keys.own, [0], [vector.tobytes()])

    def _final_user(self) -> Floats:
        if self._pass.final_user is None:
            raise UnexpectedMessageError("item vectors, but no pass gave this user's own")
        return self._pass.final_user


def _owner(
    device: Device, standing: Standing, listing: Listing, tables: dict[str, Adam] | None,
    in_all: int,
) -> Owner:  # fmt: skip
    about, owned = device.about, standing.numbers("owned")
    items = catalogue(standing.seed, about.n_items)[owned]
    is_real = np.frombuffer(standing.neighbour_is_real, dtype=np.bool_)
    return Owner(
        about, items, owned, standing.neighbours, is_real, listing.really_owned, tables, in_all,
        device.features_of_items(items),
    )  # fmt: skip


def _for_adam(message: m.Update | m.Shared) -> tuple[float, int]:
    """The learning rate, and B."""
    rate = reading.learning_rate(message.learning_rate)
    return rate, reading.one_number(message.batch_size, "batch_size", least=1)


def _present(field: bytes, name: str, count: int) -> Sequence[int]:
    """The numbers of the rows that are there."""
    return np.flatnonzero(reading.bits(field, name, count)).tolist() if field else range(count)
