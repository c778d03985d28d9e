"""Propagation against dense matrices, and what the federation stands on: a user alone, or an owner
of a few items, computes the bits of the whole graph, whatever the order of its neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpgcn.config import Config
from lpgcn.model.adam import Gradient
from lpgcn.model.kernels import Kernels
from lpgcn.model.kernels.compiled import Compiled
from lpgcn.model.kernels.plain import Plain
from lpgcn.model.kernels.threads import Threads
from lpgcn.model.losses.gradient import LossGradient
from lpgcn.model.propagation import (
    Backward,
    Forward,
    Nodes,
    building_push,
    gradient_of_building,
)
from lpgcn.ragged import Ragged

KINDS = ("users", "items")
OTHER = {"users": "items", "items": "users"}
BATCH_SIZE = 50
KERNELS: list[Kernels] = [Plain(), Compiled(Threads(2))]

each_kernels = pytest.mark.parametrize("kernels", KERNELS, ids=["plain", "compiled"])
each_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])
built_or_not = pytest.mark.parametrize("builds", [False, True], ids=["parameters", "built"])


@dataclass(frozen=True)
class Case:
    """A random graph, parameters, and what a loss says about some of the nodes."""

    edges: Any
    """(user, item) pairs, each once."""
    counts: dict[str, int]
    config: Config
    seed: int

    def degrees(self, kind: str) -> Any:
        return np.bincount(self.edges[:, KINDS.index(kind)], minlength=self.counts[kind])

    def neighbours(self, kind: str) -> Ragged:
        own, other = (0, 1) if kind == "users" else (1, 0)
        return Ragged.from_pairs(self.edges[:, own], self.edges[:, other], self.counts[kind])

    def random(self, name: str) -> np.random.Generator:
        return np.random.default_rng((self.seed, *name.encode()))

    def table(self, name: str) -> Any:
        shape = (self.counts["users" if name == "users" else "items"], self.config.dim)
        return self.random(name).standard_normal(shape).astype(self.config.dtype)

    def loss(self, kind: str) -> LossGradient:
        """Some rows, in steps of the grid: gradients up to 2."""
        random = self.random(f"loss of {kind}")
        rows = np.flatnonzero(random.random(self.counts[kind]) < 0.5)
        largest = 2**26 if self.config.dtype == "float32" else 2**46
        sums = random.integers(-largest, largest, (len(rows), self.config.dim))
        return LossGradient(rows, sums, random.integers(1, 9, len(rows)).astype(np.float64))


@st.composite
def cases(draw: st.DrawFn, dtype: Any) -> Case:
    """Some users and items may have no neighbour at all."""
    counts = {"users": draw(st.integers(1, 8)), "items": draw(st.integers(1, 12))}
    pair = st.tuples(*(st.integers(0, counts[kind] - 1) for kind in KINDS))
    edges = sorted(draw(st.sets(pair, min_size=1, max_size=40)))
    config = Config(
        layers=draw(st.integers(1, 4)),
        dim=draw(st.sampled_from([1, 3, 20, 64, 65])),
        dtype=dtype,
        reg=0.05,
        batch_size=BATCH_SIZE,
    )
    return Case(np.array(edges), counts, config, draw(st.integers(0, 999)))


@dataclass(frozen=True)
class Party:
    """Some nodes of a kind, and the neighbours that it hears from, in an order of its own."""

    own: Any
    senders: Any
    nodes: Nodes

    @classmethod
    def of(cls, case: Case, kind: str, own: Any, kernels: Kernels, shuffle: Any = None) -> Party:
        """With `shuffle` both the senders and the entries of every segment are in random order."""
        listed = case.neighbours(kind).only(own)
        senders = np.unique(listed.values)
        if shuffle is not None:
            senders = shuffle.permutation(senders)
        at = np.zeros(case.counts[OTHER[kind]], np.int64)
        at[senders] = np.arange(len(senders))
        entries = [at[one] for one in (listed[row] for row in range(len(own)))]
        if shuffle is not None:
            entries = [shuffle.permutation(one) for one in entries]
        segments = Ragged.from_arrays(entries)
        degrees = case.degrees(kind)[own]
        return cls(own, senders, Nodes(kind, degrees, segments, case.config, kernels))


@dataclass(frozen=True)
class Result:
    """All that a step gives, for all nodes."""

    pushes: list[Any]
    final: dict[str, Any]
    regulariser: dict[str, Any]
    gradient: dict[str, Gradient]

    def arrays(self) -> list[Any]:
        gradients = [
            array
            for one in self.gradient.values()
            for array in (one.integers, one.factor, one.decay)
        ]
        return [*self.pushes, *self.final.values(), *self.regulariser.values(), *gradients]


class Step:
    """Forward, the given loss, backward: by any division of the nodes among parties."""

    def __init__(self, case: Case, parties: dict[str, list[Party]], builds: bool) -> None:
        self.case, self.parties, self.builds = case, parties, builds
        self.pushes: list[Any] = []

    def together(self, kind: str, rows: list[Any]) -> Any:
        """The rows of all parties as one table."""
        shape = (self.case.counts[kind], *rows[0].shape[1:])
        table = np.empty(shape, rows[0].dtype)
        for party, part in zip(self.parties[kind], rows, strict=True):
            table[party.own] = part
        return table

    def exchange(
        self, passes: dict[str, list[Any]], absorb: str = "absorb"
    ) -> dict[str, list[Any]]:
        pushed = {kind: self.together(kind, [one.push for one in passes[kind]]) for kind in KINDS}
        self.pushes += pushed.values()
        largest = {kind: max(one.largest for one in passes[kind]) for kind in KINDS}
        for kind in KINDS:
            assert np.abs(pushed[kind].astype(np.int64)).max() <= largest[kind]
        return {
            kind: [
                getattr(one, absorb)(
                    np.ascontiguousarray(pushed[OTHER[kind]][party.senders]),
                    largest=largest[OTHER[kind]],
                )
                for one, party in zip(passes[kind], self.parties[kind], strict=True)
            ]
            for kind in KINDS
        }

    def begin(self) -> dict[str, list[Forward]]:
        case, parties = self.case, self.parties
        initial = {kind: case.table(kind) for kind in KINDS}
        started = {
            kind: [party.nodes.begin(initial[kind][party.own]) for party in parties[kind]]
            for kind in KINDS
        }
        if self.builds:
            table = case.table("building")
            sent = [building_push(table[party.own], party.nodes) for party in parties["items"]]
            arrived = self.together("items", [rows for rows, _ in sent])
            largest = max(one for _, one in sent)
            started["users"] = [
                party.nodes.build(arrived[party.senders], largest=largest)
                for party in parties["users"]
            ]
        return started

    def losses(self, kind: str) -> list[LossGradient]:
        """What each party knows of the loss of its own nodes, as rows of its own."""
        whole, known = self.case.loss(kind), []
        for party in self.parties[kind]:
            touched = np.flatnonzero(np.isin(party.own, whole.rows))
            rows = np.searchsorted(whole.rows, party.own[touched])
            known.append(LossGradient(touched, whole.sums[rows], whole.in_samples[rows]))
        return known

    def run(self) -> Result:
        layers, case = self.case.config.layers, self.case
        forward: dict[str, list[Any]] = self.begin()
        for _ in range(layers - 1):
            forward = self.exchange(forward)
        forward = self.exchange(forward, "finish")
        finals = {kind: [one.final for one in forward[kind]] for kind in KINDS}
        backward: dict[str, list[Any]] = {}
        regulariser: dict[str, Any] = {}
        for kind in KINDS:
            known = self.losses(kind)
            backward[kind] = [
                one.backward(loss) for one, loss in zip(forward[kind], known, strict=True)
            ]
            regulariser[kind] = np.zeros(case.counts[kind])
            for party, one, loss in zip(self.parties[kind], forward[kind], known, strict=True):
                regulariser[kind][party.own[loss.rows]] = one.regulariser(loss)
        for _ in range(layers):
            backward = self.exchange(backward)
        gradient = {kind: [one.gradient(BATCH_SIZE) for one in backward[kind]] for kind in KINDS}
        kinds = {"users": "users", "items": "items"}
        if self.builds:
            returned = self.together("users", [one.push_to_built() for one in backward["users"]])
            self.pushes.append(returned)
            gradient["building"] = [
                gradient_of_building(party.nodes, returned[party.senders], BATCH_SIZE)
                for party in self.parties["items"]
            ]
            kinds["building"] = "items"
        return Result(
            self.pushes,
            {kind: self.together(kind, finals[kind]) for kind in KINDS},
            regulariser,
            {
                name: Gradient(
                    *(
                        self.together(kinds[name], [getattr(one, field) for one in ones])
                        for field in ("integers", "factor", "decay")
                    )
                )
                for name, ones in gradient.items()
            },
        )


def whole(case: Case, kernels: Kernels, shuffle: Any = None) -> dict[str, list[Party]]:
    return {
        kind: [Party.of(case, kind, np.arange(case.counts[kind]), kernels, shuffle)]
        for kind in KINDS
    }


def federation(case: Case, shuffle: Any) -> dict[str, list[Party]]:
    """Every user alone; the items at up to three owners, each with an order of its own."""
    owner = shuffle.integers(0, 3, case.counts["items"])
    owned = [np.flatnonzero(owner == one) for one in np.unique(owner)]
    users = [np.array([user]) for user in range(case.counts["users"])]
    return {
        kind: [Party.of(case, kind, own, Plain(), shuffle) for own in divided]
        for kind, divided in (("users", users), ("items", owned))
    }


def assert_same_bits(found: Result, expected: Result) -> None:
    for one, other in zip(found.arrays(), expected.arrays(), strict=True):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


@built_or_not
@each_dtype
@settings(max_examples=40)
@given(data=st.data())
def test_every_party_alone_has_the_bits_of_the_whole(
    dtype: Any, builds: bool, data: st.DataObject
) -> None:
    case = data.draw(cases(dtype))
    expected = Step(case, whole(case, KERNELS[1]), builds).run()
    parties = federation(case, np.random.default_rng(case.seed))
    assert_same_bits(Step(case, parties, builds).run(), expected)


@each_kernels
@each_dtype
@settings(max_examples=40)
@given(data=st.data(), order=st.integers(0, 99))
def test_the_order_of_neighbours_does_not_matter(
    dtype: Any, kernels: Kernels, data: st.DataObject, order: int
) -> None:
    case = data.draw(cases(dtype))
    expected = Step(case, whole(case, kernels), builds=True).run()
    shuffled = whole(case, kernels, np.random.default_rng(order))
    assert_same_bits(Step(case, shuffled, builds=True).run(), expected)


class Dense:
    """LightGCN from the formulas: Â = D_u^-½ R D_i^-½, in float64, without a grid."""

    def __init__(self, case: Case, builds: bool) -> None:
        interactions = np.zeros((case.counts["users"], case.counts["items"]))
        interactions[tuple(case.edges.T)] = 1
        self.degrees = {kind: np.maximum(case.degrees(kind), 1) for kind in KINDS}
        scaled = interactions / np.sqrt(self.degrees["users"])[:, None]
        self.half, self.layers = scaled, case.config.layers
        self.matrix = scaled / np.sqrt(self.degrees["items"])
        initial = {kind: case.table(kind).astype(np.float64) for kind in KINDS}
        if builds:
            initial["users"] = scaled @ case.table("building")
        self.initial = initial

    def mean(self, start: dict[str, Any]) -> dict[str, Any]:
        """Σ_l Â^l·start / (L + 1): the readout, and its own transpose."""
        layer, total = start, dict(start)
        for _ in range(self.layers):
            layer = {
                "users": self.matrix @ layer["items"],
                "items": self.matrix.T @ layer["users"],
            }
            total = {kind: total[kind] + layer[kind] for kind in KINDS}
        return {kind: one / (self.layers + 1) for kind, one in total.items()}


@built_or_not
@each_kernels
@each_dtype
@settings(max_examples=40)
@given(data=st.data())
def test_forward_and_backward_are_those_of_dense_matrices(
    dtype: Any, kernels: Kernels, builds: bool, data: st.DataObject
) -> None:
    """To the grid. A push of layer l is off by (l + 1)/2 steps at most: half a step for each
    rounding, and no average is off by more than what it averages. A built user is off by one half
    more. Backward the loss is rounded once more at each layer."""
    case = data.draw(cases(dtype))
    found, dense = Step(case, whole(case, kernels), builds).run(), Dense(case, builds)
    layers, reg, dtype_error = case.config.layers, case.config.reg, np.finfo(dtype).eps
    [party] = whole(case, kernels)["users"]
    forward, backward = party.nodes.forward_grid, party.nodes.backward_grid
    root = {kind: np.sqrt(dense.degrees[kind])[:, None] for kind in KINDS}

    for kind, expected in dense.mean(dense.initial).items():
        steps = (layers + 2) / 4 + 0.5 * builds
        bound = steps * forward.unit * root[kind] + 2 * dtype_error * np.abs(expected)
        assert (np.abs(found.final[kind] - expected) <= bound + 1e-15).all()

    loss = {kind: case.loss(kind) for kind in KINDS}
    start = {kind: np.zeros_like(dense.initial[kind]) for kind in KINDS}
    decay = {kind: np.zeros((case.counts[kind], 1)) for kind in KINDS}
    for kind, one in loss.items():
        start[kind][one.rows] = one.sums * backward.unit
        decay[kind][one.rows, 0] = one.in_samples * reg
        squares = 0.5 * decay[kind][:, 0] * (dense.initial[kind] ** 2).sum(axis=1)
        sizes = (root[kind] * (np.abs(dense.initial[kind]) + 1)).sum(axis=1)
        bound = decay[kind][:, 0] * forward.unit * sizes + 1e-14 * np.abs(squares)
        assert (np.abs(found.regulariser[kind] - squares) <= bound).all()

    expected = dense.mean(start)
    for kind in KINDS:
        gradient = found.gradient[kind]
        dequantised = gradient.integers * gradient.factor[:, None] * BATCH_SIZE
        bound = (layers + 0.5) * backward.unit * root[kind]
        assert (np.abs(dequantised - expected[kind]) <= bound + 1e-13).all()
        np.testing.assert_allclose(gradient.decay * BATCH_SIZE, decay[kind][:, 0], rtol=1e-14)
    if builds:
        gradient = found.gradient["building"]
        returned = dense.half.T @ (expected["users"] + decay["users"] * dense.initial["users"])
        dequantised = gradient.integers * gradient.factor[:, None] * BATCH_SIZE
        per_user = (layers + 1) * backward.unit + decay["users"] * forward.unit
        bound = (dense.half.T > 0) @ per_user
        assert (np.abs(dequantised - returned) <= bound + 1e-13).all()


@each_kernels
@each_dtype
@settings(max_examples=40)
@given(data=st.data())
def test_rows_that_are_known_to_be_zero_need_not_be_added(
    dtype: Any, kernels: Kernels, data: st.DataObject
) -> None:
    case = data.draw(cases(dtype))
    nodes = {
        kind: Nodes(kind, case.degrees(kind), case.neighbours(kind), case.config, kernels)
        for kind in KINDS
    }
    ends: dict[str, Backward] = {
        kind: nodes[kind].begin(case.table(kind)).backward(case.loss(kind)) for kind in KINDS
    }
    for kind in KINDS:
        other = ends[OTHER[kind]]
        present = np.zeros(len(other.push), dtype=np.bool_)
        present[other.loss.rows] = True
        few, every = ends[kind].absorb(other.push, present=present), ends[kind].absorb(other.push)
        assert few.push.tobytes() == every.push.tobytes()


@each_dtype
@settings(max_examples=40)
@given(data=st.data())
def test_some_rows_of_a_readout_are_those_of_all(dtype: Any, data: st.DataObject) -> None:
    case = data.draw(cases(dtype))
    [party] = whole(case, KERNELS[1])["items"]
    forward = party.nodes.begin(case.table("items"))
    shape = (len(party.senders), case.config.dim)
    arrived = case.random("arrived").integers(-(2**30), 2**30, shape).astype(forward.push.dtype)
    rows = np.array(data.draw(st.lists(st.integers(0, len(party.own) - 1), max_size=9)), np.int64)
    some, every = forward.finish(arrived, rows).final, forward.finish(arrived).final
    assert some.tobytes() == every[rows].tobytes()


@each_kernels
def test_a_node_without_neighbours_keeps_its_parameters(kernels: Kernels) -> None:
    """Its readout is e^(0) / (L + 1), and only its own loss reaches it."""
    config = Config(dim=2, layers=2, dtype="float64")
    alone = Nodes("one", np.zeros(1, np.int64), Ragged.from_arrays([np.empty(0, np.int64)]), config,
                  kernels)  # fmt: skip
    nothing = np.empty((0, 2), np.int64)
    forward = alone.begin(np.array([[3.0, -6.0]])).absorb(nothing)
    assert forward.finish(nothing).final.tolist() == [[1.0, -2.0]]
    loss = LossGradient(np.array([0]), np.array([[30, -60]]), np.ones(1))
    backward = forward.backward(loss).absorb(nothing).absorb(nothing)
    assert backward.push.tolist() == [[10, -20]]
