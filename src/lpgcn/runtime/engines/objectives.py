"""The losses on whole tables: what a batch says about all users and items at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from lpgcn import fixed_point
from lpgcn.config import Config
from lpgcn.model.batches import Batch, Draw, PooledBatch, pool_sizes, weighted
from lpgcn.model.grid import Grid
from lpgcn.model.kernels import Floats, Kernels
from lpgcn.model.losses.bpr import pair_gradients
from lpgcn.model.losses.gradient import LossGradient
from lpgcn.model.losses.softmax import SLOPES, Softmax, columns
from lpgcn.model.propagation import Forward
from lpgcn.ragged import Int64
from lpgcn.runtime.engines.sampler import Sampler


@dataclass(frozen=True)
class AtNodes:
    """The gradients by the final vectors, and the loss without its regulariser."""

    users: LossGradient
    items: LossGradient
    total: int
    """In fixed point."""


def at_nodes(
    batch: Draw, sampler: Sampler, users: Forward, items: Forward, config: Config
) -> AtNodes:
    """After propagation, but for its last exchange."""
    if isinstance(batch, Batch):
        return _of_pairs(batch, sampler, users, items)
    return _of_pools(batch, sampler, users, items, config)


def _of_pairs(batch: Batch, sampler: Sampler, users: Forward, items: Forward) -> AtNodes:
    return of_pairs(
        batch,
        sampler,
        lambda rows: users.finish(items.push, rows),
        lambda rows: items.finish(users.push, rows),
        users.nodes.backward_grid,
        users.nodes.kernels,
    )


def of_pairs(
    batch: Batch,
    sampler: Sampler,
    users: Callable[[Int64], Floats],
    items: Callable[[Int64], Floats],
    grid: Grid,
    kernels: Kernels,
) -> AtNodes:
    """Only the nodes that the batch touches; `users` and `items` give the final vectors of some."""
    pairs = sampler.pairs(batch)
    user_ids, user = np.unique(pairs.users, return_inverse=True)
    ids = sampler.item_ids[pairs.items]
    item_ids, item = np.unique(ids, return_inverse=True)
    user_vectors, item_vectors = users(user_ids), items(item_ids)
    touched = replace(pairs, users=user, items=item)
    found = pair_gradients(touched, user_vectors, item_vectors, kernels)
    by_item = np.argsort(item, kind="stable")
    count = found.count.astype(np.float64)
    return AtNodes(
        LossGradient.gather(
            pairs.users, item, found.coefficient, count / 2, item_vectors, grid, kernels
        ),
        LossGradient.gather(
            ids[by_item],
            user[by_item],
            found.coefficient[by_item],
            count[by_item],
            user_vectors,
            grid,
            kernels,
        ),
        fixed_point.total(found.loss),
    )


def _of_pools(
    batch: PooledBatch, sampler: Sampler, users: Forward, items: Forward, config: Config
) -> AtNodes:
    """All nodes, the members of one group after the other."""
    kernels, grid, softmax = users.nodes.kernels, users.nodes.backward_grid, Softmax.of(config)
    at_users = softmax.directions(users.finish(items.push), kernels)
    at_items = softmax.directions(items.finish(users.push), kernels)
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
    by_user, by_item = users.nodes.segments, items.nodes.segments
    user_sums += kernels.weighted_sums(by_user, at_items.rows, coefficient, SLOPES.steps)
    item_sums = kernels.weighted_sums(
        by_item, at_users.rows, coefficient[sampler.by_item], SLOPES.steps
    ) + weighted(answers, pool_sizes(config, len(answers)))
    return AtNodes(
        softmax.tangent_gradient(
            user_sums, by_user.lengths.astype(np.float64), at_users, grid, kernels
        ),
        softmax.tangent_gradient(
            item_sums, by_item.lengths.astype(np.float64), at_items, grid, kernels
        ),
        total,
    )
