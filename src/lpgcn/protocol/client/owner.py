"""A convolution-client's item nodes: it adds up its neighbours' vectors for the items it owns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Bits, Int64
from lpgcn.model.adam import Adam
from lpgcn.model.backbones import backbone_of
from lpgcn.model.dense import nodes_of
from lpgcn.model.features import Features
from lpgcn.model.grid import Grid
from lpgcn.model.initial import initial_tables
from lpgcn.model.kernels import Floats, Integers
from lpgcn.model.kernels.plain import Plain
from lpgcn.model.losses.gradient import LossGradient
from lpgcn.protocol.client.profile import Profile
from lpgcn.protocol.client.wishes import Wishes
from lpgcn.protocol.errors import MalformedMessageError
from lpgcn.protocol.fan import FANS
from lpgcn.protocol.suite import SUITES
from lpgcn.protocol.wire.sizes import NO_WISH
from lpgcn.ragged import Ragged


@dataclass(frozen=True)
class Contribution:
    """What the loss says about owned items: (item, sender, s, n), of which n is never 0."""

    items: Int64
    senders: Int64
    """Rows of the vectors e_u that were sent."""
    coefficient: Floats
    count: Int64

    @classmethod
    def of(cls, items: Int64, senders: Int64, pairs: npt.NDArray[np.void]) -> Contribution:
        """Slots that nobody used have n = 0."""
        used = np.flatnonzero(pairs["count"])
        coefficient, count = pairs["coefficient"][used], pairs["count"][used]
        return cls(items[used], senders[used], coefficient, count.astype(np.int64))


class Owner:
    """The item nodes. Rows that arrive are those of the neighbours, by handle; the last one is that
    of this client's own user."""

    def __init__(
        self, about: Profile, items: Int64, places: Int64, neighbours: Ragged,
        is_real: Bits, own: Int64, tables: dict[str, Adam] | None, in_all: int,
        features: Features | None = None,
    ) -> None:  # fmt: skip
        """Handle h listed the owned rows `neighbours[h]`, of which some are real; `own` are those
        that this client's own user really has. Virtual items never enter a sum, and items with
        fewer users than `min_degree` none either. Without `tables` the parameters are drawn, from
        this client's own seed: nobody else knows them. There are `in_all` nodes in the federation.
        """
        config = about.config
        self.items, self.places, self.neighbours = items, places, neighbours
        self._is_real = is_real
        real, k = neighbours.where(is_real), len(neighbours)
        users = np.bincount(np.concatenate((real.values, own)), minlength=len(items))
        exchanged = users >= (config.min_degree if config.min_degree > 1 else 0)
        real, own = real.where(exchanged[real.values]), own[exchanged[own]]
        senders = np.concatenate((real.rows, np.full(len(own), k)))
        segments = Ragged.from_pairs(np.concatenate((real.values, own)), senders, len(items))
        name = f"the items of {about.name}"
        self.nodes = nodes_of(
            name, segments.lengths, segments, config, Plain(), in_all=in_all, features=features
        )
        outgoing = FANS[SUITES[config.suite].owner_push].outgoing(real, len(items))
        self.n_pushes = len(outgoing)
        outgoing = outgoing.where(exchanged[outgoing.values])
        self._outgoing = Ragged(
            np.append(outgoing.offsets, len(outgoing.values) + len(own)),
            np.concatenate((outgoing.values, own)),
        )
        self.tables = tables or initial_tables(
            backbone_of(config).held("items"),
            about.private_seed,
            items,
            table_rows=about.n_items,
            config=config,
            kernels=Plain(),
        )

    def push(self, rows: Integers, grid: Grid, where: str) -> Integers:
        """What goes to the neighbours, and in the last row what goes to this client's own user."""
        self.nodes.check_sums(rows, self._outgoing, grid, where)
        sums = self.nodes.kernels.sums(self._outgoing, rows)
        return grid.fit(sums, f"{where}, a push of {self.nodes.name}")

    def wished_items(self, handles: Int64, slots: Int64, wishes: Int64) -> Int64:
        """The owned row of each wish, or -1 where a slot has none."""
        handle = np.repeat(handles, slots)
        none = wishes == NO_WISH
        if bool((~none & (wishes >= self.neighbours.lengths[handle])).any()):
            raise MalformedMessageError("a wish for an item that the neighbour did not list here")
        entries = np.where(none, 0, self.neighbours.offsets[handle] + wishes)
        if not (none | self._is_real[entries]).all():
            raise MalformedMessageError("a wish for an item that the neighbour does not have")
        return np.where(none, -1, self.neighbours.values[entries])

    @cached_property
    def every_wish(self) -> Wishes:
        """Of all neighbours for all that they really have, in a slot for each listed item."""
        return Wishes(
            np.arange(len(self.neighbours)),
            self.neighbours.lengths,
            np.where(self._is_real, self.neighbours.values, -1),
        )

    def rows_of(self, places: Int64) -> Int64:
        """The rows of owned items, by their places."""
        rows = np.searchsorted(self.places, places).clip(max=len(self.places) - 1)
        if not np.array_equal(self.places[rows], places):
            raise MalformedMessageError("a negative is about an item that is not owned here")
        return rows

    def loss_gradient(
        self, parts: Sequence[Contribution], sent: Floats, grid: Grid
    ) -> LossGradient:
        """Σ_u s_ui e_u, from all who said something."""
        items = np.concatenate([part.items for part in parts])
        order = np.argsort(items, kind="stable")
        return LossGradient.gather(
            items[order],
            np.concatenate([part.senders for part in parts])[order],
            np.concatenate([part.coefficient for part in parts])[order],
            np.concatenate([part.count for part in parts])[order].astype(np.float64),
            sent,
            grid,
            self.nodes.kernels,
        )
