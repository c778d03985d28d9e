"""A client's part in the loss against a pool of negatives (softmax).

Everybody takes part in every step with all of its items, so that nothing is wished for: an owner
grants each neighbour what that one really has. What a client says about the negatives goes to the
server as its part of a sum over its group, under masks that cancel; the owner of a negative gets
the sum, and meets nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lpgcn import fixed_point
from lpgcn.array_types import Int64
from lpgcn.crypto import SecretKey
from lpgcn.model.batches import pool_sizes, weighted
from lpgcn.model.kernels import Floats
from lpgcn.model.losses.gradient import LossGradient
from lpgcn.model.losses.softmax import SLOPES, Directions, PoolGradients, Softmax, columns
from lpgcn.protocol.client.loss import LossPart, in_rows
from lpgcn.protocol.client.passing import OwnLoss, Pass
from lpgcn.protocol.client.wishes import Drawn, Wishes
from lpgcn.protocol.errors import MalformedMessageError, UnexpectedMessageError
from lpgcn.protocol.phases import Phase
from lpgcn.protocol.suite import Kind
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire import reading
from lpgcn.protocol.wire.encoding import Header
from lpgcn.ragged import Ragged


class PooledLoss(LossPart):
    """See `LossPart`."""

    @cached_property
    def _softmax(self) -> Softmax:
        return Softmax.of(self._config)

    @property
    def _pool(self) -> tuple[int, int]:
        """How many negatives come, and how many are answered."""
        return pool_sizes(self._config, self._n_items)

    def _show(self, vectors: Floats) -> Floats:
        """Where they point."""
        return self._softmax.directions(vectors, self._user.nodes.kernels).rows

    def draw(self, message: m.Exchange) -> Drawn | None:
        """All of its items, whatever the epoch; None outside of training."""
        reading.nothing_in(message, "positions")
        if not message.epoch:
            return None
        reading.one_number(message.epoch, "epoch")
        if not self._user.n_real:
            raise UnexpectedMessageError("a training step for a client that has no interactions")
        return self._user.everything

    def wish(self, header: Header, drawn: Drawn) -> bytes:
        return b""

    def open_wishes(self, message: m.Finish, sent: Header, now: Pass) -> Wishes | None:
        """In training, everything that each neighbour really has."""
        reading.nothing_in(message, "wishing", "slots", "wishes")
        if self._owner is None:
            return None
        return Wishes.none() if now.drawn is None else self._owner.every_wish

    def seal_finals(
        self, header: Header, now: Pass, places: Sequence[int], finals: Floats
    ) -> bytes:
        """In training only where they point."""
        if now.drawn is None:
            return super().seal_finals(header, now, places, finals)
        shown = self._show(finals).astype(self._sizes.shown)
        return self._keys.seal_finals(header, places, in_rows(shown), Kind.POOL)

    def reply(self, message: m.Samples, header: Header, now: Pass) -> tuple[m.Gradients, OwnLoss]:
        drawn, final, keys = now.drawn, now.final_user, self._keys
        if drawn is None or final is None:
            raise UnexpectedMessageError("negatives outside of training")
        reading.nothing_in(message, "negatives", "contacts", "new_contacts")
        places, pool = self._open_pool(message, header)
        vectors = self._vectors(self._positives(message, header, now, drawn))
        at_user = self._softmax.directions(final, self._user.nodes.kernels)
        found = self._softmax.gradients(
            Ragged.single(np.arange(drawn.count)),
            at_user.rows,
            vectors,
            pool,
            columns(Ragged.single(self._user.real_places), places, self._n_items),
            self._pool[1],
            self._user.nodes.kernels,
        )
        table = np.empty(drawn.count, dtype=self._sizes.pair)
        table["coefficient"], table["count"] = found.coefficient, 1
        gradient = self._own_gradient(found, vectors, at_user)
        own_loss = OwnLoss(gradient, table[drawn.own], fixed_point.total(found.loss))
        reply = m.Gradients(
            user=keys.seal(header, Kind.USER_FINAL, keys.own, [0], [self._content(at_user.rows)]),
            scalars=self._scalars(header, drawn, in_rows(table[:, None])),
            answers=keys.mask_in_group(header, found.answers.reshape(-1).view(np.uint64)),
        )
        return reply, own_loss

    def _open_pool(self, message: m.Samples, header: Header) -> tuple[Int64, Floats]:
        """The places of the negatives, and where their vectors point."""
        count, width = self._pool[0], self._sizes.row(Kind.POOL)
        places = reading.numbers(
            message.negative_places, "negative_places", below=self._n_items, count=count
        )
        if len(np.unique(places)) < count:
            raise MalformedMessageError("field negative_places holds a place twice")
        rows = reading.split(message.negative_rows, width, "negative_rows", count=count)
        sent = Header(header.pass_number, Phase.FINAL)
        opened = self._keys.open_finals(sent, places.tolist(), rows, Kind.POOL)
        return places, self._vectors(opened)

    def _vectors(self, rows: Sequence[bytes]) -> Floats:
        """What others showed; a direction that is too long would not add up exactly."""
        vectors = super()._vectors(rows)
        if not self._softmax.are_directions(vectors):
            raise MalformedMessageError("a direction that is longer than directions are")
        return vectors

    def _own_gradient(
        self, found: PoolGradients, vectors: Floats, at_user: Directions
    ) -> LossGradient:
        """∂Loss/∂e_u, which stays with the client."""
        nodes, every = self._user.nodes, Ragged.single(np.arange(len(vectors)))
        sums = nodes.kernels.weighted_sums(every, vectors, found.coefficient, SLOPES.steps)
        return self._softmax.tangent_gradient(
            sums + found.users,
            np.array([float(len(vectors))]),
            at_user,
            nodes.backward_grid,
            nodes.kernels,
        )

    def item_gradient(
        self, message: m.LossRows, header: Header, now: Pass
    ) -> tuple[LossGradient, list[SecretKey]]:
        reading.nothing_in(message, "negatives", "contacts", "introductions")
        owner, wishes, finals = self._owner, now.wishes, now.final_items
        if owner is None or wishes is None or finals is None:
            reading.nothing_in(message, "users", "scalars", "answered", "answers")
            return LossGradient.none(self._sizes.dim), []
        sent_in = Header(header.pass_number, Phase.LOSS)
        neighbours, from_neighbours = self._open_scalars(message, sent_in, wishes)
        own, from_self = self._from_self(now, len(neighbours))
        found = owner.loss_gradient(
            (from_neighbours, from_self), np.concatenate((neighbours, own)), SLOPES
        )
        sums, in_samples = np.zeros(finals.shape), np.zeros(len(finals))
        sums[found.rows], in_samples[found.rows] = found.sums, found.in_samples
        nodes = owner.nodes
        return self._softmax.tangent_gradient(
            sums + weighted(self._answers(message, len(finals)), self._pool),
            in_samples,
            self._softmax.directions(finals, nodes.kernels),
            nodes.backward_grid,
            nodes.kernels,
        ), []

    def _could_be(self, pairs: npt.NDArray[np.void], items: Int64) -> bool:
        """Each item once, with a slope of 0 to −1/τ, on the grid."""
        slopes = pairs["coefficient"] * SLOPES.steps
        steepest = np.rint(SLOPES.steps / self._config.temperature)
        counted = np.array_equal(pairs["count"], items >= 0)
        return counted and bool(
            ((slopes <= 0) & (slopes >= -steepest) & (slopes == np.rint(slopes))).all()
        )

    def _answers(self, message: m.LossRows, owned: int) -> Int64:
        """For every owned item what all groups together answered about it."""
        answered = np.flatnonzero(reading.bits(message.answered, "answered", owned))
        width = self._sizes.answer
        reading.split(message.answers, width, "answers", count=len(answered))
        answers = np.zeros((owned, self._sizes.dim), dtype=np.int64)
        content = np.frombuffer(message.answers, dtype="<i8")
        answers[answered] = content.reshape(len(answered), self._sizes.dim)
        return answers
