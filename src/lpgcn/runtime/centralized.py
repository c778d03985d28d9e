"""All parties at once on the whole graph: the reference that "lossless" refers to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lpgcn import fixed_point
from lpgcn.config import Config
from lpgcn.data import Interactions, Split
from lpgcn.evaluation import Evaluation, evaluate
from lpgcn.model.adam import Adam
from lpgcn.model.batches import Batch, Batches
from lpgcn.model.initial import embedding_rows
from lpgcn.model.loss import LossGradient, Pairs, pair_gradients
from lpgcn.model.nodes import Nodes
from lpgcn.model.sampling import (
    Lists,
    SamplingError,
    VirtualItems,
    catalogue,
    places,
    positive_ranks,
    virtual_items,
)
from lpgcn.model.segments import Graph
from lpgcn.random import Purpose
from lpgcn.runtime.engine import Part, Vectors, masked_items
from lpgcn.runtime.traffic import TrafficSummary

Int64 = npt.NDArray[np.int64]


class Samples:
    """Draws the batches of a data set, and the virtual items that negatives keep clear of."""

    def __init__(self, train: Interactions, config: Config) -> None:
        self._seed = config.seed
        if not train.user_degrees.all():
            nobody = int(np.flatnonzero(train.user_degrees == 0)[0])
            raise SamplingError(
                f"user {nobody} (by index) has no training items, so no positive can be drawn; "
                "leave such users out of the data"
            )
        self.real = Lists(train.offsets, train.items, train.n_items)
        self.catalogue = catalogue(config.seed, train.n_items)
        count, ratio = config.alpha
        self.virtual = virtual_items(
            config.seed,
            np.arange(train.n_users),
            self.real,
            VirtualItems(count, ratio, config.virtual_draw),
            train.item_degrees.astype(np.float64),
        )
        listed = self.real.union(self.virtual)
        self.listed_places = listed.renumbered(places(self.catalogue))
        """What each user lists, real or virtual, by place in the catalogue."""
        self.batches = Batches(
            config.seed,
            config.batch_size,
            len(train),
            train.n_users,
            train.n_items,
            self.listed_places.keys(),
        )

    def pairs(self, batch: Batch) -> Pairs:
        """With everybody's positives. These are called by their ids, a negative by n_items + its
        place."""
        real, users = self.real, batch.users
        ranks = positive_ranks(self._seed, batch.epoch, batch.positions, real.sizes[users])
        positives = real.items[real.offsets[users] + ranks]
        return Pairs.from_samples(
            users, positives, real.n_items + batch.negatives, 2 * real.n_items
        )


class Centralized:
    """LightGCN or LightGCN+ on the whole graph: an `Engine`."""

    def __init__(self, split: Split, config: Config) -> None:
        train = split.train
        self._split = split
        self._config = config
        self._dtype = getattr(torch, config.dtype)
        self._graph = Graph.from_pairs(train.users, train.items, train.n_users, train.n_items)
        self._users = Nodes(self._graph.items_of_users.counts, config.layers, self._dtype)
        self._items = Nodes(self._graph.users_of_items.counts, config.layers, self._dtype)
        self.samples = Samples(train, config)
        self._item_ids = np.concatenate((np.arange(train.n_items), self.samples.catalogue))
        tables = {"items": (Purpose.ITEM_EMBEDDING, train.n_items)}
        if config.model == "lightgcn":
            tables["users"] = (Purpose.USER_EMBEDDING, train.n_users)
        else:
            tables["item_users"] = (Purpose.ITEM_USER_EMBEDDING, train.n_items)
        self._adam = {name: Adam(self._initial(*table)) for name, table in tables.items()}
        self._loss_total = 0

    def _initial(self, purpose: Purpose, rows: int) -> Tensor:
        config = self._config
        return embedding_rows(
            config.seed,
            purpose,
            np.arange(rows),
            table_rows=rows,
            dim=config.dim,
            deviation=config.init_deviation,
            dtype=self._dtype,
        )

    def forward(self) -> Vectors:
        """Algorithm 4: [half exchange], then L exchanges; every final vector."""
        self._propagate(self._config.layers)
        return Vectors(self._users.final(), self._items.final())

    def _propagate(self, layers: int) -> None:
        users, items, graph = self._users, self._items, self._graph
        if "users" in self._adam:
            users.begin(self._adam["users"].parameter)
        else:
            users.build(graph.items_of_users.sum(self._adam["item_users"].parameter))
        items.begin(self._adam["items"].parameter)
        for _ in range(layers):
            arrived_at_users = graph.items_of_users.sum(items.push)
            items.absorb(graph.users_of_items.sum(users.push))
            users.absorb(arrived_at_users)

    def _finish(self, users: Int64, items: Int64) -> Vectors:
        """The last exchange, only for the users and items that the batch touches."""
        to_users = self._graph.items_of_users.only(users).sum(self._items.push)
        to_items = self._graph.users_of_items.only(items).sum(self._users.push)
        return Vectors(
            self._users.finish(torch.from_numpy(users), to_users),
            self._items.finish(torch.from_numpy(items), to_items),
        )

    def _loss(self, batch: Batch) -> None:
        """Algorithm 9: the loss, and the gradients that backward propagation starts from."""
        pairs, reg = self.samples.pairs(batch), self._config.reg
        items = self._item_ids[pairs.items]
        user_ids, user = np.unique(pairs.users, return_inverse=True)
        item_ids, item = np.unique(items, return_inverse=True)
        vectors = self._finish(user_ids, item_ids)
        touched = replace(pairs, users=user, items=item)
        found = pair_gradients(touched, vectors.users, vectors.items, batch.size)
        by_item = np.sort(items * len(items) + np.arange(len(items))) % len(items)
        at_users = LossGradient.gather(
            pairs.users, item, found.coefficient, found.count / 2, vectors.items
        )
        at_items = LossGradient.gather(
            items[by_item],
            user[by_item],
            found.coefficient[by_item],
            found.count[by_item].astype(np.float64),
            vectors.users,
        )
        self._loss_total += fixed_point.total(found.loss)
        for nodes, loss in ((self._users, at_users), (self._items, at_items)):
            self._loss_total += fixed_point.total(reg * nodes.norms(loss))
            nodes.begin_gradient(loss, reg / batch.size)

    def _backward(self) -> dict[str, Tensor]:
        """Algorithm 6: L exchanges, then [half exchange]; the gradients of all parameters."""
        users, items, graph = self._users, self._items, self._graph
        for _ in range(self._config.layers):
            arrived_at_users = graph.items_of_users.sum(items.push)
            items.absorb_gradient(graph.users_of_items.sum(users.push))
            users.absorb_gradient(arrived_at_users)
        if "users" in self._adam:
            return {"items": items.gradient(), "users": users.gradient()}
        built = graph.users_of_items.sum(users.push_gradient())
        return {"items": items.gradient(), "item_users": built}

    @property
    def steps_per_epoch(self) -> int:
        return self.samples.batches.steps

    def step(self, epoch: int, step: int, learning_rate: float) -> None:
        self._train(self.samples.batches.draw(epoch, step), learning_rate)

    def _train(self, batch: Batch, learning_rate: float) -> None:
        """forward → loss → backward → update, as Algorithm 7."""
        self._propagate(self._config.layers - 1)
        self._loss(batch)
        for name, gradient in self._backward().items():
            self._adam[name].step(gradient, learning_rate)

    def take_loss(self) -> float:
        """The mean loss of a sample since the last call, an epoch ago."""
        total, self._loss_total = self._loss_total, 0
        return fixed_point.decode(total) / self.samples.batches.total

    def measure(self, part: Part) -> Evaluation:
        vectors = self.forward()
        masked = masked_items(self._split, self._config, part)
        heldout = self._split.parts[part]
        return evaluate(vectors.users, vectors.items, masked, heldout, self._config.cutoffs)

    def parameters(self) -> dict[str, Tensor]:
        return {name: adam.parameter.clone() for name, adam in self._adam.items()}

    def set_parameters(self, parameters: Mapping[str, Tensor]) -> None:
        for name, adam in self._adam.items():
            adam.parameter.copy_(parameters[name])

    def state(self) -> dict[str, Tensor]:
        """Everything that the next step depends on, besides the configuration and the data."""
        return {
            f"{name}.{key}": value
            for name, adam in self._adam.items()
            for key, value in adam.state().items()
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        for name, adam in self._adam.items():
            adam.restore({key: state[f"{name}.{key}"] for key in adam.state()})

    def traffic(self) -> TrafficSummary | None:
        return None

    def close(self) -> None:
        """A data centre has no parties to end."""
