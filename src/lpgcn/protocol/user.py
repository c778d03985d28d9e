"""A client's own node: its user, its interactions and its virtual items."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lpgcn.config import Config
from lpgcn.crypto import Indices
from lpgcn.model.adam import Adam
from lpgcn.model.initial import embedding_rows
from lpgcn.model.loss import LossGradient, Pairs, pair_gradients
from lpgcn.model.nodes import Nodes
from lpgcn.model.sampling import Lists, VirtualItems, positive_ranks, virtual_items
from lpgcn.model.segments import Segments
from lpgcn.protocol.rows import PAIRS
from lpgcn.random import Purpose

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
PairRows = np.ndarray


def draw_virtual_items(
    index: int, real: Int64, n_items: int, config: Config, seed: int, popularity: Float64 | None
) -> Int64:
    """I'_u (Algorithm 2, line 10)."""
    count, ratio = config.alpha
    own = Lists(np.array([0, len(real)]), real, n_items)
    how = VirtualItems(count, ratio, config.virtual_draw)
    return virtual_items(seed, np.array([index]), own, how, popularity).items


@dataclass(frozen=True)
class Samples:
    """A client's part of a batch."""

    epoch: int
    positions: Int64
    negatives: Int64
    """For each sample the number of its negative among the negatives at hand."""
    n_negatives: int
    batch_size: int


@dataclass(frozen=True)
class LossMessage:
    """What a client tells the owners of its items."""

    final: Tensor
    listed: PairRows
    """One row for every listed item, in the order in which it was uploaded."""
    negatives: PairRows
    loss: Float64
    gradient: LossGradient
    """∂Loss/∂e_u, which stays with the client."""


class User:
    """The user node. Rows that arrive are those of its uploaded list, without the items it owns;
    the rows of its own items are put behind them."""

    def __init__(
        self, index: int, n_users: int, real: Int64, uploaded: Int64, config: Config, seed: int
    ) -> None:
        self.real = real
        """I_u, ascending."""
        self.uploaded = uploaded
        """I_u ∪ I'_u in the order of the tokens."""
        self._seed = seed
        self._dtype, self._pair = getattr(torch, config.dtype), PAIRS[config.dtype]
        self.nodes = Nodes(torch.tensor([len(real)]), config.layers, self._dtype)
        self._reg = config.reg
        self.adam: Adam | None = None
        if config.model == "lightgcn":
            initial = embedding_rows(
                seed,
                Purpose.USER_EMBEDDING,
                np.array([index]),
                table_rows=n_users,
                dim=config.dim,
                deviation=config.init_deviation,
                dtype=self._dtype,
            )
            self.adam = Adam(initial)

    def place(self, places: Int64, owned: Int64) -> None:
        """Learn which listed items are this client's own: `places` of the list, places `owned`."""
        self.places = places
        own_row = {place: row for row, place in enumerate(owned.tolist())}
        own = [own_row.get(place, -1) for place in places.tolist()]
        self.own_rows = np.array(own, dtype=np.int64)
        """For every uploaded item its row among the owned items, or -1."""
        self.arriving = np.flatnonzero(self.own_rows < 0)
        self.arriving_places = places[self.arriving]
        self.arriving_indices = Indices(self.arriving_places)
        rows = len(self.arriving) + self.own_rows
        rows[self.arriving] = np.arange(len(self.arriving))
        by_id = np.argsort(self.uploaded, kind="stable")
        self._by_id = by_id
        self._rows_by_id = rows[by_id]
        self._is_real = np.isin(self.uploaded, self.real, assume_unique=True)
        real_rows = self._rows_by_id[self._is_real[by_id]]
        self._segments = Segments.from_arrays(np.array([0, len(real_rows)]), real_rows)

    def is_real(self, positions: Int64) -> npt.NDArray[np.bool_]:
        """Which of the items at these places of the uploaded list are real."""
        return self._is_real[positions]

    def sum(self, arrived: Tensor, own: Tensor) -> Tensor:
        """m_u = Σ_{i ∈ I_u} y_i, in the order of the items' ids."""
        return self._segments.sum(torch.cat((arrived, own)) if len(own) else arrived)

    def loss(
        self, samples: Samples, arrived: Tensor, own: Tensor, negative_vectors: Tensor
    ) -> LossMessage:
        """Algorithm 9, lines 2–9, for this client's samples. Changes nothing."""
        n_listed = len(self.uploaded)
        sizes = np.full(len(samples.positions), len(self.real))
        ranks = positive_ranks(self._seed, samples.epoch, samples.positions, sizes)
        positives = np.searchsorted(self.uploaded[self._by_id], self.real[ranks])
        pairs = Pairs.from_samples(
            np.zeros_like(positives),
            positives,
            n_listed + samples.negatives,
            n_listed + samples.n_negatives,
        )
        vectors = torch.cat((arrived, own, negative_vectors))
        n_rows = len(arrived) + len(own)
        rows = np.append(self._rows_by_id, np.arange(n_rows, n_rows + samples.n_negatives))
        final = self.nodes.final()
        by_row = replace(pairs, items=rows[pairs.items])
        found = pair_gradients(by_row, final, vectors, samples.batch_size)
        gradient = LossGradient.gather(
            pairs.users, by_row.items, found.coefficient, found.count / 2, vectors
        )
        table = np.zeros(n_listed + samples.n_negatives, dtype=self._pair)
        table["coefficient"][pairs.items] = found.coefficient
        table["count"][pairs.items] = found.count
        listed = np.empty(n_listed, dtype=self._pair)
        listed[self._by_id] = table[:n_listed]
        return LossMessage(final, listed, table[n_listed:], found.loss, gradient)

    def regulariser(self, gradient: LossGradient) -> Float64:
        """The share of this node in the loss, ½λn·‖e^(0)‖²."""
        return self._reg * self.nodes.norms(gradient)

    def begin_gradient(self, gradient: LossGradient, batch_size: int) -> None:
        self.nodes.begin_gradient(gradient, self._reg / batch_size)


def no_gradient(like: Tensor) -> LossGradient:
    """Of nodes that the batch does not touch."""
    return LossGradient(np.empty(0, dtype=np.int64), like[:0], np.empty(0))
