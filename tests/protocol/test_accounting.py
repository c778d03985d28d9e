"""The ledger of a federation that was not run is that of one that was, to the byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lpgcn
from lpgcn.config import Config
from lpgcn.data import Ids, Interactions, Split
from lpgcn.data.features import sized
from lpgcn.evaluation import PlainRanker
from lpgcn.model.kernels.plain import Plain
from lpgcn.plan import Plan, TokenGraph, cover
from lpgcn.protocol.ledger import Ledger
from lpgcn.protocol.phases import PHASES, Phase, PhaseOrder
from lpgcn.protocol.server.server import Planner
from lpgcn.protocol.wire.encoding import HEADER_BYTES
from lpgcn.runtime.engines.federated import Federated
from lpgcn.runtime.engines.simulated import Simulated
from lpgcn.runtime.machine import Machine

MACHINE = Machine(Plain(), PlainRanker())
Added = list[tuple[Phase, str, list[int], list[int]]]
every_suite = pytest.mark.parametrize("suite", ["sealed", "paper"])
every_model = pytest.mark.parametrize("model", ["lightgcn", "lightgcn+", "ngcf"])
every_alpha = pytest.mark.parametrize("alpha", ["0", "3", "1.0x"])


def split_of(lists: list[list[int]], n_items: int) -> Split:
    """The last item, which nobody has, is held out for the first user."""
    pairs = [(user, item) for user, items in enumerate(lists) for item in items]
    users, items = zip(*pairs, strict=True)
    train = Interactions.from_pairs(users, items, len(lists), n_items)
    held = Interactions.from_pairs([0], [n_items - 1], len(lists), n_items)
    ids = Ids(np.arange(len(lists))), Ids(np.arange(n_items))
    return Split("small", train, held, held, *ids)


LISTS = [[0, 1, 2], [0, 2], [0, 3], [2, 3, 4], [5], [0, 1, 5, 6], [7, 2], [3]]
SMALL = split_of(LISTS, 14)
"""Items 8 and above are nobody's."""


def paper_plan(graph: TokenGraph) -> Plan:
    return cover(graph, 0)


@contextmanager
def recorded(found: Added) -> Iterator[None]:
    """All that is added to a ledger, message by message: in a sum, one error can hide another."""
    add = Ledger.add

    def record(ledger: Ledger, phase: Phase, direction: Any, clients: Any, sizes: Any) -> None:
        found.append((phase, direction, clients.tolist(), sizes.tolist()))
        add(ledger, phase, direction, clients, sizes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "add", record)
        yield


class Both:
    """A federation and its simulation."""

    def __init__(self, split: Split, config: Config, planner: Planner = paper_plan) -> None:
        self.added: dict[str, Added] = {"federated": [], "simulated": []}
        with recorded(self.added["federated"]):
            federated = Federated(split, config, planner)
            federated.begin()
        with recorded(self.added["simulated"]):
            simulated = Simulated(split, config, planner, MACHINE)
        self.engines = {"federated": federated, "simulated": simulated}
        self.compare()

    def do(self, action: str, *arguments: Any) -> None:
        for name, engine in self.engines.items():
            with recorded(self.added[name]):
                getattr(engine, action)(*arguments)
        self.compare()

    def compare(self) -> None:
        """Sizes do not depend on handles, which are drawn anew in every federation."""
        assert self.added["simulated"] == self.added["federated"]
        federated, simulated = (engine.ledger.lines() for engine in self.engines.values())
        assert simulated == federated

    def lines(self) -> dict[tuple[str, str, str], tuple[int, int]]:
        return {
            (line.stage, line.direction, line.role): (line.messages, line.bytes)
            for line in self.engines["simulated"].ledger.lines()
        }


@pytest.mark.any_two
@every_suite
@every_model
@every_alpha
@pytest.mark.parametrize("layers", [1, 3])
def test_both_ledgers_are_equal_after_everything(
    suite: str, model: str, alpha: str, layers: int
) -> None:
    config = Config(
        suite=suite,  # type: ignore[arg-type]
        model=model,  # type: ignore[arg-type]
        virtual_items=alpha,
        layers=layers,
        dim=4,
        batch_size=6,
        seed=layers,
        at=(5, 20),
    )
    both = Both(SMALL, config)
    assert {stage for stage, _, _ in both.lines()} == {"initialise", "measure"}
    for epoch in range(2):
        for step in range(2):
            both.do("step", epoch, step, 0.01)
        both.do("take_loss")
        both.do("measure", "valid")
        both.do("keep")
        both.do("checkpoint", epoch + 1, epoch + 1, 0)
    both.do("go_back")
    both.do("measure", "test")
    sequence = PhaseOrder.of(config)
    elsewhere = {Phase.PREDICT, Phase.INHERIT, Phase.ENDOW, Phase.HAND_ON, Phase.TAKE_OVER}
    expected = {phase for phase in Phase if sequence.layers_of(phase)} - elsewhere
    assert {phase for phase, *_ in both.added["simulated"]} == expected
    traffic = [engine.traffic() for engine in both.engines.values()]
    assert traffic[0] == traffic[1]
    assert (traffic[0].steps, traffic[0].ledger) == (4, both.engines["simulated"].ledger.lines())


lists_of_items = st.lists(
    st.lists(st.integers(0, 6), min_size=1, max_size=4, unique=True), min_size=1, max_size=6
)


@settings(max_examples=40)
@given(lists=lists_of_items, data=st.data())
def test_both_ledgers_are_equal_on_any_graph_with_any_plan(
    described: Callable[..., Split], lists: list[list[int]], data: st.DataObject
) -> None:
    owner = data.draw(st.lists(st.integers(0, len(lists) - 1), min_size=9, max_size=9))
    config = Config(
        suite=data.draw(st.sampled_from(["sealed", "paper"])),
        model=data.draw(st.sampled_from(["lightgcn", "lightgcn+", "ngcf", "sage"])),
        layers=data.draw(st.integers(1, 3)),
        virtual_items=data.draw(st.sampled_from(["0", "1", "0.5x"])),
        dtype=data.draw(st.sampled_from(["float32", "float64"])),
        batch_size=data.draw(st.integers(1, 9)),
        dim=data.draw(st.integers(1, 5)),
        seed=data.draw(st.integers(0, 100)),
    )
    split = described(split_of(lists, 9), *data.draw(st.sampled_from([(0, 0), (2, 0), (1, 3)])))
    both = Both(split, sized(config, split), lambda _: Plan(np.array(owner), "any"))
    for epoch in range(2):
        both.do("step", epoch, 0, 0.01)
    both.do("take_loss")
    both.do("keep")
    both.do("measure", "valid")
    both.do("checkpoint", 1, 2, 0)
    both.do("go_back")


@settings(max_examples=25)
@given(lists_of_items, st.data())
def test_both_ledgers_are_equal_with_pools_of_negatives(
    lists: list[list[int]], data: st.DataObject
) -> None:
    """Also with groups, and where not all of a pool is answered."""
    owner = data.draw(st.lists(st.integers(0, len(lists) - 1), min_size=9, max_size=9))
    config = Config(
        loss="softmax",
        batch_size="full",
        suite=data.draw(st.sampled_from(["sealed", "paper"])),
        model=data.draw(st.sampled_from(["lightgcn", "lightgcn+", "ngcf", "sage"])),
        layers=data.draw(st.integers(1, 3)),
        virtual_items=data.draw(st.sampled_from(["0", "1", "0.5x"])),
        dtype=data.draw(st.sampled_from(["float32", "float64"])),
        negatives=(negatives := data.draw(st.integers(1, 12))),
        answers=data.draw(st.none() | st.integers(1, negatives)),
        groups=data.draw(st.integers(1, 3)),
        dim=data.draw(st.sampled_from([1, 5, 40])),
        seed=data.draw(st.integers(0, 100)),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lpgcn.model.batches.smallest_group", lambda _: 2)
        both = Both(split_of(lists, 9), config, lambda _: Plan(np.array(owner), "any"))
        for epoch in range(2):
            both.do("step", epoch, 0, 0.01)
        both.do("step", 1, 1, 0.01)
        both.do("take_loss")
        both.do("measure", "valid")
        both.do("checkpoint", 1, 2, 0)


@pytest.mark.parametrize(("users", "items"), [(5, 0), (0, 2), (5, 2)])
def test_features_cost_their_maps_and_nothing_else(
    described: Callable[..., Split], users: int, items: int
) -> None:
    """8 bytes a number of each Θ, up from everybody and down to everybody, and the headers of two
    rounds; LightGCN has no dense weights of its own."""
    config, bytes_of = Config(model="lightgcn", layers=1, dim=4, batch_size=6), []
    for split in (SMALL, described(SMALL, users, items)):
        both = Both(split, sized(config, split))
        both.do("step", 0, 0, 0.01)
        sizes = [sum(one) for phase, *_, one in both.added["simulated"] if phase >= Phase.FORWARD]
        masked = [phase for phase, *_ in both.added["simulated"] if phase == Phase.SUM_SHARED]
        bytes_of.append((sum(sizes), len(masked)))
    (without, none), (with_them, rounds) = bytes_of
    assert (none, rounds) == (0, 2), "down and up"
    per_client = (with_them - without) / SMALL.n_users
    numbers = 2 * 8 * 4 * (users + items)
    assert 0 < per_client - numbers < 4 * (HEADER_BYTES + 48)


def test_the_loss_of_a_pool_has_the_bytes_that_its_rows_have() -> None:
    """By hand: what every client gets and says in a step, but for the length of its lists."""
    config = Config(
        loss="softmax", batch_size="full", negatives=7, answers=4, dim=5, virtual_items="2"
    )
    both = Both(SMALL, config)
    before = len(both.added["simulated"])
    both.do("step", 0, 0, 0.01)
    ((_, _, called, down), (_, _, _, up)) = [
        one for one in both.added["simulated"][before:] if one[0] is Phase.LOSS
    ]
    topology = both.engines["federated"].server.topology
    for client, got, said in zip(called, down, up, strict=True):
        owners = len(topology.by_client[client])
        listed = int(topology.entries.lengths[topology.by_client[client]].sum())
        granted, scalars = 2 * 5 * listed + 16 * owners, 8 * listed + 16 * owners
        fields = [granted, 4 * 7, 7 * (2 * 5 + 16), 0, 0, 0]
        assert got == 2 + sum(map(packed, fields)) + packed(HEADER_BYTES)
        fields = [2 * 5 + 16, scalars, 0, 0, 8 * 4 * 5]
        assert said == 2 + sum(map(packed, fields)) + packed(HEADER_BYTES)


def packed(length: int) -> int:
    """A byte string, as MessagePack has it."""
    return length + (2 if length < 256 else 3)


@pytest.mark.parametrize("loss", ["bpr", "softmax"])
@every_suite
@every_model
def test_both_ledgers_of_a_whole_training_are_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suite: str, model: str, loss: str
) -> None:
    """With validations, the losses of every epoch, and the test at the end."""
    monkeypatch.setattr("lpgcn.model.batches.smallest_group", lambda _: 4)
    rows = [f"u{user},i{(user * user + 3 * step) % 25}" for user in range(9) for step in range(12)]
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["user_id,item_id", *sorted(set(rows))]) + "\n")
    source = lpgcn.Source(dataset="mine", train=str(path))
    config = lpgcn.Config(
        suite=suite,  # type: ignore[arg-type]
        model=model,  # type: ignore[arg-type]
        virtual_items="2",
        planner="cover",
        layers=2,
        dim=4,
        epochs=3,
        eval_every=2,
    ).changed(
        **{"batch_size": 32}
        if loss == "bpr"
        else {"loss": loss, "batch_size": "full", "negatives": 9, "answers": 5, "groups": 2}
    )
    traffic = {}
    for mode in ("simulated", "federated"):
        found = lpgcn.train(
            source, config.changed(mode=mode), out=tmp_path / mode, threads=1, checkpoint_every=2
        ).traffic
        assert found is not None
        traffic[mode] = found
    assert traffic["simulated"].ledger == traffic["federated"].ledger
    assert traffic["simulated"] == traffic["federated"]
    assert traffic["simulated"].plan is not None
    measured = [line for line in traffic["simulated"].ledger if line.stage == "measure"]
    # Validations after epochs 2 and 3 and the test, each with the rounds of a pass and a ranking;
    # the number of interactions; and a loss an epoch, or a validation if an epoch is one step.
    everybody = len(PhaseOrder.of(config).layers_of(Phase.FORWARD)) + 2
    down = [line for line in measured if line.direction == "down"]
    owners = sum(line.messages for line in down if line.role == "convolution")
    built = traffic["simulated"].plan.convolution_clients * 3 if model == "lightgcn+" else 0
    sums = 1 + (3 if loss == "bpr" else 2)
    assert sum(line.messages for line in down) == 9 * (3 * everybody + sums) + built
    assert owners == traffic["simulated"].plan.convolution_clients * (3 * everybody + sums) + built


def test_a_ledger_adds_by_stage_direction_and_role() -> None:
    ledger = Ledger(np.zeros(3, dtype=np.bool_))
    ledger.add(Phase.KEYS, "up", np.array([0, 2]), np.array([10, 20]))
    ledger = Ledger(np.array([True, False, False]), before=ledger.lines())
    ledger.add(Phase.LOSS, "down", np.array([0, 1, 2]), np.array([1, 2, 4]))
    ledger.add(Phase.LOSS, "down", np.array([2]), np.array([8]))
    with ledger.measuring():
        ledger.add(Phase.FORWARD, "up", np.array([0]), np.array([16]))
    ledger.add(Phase.FORWARD, "up", np.array([0]), np.array([32]))
    lines = [
        (one.stage, one.direction, one.role, one.messages, one.bytes) for one in ledger.lines()
    ]
    assert lines == [
        ("forward", "up", "convolution", 1, 32),
        ("initialise", "up", "ordinary", 2, 30),
        ("loss", "down", "convolution", 1, 1),
        ("loss", "down", "ordinary", 3, 14),
        ("measure", "up", "convolution", 1, 16),
    ]
    assert ledger.bytes("down", "loss", "forward") == 15
    assert ledger.bytes("up", "loss", "forward") == 32
    assert {row.stage for row in PHASES.values()} == {
        "initialise", "forward", "loss", "backward", "measure", "keep",
    }  # fmt: skip


def test_measuring_ends_with_an_error_too() -> None:
    ledger = Ledger(np.zeros(1, dtype=np.bool_))
    with pytest.raises(RuntimeError), ledger.measuring():
        raise RuntimeError
    ledger.add(Phase.FORWARD, "up", np.array([0]), np.array([5]))
    assert [one.stage for one in ledger.lines()] == ["forward"]
