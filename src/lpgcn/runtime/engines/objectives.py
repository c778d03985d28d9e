"""The losses on whole tables: what a batch says about all users and items at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lpgcn import fixed_point
from lpgcn.array_types import Int64
from lpgcn.config import Config
from lpgcn.model.batches import AnyBatch, Batch, PooledBatch, pool_sizes, weighted
from lpgcn.model.grid import Grid
from lpgcn.model.kernels import Floats, Kernels
from lpgcn.model.losses.bpr import Pairs, pair_gradients
from lpgcn.model.losses.gradient import LossGradient
from lpgcn.model.losses.softmax import SLOPES, Softmax, columns
from lpgcn.model.propagation import Backward, Forward, finished
from lpgcn.runtime.engines.sampler import Sampler


@dataclass(frozen=True)
class AtNodes:
    """The gradients by the final vectors, and the loss without its regulariser."""

    users: LossGradient
    items: LossGradient
    total: int
    """In fixed point."""


@dataclass(frozen=True)
class Turning:
    """What the loss says at the end of a forward pass."""

    found: AtNodes
    users: Forward
    items: Forward

    def backward(self) -> tuple[Backward, Backward]:
        return self.users.backward(self.found.users), self.items.backward(self.found.items)

    def total(self) -> int:
        """The loss with its regulariser, in fixed point."""
        of_users = fixed_point.total(self.users.regulariser(self.found.users))
        of_items = fixed_point.total(self.items.regulariser(self.found.items))
        return self.found.total + of_users + of_items


def at_nodes(
    batch: AnyBatch, sampler: Sampler, users: Forward, items: Forward, config: Config
) -> Turning:
    """After propagation, but for its last exchange."""
    if isinstance(batch, Batch):
        return _of_pairs(batch, sampler, users, items)
    return _of_pools(batch, sampler, users, items, config)


def _of_pairs(batch: Batch, sampler: Sampler, users: Forward, items: Forward) -> Turning:
    touched, nodes = Touched.of(batch, sampler), users.nodes
    users, items = finished(users, items, touched.users, touched.items)
    found = of_pairs(touched, users.final, items.final, nodes.backward_grid, nodes.kernels)
    return Turning(found, users, items)


@dataclass(frozen=True)
class Touched:
    """The nodes that a batch touches, rising, and its pairs, whose numbers are among them."""

    users: Int64
    items: Int64
    pairs: Pairs

    @classmethod
    def of(cls, batch: Batch, sampler: Sampler) -> Touched:
        pairs = sampler.pairs(batch)
        users, user = np.unique(pairs.users, return_inverse=True)
        items, item = np.unique(sampler.item_ids[pairs.items], return_inverse=True)
        return cls(users, items, replace(pairs, users=user, items=item))


def of_pairs(
    touched: Touched, users: Floats, items: Floats, grid: Grid, kernels: Kernels
) -> AtNodes:
    """From the final vectors of the nodes that the batch touches."""
    pairs = touched.pairs
    found = pair_gradients(pairs, users, items, kernels)
    by_item, count = np.argsort(pairs.items, kind="stable"), found.count.astype(np.float64)
    return AtNodes(
        LossGradient.gather(
            touched.users[pairs.users],
            pairs.items,
            found.coefficient,
            count / 2,
            items,
            grid,
            kernels,
        ),
        LossGradient.gather(
            touched.items[pairs.items[by_item]],
            pairs.users[by_item],
            found.coefficient[by_item],
            count[by_item],
            users,
            grid,
            kernels,
        ),
        fixed_point.total(found.loss),
    )


def _of_pools(
    batch: PooledBatch, sampler: Sampler, users: Forward, items: Forward, config: Config
) -> Turning:
    """All nodes, the members of one group after the other."""
    kernels, grid, softmax = users.nodes.kernels, users.nodes.backward_grid, Softmax.of(config)
    users, items = finished(users, items)
    at_users = softmax.directions(users.final, kernels)
    at_items = softmax.directions(items.final, kernels)
    coefficient = np.empty(len(sampler.real.values), dtype=at_users.rows.dtype)
    user_sums, total = np.zeros(at_users.rows.shape, dtype=np.int64), 0
    answers = np.zeros(at_items.rows.shape, dtype=np.int64)
    for number, group in enumerate(sampler.groups):
        pool = sampler.catalogue[batch.pools[number]]
        found = softmax.gradients(
            group.positives,
            at_users.rows[group.users],
            at_items.rows,
            at_items.rows[pool],
            columns(group.positives, pool, len(answers)),
            batch.answered,
            kernels,
        )
        coefficient[group.entries], user_sums[group.users] = found.coefficient, found.users
        answers[pool[: batch.answered]] += found.answers
        total += fixed_point.total(found.loss)
    by_user, by_item = sampler.positives
    user_sums += kernels.weighted_sums(by_user, at_items.rows, coefficient, SLOPES.steps)
    item_sums = kernels.weighted_sums(
        by_item, at_users.rows, coefficient[sampler.order_by_item], SLOPES.steps
    ) + weighted(answers, pool_sizes(config, len(answers)))
    of_users = softmax.tangent_gradient(
        user_sums, by_user.lengths.astype(np.float64), at_users, grid, kernels
    )
    of_items = softmax.tangent_gradient(
        item_sums, by_item.lengths.astype(np.float64), at_items, grid, kernels
    )
    return Turning(AtNodes(of_users, of_items, total), users, items)
