"""Losslessness, shown: the ways to run side by side, and the largest difference (RQ1)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from lpgcn.config import Config, PlannerName, SuiteName
from lpgcn.data import Split
from lpgcn.evaluation import Evaluation
from lpgcn.model.backbones import PAPERS_OWN
from lpgcn.runtime.engines.centralized import Centralized
from lpgcn.runtime.engines.engine import Engine, Tables
from lpgcn.runtime.engines.federated import Federated
from lpgcn.runtime.engines.simulated import Simulated
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.planning import planner_for

Measurement = tuple[float, Evaluation, Tables]


class VerificationObserver:
    """Told what is being run; this one tells nobody."""

    def way_began(self, run: str) -> None: ...

    def planning(self, stage: str, share: float) -> None: ...

    def step_done(self, done: int, total: int) -> None:
        """So many of the steps of this way to run."""


class EpochDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One way to run after one epoch, beside the centralised model."""

    model: str
    virtual_items: str
    run: str
    """centralized, simulated, or federated with its suite and planner."""
    epoch: int
    loss: float
    recall: float
    ndcg: float
    difference: float
    """The largest of any parameter, of its Adam state, of any final vector, of the loss, or of any
    metric."""


def verify(
    split: Split,
    config: Config,
    *,
    epochs: int,
    models: Sequence[str] = PAPERS_OWN,
    suites: Sequence[SuiteName] = get_args(SuiteName),
    virtual_items: Sequence[str] = ("0", "1.0x"),
    other_planners: Sequence[PlannerName] = ("cover", "greedy"),
    workers: int = 1,
    observer: VerificationObserver | None = None,
) -> Iterator[EpochDifference]:
    """Every combination of model, α and way to run, epoch by epoch; `config` has the rest.

    The first suite is also run with other plans: sums are exact, so that these change no bit.
    Handles are drawn anew in every federation.
    """
    machine = Machine.with_threads()
    observer = observer or VerificationObserver()
    for model, alpha in itertools.product(models, virtual_items):
        chosen = config.changed(model=model, virtual_items=alpha, at=sorted({*config.at, 5}))
        observer.way_began("centralized")
        expected = list(_measured(Centralized(split, chosen, machine), chosen, epochs, observer))
        yield from _compared(expected, chosen, "centralized", expected)
        observer.way_began("simulated")
        simulated = Simulated(split, chosen, planner_for(split, chosen, observer.planning), machine)
        yield from _compare(simulated, chosen, "simulated", expected, observer)
        ways = [chosen.changed(suite=suite) for suite in suites]
        ways += [ways[0].changed(planner=planner) for planner in other_planners]
        for way in ways:
            observer.way_began(f"federated {way.suite}")
            planner = planner_for(split, way, observer.planning)
            federated = Federated(split, way, planner, workers)
            try:
                # The plan that was made is known once the federation has begun.
                federated.begin()
                run = f"federated {way.suite}, plan {federated.server.plan.planner}"
                yield from _compare(federated, way, run, expected, observer)
            finally:
                federated.close()


def _measured(
    engine: Engine, config: Config, epochs: int, observer: VerificationObserver
) -> Iterator[Measurement]:
    total = epochs * engine.steps_per_epoch
    for epoch in range(epochs):
        for step in range(engine.steps_per_epoch):
            done = epoch * engine.steps_per_epoch + step
            engine.step(epoch, step, config.learning_rate(done, total))
            observer.step_done(done + 1, total)
        loss, valid = engine.take_loss(), engine.measure("valid")
        inspector = engine.inspector()
        assert inspector is not None, "these parties are on this machine"
        final = {f"final {name}": table for name, table in inspector.scorer().arrays().items()}
        yield loss, valid, inspector.state() | final


def _compare(
    engine: Engine,
    config: Config,
    run: str,
    expected: Sequence[Measurement],
    observer: VerificationObserver,
) -> Iterator[EpochDifference]:
    return _compared(_measured(engine, config, len(expected), observer), config, run, expected)


def _compared(
    measured: Iterable[Measurement], config: Config, run: str, expected: Sequence[Measurement]
) -> Iterator[EpochDifference]:
    for epoch, ((loss, valid, tables), other) in enumerate(zip(measured, expected, strict=True), 1):
        differences = [abs(loss - other[0])]
        differences += [abs(valid.values[name] - value) for name, value in other[1].values.items()]
        differences += table_differences(tables, other[2])
        yield EpochDifference(
            model=config.model,
            virtual_items=config.virtual_items,
            run=run,
            epoch=epoch,
            loss=loss,
            recall=valid.values["recall@5"],
            ndcg=valid.values["ndcg@5"],
            difference=math.inf if any(map(math.isnan, differences)) else max(differences),
        )


def table_differences(
    found: Mapping[str, npt.NDArray[Any]], expected: Mapping[str, npt.NDArray[Any]]
) -> list[float]:
    """The largest difference of each table."""
    return [largest_difference(found[name], table) for name, table in expected.items()]


def largest_difference(found: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    """The largest; bits that differ without one, as those of −0 do, count as the least number, and
    what is no number as infinite."""
    largest = float(np.abs(found - expected).max())
    if math.isnan(largest):
        return math.inf
    return largest if largest or found.tobytes() == expected.tobytes() else math.ulp(0.0)
