"""An estimate is what the run that it is about sends, client by client and round by round."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.config import Config
from lpgcn.data import Split, Splitting, load, make_split
from lpgcn.data.features import sized
from lpgcn.evaluation import EarlyStopping, PlainRanker
from lpgcn.model.kernels.plain import Plain
from lpgcn.model.sampling import SamplingError
from lpgcn.protocol.accounting import Accounting
from lpgcn.protocol.ledger import Ledger, Tally
from lpgcn.protocol.paper_traffic import paper_traffic
from lpgcn.protocol.phases import Phase
from lpgcn.protocol.wire.fields import Round
from lpgcn.runtime.engines.sampler import Sampler
from lpgcn.runtime.engines.simulated import Simulated, token_graph
from lpgcn.runtime.estimation import (
    DRAWN,
    PAPER_EPOCHS,
    PAPER_STEPS,
    Estimate,
    EstimationError,
    estimate,
    expected_meetings,
    some_users,
    typical_steps,
)
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.planning import planner_for
from lpgcn.runtime.runs import training
from lpgcn.runtime.runs.source import Source
from lpgcn.runtime.runs.training import train

MACHINE = Machine(Plain(), PlainRanker())
EVERYTHING = Splitting(ratio=(1, 0, 0))
POOL: dict[str, Any] = {
    "loss": "softmax", "batch_size": "full", "negatives": 12, "answers": 5
}  # fmt: skip
every_model = pytest.mark.parametrize("model", ["lightgcn", "lightgcn+"])
LOSSES: dict[str, dict[str, Any]] = {
    "bpr": {"batch_size": 100}, "full": {"batch_size": "full"}, "softmax": POOL
}  # fmt: skip


@dataclass
class Sent:
    """All messages of a run, as its ledger was told about them."""

    up: dict[int, int] = field(default_factory=dict)
    down: dict[int, int] = field(default_factory=dict)
    largest: dict[str, list[int]] = field(default_factory=lambda: {"up": [], "down": []})
    rounds: list[Phase] = field(default_factory=list)

    def add(self, phase: Phase, direction: str, clients: Any, sizes: Any) -> None:
        of_clients = self.up if direction == "up" else self.down
        for client, size in zip(clients.tolist(), sizes.tolist(), strict=True):
            of_clients[client] = of_clients.get(client, 0) + size
        self.largest[direction].append(max(sizes.tolist()))
        if direction == "down":
            self.rounds.append(phase)


@contextmanager
def recorded() -> Iterator[Sent]:
    sent, add = Sent(), Ledger.add

    def record(ledger: Ledger, phase: Phase, direction: Any, clients: Any, sizes: Any) -> None:
        sent.add(phase, direction, clients, sizes)
        add(ledger, phase, direction, clients, sizes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "add", record)
        # What a federation says before its first step is counted in a ledger of its own.
        patch.setattr(training, "local_cost", lambda *_: None)
        yield sent


def estimated(split: Split, config: Config) -> Estimate:
    return estimate(split, config, planner_for(split, config)(token_graph(split, config)))


@pytest.fixture
def few(tmp_path: Path) -> Source:
    """14 users with some of 31 items."""
    lines = [
        " ".join(str(number) for number in (user, *{(5 * user + i * i) % 31 for i in range(30)}))
        for user in range(14)
    ]
    (tmp_path / "few.txt").write_text("\n".join(lines) + "\n")
    return Source(dataset="few", train=str(tmp_path / "few.txt"))


def with_features(source: Source, folder: Path) -> Source:
    """Two of every user, three of every item."""
    for name, count, width in (("users", 14, 2), ("items", 31, 3)):
        values = np.random.default_rng(width).normal(size=(count, width))
        np.savez(folder / f"{name}.npz", ids=np.arange(count), features=values)
    return msgspec.structs.replace(
        source,
        user_features=str(folder / "users.npz"),
        item_features=str(folder / "items.npz"),
    )


@pytest.mark.parametrize(
    ("model", "loss", "described"),
    [
        *((model, loss, False) for model in ("lightgcn", "lightgcn+") for loss in LOSSES),
        ("gcn", "bpr", False),
        ("ngcf", "softmax", False),
        ("lightgcn", "bpr", True),
    ],
)
def test_an_estimate_is_the_run_to_the_byte(
    few: Source,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    loss: str,
    described: bool,
) -> None:
    """In so few epochs that every step is counted, with real parties and messages. That `simulated`
    counts the same is in `protocol/test_accounting`."""
    few = with_features(few, tmp_path) if described else few
    config = Config().changed(
        model=model, mode="federated", layers=2, dim=4, virtual_items="2", planner="cover",
        epochs=3, eval_every=2, **LOSSES[loss],
    )  # fmt: skip
    config = sized(config, few.open())
    # Dense weights, also those of features, are summed up over everybody in every step.
    shares = described or model in ("gcn", "ngcf")
    found = estimated(few.open(), config)
    monkeypatch.setattr(EarlyStopping, "improved", property(lambda _: True))
    with recorded() as sent:
        summary = train(few, config, out=tmp_path / "run", threads=1)
    assert (found.drawn_steps, found.steps) == (summary.steps, summary.steps)
    assert found.steps_per_epoch == (2 if config.batch_size == 100 else 1)
    assert found.training.rounds == len(sent.rounds)
    assert sent.rounds.count(Phase.SUM_SHARED) == shares * summary.steps
    ranked = [phase for phase in sent.rounds if phase in (Phase.RANK_VALID, Phase.RANK_TEST)]
    assert found.measurements == len(ranked) == 3
    assert summary.traffic is not None
    for direction, mean in (("up", found.training.up), ("down", found.training.down)):
        lines = [line for line in summary.traffic.ledger if line.direction == direction]
        assert mean * 14 == pytest.approx(sum(line.bytes for line in lines), rel=1e-12)
    assert found.step.up == pytest.approx(summary.traffic.up_per_step, rel=1e-12)
    assert found.step.down == pytest.approx(summary.traffic.down_per_step, rel=1e-12)
    heaviest = max(range(14), key=lambda client: sent.up[client] + sent.down[client])
    assert found.training.heaviest_up == sent.up[heaviest]
    assert found.training.heaviest_down == sent.down[heaviest]
    assert found.training.slowest == sum(sent.largest["up"]) + sum(sent.largest["down"])


@pytest.mark.any_two
@every_model
@pytest.mark.parametrize("suite", ["sealed", "paper"])
@pytest.mark.parametrize(
    ("loss", "near"),
    [
        ({"batch_size": 700}, 0.02),
        ({"batch_size": "full"}, 0.02),
        ({**POOL, "negatives": 100, "answers": 30, "groups": 2}, 0.002),
        ({**POOL, "negatives": 8192}, 1e-12),
    ],
    ids=["bpr", "full", "softmax", "softmax with everything in the pool"],
)
def test_a_few_steps_stand_for_many(
    model: str, suite: str, loss: dict[str, Any], near: float
) -> None:
    """Also where whom a step is about differs from one to the next, and who has met whom grows."""
    split = some_users(load("demo"), 70, 3)
    epochs = 25
    config = Config().changed(
        model=model, suite=suite, layers=2, dim=4, planner="cover", epochs=epochs, **loss
    )
    found = estimated(split, config)
    engine = Simulated(split, config, planner_for(split, config), MACHINE)
    accounting = Accounting(engine.topology, config)
    steps = engine.sampler.batches.steps
    for epoch in range(epochs):
        for step in range(steps):
            accounting.step(engine.sampler.batches.draw(epoch, step))
    assert found.steps == epochs * steps > found.drawn_steps
    stages = ("forward", "loss", "backward")
    up = accounting.ledger.bytes("up", *stages) / found.steps / 70
    down = accounting.ledger.bytes("down", *stages) / found.steps / 70
    assert (found.step.up, found.step.down) == (
        pytest.approx(up, rel=near), pytest.approx(down, rel=near)
    )  # fmt: skip


@pytest.mark.parametrize("steps", [1, 20, 400])
@pytest.mark.parametrize("virtual_items", ["0", "1.0x"])
def test_how_many_meet(steps: int, virtual_items: str) -> None:
    split = some_users(load("demo"), 90, 5)
    config = Config().changed(virtual_items=virtual_items, planner="cover", batch_size=50)
    topology = Simulated(split, config, planner_for(split, config), MACHINE).topology
    batches, accounting = Sampler(split.train, config).batches, Accounting(topology, config)
    before = len(accounting.contacts["keys"])
    for epoch in range(steps):
        accounting.step(batches.draw(epoch, 0))
    met = len(accounting.contacts["keys"]) - before
    expected = expected_meetings(topology, 50 * steps)
    # A sum of draws that are yes or no deviates by at most the root of its expectation.
    assert abs(met - expected) < 4 * math.sqrt(expected)


@every_model
@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize(
    ("epochs", "every", "validations"), [(1, 5, 1), (10, 5, 2), (11, 5, 3), (4, 1, 4), (4, 0, 0)]
)
def test_rounds_are_those_of_the_protocol(
    model: str, layers: int, epochs: int, every: int, validations: int
) -> None:
    """2L + 3, and two more where users are built; PROTOCOL.md says so."""
    config = Config().changed(
        model=model, layers=layers, dim=2, epochs=epochs, eval_every=every, planner="cover", **POOL
    )
    found = estimated(some_users(load("demo"), 12, 0), config)
    built = model == "lightgcn+"
    assert found.step.rounds == 2 * layers + 3 + 2 * built
    assert found.measurement.rounds == layers + 2 + built
    assert found.measurements == validations + 1
    assert found.initialisation.rounds == 9
    # Without validations one loss in ten and one checkpoint, and nothing to go back to.
    assert found.upkeep.rounds == (3 * validations + 1 if validations else 2)
    assert found.training.rounds == (
        9 + epochs * found.step.rounds + (validations + 1) * found.measurement.rounds
        + found.upkeep.rounds
    )  # fmt: skip
    assert found.paper.rounds == found.paper.steps * found.step.rounds


@given(st.integers(1, 30), st.integers(1, 30))
def test_typical_steps_stand_for_all(epochs: int, steps: int) -> None:
    found = typical_steps(epochs, steps)
    places = [(epoch, step) for _, epoch, step in found]
    assert places == sorted(set(places))
    assert all(0 <= epoch < epochs and 0 <= step < steps for epoch, step in places)
    last = [weight for weight, _, step in found if step == steps - 1]
    assert sum(last) == pytest.approx(epochs)
    assert sum(weight for weight, _, _ in found) == pytest.approx(epochs * steps)
    if epochs <= DRAWN and epochs * (steps - 1) <= DRAWN:
        assert len(places) == epochs * steps


def test_the_paper_s_step_has_the_paper_s_batch_whatever_ours_is() -> None:
    split = some_users(load("demo"), 40, 0)
    plain = Config().changed(dim=8, layers=2, epochs=2, planner="cover")
    found = [estimated(split, plain.changed(**loss)) for loss in ({}, {"batch_size": 100}, POOL)]
    assert found[0].paper == found[1].paper == found[2].paper
    topology = Simulated(split, plain, planner_for(split, plain), MACHINE).topology
    batches = Sampler(split.train, plain).batches
    counted = [paper_traffic(topology, plain, batches.draw(e, 0)).bytes(plain) for e in range(4)]
    paper, ours = found[2].paper, found[2].training
    assert paper.up_per_step == pytest.approx(sum(up for up, _ in counted) / 4 / 40)
    assert paper.down_per_step == pytest.approx(sum(down for _, down in counted) / 4 / 40)
    assert paper.up == pytest.approx(paper.steps * paper.up_per_step)
    rounds = ours.rounds / (paper.steps * found[2].step.rounds)
    assert found[2].share_of_paper_rounds == pytest.approx(rounds)
    both = (ours.up + ours.down) / (paper.up + paper.down)
    assert found[2].share_of_paper_bytes == pytest.approx(both)


def test_a_pool_serves_also_who_has_all_items_and_so_can_be_estimated() -> None:
    split = make_split([(u, i) for u in range(6) for i in range(4)], splitting=EVERYTHING)
    plain = Config().changed(dim=8, layers=2, epochs=2, planner="cover")
    found = estimated(split, plain.changed(**POOL))
    assert found.training.up > 0 and found.paper.up_per_step > 0
    with pytest.raises(SamplingError, match="no negative"):
        estimated(split, plain)


def test_the_paper_is_given_the_epochs_that_it_is_given_on_gowalla() -> None:
    """100,000 steps of 2,048 on Gowalla's 739,706 interactions, and no more anywhere; a small data
    set has as many epochs, not as many steps."""
    assert PAPER_EPOCHS == -(-PAPER_STEPS // -(-739_706 // 2048))
    split = some_users(load("demo"), 300, 0)
    config = Config().changed(dim=2, layers=1, epochs=1, planner="cover")
    found = estimated(split, config).paper
    assert len(split.train.users) > 2 * 2048
    assert found.steps == PAPER_EPOCHS * -(-len(split.train.users) // 2048)
    assert (found.is_assumed, found.layers) == (True, 1)
    plan = planner_for(split, config)(token_graph(split, config))
    asked = estimate(split, config, plan, paper_steps=PAPER_STEPS).paper
    assert (asked.steps, asked.is_assumed) == (PAPER_STEPS, False)
    assert asked.up_per_step == found.up_per_step


def test_a_round_waits_for_its_latency_and_its_heaviest_client() -> None:
    config = Config().changed(dim=4, layers=1, epochs=2, planner="cover", **POOL)
    found = estimated(some_users(load("demo"), 20, 0), config)
    cost = found.training
    time = found.wall_time(0.25, 1e6)
    assert time.seconds == pytest.approx(cost.rounds / 4 + cost.slowest * 8 / 1e6)
    assert time.server_bandwidth == pytest.approx(20 * (cost.up + cost.down) * 8 / time.seconds)
    assert found.wall_time(0, 1e6).seconds == pytest.approx(cost.slowest * 8 / 1e6)
    assert cost.slowest >= cost.heaviest_up + cost.heaviest_down >= cost.up + cost.down
    for latency, bandwidth in ((-1, 1), (0, 0), (math.inf, 1), (1, math.inf), (math.nan, 1)):
        with pytest.raises(EstimationError, match="expected finite numbers"):
            found.wall_time(latency, bandwidth)
    with pytest.raises(EstimationError):
        found.wall_time(1, math.nan)


def test_a_tally_is_by_client() -> None:
    ask = Round(Phase.KEEP, np.array([2, 0]), {}, {})
    [down], [up] = set(ask.sizes_down.tolist()), set(ask.sizes_up.tolist())
    tally = Tally.of([ask, ask], 3) + Tally.of([Round(Phase.KEEP, np.array([1]), {}, {})], 3) * 3
    assert tally.up.tolist() == [2 * up, 3 * up, 2 * up]
    assert tally.down.tolist() == [2 * down, 3 * down, 2 * down]
    assert (tally.rounds, tally.slowest) == (5, 5 * (up + down))
    nobody = Tally.of([Round(Phase.KEEP, np.array([], dtype=np.int64), {}, {})], 2)
    assert (nobody.rounds, nobody.slowest, nobody.up.tolist()) == (1, 0, [0, 0])


@pytest.fixture(scope="module")
def demo() -> Split:
    return load("demo")


@given(count=st.integers(1, 60), seed=st.integers(0, 3))
def test_some_users_keep_all_that_they_have(demo: Split, count: int, seed: int) -> None:
    found = some_users(demo, count, seed)
    assert found.n_users == count
    assert some_users(demo, count, seed).fingerprint == found.fingerprint
    items = set()
    for name, part in found.parts.items():
        whole = demo.parts[name]
        for user in range(count):
            mine = {found.item_ids[item] for item in part.items_of(user).tolist()}
            before = demo.user_ids.index_of(found.user_ids[user])
            assert mine == {demo.item_ids[item] for item in whole.items_of(before).tolist()}
            items |= mine
    assert items == set(found.item_ids)


def test_some_users_are_others_under_another_seed_and_all_at_most(demo: Split) -> None:
    assert some_users(demo, 50, 0).user_ids != some_users(demo, 50, 1).user_ids
    assert set(some_users(demo, 50, 0).user_ids) < set(some_users(demo, 80, 0).user_ids)
    everybody = some_users(demo, demo.n_users, 0)
    assert everybody.user_ids == demo.user_ids
    with pytest.raises(EstimationError, match="has 1,000 users"):
        some_users(demo, 1001, 0)
