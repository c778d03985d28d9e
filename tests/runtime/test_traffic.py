"""The simulation's ledger is the federation's, to the byte."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from lpgcn.config import Config, SuiteName
from lpgcn.data import Interactions, Split, load
from lpgcn.protocol.ledger import Traffic
from lpgcn.protocol.phases import PHASES, Phase
from lpgcn.runtime.engines.federated import Federated
from lpgcn.runtime.engines.simulated import Simulated
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.planning import planner_for
from lpgcn.runtime.runs.source import Source
from lpgcn.runtime.runs.training import train


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


@pytest.mark.slow
@pytest.mark.parametrize("suite", ["sealed", "paper"])
@pytest.mark.parametrize("answers", [None, 20])
def test_both_ledgers_are_equal_with_pools(suite: SuiteName, answers: int | None) -> None:
    """Two groups, of 32 and of 33 clients."""
    split = small(65, 90)
    config = Config(
        loss="softmax", batch_size="full", negatives=50, answers=answers, groups=2, suite=suite,
        layers=1, dim=4, planner="cover", virtual_items="1",
    )  # fmt: skip
    engines = [
        Federated(split, config, planner_for(split, config)),
        Simulated(split, config, planner_for(split, config), Machine.with_threads(1)),
    ]
    for engine in engines:
        engine.begin()
        for epoch in range(2):
            engine.step(epoch, 0, 0.01)
    federated, simulated = (engine.ledger.lines() for engine in engines)
    assert federated == simulated
    assert engines[0].traffic() == engines[1].traffic()
    losses = [engine.take_loss() for engine in engines]
    assert losses[0] == losses[1] > 0


@pytest.mark.parametrize(
    ("model", "suite", "virtual_items"),
    [
        pytest.param(*one, marks=() if one == ("lightgcn+", "sealed", "3") else pytest.mark.slow)
        for one in product(("lightgcn", "lightgcn+"), ("sealed", "paper"), ("0", "3"))
    ],
)
def test_both_ledgers_of_a_whole_run_are_equal(
    model: str, suite: SuiteName, virtual_items: str, tmp_path: Path
) -> None:
    """With all that a training loop asks for: best parameters that are kept and gone back to,
    checkpoints with an owner's copies, validations and the test."""
    lines = [
        " ".join(str(number) for number in (user, *{(5 * user + i * i) % 31 for i in range(30)}))
        for user in range(14)
    ]
    (tmp_path / "few.txt").write_text("\n".join(lines) + "\n")
    source = Source(dataset="few", train=str(tmp_path / "few.txt"))
    config = Config(
        model=model, suite=suite, virtual_items=virtual_items, layers=2, dim=8, batch_size=40,
        epochs=4, eval_every=2, planner="cover", lr=0.05,
    )  # fmt: skip
    federated, simulated, often = (
        train(
            source,
            config.changed(mode=mode),
            out=tmp_path / f"{mode}{every}",
            checkpoint_every=every,
        ).traffic
        for mode, every in (("federated", 2), ("simulated", 2), ("simulated", 1))
    )
    assert federated == simulated
    assert federated is not None and often is not None
    assert federated.steps == often.steps > 0

    def sent(lines: list[Traffic], stage: str) -> int:
        return sum(line.bytes for line in lines if line.stage == stage)

    stages = {line.stage for line in federated.ledger}
    more = {stage for stage in stages if sent(often.ledger, stage) > sent(federated.ledger, stage)}
    assert more == {PHASES[Phase.CHECKPOINT].stage}
    assert {PHASES[Phase.KEEP].stage, PHASES[Phase.GO_BACK].stage} <= stages
