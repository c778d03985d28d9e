"""All parties at once on the whole graph: the reference that "lossless" refers to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lpgcn import fixed_point
from lpgcn.config import Config
from lpgcn.data import Interactions, Split
from lpgcn.evaluation import Evaluation, evaluate
from lpgcn.model.adam import Gradient
from lpgcn.model.backbone import BACKBONES, BUILDING
from lpgcn.model.batches import Batch, Batches
from lpgcn.model.initial import initial_tables
from lpgcn.model.loss import LossGradient, Pairs, pair_gradients
from lpgcn.model.propagation import (
    Backward,
    Forward,
    Nodes,
    building_push,
    gradient_of_building,
)
from lpgcn.model.sampling import (
    SamplingError,
    VirtualItems,
    catalogue,
    listing_keys,
    places,
    positive_ranks,
    renumbered,
    union,
    virtual_items,
)
from lpgcn.ragged import Int64, Ragged
from lpgcn.runtime.engines.engine import Part, Tables, Vectors, masked_items
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.traffic import TrafficSummary


class Sampler:
    """Draws the batches of a data set, and the virtual items that negatives keep clear of."""

    def __init__(self, train: Interactions, config: Config) -> None:
        self._seed, self._n_items = config.seed, train.n_items
        if not train.user_degrees.all():
            nobody = int(np.flatnonzero(train.user_degrees == 0)[0])
            raise SamplingError(
                f"user {nobody} (by index) has no training items, so no positive can be drawn; "
                "leave such users out of the data"
            )
        self.real = train.by_user
        self.catalogue = catalogue(config.seed, train.n_items)
        count, ratio = config.alpha
        self.virtual = virtual_items(
            config.seed,
            np.arange(train.n_users),
            self.real,
            train.n_items,
            VirtualItems(count, ratio, config.virtual_draw),
            train.item_degrees.astype(np.float64),
        )
        listed = union(self.real, self.virtual, train.n_items)
        self.listed_places = renumbered(listed, places(self.catalogue))
        """What each user lists, real or virtual, by place in the catalogue."""
        self.batches = Batches(
            config.seed,
            config.batch_size,
            len(train),
            train.n_users,
            train.n_items,
            listing_keys(self.listed_places, train.n_items),
        )

    def pairs(self, batch: Batch) -> Pairs:
        """With everybody's positives. These are called by their ids, a negative by n_items + its
        place."""
        real, users, n_items = self.real, batch.users, self._n_items
        ranks = positive_ranks(self._seed, batch.epoch, batch.positions, real.lengths[users])
        positives = real.values[real.offsets[users] + ranks]
        return Pairs.from_samples(users, positives, n_items + batch.negatives, 2 * n_items)


class Centralized:
    """A backbone on the whole graph: an `Engine`."""

    def __init__(self, split: Split, config: Config, machine: Machine) -> None:
        train = split.train
        self._split, self._config = split, config
        kernels = self._kernels = machine.kernels
        self._ranker = machine.ranker
        users_of_items = Ragged.from_pairs(train.items, train.users, train.n_items)
        self._users = Nodes("the users", train.user_degrees, train.by_user, config, kernels)
        self._items = Nodes("the items", train.item_degrees, users_of_items, config, kernels)
        self.sampler = Sampler(train, config)
        self._item_ids = np.concatenate((np.arange(train.n_items), self.sampler.catalogue))
        self._backbone = BACKBONES[config.model]
        self._adam = {
            name: adam
            for kind, count in (("users", train.n_users), ("items", train.n_items))
            for name, adam in initial_tables(
                self._backbone.held(kind),  # type: ignore[arg-type]
                config.seed,
                np.arange(count),
                table_rows=count,
                config=config,
                kernels=kernels,
            ).items()
        }
        self._vectors: Vectors | None = None
        self._loss_total = 0

    def _begin(self) -> tuple[Forward, Forward]:
        """[half exchange], and the pushes of layer 0."""
        items = self._items.begin(self._adam["items"].parameter)
        if not self._backbone.builds_users:
            return self._users.begin(self._adam["users"].parameter), items
        built = building_push(self._adam[BUILDING].parameter, self._items)
        return self._users.build(built), items

    def _propagate(self) -> tuple[Forward, Forward]:
        """Algorithm 4 but for its last exchange, which may be for some nodes only."""
        users, items = self._begin()
        for _ in range(self._config.layers - 1):
            users, items = users.absorb(items.push), items.absorb(users.push)
        return users, items

    def _loss(self, batch: Batch) -> tuple[Backward, Backward]:
        """Algorithm 9: the loss, and the gradients that backward propagation starts from."""
        users, items = self._propagate()
        pairs = self.sampler.pairs(batch)
        ids = self._item_ids[pairs.items]
        user_ids, user = np.unique(pairs.users, return_inverse=True)
        item_ids, item = np.unique(ids, return_inverse=True)
        user_vectors = users.finish(items.push, user_ids)
        item_vectors = items.finish(users.push, item_ids)
        touched = replace(pairs, users=user, items=item)
        found = pair_gradients(touched, user_vectors, item_vectors, self._kernels)
        by_item = np.argsort(item, kind="stable")
        count = found.count.astype(np.float64)
        at_users = LossGradient.gather(
            pairs.users,
            item,
            found.coefficient,
            count / 2,
            item_vectors,
            self._users.backward_grid,
            self._kernels,
        )
        at_items = LossGradient.gather(
            ids[by_item],
            user[by_item],
            found.coefficient[by_item],
            count[by_item],
            user_vectors,
            self._users.backward_grid,
            self._kernels,
        )
        total = fixed_point.total(found.loss)
        for forward, loss in ((users, at_users), (items, at_items)):
            total += fixed_point.total(forward.regulariser(loss))
        self._loss_total += total
        return users.backward(at_users), items.backward(at_items)

    def _backward(self, users: Backward, items: Backward, batch_size: int) -> dict[str, Gradient]:
        """Algorithm 6: L exchanges, then [half exchange]; the gradients of all parameters."""
        present = [_flags(len(end.push), end.loss.rows) for end in (users, items)]
        for layer in range(self._config.layers):
            from_users, from_items = present if layer == 0 else (None, None)
            users, items = (
                users.absorb(items.push, from_items),
                items.absorb(users.push, from_users),
            )
        if not self._backbone.builds_users:
            return {"items": items.gradient(batch_size), "users": users.gradient(batch_size)}
        built = gradient_of_building(self._items, users.push_to_built(), batch_size)
        return {"items": items.gradient(batch_size), BUILDING: built}

    @property
    def steps_per_epoch(self) -> int:
        return self.sampler.batches.steps

    def step(self, epoch: int, step: int, learning_rate: float) -> None:
        self._train(self.sampler.batches.draw(epoch, step), learning_rate)

    def _train(self, batch: Batch, learning_rate: float) -> None:
        """forward → loss → backward → update, as Algorithm 7."""
        users, items = self._loss(batch)
        for name, gradient in self._backward(users, items, batch.size).items():
            self._adam[name].step(gradient, learning_rate)

    def take_loss(self) -> float:
        """The mean loss of a sample since the last call, an epoch ago."""
        total, self._loss_total = self._loss_total, 0
        return fixed_point.decode(total) / self.sampler.batches.total

    def measure(self, part: Part) -> Evaluation:
        users, items = self._propagate()
        self._vectors = Vectors(users.finish(items.push), items.finish(users.push))
        masked = masked_items(self._split, self._config, part).by_user
        heldout = self._split.parts[part].by_user
        return evaluate(
            self._vectors.users,
            self._vectors.items,
            masked,
            heldout,
            self._config.cutoffs,
            self._ranker,
        )

    def vectors(self) -> Vectors:
        assert self._vectors is not None, "vectors are those of a measurement"
        return self._vectors

    def parameters(self) -> Tables:
        return {name: adam.parameter.copy() for name, adam in self._adam.items()}

    def set_parameters(self, parameters: Mapping[str, npt.NDArray[Any]]) -> None:
        for name, adam in self._adam.items():
            adam.restore({**adam.state(), "parameter": parameters[name]})

    def state(self) -> Tables:
        """Everything that the next step depends on, besides the configuration and the data."""
        return {
            f"{name}.{key}": value
            for name, adam in self._adam.items()
            for key, value in adam.state().items()
        }

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        for name, adam in self._adam.items():
            adam.restore({key: state[f"{name}.{key}"] for key in adam.state()})

    def traffic(self) -> TrafficSummary | None:
        return None

    def close(self) -> None:
        """A data centre has no parties to end."""


def _flags(size: int, rows: Int64) -> npt.NDArray[np.bool_]:
    flags = np.zeros(size, dtype=np.bool_)
    flags[rows] = True
    return flags
