"""The simulation's ledger is the federation's, to the byte."""

from __future__ import annotations

import pytest

from lpgcn.config import Config, Model, Suite
from lpgcn.data import Interactions, Split, load
from lpgcn.runtime.engines.federated import Federated
from lpgcn.runtime.engines.simulated import Simulated
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.planning import planner_for


def small(users: int, items: int) -> Split:
    """The first users and items of the demo; every user keeps something."""
    demo = load("demo")

    def part(pairs: Interactions) -> Interactions:
        kept = (pairs.users < users) & (pairs.items < items)
        return Interactions.from_pairs(pairs.users[kept], pairs.items[kept], users, items)

    first = {"users": range(users), "items": [0] * users}
    train = part(demo.train)
    train = Interactions.from_pairs(
        [*train.users, *first["users"]], [*train.items, *first["items"]], users, items
    )
    ids = [type(ids)(ids.values[:n]) for ids, n in ((demo.user_ids, users), (demo.item_ids, items))]
    return Split("small", train, part(demo.valid), part(demo.test), *ids)


@pytest.mark.parametrize("model", ["lightgcn", "lightgcn+"])
@pytest.mark.parametrize("suite", ["sealed", "paper"])
@pytest.mark.parametrize(("layers", "virtual_items"), [(1, "3"), (2, "0"), (3, "1.0x")])
def test_both_ledgers_are_equal(
    model: Model, suite: Suite, layers: int, virtual_items: str
) -> None:
    split = small(24, 90)
    config = Config(
        model=model,
        suite=suite,
        layers=layers,
        virtual_items=virtual_items,
        dim=8,
        batch_size=16,
        planner="cover",
    )
    engines = [
        Federated(split, config, planner_for(split, config)),
        Simulated(split, config, planner_for(split, config), Machine.with_threads(1)),
    ]
    for engine in engines:
        for step in range(3):
            engine.step(0, step, 0.01)
        engine.take_loss()
        engine.measure("valid")
    federated, simulated = (engine.ledger.lines() for engine in engines)
    assert federated == simulated
    assert sum(line.bytes for line in federated) > 0
    assert engines[0].traffic() == engines[1].traffic()
