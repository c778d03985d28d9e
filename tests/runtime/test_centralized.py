"""The engine against an independent LightGCN / LightGCN+ from the formulas, with autograd."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lpgcn.array_types import Int64
from lpgcn.checkpoints import CheckpointError, InFolder, InMemory
from lpgcn.config import Config
from lpgcn.data import Ids, Interactions, Split, load
from lpgcn.model import batches
from lpgcn.model.adam import STATE
from lpgcn.model.batches import PooledBatch
from lpgcn.model.grid import Grid, GridError
from lpgcn.model.initial import embedding_rows
from lpgcn.model.losses.softmax import Softmax
from lpgcn.model.sampling import (
    SamplingError,
    VirtualItems,
    catalogue,
    listing_keys,
    places,
    renumbered,
    union,
    virtual_items,
)
from lpgcn.ragged import Ragged
from lpgcn.random import Purpose
from lpgcn.runtime.engines.centralized import Centralized, Sampler
from lpgcn.runtime.engines.engine import Tables
from lpgcn.runtime.machine import Machine
from lpgcn.terms import Term, TermError

STEPS = 20
MACHINE = Machine.with_threads(1)

GRADIENT_TOLERANCE = 2.0**-44
"""Two steps of the backward grid, 2^-45; Adam divides by the size of a gradient, so that where it
is small parameters are off by more: `Autograd.tolerance`."""

LOSS_TOLERANCE = 2.0**-31
"""A sample and the three nodes in it are each rounded to a multiple of 2^-32."""


def split_of(
    pairs: list[tuple[int, int]],
    n_users: int,
    n_items: int,
    heldout: Sequence[tuple[int, int]] = (),
) -> Split:
    """Held-out pairs are both the validation and the test part."""
    users, items = zip(*pairs, strict=True)
    held = [pair[0] for pair in heldout], [pair[1] for pair in heldout]
    measured = Interactions.from_pairs(*held, n_users, n_items)
    return Split(
        "random",
        Interactions.from_pairs(users, items, n_users, n_items),
        measured,
        measured,
        Ids(np.arange(n_users)),
        Ids(np.arange(n_items)),
    )


@st.composite
def splits(draw: st.DrawFn) -> Split:
    """Small graphs: every user has an item, item 0 has all, item 1 one, some items none."""
    n_users = draw(st.integers(1, 8))
    n_items = draw(st.integers(4, 12))
    pairs = {(user, 0) for user in range(n_users)} | {(0, 1)}
    extra = st.tuples(st.integers(0, n_users - 1), st.integers(2, n_items - 2))
    pairs |= set(draw(st.lists(extra, max_size=30)))
    return split_of(sorted(pairs), n_users, n_items, [(u, n_items - 1) for u in range(n_users)])


def parameters(engine: Centralized) -> Tables:
    named = ".parameter"
    return {
        name.removesuffix(named): value
        for name, value in engine.state().items()
        if name.endswith(named)
    }


def assert_same(found: Tables, expected: Tables) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype, name
        assert found[name].tobytes() == value.tobytes(), name


class Autograd:
    """LightGCN (Eqs. 1–5) with a dense normalised adjacency matrix and torch's own Adam."""

    def __init__(self, split: Split, config: Config, start: Tables) -> None:
        self.config = config
        self.parameters = {
            name: torch.from_numpy(value).requires_grad_() for name, value in start.items()
        }
        self.slope = 0.0
        self.optimizer = torch.optim.Adam(self.parameters.values(), lr=config.lr, foreach=False)
        train = split.train
        self.interactions = torch.zeros(split.n_users, split.n_items, dtype=torch.float64)
        self.interactions[train.users, train.items] = 1
        user_degree = self.interactions.sum(1, keepdim=True)
        item_degree = self.interactions.sum(0, keepdim=True).clamp(min=1)
        self.normalised = self.interactions / (user_degree * item_degree).sqrt()
        self.user_degree = user_degree

    def initial(self) -> tuple[Tensor, Tensor]:
        items = self.parameters["items"]
        if "users" in self.parameters:
            return self.parameters["users"], items
        return self.interactions @ self.parameters["item_users"] / self.user_degree.sqrt(), items

    def final(self, user: Tensor, item: Tensor) -> tuple[Tensor, Tensor]:
        user_layers, item_layers = [user], [item]
        for _ in range(self.config.layers):
            user, item = self.normalised @ item, self.normalised.T @ user
            user_layers.append(user)
            item_layers.append(item)
        weights = self.config.layer_weights or [1 / len(user_layers)] * len(user_layers)
        alpha = torch.tensor(weights, dtype=torch.float64)[:, None, None]
        return (alpha * torch.stack(user_layers)).sum(0), (alpha * torch.stack(item_layers)).sum(0)

    def step(self, users: Tensor, positives: Tensor, negatives: Tensor) -> float:
        user0, item0 = self.initial()
        final_user, final_item = self.final(user0, item0)
        margin = (final_user[users] * (final_item[positives] - final_item[negatives])).sum(1)
        squares = sum(
            rows.pow(2).sum() for rows in (user0[users], item0[positives], item0[negatives])
        )
        loss = (
            -torch.nn.functional.logsigmoid(margin).sum() + self.config.reg / 2 * squares
        ) / len(users)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.slope += self.largest_slope()
        return loss.item()

    def largest_slope(self) -> float:
        """Of lr·m̂ / (√v̂ + ε), a step of Adam, in a gradient that is not simply zero: by how much
        more parameters are off than gradients are."""
        states = [self.optimizer.state[one] for one in self.parameters.values()]
        roots = [
            (one["exp_avg_sq"][one["exp_avg_sq"] > 0] / (1 - 0.999 ** one["step"])).sqrt()
            for one in states
        ]
        return self.config.lr / (torch.cat(roots).min().item() + 1e-8)

    @property
    def tolerance(self) -> float:
        """Where one parameter is off, soon all are, so there is one for all."""
        return GRADIENT_TOLERANCE * self.slope


@settings(max_examples=25)
@given(
    split=splits(),
    model=st.sampled_from(["lightgcn", "lightgcn+"]),
    layers=st.integers(1, 4),
    dim=st.sampled_from([1, 3, 16, 20]),
    batch_size=st.integers(1, 40),
    virtual_items=st.sampled_from(["0", "2", "1.0x"]),
    seed=st.integers(0, 1000),
)
def test_agrees_with_autograd(
    split: Split,
    model: str,
    layers: int,
    dim: int,
    batch_size: int,
    virtual_items: str,
    seed: int,
) -> None:
    config = Config(
        model=model,
        layers=layers,
        dim=dim,
        lr=0.01,
        reg=0.05,
        batch_size=batch_size,
        virtual_items=virtual_items,
        seed=seed,
        dtype="float64",
    )
    engine = Centralized(split, config, MACHINE)
    oracle = Autograd(split, config, parameters(engine))
    done = 0
    for epoch in range(STEPS):
        expected_loss = 0.0
        for step in range(engine.steps_per_epoch):
            batch = engine.sampler.batches.draw(epoch, step)
            pairs, size = engine.sampler.pairs(batch), batch.size
            items = np.concatenate((np.arange(split.n_items), engine.sampler.catalogue))
            users = torch.from_numpy(pairs.users[pairs.positive])
            expected_loss += size * oracle.step(
                users,
                torch.from_numpy(items[pairs.items[pairs.positive]]),
                torch.from_numpy(items[pairs.items[pairs.negative]]),
            )
            engine.step(epoch, step, config.lr)
            done += 1
        assert engine.take_loss() == pytest.approx(
            expected_loss / len(split.train), abs=LOSS_TOLERANCE
        )
        if done >= STEPS:
            break
    for name, value in parameters(engine).items():
        expected = oracle.parameters[name].detach().numpy()
        assert np.abs(value - expected).max() < oracle.tolerance


class PooledAutograd(Autograd):
    """Softmax on the cosines of unrounded vectors: its loss and its gradients."""

    def __init__(self, split: Split, config: Config, start: Tables, batch: PooledBatch) -> None:
        super().__init__(split, config, start)
        self.in_pool, self.answers = self._pools(batch, catalogue(config.seed, split.n_items))
        user0, item0 = self.initial()
        self.finals = self.final(user0, item0)
        self.sizes = [rows.norm(dim=1, keepdim=True) for rows in self.finals]
        users, items = (rows / size for rows, size in zip(self.finals, self.sizes, strict=True))
        # What is not answered does not come back to an item; what is counts for it, too.
        unanswered = users.detach() @ items.detach().T
        answered = self.answers * (users.detach() @ items.T - unanswered)
        positive, negative = users @ items.T, users @ items.detach().T + answered
        x, among = (torch.exp(cosines / config.temperature) for cosines in (positive, negative))
        z = config.negative_weight * (among * self.in_pool).sum(1, keepdim=True)
        losses = self.interactions * -torch.log(x / (x + z))
        degrees = self.interactions.sum(1), self.interactions.sum(0)
        squares = sum(n @ e.pow(2).sum(1) for n, e in zip(degrees, (user0, item0), strict=True))
        self.loss = (losses.sum() + config.reg / 2 * squares) / self.interactions.sum()
        wanted = [*self.parameters.values(), positive, negative]
        *found, by_positive, by_negative = torch.autograd.grad(self.loss, wanted, retain_graph=True)
        self.gradients = dict(zip(self.parameters, found, strict=True))
        self.slopes = by_positive.abs(), by_negative.abs()

    def _pools(self, batch: PooledBatch, items: Int64) -> tuple[Tensor, Tensor]:
        """For every user which items are its negatives, and what an answer about each counts."""
        in_pool, answers = torch.zeros(2, *self.interactions.shape, dtype=torch.float64)
        for user, group in enumerate(batch.group):
            pool = items[batch.pools[int(group)]]
            in_pool[user, pool] = 1
            answers[user, pool[: batch.answered]] = len(pool) / batch.answered
        return in_pool * (1 - self.interactions), answers

    @property
    def log_error(self) -> float:
        """Of x: that of the cosine of two directions, rounded to whole numbers."""
        return 2.001 * self.direction_error / self.config.temperature + 1e-6

    @property
    def direction_error(self) -> float:
        """Half a unit in every coordinate."""
        return 0.5001 * math.sqrt(self.config.dim) / Softmax.of(self.config).radius

    def allowed(self) -> dict[str, Tensor]:
        """How far a gradient may be off: at the final vectors by the directions, which change and
        are multiplied by slopes, and by the slopes, which are rounded to 2^-16. No matrix that it
        then goes through has a number below 0; so what it may be off goes the same way."""
        of = self.direction_error
        grown = math.exp(2 * self.log_error) * (1 + of) - 1 + 2 * of
        mean = 2.0**-17 / self.interactions.sum()
        by_positive, by_negative = (one * grown + mean for one in self.slopes)
        by_positive = by_positive * self.interactions
        off = (
            (by_positive + by_negative).sum(1, keepdim=True) / self.sizes[0],
            (by_positive + by_negative * self.answers).sum(0)[:, None] / self.sizes[1],
        )
        at_finals = [one.expand_as(rows) for one, rows in zip(off, self.finals, strict=True)]
        found = torch.autograd.grad(self.finals, list(self.parameters.values()), at_finals)
        roundings = (self.config.layers + 2) * len(self.interactions)
        grid = roundings * Grid.backward("float64", "full").unit
        return {name: one + grid for name, one in zip(self.parameters, found, strict=True)}


@settings(max_examples=40)
@given(
    split=splits(),
    model=st.sampled_from(["lightgcn", "lightgcn+"]),
    layers=st.integers(1, 4),
    dim=st.sampled_from([1, 3, 16, 20]),
    temperature=st.floats(0.1, 0.5),
    weight=st.sampled_from([1.0, 0.3, 5.0]),
    sizes=st.integers(1, 14).flatmap(
        lambda negatives: st.tuples(st.just(negatives), st.none() | st.integers(1, negatives))
    ),
    groups=st.integers(1, 3),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_softmax_agrees_with_autograd(
    data: st.DataObject,
    split: Split,
    model: str,
    layers: int,
    dim: int,
    temperature: float,
    weight: float,
    sizes: tuple[int, int | None],
    groups: int,
    seed: int,
) -> None:
    """Adam's mean tells the gradients of every step: each adds a tenth of itself."""
    alphas = st.lists(st.floats(0.1, 2), min_size=layers + 1, max_size=layers + 1).map(tuple)
    config = Config(
        model=model,
        layers=layers,
        layer_weights=data.draw(st.none() | alphas),
        dim=dim,
        lr=0.05,
        reg=0.05,
        loss="softmax",
        batch_size="full",
        temperature=temperature,
        negative_weight=weight,
        negatives=sizes[0],
        answers=sizes[1],
        groups=groups,
        seed=seed,
        dtype="float64",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "smallest_group", lambda _: 1)
        engine = Centralized(split, config, MACHINE)
    assert engine.steps_per_epoch == 1
    for epoch in range(4):
        batch = engine.sampler.batches.draw(epoch, 0)
        assert isinstance(batch, PooledBatch)
        assert len(batch.pools) == min(groups, split.n_users)
        oracle = PooledAutograd(split, config, parameters(engine), batch)
        before = engine.state()
        engine.step(epoch, 0, config.lr)
        after, allowed = engine.state(), oracle.allowed()
        for name, expected in oracle.gradients.items():
            gradient = (after[f"{name}.mean"] - 0.9 * before[f"{name}.mean"]) / (1 - 0.9)
            assert (np.abs(gradient - expected.numpy()) <= allowed[name].numpy()).all()
        error = 2 * oracle.log_error + LOSS_TOLERANCE
        assert engine.take_loss() == pytest.approx(oracle.loss.item(), abs=error)


def test_softmax_in_groups_on_any_number_of_threads_has_the_same_bits() -> None:
    split, states = load("demo"), []
    config = Config(
        loss="softmax", batch_size="full", layers=2, dim=32, negatives=200, answers=70, groups=3
    )
    for threads in (1, 3):
        engine = Centralized(split, config, Machine.with_threads(threads))
        for epoch in range(2):
            engine.step(epoch, 0, 0.01)
        states.append((engine.take_loss(), engine.state()))
    assert states[0][0] == states[1][0]
    assert_same(states[0][1], states[1][1])


def test_a_full_batch_is_one_of_as_many_samples_but_for_its_grid() -> None:
    """Of BPR, with so many samples that a grid for them is that of a full batch."""
    split = load("demo")
    full, counted = (
        Centralized(split, Config(layers=2, dim=8, batch_size=size), MACHINE)
        for size in ("full", len(split.train))
    )
    assert full.steps_per_epoch == counted.steps_per_epoch == 1
    for engine in (full, counted):
        engine.step(0, 0, 0.01)
    assert full.take_loss() == counted.take_loss()
    unit = Grid.backward("float32", "full").unit
    for name in ("items", "item_users"):
        found, expected = (engine.state()[f"{name}.mean"] for engine in (full, counted))
        assert 0 < np.abs(found - expected).max() < 100 * unit / len(split.train)


def test_threads_do_not_matter() -> None:
    split, states = load("demo"), []
    config = Config(layers=2, dim=32, batch_size=4096)
    for threads in (1, 3):
        engine = Centralized(split, config, Machine.with_threads(threads))
        for step in range(2):
            engine.step(0, step, 0.01)
        found = engine.measure("valid")
        states.append((engine.take_loss(), found, engine.scorer(), engine.state()))
    (loss, found, vectors, state), (*same, other_vectors, other) = states
    assert [loss, found] == same
    assert vectors.users.tobytes() == other_vectors.users.tobytes()
    assert vectors.items.tobytes() == other_vectors.items.tobytes()
    assert_same(state, other)


@pytest.mark.parametrize("model", ["lightgcn", "lightgcn+"])
def test_training_that_diverges_says_where(model: str) -> None:
    split = split_of([(0, 0), (0, 1), (1, 0)], 2, 3)
    engine = Centralized(split, Config(model=model, dim=2, batch_size=3), MACHINE)
    engine.step(0, 0, 1e3)
    with pytest.raises(GridError, match=r"(layer 0 forward|building users), the (users|items): "):
        engine.step(1, 0, 1e3)


def test_a_user_without_items_is_refused() -> None:
    with pytest.raises(SamplingError, match=r"no training items of 1 of"):
        Centralized(split_of([(0, 0)], 2, 3), Config(), MACHINE)


SMALL = Config(layers=2, dim=3, lr=0.05, batch_size=5, seed=3)
Action = tuple[int, int] | str
models = st.sampled_from(["lightgcn", "lightgcn+"])


def walk(engine: Centralized, epochs: int) -> Iterator[tuple[int, int]]:
    """The steps of whole epochs, each as long as the term that it is in has samples."""
    for epoch in range(epochs):
        step = 0
        while step < engine.steps_per_epoch:
            yield epoch, step
            step += 1


class RankedSampler(Sampler):
    """Of users who are called by their ranks, but draw their virtual items by their numbers."""

    def __init__(
        self, train: Interactions, config: Config, numbers: Int64, popularity: Int64
    ) -> None:
        super().__init__(train, config)
        how = VirtualItems(*config.alpha, config.virtual_draw)
        alone = [
            virtual_items(
                config.seed,
                numbers[[rank]],
                Ragged.from_arrays([self.real[rank]]),
                train.n_items,
                how,
                popularity.astype(np.float64),
            ).values
            for rank in range(train.n_users)
        ]
        listed = union(self.real, Ragged.from_arrays(alone), train.n_items)
        keys = listing_keys(renumbered(listed, places(self.catalogue)), train.n_items)
        self.batches = replace(self.batches, listed_keys=keys)


class Glued:
    """An engine without terms for the members of each, on data that knows nobody else; what each
    row consists of is carried by hand from one to the next."""

    def __init__(self, split: Split, config: Config, terms: list[Term]) -> None:
        self.split, self.config, self.terms = split, config, terms
        whole = Centralized(split, config, MACHINE)
        self.tables = {name: adam.state() for name, adam in whole._adam.items()}
        if "users" in self.tables:
            initial = embedding_rows(
                config.seed,
                Purpose.USER_EMBEDDING,
                np.arange(split.n_users),
                table_rows=len(terms[0].members),
                config=config,
            )
            self.tables["users"] |= {"parameter": initial, "kept": initial.copy()}
        self.initial = {key: value.copy() for key, value in self.tables.get("users", {}).items()}
        self.term, self.engine = terms[0], self.engine_of(terms[0])

    def engine_of(self, term: Term) -> Centralized:
        numbers, split = np.array(term.members), self.split

        def part(of: Interactions) -> Interactions:
            pairs = [
                (rank, i) for rank, u in enumerate(term.members) for i in of.items_of(u).tolist()
            ]
            users, items = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            return Interactions.from_pairs(users, items, len(numbers), split.n_items)

        parts = (part(of) for of in (split.train, split.valid, split.test))
        known = Split("members", *parts, Ids(np.arange(len(numbers))), split.item_ids)
        engine = Centralized(known, self.config, MACHINE)
        engine.sampler = RankedSampler(known.train, self.config, numbers, split.train.item_degrees)
        for name, adam in engine._adam.items():
            rows = numbers if name == "users" else np.arange(split.n_items)
            adam.restore({key: self.tables[name][key][rows] for key in STATE})
        return engine

    def put_back(self) -> None:
        for name, adam in self.engine._adam.items():
            numbers = np.array(self.term.members)
            rows = numbers if name == "users" else np.arange(self.split.n_items)
            for key, value in adam.state().items():
                self.tables[name][key][rows] = value

    def step(self, epoch: int, step: int, learning_rate: float) -> None:
        begun = [one for one in self.terms if (one.epoch, one.step) <= (epoch, step)]
        for term in begun[self.terms.index(self.term) + 1 :]:
            self.put_back()
            joined = sorted({*term.members} - {*self.term.members})
            for key, value in self.initial.items():
                self.tables["users"][key][joined] = value[joined]
            self.term, self.engine = term, self.engine_of(term)
        if step < self.engine.sampler.batches.steps:
            self.engine.step(epoch, step, learning_rate)

    def state(self) -> Tables:
        self.put_back()
        return {
            f"{name}.{key}": value
            for name, table in self.tables.items()
            for key, value in table.items()
        }


@st.composite
def logs(draw: st.DrawFn, n_users: int) -> list[Term]:
    """Up to four terms in the first epochs, of any users."""
    later = draw(st.sets(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=3))
    members = st.sets(st.integers(0, n_users - 1), min_size=1)
    return [
        Term(epoch=epoch, step=step, members=tuple(sorted(draw(members))))
        for epoch, step in sorted({(0, 0), *later})
    ]


def assert_glued(split: Split, config: Config, terms: list[Term], keeping: set[int]) -> None:
    """Three epochs; what was reached after the steps in `keeping` is kept."""
    engine, glued = Centralized(split, config, MACHINE, terms=terms), Glued(split, config, terms)
    assert_same(engine.state(), glued.state())
    for number, (epoch, step) in enumerate(walk(engine, 3)):
        engine.step(epoch, step, config.lr)
        glued.step(epoch, step, config.lr)
        if number in keeping:
            engine.keep()
            glued.engine.keep()
    assert_same(engine.state(), glued.state())
    assert engine.take_loss() == glued.engine.take_loss()
    engine.go_back()
    glued.engine.go_back()
    assert_same(engine.state(), glued.state())
    assert engine.measure("valid") == glued.engine.measure("valid")
    members = np.array(glued.term.members)
    found, expected = engine.inspector().scorer(), glued.engine.scorer()
    assert found.users[members].tobytes() == expected.users.tobytes()
    assert found.items.tobytes() == expected.items.tobytes()
    assert not np.delete(found.users, members, axis=0).any()


@pytest.mark.parametrize("model", ["lightgcn", "lightgcn+"])
@pytest.mark.parametrize(
    "virtual",
    [
        {"virtual_items": "0"},
        {"virtual_items": "2"},
        {"virtual_items": "5", "virtual_draw": "popularity"},
    ],
    ids=["none", "two", "popular"],
)
def test_one_leaves_and_another_joins(model: str, virtual: dict[str, Any]) -> None:
    """In the middle of an epoch; what is kept later is not of the one who left."""
    pairs = [(u, i) for u in range(6) for i in range(11) if (3 * u + i * i) % 5 < 2 or i == u]
    split = split_of(pairs, 6, 16, [(u, 12 + u % 3) for u in range(6)])
    terms = [
        Term(epoch=0, step=0, members=(0, 1, 2, 4, 5)),
        Term(epoch=0, step=2, members=(0, 1, 2, 5)),
        Term(epoch=1, step=1, members=(0, 1, 2, 3, 5)),
    ]
    assert_glued(split, SMALL.changed(model=model, **virtual), terms, {0, 3, 6})


@settings(max_examples=40)
@given(
    data=st.data(),
    split=splits(),
    model=models,
    alpha=st.sampled_from(["0", "2"]),
    batch_size=st.integers(1, 8),
    keeping=st.sets(st.integers(0, 12)),
)
def test_a_log_of_terms_is_one_engine_for_each_of_them(
    data: st.DataObject,
    split: Split,
    model: str,
    alpha: str,
    batch_size: int,
    keeping: set[int],
) -> None:
    config = SMALL.changed(model=model, batch_size=batch_size, virtual_items=alpha)
    assert_glued(split, config, data.draw(logs(split.n_users)), keeping)


def run(engine: Centralized, actions: Sequence[Action]) -> list[Any]:
    """What the training loop does, and what it gets to know."""
    told: list[Any] = []
    for action in actions:
        match action:
            case (epoch, step):
                engine.step(epoch, step, SMALL.lr)
            case "end":
                told += [engine.take_loss(), engine.measure("valid"), engine.steps_per_epoch]
            case "keep":
                engine.keep()
            case "go back":
                engine.go_back()
    return told


def actions_of(split: Split, config: Config, terms: Sequence[Term], kept: int) -> list[Action]:
    """Three epochs, the best of them the one with number `kept`."""
    engine, actions, last = Centralized(split, config, MACHINE, terms=terms), [], 0
    for epoch, step in walk(engine, 3):
        if epoch > last:
            actions += ["end", "keep"] if last == kept else ["end"]
            last = epoch
        engine.step(epoch, step, SMALL.lr)
        actions.append((epoch, step))
    return [*actions, "end", "go back", "end"]


@given(split=splits(), model=models, alpha=st.sampled_from(["0", "2"]), kept=st.integers(0, 2))
def test_one_term_with_everybody_is_none(split: Split, model: str, alpha: str, kept: int) -> None:
    config = SMALL.changed(model=model, virtual_items=alpha)
    terms = [Term(epoch=0, step=0, members=tuple(range(split.n_users)))]
    actions = actions_of(split, config, (), kept)
    without, within = (Centralized(split, config, MACHINE, terms=one) for one in ((), terms))
    assert run(within, actions) == run(without, actions)
    assert_same(within.state(), without.state())


@settings(max_examples=40)
@given(data=st.data(), split=splits(), model=models, kept=st.integers(0, 2))
def test_going_on_from_a_checkpoint_ends_in_the_same_bits(
    data: st.DataObject, split: Split, model: str, kept: int
) -> None:
    """In the middle of an epoch, and of a term; in the same engine, a new one, or another's."""
    terms = data.draw(st.one_of(st.just([]), logs(split.n_users)))
    config = SMALL.changed(model=model, virtual_items="1")
    actions = actions_of(split, config, terms, kept)
    at = data.draw(st.integers(0, len(actions)))
    past = data.draw(st.integers(at, len(actions)))
    checkpoints = InMemory()

    def make() -> Centralized:
        return Centralized(split, config, MACHINE, checkpoints=checkpoints, terms=terms)

    whole = make()
    told = run(whole, actions)
    interrupted = make()
    before = run(interrupted, actions[:at])
    steps = [action for action in actions[:at] if isinstance(action, tuple)]
    interrupted.checkpoint(7, *(steps[-1] if steps else (0, 0)))
    run(interrupted, actions[at:past])
    for engine in (interrupted, make()):
        engine.resume(7)
        assert before + run(engine, actions[at:]) == told
        assert_same(engine.state(), whole.state())
    interrupted.resume(0)
    assert run(interrupted, actions) == told
    assert_same(interrupted.state(), whole.state())


@pytest.mark.parametrize("total", [0, 1, 127, 128, 2**64 - 1, 2**64, 3**100])
def test_a_sum_of_losses_of_any_size_is_in_a_checkpoint(total: int, tmp_path: Path) -> None:
    split, places_to_keep = load("demo"), InFolder(tmp_path)
    engine, other = (
        Centralized(split, SMALL, MACHINE, checkpoints=places_to_keep) for _ in range(2)
    )
    engine._loss_total = total
    engine.checkpoint(1, 0, 0)
    other.resume(1)
    assert other._loss_total == total
    with pytest.raises(CheckpointError, match="no checkpoint 2"):
        other.resume(2)


def test_a_term_that_has_no_samples_left_for_a_step_does_not_make_it() -> None:
    """The epoch is over: with fewer members it has fewer samples."""
    split = split_of([(u, i) for u in range(4) for i in range(3)], 4, 5)
    terms = [
        Term(epoch=0, step=0, members=(0, 1, 2, 3)),
        Term(epoch=0, step=2, members=(1, 3)),
    ]
    config = SMALL.changed(batch_size=4)
    engine = Centralized(split, config, MACHINE, terms=terms)
    assert engine.steps_per_epoch == 3
    for step in range(2):
        engine.step(0, step, 0.1)
    before = engine.state()
    engine.step(0, 2, 0.1)
    assert_same(engine.state(), before)
    assert engine.steps_per_epoch == 2


def test_only_members_need_items() -> None:
    split = split_of([(0, 0), (1, 1), (3, 1)], 4, 3, [(1, 2), (2, 2)])
    first, second = (
        Term(epoch=epoch, step=0, members=members) for epoch, members in ((0, (0, 1)), (1, (1, 2)))
    )
    engine = Centralized(split, SMALL, MACHINE, terms=[first, second])
    engine.step(0, 0, 0.1)
    assert engine.measure("test").n_users == 1
    with pytest.raises(SamplingError, match=r"no training items of 1 of"):
        engine.step(1, 0, 0.1)


@pytest.mark.parametrize(
    ("term", "problem"),
    [
        (Term(epoch=0, step=0, members=(0, 4)), r"member 4, but the data has users 0 to 1 only"),
        (Term(epoch=0, step=1, members=(0, 1)), r"no term has begun at epoch 0, step 0"),
    ],
)
def test_a_log_of_other_data_or_without_its_beginning_is_refused(term: Term, problem: str) -> None:
    with pytest.raises(TermError, match=problem):
        Centralized(split_of([(0, 0), (1, 1)], 2, 3), SMALL, MACHINE, terms=[term])
