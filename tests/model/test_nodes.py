"""The property that the federation stands on: a user alone, or an owner of a few items,
computes the same bits as the whole graph does, forward, in the loss and backward."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lpgcn.model.loss import LossGradient, PairGradients, Pairs, pair_gradients
from lpgcn.model.nodes import Nodes
from lpgcn.model.segments import Graph, Segments

Int64 = npt.NDArray[np.int64]
DECAY = 0.03


@dataclass(frozen=True)
class Case:
    """A random graph, samples of it, and who owns which item."""

    users: Int64
    items: Int64
    n_users: int
    n_items: int
    owner_of_item: Int64
    samples: tuple[Int64, Int64, Int64]
    """Users, positives, and negatives as n_items + item: called by another name than positives."""
    layers: int
    dim: int
    dtype: torch.dtype
    seed: int

    def table(self, rows: int) -> Tensor:
        drawn = np.random.default_rng((self.seed, rows)).standard_normal((rows, self.dim))
        return torch.from_numpy(drawn).to(self.dtype)


@st.composite
def cases(draw: st.DrawFn, dtype: torch.dtype) -> Case:
    """Item 0 is everybody's, so everybody has an item; the last item is nobody's."""
    n_users, n_items = draw(st.integers(1, 8)), draw(st.integers(3, 12))
    pair = st.tuples(st.integers(0, n_users - 1), st.integers(0, n_items - 2))
    pairs = sorted({(user, 0) for user in range(n_users)} | draw(st.sets(pair, max_size=40)))
    users, items = np.array(pairs).T
    random = np.random.default_rng(seed := draw(st.integers(0, 999)))
    chosen = random.integers(0, len(pairs), draw(st.integers(1, 25)))
    free = [np.setdiff1d(np.arange(n_items), items[users == user]) for user in users[chosen]]
    negatives = np.array([random.choice(own) for own in free])
    return Case(
        users,
        items,
        n_users,
        n_items,
        random.integers(0, 3, n_items),
        (users[chosen], items[chosen], n_items + negatives),
        draw(st.integers(1, 4)),
        draw(st.sampled_from([1, 3, 7, 20, 33, 64, 65])),
        dtype,
        seed,
    )


@dataclass(frozen=True)
class Party:
    """Some nodes, and for each of their neighbours the one vector that arrives from it."""

    own: Int64
    neighbours: Int64
    segments: Segments
    nodes: Nodes

    @classmethod
    def of(cls, case: Case, direction: Segments, own: Int64) -> Party:
        offsets, indices = direction.offsets.numpy(), direction.indices.numpy()
        rows = [indices[offsets[node] : offsets[node + 1]] for node in own]
        listed = np.concatenate([np.empty(0, np.int64), *rows])
        neighbours, local = np.unique(listed, return_inverse=True)
        segments = Segments.from_arrays(np.cumsum([0, *map(len, rows)]), local.astype(np.int64))
        return cls(own, neighbours, segments, Nodes(segments.counts, case.layers, case.dtype))

    def receive(self, pushed: Tensor) -> Tensor:
        return self.segments.sum(pushed[self.neighbours])


class Federation:
    """The whole graph on one side, users alone and owners of a few items on the other."""

    def __init__(self, case: Case) -> None:
        graph = Graph.from_pairs(case.users, case.items, case.n_users, case.n_items)
        everything = {"user": np.arange(case.n_users), "item": np.arange(case.n_items)}
        direction = {"user": graph.items_of_users, "item": graph.users_of_items}
        self.whole = {
            kind: Party.of(case, direction[kind], own) for kind, own in everything.items()
        }
        clients = [everything["user"][[user]] for user in everything["user"]]
        owned = [np.flatnonzero(case.owner_of_item == owner) for owner in range(3)]
        self.parties = {
            "user": [Party.of(case, direction["user"], own) for own in clients],
            "item": [Party.of(case, direction["item"], own) for own in owned if len(own)],
        }

    def sides(self, kind: str) -> list[Party]:
        return [self.whole[kind], *self.parties[kind]]

    def exchange(self, absorb: str) -> None:
        """Everyone pushes, then everyone takes in what arrived; what the parts hold is checked."""
        pushed = {kind: party.nodes.push.clone() for kind, party in self.whole.items()}
        for kind, other in (("user", "item"), ("item", "user")):
            for party in self.sides(kind):
                getattr(party.nodes, absorb)(party.receive(pushed[other]))
        self.check("push")

    def check(self, name: str) -> None:
        for kind, parts in self.parties.items():
            expected = getattr(self.whole[kind].nodes, name)
            for party in parts:
                found = getattr(party.nodes, name)
                if callable(found):
                    assert torch.equal(found(), expected()[party.own]), (kind, name)
                else:
                    assert torch.equal(found, expected[party.own]), (kind, name)


def whole_loss(case: Case, users: Tensor, items: Tensor) -> tuple[Pairs, PairGradients]:
    pairs = Pairs.from_samples(*case.samples, 2 * case.n_items)
    pairs = replace(pairs, items=pairs.items % case.n_items)
    return pairs, pair_gradients(pairs, users, items, len(case.samples[0]))


def gather_at_users(pairs: Pairs, found: PairGradients, items: Tensor) -> LossGradient:
    return LossGradient.gather(pairs.users, pairs.items, found.coefficient, found.count / 2, items)


def check_client_loss(
    case: Case, user: int, vectors: tuple[Tensor, Tensor], whole: tuple[Pairs, PairGradients]
) -> LossGradient:
    """A client with its own vector and those of the items in its own samples, nothing else."""
    pairs, found = whole
    own = case.samples[0] == user
    positives, negatives = case.samples[1][own], case.samples[2][own]
    called = np.unique(np.concatenate((positives, negatives)))
    mine = Pairs.from_samples(
        np.zeros(own.sum(), dtype=np.int64),
        np.searchsorted(called, positives),
        np.searchsorted(called, negatives),
        max(1, len(called)),
    )
    received = vectors[1][called % case.n_items]
    alone = pair_gradients(mine, vectors[0][[user]], received, len(case.samples[0]))
    rows = pairs.users == user
    assert np.array_equal(alone.coefficient, found.coefficient[rows])
    assert np.array_equal(alone.count, found.count[rows])
    assert np.array_equal(alone.loss, found.loss[own])
    return gather_at_users(mine, alone, received)


def gather_at_items(pairs: Pairs, found: PairGradients, own: Int64, users: Tensor) -> LossGradient:
    """What the owner of the items `own` makes of the s_ui and the e_u that reach it."""
    mine = np.flatnonzero(np.isin(pairs.items, own))
    mine = mine[np.argsort(pairs.items[mine], kind="stable")]
    senders, local = np.unique(pairs.users[mine], return_inverse=True)
    return LossGradient.gather(
        np.searchsorted(own, pairs.items[mine]),
        local.astype(np.int64),
        found.coefficient[mine],
        found.count[mine].astype(np.float64),
        users[senders],
    )


@pytest.mark.parametrize("plus", [False, True], ids=["lightgcn", "lightgcn+"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_every_party_alone_has_the_bits_of_the_whole(
    dtype: torch.dtype, plus: bool, data: st.DataObject
) -> None:
    case = data.draw(cases(dtype))
    federation = Federation(case)
    users, items = case.table(case.n_users), case.table(case.n_items)
    for party in federation.sides("item"):
        party.nodes.begin(items[party.own])
    for party in federation.sides("user"):
        if plus:
            party.nodes.build(party.receive(items))
        else:
            party.nodes.begin(users[party.own])
    federation.check("push")

    for _ in range(case.layers):
        federation.exchange("absorb")
    federation.check("final")

    final = tuple(federation.whole[kind].nodes.final() for kind in ("user", "item"))
    pairs, found = whole = whole_loss(case, *final)
    losses = {
        "user": [gather_at_users(pairs, found, final[1])]
        + [check_client_loss(case, user, final, whole) for user in range(case.n_users)],
        "item": [
            gather_at_items(pairs, found, party.own, final[0]) for party in federation.sides("item")
        ],
    }
    for kind, (loss_of_all, *loss_of_parts) in losses.items():
        norms = federation.whole[kind].nodes.norms(loss_of_all)
        federation.whole[kind].nodes.begin_gradient(loss_of_all, DECAY)
        for party, loss in zip(federation.parties[kind], loss_of_parts, strict=True):
            mine = np.isin(loss_of_all.rows, party.own)
            assert np.array_equal(party.own[loss.rows], loss_of_all.rows[mine])
            assert np.array_equal(loss.in_samples, loss_of_all.in_samples[mine])
            assert torch.equal(loss.gradient, loss_of_all.gradient[mine])
            assert np.array_equal(party.nodes.norms(loss), norms[mine])
            party.nodes.begin_gradient(loss, DECAY)
    federation.check("push")

    for _ in range(case.layers):
        federation.exchange("absorb_gradient")
    federation.check("gradient")
    federation.check("push_gradient")
