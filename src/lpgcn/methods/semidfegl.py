"""SemiDFEGL (Qu et al., 2023): ego graphs linked, in groups, through items that are predicted.

The server clusters users by the vectors of their ego graphs and hands every group g the P items
that go best with its centre c_g, as *predicted* items of each of its users:

    z_u = e_u^(0) + |I_u|^-½ Σ_{i ∈ I_u} e_i^(0)      c_g = the mean of z_u / ‖z_u‖ over g
    P_g = the items with the greatest c_g · e_i^(0)

Within a group, and nowhere beyond it, devices exchange vectors, over their own and the predicted
items. So an item is another node in every group, with the same e_i^(0), and LightGCN (Eqs. 1–3)
runs on a graph of separate groups, with I_u ∪ P_g for I_u:

    y_ui = e_u · e_i^(g)      for u in g

An item that no user of the group has keeps α·e_i^(0). The gradients of an item's nodes are added up
by a secure sum over the groups, exact here.

The authors publish no settings that would repeat their figures. Ours: 8 groups by spherical k-means
(k-means++, 10 rounds of Lloyd), made anew every 20 epochs; 20 predicted items; rounds of users; the
devices of a group add up what goes to an item, so that the predicted ones also hide the real ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

import numpy as np
from msgspec import Meta

from lpgcn import fixed_point
from lpgcn.array_types import Float64, Int64
from lpgcn.config import Config
from lpgcn.data import Interactions, Split
from lpgcn.evaluation.scorers import ClusteredVectors
from lpgcn.methods.clustering import spherical_k_means
from lpgcn.methods.factorisation import Factorisation
from lpgcn.methods.method import FACTORS, Losses, Method, UserRounds
from lpgcn.methods.traffic import SUMMED_BYTES, RoundTraffic
from lpgcn.model.adam import Gradient
from lpgcn.model.batches import Batch, UserBatches
from lpgcn.model.propagation import Backward, Forward, Nodes, exchanged, finished
from lpgcn.random import Purpose
from lpgcn.runtime.engines.engine import Tables
from lpgcn.runtime.engines.objectives import Touched, Turning, of_pairs
from lpgcn.runtime.machine import Machine


class SemiDfeglOptions(UserRounds, frozen=True, forbid_unknown_fields=True, kw_only=True):
    groups: Annotated[int, Meta(ge=1, description="Groups of users G.")] = 8
    predicted: Annotated[
        int, Meta(ge=0, description="Predicted items P of a group, at most |I| / G.")
    ] = 20
    epochs_between: Annotated[
        int, Meta(ge=1, description="Epochs after which groups are made anew.")
    ] = 20


class SemiDfegl(Factorisation):
    """See `Learner`: the tables of a factorisation, with groups between them and the loss."""

    def __init__(
        self, split: Split, config: Config, options: SemiDfeglOptions, machine: Machine
    ) -> None:
        super().__init__(split, config, machine, options.users_a_round)
        rounds = self._sampler.batches
        assert isinstance(rounds, UserBatches)
        self._backbone = config.changed(model="lightgcn", option={}, batch_size=rounds.most_samples)
        self._train, self._every = split.train, options.epochs_between
        self._groups = min(options.groups, split.n_users)
        self._predicted = min(options.predicted, split.n_items // self._groups)
        self._link(*self._grouped(0))

    def _grouped(self, epoch: int) -> tuple[Int64, Int64]:
        """The group of every user, and for each group its predicted items."""
        users, items = (
            self._adam[name].parameter.astype(np.float64) for name in ("users", "items")
        )
        own = self._train.by_user
        sums = np.add.reduceat(items[own.values], own.offsets[:-1], axis=0)
        ego = users + sums / np.sqrt(own.lengths)[:, None]
        group, centres = spherical_k_means(
            ego, self._groups, self._config.seed, Purpose.USER_CLUSTER, epoch
        )
        order = np.argsort(-(centres @ items.T), axis=1, kind="stable")
        return group, np.sort(order[:, : self._predicted], axis=1)

    def _link(self, group: Int64, predicted: Int64) -> None:
        """The graph of these groups."""
        train, n = self._train, self._train.n_items
        self._group, self._items_predicted = group, predicted
        predicted_nodes = (predicted + n * np.arange(self._groups)[:, None])[group]
        everybody = np.repeat(np.arange(train.n_users), predicted.shape[1])
        linked = Interactions.from_pairs(
            np.concatenate((train.users, everybody)),
            np.concatenate((train.items + n * group[train.users], predicted_nodes.reshape(-1))),
            train.n_users,
            n * self._groups,
        )
        config, kernels = self._backbone, self._kernels
        self._users = Nodes("the users", linked.user_degrees, linked.by_user, config, kernels)
        self._items = Nodes("items of groups", linked.item_degrees, linked.by_item, config, kernels)

    def _propagated(self) -> tuple[Forward, Forward]:
        """But for the last exchange, which may be for some nodes only."""
        users = self._users.begin(self._adam["users"].parameter)
        items = self._items.begin(np.tile(self._adam["items"].parameter, (self._groups, 1)))
        for _ in range(self._config.layers - 1):
            users, items = exchanged(users, items)
        return users, items

    def step(self, epoch: int, step: int, learning_rate: float) -> Losses:
        if step == 0 and epoch and epoch % self._every == 0:
            self._link(*self._grouped(epoch))
        batch = self._sampler.batches.draw(epoch, step)
        assert isinstance(batch, Batch), "softmax is refused"
        touched = self._touched(batch)
        users, items = finished(*self._propagated(), touched.users, touched.items)
        found = of_pairs(
            touched, users.final, items.final, self._users.backward_grid, self._kernels
        )
        turning = Turning(found, users, items)
        self._train_on(*turning.backward(), batch.size, learning_rate)
        return Losses(fixed_point.decode(turning.total()), batch.size)

    def _touched(self, batch: Batch) -> Touched:
        """An item of a user is the node of the user's group."""
        pairs, n = self._sampler.pairs(batch), self._train.n_items
        nodes = self._sampler.item_ids[pairs.items] + n * self._group[pairs.users]
        users, user = np.unique(pairs.users, return_inverse=True)
        items, item = np.unique(nodes, return_inverse=True)
        return Touched(users, items, replace(pairs, users=user, items=item))

    def _train_on(self, users: Backward, items: Backward, size: int, learning_rate: float) -> None:
        for _ in range(self._config.layers):
            users, items = exchanged(users, items)
        self._adam["users"].step(users.gradient(size), learning_rate)
        self._adam["items"].step(self._over_groups(items, size), learning_rate)

    def _over_groups(self, items: Backward, size: int) -> Gradient:
        """The sum of what all nodes of an item say, each rounded to the grid."""
        nodes, grid = items.forward.nodes, items.grid
        rounded = grid.round(items.push, nodes.unscale, "sum over groups", self._kernels)
        shape = (self._groups, self._train.n_items)
        integers = rounded.reshape(*shape, -1).sum(axis=0, dtype=np.int64)
        decay: Float64 = items.decay(size).reshape(shape).sum(axis=0)
        return Gradient(integers, np.full(shape[1], grid.unit / size), decay)

    def scorer(self) -> ClusteredVectors:
        users, items = finished(*self._propagated())
        vectors = items.final.reshape(self._groups, self._train.n_items, -1)
        return ClusteredVectors(users.final, self._group.copy(), vectors)

    def state(self) -> Tables:
        groups = {"group": self._group.copy(), "predicted": self._items_predicted.copy()}
        return {**super().state(), **groups}

    def restore(self, state: Tables) -> None:
        super().restore(state)
        self._link(np.array(state["group"]), np.array(state["predicted"]))

    def traffic(self) -> RoundTraffic:
        """2L exchanges of everybody with its group: a vector up, and one for each of its linked
        items down. A round: the vectors of these items down, and their gradients up, into a secure
        sum. When groups are made anew, everybody's own vector goes up."""
        vector = self._config.dim * self._config.number_bytes
        linked = len(self._users.segments.values) / self._train.n_users * vector
        exchanges = 2 * self._config.layers
        share = 1 / self.steps_per_epoch
        summed = linked / self._config.number_bytes * SUMMED_BYTES
        regrouped = vector / self._every
        return RoundTraffic(
            n_clients=self._train.n_users,
            taking_part=self._train.n_users,
            up=exchanges * vector + (summed + regrouped) * share,
            down=exchanges * linked + linked * share,
            rounds=exchanges + 1,
        )


SEMIDFEGL: Final = Method(
    name="semidfegl",
    summary="ego graphs linked in groups through predicted items (Qu et al., 2023)",
    fit=SemiDfegl,
    options=SemiDfeglOptions,
    protects="Interactions with items beyond the group, which sees the user's vectors of every "
    "layer; predicted items hide which of the linked ones a user really has. The server gets the "
    "vector of each ego graph, a sum of the vectors of its items, and with few items these can be "
    "read off it.",
    uses=FACTORS | {"layers", "dtype"},
    defaults={"lr": 0.01},
)
