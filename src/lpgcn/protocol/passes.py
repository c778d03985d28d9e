"""One client's part in a pass: forward, loss, backward, update (Algorithms 4, 9, 6 and 7).

A request names the stage that it asks for and brings the rows that others pushed in the stage
before. A stage opens all of them before it changes anything.
"""

from __future__ import annotations

import math
import struct
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lpgcn import fixed_point
from lpgcn.config import Config
from lpgcn.crypto import Indices
from lpgcn.model.adam import Adam
from lpgcn.model.loss import LossGradient
from lpgcn.protocol import messages as m
from lpgcn.protocol.doors import Doors
from lpgcn.protocol.errors import MalformedMessageError, UnexpectedMessageError
from lpgcn.protocol.loss_stage import LossStage
from lpgcn.protocol.messages import Header, Phase
from lpgcn.protocol.owner import Owner
from lpgcn.protocol.suite import Kind
from lpgcn.protocol.user import User, no_gradient

Int64 = npt.NDArray[np.int64]
Bits = npt.NDArray[np.bool_]
RATE: Final = struct.Struct("<d")
_FOR_OWNERS: Final = (
    "user_rows", "user_present", "pair_rows", "negatives", "contacts", "order", "introductions",
)  # fmt: skip


class Passes:
    """The nodes that a client owns, carried through the stages of a pass."""

    def __init__(self, config: Config, doors: Doors, user: User) -> None:
        self._layers, self._doors = config.layers, doors
        self.user = user
        self.owner: Owner | None = None
        self.loss_stage = LossStage(doors, user)
        self.loss_total = 0
        """The loss of this client's samples and nodes since it last reported, in fixed point."""
        self._gradient_begun = False
        self._nothing = doors.blank(0)
        self._own_final = self._nothing
        self._built_push = torch.empty(0)

    def adams(self) -> dict[str, Adam]:
        """The parameters that this client holds, by the name of their table."""
        own = {} if self.user.adam is None else {"users": self.user.adam}
        return own if self.owner is None else own | self.owner.adam

    def as_owner(self) -> Owner:
        if self.owner is None:
            raise UnexpectedMessageError("a message for a convolution-client, but nothing is owned")
        return self.owner

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
        self.loss_stage.said, self._gradient_begun = None, False

    def finish_forward(self, message: m.Exchange, header: Header) -> m.Push:
        """Absorb the last layer; the owner sends the final vectors that somebody needs."""
        wanted = self._wanted(message)
        self._absorb(message, Header(header.step, Phase.FORWARD, self._layers - 1))
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

    # Loss and backward.

    def loss(self, message: m.Samples, header: Header) -> m.Gradients:
        """Algorithm 9: the loss of this client's samples, and what it says to the items' owners."""
        reply, total = self.loss_stage.say(message, header, self._own_final)
        self.loss_total += total
        return reply

    def begin_backward(self, message: m.LossRows, header: Header) -> m.Push:
        """g^(L): the client's own from its loss, its items' from what the batch clients sent."""
        wanted, wants_user = self._wanted(message), m.flag(message.wants_user, "wants_user")
        batch_size = m.one_number(message.batch_size, "batch_size", least=1)
        if self.owner is None:
            m.unused(message, *_FOR_OWNERS)
            self._begin_gradient(None, batch_size)
        else:
            gradient, met = self.loss_stage.item_gradient(message, header, self.owner)
            self._begin_gradient(gradient, batch_size)
            self._doors.keys.contacts_in |= met
        return self._push(header, wanted, self._own_push(), wants_user=wants_user)

    def _begin_gradient(self, items: LossGradient | None, batch_size: int) -> None:
        """Numbers that are too large to be added up are refused before anything changes."""
        said, user, owner = self.loss_stage.said, self.user, self.owner
        own = no_gradient(user.nodes.push) if said is None else said.gradient
        total = fixed_point.total(user.regulariser(own))
        if owner is not None:
            touched = items or no_gradient(owner.nodes.push)
            total += fixed_point.total(owner.regulariser(touched))
            owner.begin_gradient(touched, batch_size)
        user.begin_gradient(own, batch_size)
        self.loss_total += total
        self._gradient_begun = True

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
        self._absorb(message, Header(header.step, Phase.BACKWARD, self._layers - 1))
        user, owner = self.user, self.owner
        if owner is not None:
            owner.adam["items"].step(owner.nodes.gradient(), rate)
        if user.adam is not None:
            user.adam.step(user.nodes.gradient(), rate)
            return m.Push(header=b"", user=b"", items=b"")
        self._built_push = user.nodes.push_gradient()
        sealed = self._doors.seal_user(header, Kind.USER_BACKWARD, self._built_push)
        return m.Push(header=b"", user=sealed, items=b"")

    def update_built(self, message: m.Exchange, header: Header) -> m.Reply:
        """LightGCN+ (Algorithm 7, line 16): Adam for W_i, at the owner of the item."""
        owner, rate = self.as_owner(), _rate(message)
        m.unused(message, "item_rows")
        arrived = self._arrived_users(message, Header(header.step, Phase.UPDATE))
        owner.adam["item_users"].step(owner.sum(arrived, self._built_push), rate)
        return m.Reply(header=b"")

    # What the stages have in common.

    def open_catalogue(self, field: bytes, step: int, n_items: int) -> Tensor:
        """The final vectors of all items, in the order of the catalogue."""
        return self._doors.open_items(field, Header(step, Phase.FINAL), Indices(np.arange(n_items)))

    def _own(self, name: str) -> Tensor:
        return self._nothing if self.owner is None else self.owner.adam[name].parameter

    def _own_push(self) -> Tensor:
        return self._nothing if self.owner is None else self.owner.nodes.push

    def _arrived_items(self, message: m.Exchange, pushed: Header) -> Tensor:
        user, doors = self.user, self._doors
        if not message.item_present:
            return doors.open_items(message.item_rows, pushed, user.arriving_indices)
        present = m.bits(message.item_present, "item_present", len(user.arriving_places))
        some = Indices(user.arriving_places[present])
        return doors.filled(doors.open_items(message.item_rows, pushed, some), present)

    def _arrived_users(self, message: m.Exchange, pushed: Header) -> Tensor:
        kind = Kind.USER_FORWARD if pushed.phase == Phase.FORWARD else Kind.USER_BACKWARD
        if self.owner is None:
            m.unused(message, "user_rows", "user_present")
            return self._nothing
        size = self.owner.neighbourhood.size
        present = m.bits(message.user_present, "user_present", size)
        return self._doors.open_users(message.user_rows, pushed, kind, present)

    def _wanted(self, message: m.Exchange | m.LossRows) -> Bits:
        """Which owned items to push: read before anything changes."""
        return m.bits(message.wanted, "wanted", 0 if self.owner is None else len(self.owner.places))

    def _push(
        self, header: Header, wanted: Bits, items: Tensor, *, wants_user: bool = False
    ) -> m.Push:
        sealed_user = sealed_items = b""
        if wants_user:
            kind = Kind.USER_FORWARD if header.phase == Phase.FORWARD else Kind.USER_BACKWARD
            sealed_user = self._doors.seal_user(header, kind, self.user.nodes.push)
        if self.owner is not None and wanted.any():
            places = self.owner.places[wanted]
            sealed_items = self._doors.seal_items(header, places, items[torch.from_numpy(wanted)])
        return m.Push(header=b"", user=sealed_user, items=sealed_items)


def _rate(message: m.Exchange) -> float:
    if len(message.learning_rate) != RATE.size:
        raise MalformedMessageError("an update without a learning rate")
    rate: float = RATE.unpack(message.learning_rate)[0]
    if not 0 <= rate < math.inf:
        raise MalformedMessageError(f"a learning rate of {rate}, expected a number from 0 on")
    return rate
