"""Estimates of local runs: made before the first step, and more work is more of both."""

from __future__ import annotations

from pathlib import Path

from lpgcn.config import Config
from lpgcn.data import load
from lpgcn.protocol.phases import Phase
from lpgcn.runtime.engines.simulated import token_graph
from lpgcn.runtime.estimation import some_users
from lpgcn.runtime.local_cost import LocalCost, local_cost
from lpgcn.runtime.planning import planner_for
from lpgcn.runtime.runs.loop import Observer
from lpgcn.runtime.runs.source import Source
from lpgcn.runtime.runs.training import train

CONFIG = Config(mode="federated", planner="cover", epochs=2, dim=8, layers=1)


def cost_of(users: int, processes: int = 1, **changes: object) -> LocalCost:
    split, config = some_users(load("demo"), users, 0), CONFIG.changed(**changes)
    graph = token_graph(split, config)
    return local_cost(split, config, graph, planner_for(split, config)(graph), processes)


def test_more_work_takes_more() -> None:
    least = cost_of(40)
    for more in (cost_of(80), cost_of(40, virtual_items="2.0x")):
        assert more.seconds > least.seconds and more.memory > least.memory
    for longer in (cost_of(40, epochs=4), cost_of(40, layers=3)):
        assert longer.seconds > least.seconds
    spread = cost_of(40, processes=2)
    assert spread.seconds == least.seconds / 2 and spread.memory > least.memory


class Watch(Observer):
    def __init__(self) -> None:
        self.told: list[str] = []

    def estimated(self, cost: LocalCost) -> None:
        self.told.append(f"estimate for {cost.processes}")

    def stage_began(self, phase: Phase) -> None:
        self.told.append(phase.name)


def test_it_is_told_once_and_before_the_first_step(tmp_path: Path) -> None:
    pairs = [f"{user},{(user * user + 3 * item) % 14}" for user in range(9) for item in range(10)]
    (tmp_path / "tiny.csv").write_text("user_id,item_id\n" + "\n".join(pairs) + "\n")
    watch = Watch()
    source = Source(dataset="tiny", train=str(tmp_path / "tiny.csv"))
    train(source, CONFIG, out=tmp_path / "run", observer=watch)
    place = watch.told.index("estimate for 1")
    assert watch.told.count("estimate for 1") == 1
    assert place < watch.told.index(Phase.VERIFY.name)
