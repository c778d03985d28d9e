"""A convolution-client's item nodes: it adds up its neighbours' vectors for the items it owns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lpgcn.config import Config
from lpgcn.model.adam import Adam
from lpgcn.model.initial import embedding_rows
from lpgcn.model.loss import LossGradient
from lpgcn.model.nodes import Nodes
from lpgcn.model.segments import Segments
from lpgcn.protocol.errors import MalformedMessageError
from lpgcn.random import Purpose

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
PairRows = np.ndarray
Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Neighbourhood:
    """Who listed which owned item: handle h listed items `items[offsets[h]:offsets[h + 1]]`."""

    offsets: Int64
    items: Int64
    own_rank: int
    """How many neighbours come before this client in the order of sums."""

    @property
    def size(self) -> int:
        return len(self.offsets) - 1

    def of(self, handle: int) -> Int64:
        """The owned items that a neighbour listed."""
        return self.items[self.offsets[handle] : self.offsets[handle + 1]]

    @property
    def handles(self) -> Int64:
        """The handle of every entry of `items`."""
        return np.repeat(np.arange(self.size), np.diff(self.offsets))

    def ranks(self, handles: Int64) -> Int64:
        """The places of neighbours in the order of sums, in which this client has one too."""
        return handles + (handles >= self.own_rank)


@dataclass(frozen=True)
class Contributions:
    """Entries (item, sender, s, n) of the loss, and where senders stand in the order of sums.

    Neighbours and this client itself are at odd ranks, 2·place + 1; strangers, who have the item as
    a negative, at the even ranks between them.
    """

    items: Int64
    senders: Int64
    ranks: Int64
    coefficient: Float64
    count: Float64

    @classmethod
    def of(cls, items: Int64, senders: Int64, ranks: Int64, pairs: PairRows) -> Contributions:
        coefficient = pairs["coefficient"].astype(np.float64)
        return cls(items, senders, ranks, coefficient, pairs["count"].astype(np.float64))

    @classmethod
    def join(cls, parts: Sequence[Contributions]) -> Contributions:
        return cls(
            *(
                np.concatenate([getattr(part, field.name) for part in parts])
                for field in fields(cls)
            )
        )

    def gather(self, sent: Tensor) -> LossGradient:
        """∂Loss/∂e_i = Σ_u s_ui e_u, users in the order of their indices."""
        used = np.flatnonzero(self.count)
        order = used[np.lexsort((self.ranks[used], self.items[used]))]
        return LossGradient.gather(
            self.items[order],
            self.senders[order],
            self.coefficient[order],
            self.count[order],
            sent,
        )


class Owner:
    """The item nodes. Rows that arrive are those of the neighbours, by handle; the row of this
    client's own user is put behind them."""

    def __init__(
        self, items: Int64, places: Int64, neighbourhood: Neighbourhood, n_items: int,
        config: Config, seed: int,
    ) -> None:  # fmt: skip
        self.items, self.places, self.neighbourhood = items, places, neighbourhood
        self._config, self._dtype = config, getattr(torch, config.dtype)
        purposes = {"items": Purpose.ITEM_EMBEDDING}
        if config.model == "lightgcn+":
            purposes["item_users"] = Purpose.ITEM_USER_EMBEDDING
        self.adam = {
            name: Adam(
                embedding_rows(
                    seed,
                    purpose,
                    items,
                    table_rows=n_items,
                    dim=config.dim,
                    deviation=config.init_deviation,
                    dtype=self._dtype,
                )
            )
            for name, purpose in purposes.items()
        }

    def verified(self, real: Bits, own_items: Int64) -> None:
        """`real` says for every entry of the neighbourhood whether it is; `own_items` are the owned
        items that this client's own user really has. Virtual items never enter a sum."""
        near = self.neighbourhood
        handles = near.handles[real]
        items = np.concatenate((near.items[real], own_items))
        ranks = np.concatenate((near.ranks(handles), np.full(len(own_items), near.own_rank)))
        rows = np.concatenate((handles, np.full(len(own_items), near.size)))
        order = np.lexsort((ranks, items))
        self._segments = Segments.from_sorted_rows(items[order], rows[order], len(self.items))
        self.nodes = Nodes(self._segments.counts, self._config.layers, self._dtype)

    def rows_of(self, places: Int64) -> Int64:
        """The rows of owned items, by their places."""
        rows = np.searchsorted(self.places, places).clip(max=len(self.places) - 1)
        if not np.array_equal(self.places[rows], places):
            raise MalformedMessageError("a negative is about an item that is not owned here")
        return rows

    def sum(self, arrived: Tensor, own: Tensor) -> Tensor:
        """m_i = Σ_{u ∈ U_i} x_u, in the order of the users' indices."""
        return self._segments.sum(torch.cat((arrived, own)))

    def regulariser(self, gradient: LossGradient) -> Float64:
        return self._config.reg * self.nodes.norms(gradient)

    def begin_gradient(self, gradient: LossGradient, batch_size: int) -> None:
        self.nodes.begin_gradient(gradient, self._config.reg / batch_size)
