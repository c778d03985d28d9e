"""Where a client is in a pass: a value that each phase replaces by the next one."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from lpgcn.model.kernels import Floats, Integers
from lpgcn.model.losses.gradient import LossGradient
from lpgcn.model.propagation import Backward, Forward
from lpgcn.protocol.client.wishes import Drawn, Wishes
from lpgcn.protocol.suite import Kind


@dataclass(frozen=True)
class OwnLoss:
    """In a batch: what this client's samples gave."""

    gradient: LossGradient
    """∂Loss/∂e_u, which stays with the client."""
    own_pairs: npt.NDArray[np.void]
    """s and n of the positives that this client owns itself."""
    total: int
    """The loss, in fixed point."""


class Pass(msgspec.Struct, frozen=True):
    """Of the user, and of the items if this client owns any."""

    own_row: Integers
    """What this client's items push to its own user: one row, or none."""
    of_user: Forward | Backward | None = None
    of_items: Forward | Backward | None = None
    drawn: Drawn | None = None
    wishes: Wishes | None = None
    own_loss: OwnLoss | None = None
    built: Integers | None = None
    """What a built user returns to the W_i that it is made of."""
    veil: npt.NDArray[np.uint64] | None = None
    """What everybody added to its part of the gradients of the dense weights."""

    @property
    def final_user(self) -> Floats | None:
        """e_u, once it is known and as long as this is going forward."""
        return self.of_user.finals if isinstance(self.of_user, Forward) else None

    @property
    def final_items(self) -> Floats | None:
        return self.of_items.finals if isinstance(self.of_items, Forward) else None

    @property
    def own_push(self) -> Integers:
        """What this client's user pushes to its own items."""
        if self.built is not None:
            return self.built
        assert self.of_user is not None, "the order of phases has begun the pass"
        return self.of_user.push

    @property
    def forward(self) -> tuple[Forward, Forward | None]:
        user, items = self.of_user, self.of_items
        assert isinstance(user, Forward) and not isinstance(items, Backward)
        return user, items

    @property
    def backward(self) -> tuple[Backward, Backward | None]:
        user, items = self.of_user, self.of_items
        assert isinstance(user, Backward) and not isinstance(items, Forward)
        return user, items

    @property
    def is_backward(self) -> bool:
        return isinstance(self.of_user, Backward)

    @property
    def kind(self) -> Kind:
        """Of the users' vectors that travel now."""
        return Kind.USER_BACKWARD if self.is_backward else Kind.USER_FORWARD

    def absorbed(self, to_user: Integers, to_items: Integers | None) -> Pass:
        """One layer more, in whichever direction this is going."""
        assert self.of_user is not None
        items = None
        if self.of_items is not None and to_items is not None:
            items = self.of_items.absorb(to_items)
        return self.with_(of_user=self.of_user.absorb(to_user), of_items=items)

    def with_(self, **values: object) -> Pass:
        """With other values; several times as fast as a dataclass does it, in every phase."""
        return msgspec.structs.replace(self, **values)

    def finished(
        self, to_user: Integers | None, to_items: Integers | None, wishes: Wishes | None
    ) -> Pass:
        """The last layer forward, of the user only if it is needed."""
        user, items = self.forward
        return self.with_(
            of_user=user if to_user is None else user.finish(to_user),
            of_items=items if items is None or to_items is None else items.finish(to_items),
            wishes=wishes,
        )

    def turned(self, user_loss: LossGradient, item_loss: LossGradient) -> Pass:
        """From forward to backward; the items have pushed nothing back yet."""
        user, items = self.forward
        back = None if items is None else items.backward(item_loss)
        return self.with_(own_row=self.own_row[:0], of_user=user.backward(user_loss), of_items=back)
