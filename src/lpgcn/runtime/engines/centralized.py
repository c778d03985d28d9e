"""All parties at once on the whole graph: the reference that "lossless" refers to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from safetensors.numpy import load

from lpgcn import fixed_point
from lpgcn.array_types import Float64, Int64
from lpgcn.checkpoints import Checkpoints, InMemory
from lpgcn.config import Config
from lpgcn.data import Interactions, Split
from lpgcn.data.features import check_sized
from lpgcn.data.splitting import only
from lpgcn.evaluation import Evaluation, Vectors, evaluate
from lpgcn.model.adam import Adam, Gradient, restore_states, states
from lpgcn.model.backbones import BUILDING, Linear, NodeKind, backbone_of
from lpgcn.model.batches import AnyBatch
from lpgcn.model.dense import nodes_of
from lpgcn.model.features import Features
from lpgcn.model.folding import folding
from lpgcn.model.initial import initial_tables
from lpgcn.model.kernels import Floats
from lpgcn.model.propagation import (
    Backward,
    Forward,
    building_push,
    exchanged,
    finished,
    gradient_of_building,
)
from lpgcn.model.scoring import scoring
from lpgcn.model.weights import Weights, initial_weights, weight_gradients
from lpgcn.ragged import flags
from lpgcn.runtime.arrays import packed
from lpgcn.runtime.engines.engine import (
    Inspector,
    Part,
    RunInterruptedError,
    Tables,
    masked_items,
)
from lpgcn.runtime.engines.objectives import at_nodes
from lpgcn.runtime.engines.sampler import Sampler
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.traffic import TrafficSummary
from lpgcn.terms import Term, TermError, begun

__all__ = ["Centralized", "Sampler"]

_LOSS: Final = "loss"
_WHERE: Final = "where"
"""Samples since the last report, the number of the term, and the next epoch and step."""


class Centralized:
    """A backbone on the whole graph: an `Engine`.

    With a log of terms a step is on the graph of the members of its term. Who is not among them
    keeps its row as it is and has no part in anything: no edges, no samples, no measurement.
    """

    def __init__(
        self,
        split: Split,
        config: Config,
        machine: Machine,
        *,
        checkpoints: Checkpoints | None = None,
        terms: Sequence[Term] = (),
    ) -> None:
        self._split, self._config, self._terms = split, config, terms
        _check_members(terms, split.n_users)
        check_sized(config, split)
        self._kernels, self._ranker = machine.kernels, machine.ranker
        self._checkpoints = InMemory() if checkpoints is None else checkpoints
        self._backbone = backbone_of(config)
        self._shapes = self._backbone.shared()
        self._enter(0)
        self._adam = self._initial()
        self._vectors: Vectors | None = None
        self._next = (0, 0)
        self._loss_total = self._samples = 0

    def _enter(self, term: int) -> None:
        """The graph and the samples of a term's members; without a log, of everybody."""
        self._term, train, config = term, self._split.train, self._config
        self._members = None
        if self._terms and len(self._terms[term].members) < train.n_users:
            self._members = np.array(self._terms[term].members)
        self.sampler = self._sampler(train, term)
        edges = _only(train, self._members)
        degrees, kernels = edges.user_degrees, self._kernels
        if config.min_degree > 1:
            # A user does not know how many others have an item, so its own degree stays.
            edges = only(edges, edges.item_degrees[edges.items] >= config.min_degree)
        members = train.n_users if self._members is None else len(self._members)
        in_all = members + train.n_items
        self._users = nodes_of(
            "the users", degrees, edges.by_user, config, kernels, in_all=in_all,
            features=Features.of("users", self._user_features()),
        )  # fmt: skip
        self._items = nodes_of(
            "the items", edges.item_degrees, edges.by_item, config, kernels, in_all=in_all,
            features=Features.of("items", self._split.item_features),
        )  # fmt: skip

    def _user_features(self) -> Float64 | None:
        """Of the members, and zero for others."""
        features = self._split.user_features
        if features is None or self._members is None:
            return features
        return np.where(flags(len(features), self._members)[:, None], features, 0)

    def _sampler(self, train: Interactions, term: int) -> Sampler:
        return Sampler(train, self._config, self._members, term)

    def approach(self, epoch: int, step: int) -> None:
        """Enter the terms that have begun by then, one after the other. Who joins begins anew, and
        so does the sum of losses: who left has taken its part along."""
        for term in range(self._term + 1, begun(self._terms, epoch, step)):
            self._enter(term)
            joined = np.setdiff1d(self._terms[term].members, self._terms[term - 1].members)
            self._begin_anew(joined)
            self._loss_total = self._samples = 0

    def _begin_anew(self, users: Int64) -> None:
        """Their rows are as at the beginning, also of those who were there before."""
        for name, fresh in self._drawn("users", users).items():
            state = self._adam[name].state()
            for key, value in fresh.state().items():
                state[key][users] = value
            self._adam[name].restore(state)

    def _initial(self) -> dict[str, Adam]:
        """All tables, also of those who join later, and the dense weights."""
        return {
            **self._drawn("users", np.arange(self._split.n_users)),
            **self._drawn("items", np.arange(self._split.n_items)),
            **initial_weights(self._shapes, self._config.seed, self._config, self._kernels),
        }

    def _drawn(self, kind: NodeKind, rows: Int64) -> dict[str, Adam]:
        """Rows of the tables of a kind; Xavier knows who was there at the beginning."""
        first = len(self._terms[0].members) if self._terms else self._split.n_users
        return initial_tables(
            self._backbone.held(kind),
            self._config.seed,
            rows,
            table_rows=first if kind == "users" else self._split.n_items,
            config=self._config,
            kernels=self._kernels,
        )

    def _present(self, table: str) -> Int64 | None:
        """The rows of a table that somebody holds at present: None is all of them."""
        return self._members if table in self._backbone.held("users") else None

    def begin(self) -> None:
        """A data centre has nothing to agree upon."""

    def _begin(self) -> tuple[Forward, Forward]:
        """[half exchange], and the pushes of layer 0."""
        weights = self._weights()
        items = self._items.begin(self._adam["items"].parameter, weights)
        if not self._backbone.builds_users:
            return self._users.begin(self._user_parameters(), weights), items
        built, largest = building_push(self._adam[BUILDING].parameter, self._items)
        return self._users.build(built, weights, largest), items

    def _weights(self) -> Weights:
        return Weights({name: self._adam[name].parameter for name in self._shapes}, self._kernels)

    def _user_parameters(self) -> Floats:
        """e_u^(0) of the members, and zero for others, whose vectors nobody computes."""
        parameter = self._adam["users"].parameter
        if self._members is None:
            return parameter
        present = np.zeros_like(parameter)
        present[self._members] = parameter[self._members]
        return present

    def _propagate(self) -> tuple[Forward, Forward]:
        """Algorithm 4 but for its last exchange, which may be for some nodes only."""
        users, items = self._begin()
        for _ in range(self._config.layers - 1):
            users, items = exchanged(users, items)
        return users, items

    def _loss(self, batch: AnyBatch) -> tuple[Backward, Backward]:
        """Algorithm 9: the loss, and the gradients that backward propagation starts from."""
        users, items = self._propagate()
        found = at_nodes(batch, self.sampler, users, items, self._config)
        self._loss_total += found.total()
        self._samples += batch.size
        return found.backward()

    def _backward(self, users: Backward, items: Backward, batch_size: int) -> dict[str, Gradient]:
        """Algorithm 6: L exchanges, then [half exchange]; the gradients of all parameters."""
        present = [flags(len(end.push), end.loss.rows) for end in (users, items)]
        for layer in range(self._config.layers):
            from_users, from_items = present if layer == 0 else (None, None)
            users, items = (
                users.absorb(items.push, items.largest, from_items),
                items.absorb(users.push, users.largest, from_users),
            )
        parts = (users.weight_sums(), items.weight_sums())
        shared = weight_gradients(parts, self._config, batch_size)
        if not self._backbone.builds_users:
            users_gradient = {"users": users.gradient(batch_size)}
        else:
            pushed = users.push_to_built()
            users_gradient = {BUILDING: gradient_of_building(self._items, pushed, batch_size)}
        return {"items": items.gradient(batch_size), **users_gradient, **shared}

    @property
    def steps_per_epoch(self) -> int:
        """Of the term of the last step, or of the one that comes next."""
        return self.sampler.batches.steps

    def step(self, epoch: int, step: int, learning_rate: float) -> None:
        self.approach(epoch, step)
        batch = self.sampler.batches.draw(epoch, step)
        # An epoch may be over already with the fewer samples of those who are left.
        if batch.size:
            self._train(batch, learning_rate)

    def _train(self, batch: AnyBatch, learning_rate: float) -> None:
        """forward → loss → backward → update, as Algorithm 7."""
        users, items = self._loss(batch)
        for name, gradient in self._backward(users, items, batch.size).items():
            self._adam[name].step(gradient, learning_rate, self._present(name))

    def take_loss(self) -> float:
        """The mean loss of a sample since the last call, an epoch ago, or since the term began."""
        total, samples = self._loss_total, self._samples
        self._loss_total = self._samples = 0
        return fixed_point.decode(total) / max(1, samples)

    def present(self) -> Vectors:
        """The final vectors of the present parameters."""
        users, items = finished(*self._propagate())
        return Vectors(users.final, items.final)

    def measure(self, part: Part) -> Evaluation:
        self._vectors = found = self.present()
        items = scoring(found.items, self._config.length_exponent, self._kernels)
        masked = masked_items(self._split, self._config, part).by_user
        heldout = _only(self._split.parts[part], self._members).by_user
        scorer = Vectors(found.users, items)
        return evaluate(scorer, masked, heldout, self._config.cutoffs, self._ranker)

    def keep(self) -> None:
        for name, adam in self._adam.items():
            adam.keep(self._present(name))

    def go_back(self) -> None:
        for name, adam in self._adam.items():
            adam.go_back(self._present(name))

    def checkpoint(self, number: int, epoch: int, step: int) -> None:
        self._next = epoch, step
        total = self._loss_total
        # A sum of losses has no largest, so its bytes are written: least first, with a sign.
        loss = total.to_bytes(total.bit_length() // 8 + 1, "little", signed=True)
        arrays = {
            **self.state(),
            _LOSS: np.frombuffer(loss, dtype=np.uint8),
            _WHERE: np.array([self._samples, self._term, epoch, step], dtype=np.int64),
            **self._beside(),
        }
        self._checkpoints.write(number, packed(arrays))

    def resume(self, number: int) -> bool:
        self._vectors = None
        if number == 0:
            self._adam, self._loss_total, self._samples = self._initial(), 0, 0
            self._enter(0)
            self._resume_beside({})
            return False
        found = load(self._checkpoints.read(number))
        self.restore(found)
        self._loss_total = int.from_bytes(found[_LOSS].tobytes(), "little", signed=True)
        self._samples, term, epoch, step = found[_WHERE].tolist()
        self._next = epoch, step
        self._resume_beside(found)
        self._enter(term)
        return self.renew()

    def _beside(self) -> Tables:
        """What else is in a checkpoint."""
        return {}

    def _resume_beside(self, found: Tables) -> None:
        """From a checkpoint; without one, as at the beginning."""

    def recover(self, error: RunInterruptedError) -> list[int]:
        raise error

    def renew(self) -> bool:
        """Nobody waits: the log says who is a member, and when."""
        self.approach(*self._next)
        return False

    def inspector(self) -> Inspector:
        return self

    def scorer(self) -> Vectors:
        """Of the last measurement; zero for users who were no members then."""
        assert self._vectors is not None, "vectors are those of a measurement"
        return self._vectors

    def folding(self) -> Floats | None:
        """F of the present parameters, which tells new users by their items; None where a user's
        vector is no sum over its items."""
        if not isinstance(self._backbone, Linear):
            return None
        _, items = self._propagate()
        building = self._adam[BUILDING].parameter if self._backbone.builds_users else None
        return folding(items, building)

    def state(self) -> Tables:
        """Every parameter with its Adam state, and what was kept as the best so far."""
        return states(self._adam)

    def restore(self, state: Tables) -> None:
        """What `state` gave."""
        restore_states(self._adam, state)

    def traffic(self) -> TrafficSummary | None:
        return None

    def close(self) -> None:
        """A data centre has no parties to end."""


def _check_members(terms: Sequence[Term], n_users: int) -> None:
    if terms and not begun(terms, 0, 0):
        raise TermError("no term has begun at epoch 0, step 0: the log is incomplete")
    for term in terms:
        if term.members[-1] >= n_users:
            raise TermError(
                f"the term from epoch {term.epoch}, step {term.step} on has member "
                f"{term.members[-1]}, but the data has users 0 to {n_users - 1} only; give the "
                "log of a run on the same data"
            )


def _only(interactions: Interactions, members: Int64 | None) -> Interactions:
    """Those of the members, with all users still counted; None is everybody."""
    if members is None:
        return interactions
    return only(interactions, flags(interactions.n_users, members)[interactions.users])
