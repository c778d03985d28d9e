"""The comparison of all ways to run: it finds no difference where there is none, and any other."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lpgcn.config import Config
from lpgcn.data import Ids, Interactions, Split
from lpgcn.runtime.engines.federated import Federated
from lpgcn.runtime.verification import (
    EpochDifference,
    VerificationObserver,
    largest_difference,
    verify,
)

CONFIG = Config(layers=2, dim=4, batch_size=16, planner="cover")


def split() -> Split:
    """9 users with 6 of 14 items each; 4, 1 and 1 after the split."""
    pairs = [[(user, (user * user + 3 * item) % 14) for item in range(6)] for user in range(9)]
    parts = [
        Interactions.from_pairs(*zip(*(pair for own in pairs for pair in own[part]), strict=True),
                                9, 14)
        for part in (slice(0, 4), slice(4, 5), slice(5, 6))
    ]  # fmt: skip
    return Split("tiny", *parts, Ids(np.arange(9)), Ids(np.arange(14)))


def compared(**options: Any) -> list[EpochDifference]:
    return list(verify(split(), CONFIG, epochs=2, **options))


def test_every_way_to_run_is_the_centralised_one() -> None:
    lines = compared(other_planners=["greedy"])
    assert all(line.difference == 0 for line in lines)
    runs = {(line.model, line.virtual_items, line.run) for line in lines}
    ways = {
        "centralized",
        "simulated",
        "federated sealed, plan cover",
        "federated paper, plan cover",
        "federated sealed, plan greedy",
    }
    models, alphas = ("lightgcn", "lightgcn+"), ("0", "1.0x")
    assert runs == {(model, alpha, way) for model in models for alpha in alphas for way in ways}
    assert len(lines) == 2 * len(runs)
    losses = {(line.model, line.virtual_items, line.epoch): line.loss for line in lines}
    assert len(set(losses.values())) == len(losses) == 8


class Told(VerificationObserver):
    def __init__(self) -> None:
        self.told: list[Any] = []

    def way_began(self, run: str) -> None:
        self.told.append(run)

    def planning(self, stage: str, share: float) -> None:
        self.told.append("planning")

    def step_done(self, done: int, total: int) -> None:
        self.told.append((done, total))


def test_every_step_of_every_way_is_told() -> None:
    observer = Told()
    only_federated(observer=observer)
    steps = [(done, 6) for done in range(1, 7)]
    shown = [one for one in observer.told if one != "planning"]
    assert shown == ["centralized", *steps, "simulated", *steps, "federated sealed", *steps]


def only_federated(**options: Any) -> list[EpochDifference]:
    lines = compared(
        models=["lightgcn"], suites=["sealed"], virtual_items=["0"], other_planners=(), **options
    )
    assert [line.difference for line in lines if line.run == "simulated"] == [0, 0]
    return [line for line in lines if line.run.startswith("federated")]


def test_only_what_is_asked_for_and_over_processes() -> None:
    assert [(line.run, line.epoch, line.difference) for line in only_federated(workers=2)] == [
        ("federated sealed, plan cover", 1, 0),
        ("federated sealed, plan cover", 2, 0),
    ]


@pytest.mark.parametrize(("added", "expected"), [(0.5, 0.5), (math.nan, math.inf)])
@pytest.mark.parametrize("table", ["users.parameter", "items.mean", "items.square"])
def test_the_largest_difference_is_told(
    table: str, added: float, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspector = Federated.inspector

    def disturbed(self: Federated) -> Any:
        found, vectors = inspector(self).state(), inspector(self).scorer
        found[table][-1, -1] += added
        return SimpleNamespace(state=lambda: found, scorer=vectors)

    monkeypatch.setattr(Federated, "inspector", disturbed)
    assert [line.difference for line in only_federated()] == pytest.approx([expected] * 2)


def test_bits_that_differ_without_a_difference_are_told() -> None:
    zeros = np.zeros((2, 3), dtype=np.float32)
    assert largest_difference(zeros, zeros.copy()) == 0
    assert 0 < largest_difference(zeros, -zeros) < 1e-300
    assert largest_difference(zeros, zeros + np.float32(np.nan)) == np.inf


def test_a_difference_of_the_loss_alone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    take_loss = Federated.take_loss
    monkeypatch.setattr(Federated, "take_loss", lambda self: take_loss(self) + 0.25)
    assert [line.difference for line in only_federated()] == [0.25, 0.25]
