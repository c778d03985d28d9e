"""What a server over a network logs with `--log-json`: counts, phases and names of carriers."""

from __future__ import annotations

import time
from typing import Any, Final

from lpgcn.checkpoints import CheckpointError
from lpgcn.cli.logs import EventLog
from lpgcn.cli.roll import worth_telling
from lpgcn.protocol.phases import Phase
from lpgcn.runtime.engines.engine import Engine, RunInterruptedError
from lpgcn.runtime.engines.federation import Federation
from lpgcn.runtime.hosts.nats.switchboard import Interrupted
from lpgcn.runtime.runs.run_folder import EpochMetrics, Progress, Run
from lpgcn.runtime.runs.serving import ServingObserver

SECONDS_BETWEEN: Final = 10.0
"""Two lines about progress."""


class ServingLog(ServingObserver):
    """A line for every event but steps and rounds, of which it tells from time to time."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._engine: Federation | None = None
        self._phase, self._step, self._epoch, self._told = "", 0, 0, 0.0
        self._began, self._present, self._planning = False, -1, ""

    def _tell(self, event: str, *, level: str = "info", **fields: Any) -> None:
        self._log(event, level=level, phase=self._phase, step=self._step, **fields)

    def _members(self) -> dict[str, Any]:
        if self._engine is None:
            return {}
        term = self._engine.server.term
        return {"term": term.number, "members": len(term.members)}

    def driving(self, engine: Engine) -> None:
        self._engine = engine if isinstance(engine, Federation) else None

    def planning(self, stage: str, share: float) -> None:
        if not self._began and self._planning != stage:
            self._planning = stage
            self._tell("planning", stage=stage)

    def stage_began(self, phase: Phase) -> None:
        before, self._phase = self._phase, phase.name.lower()
        if not self._began and self._phase != before:
            self._tell("initialising")

    def run_began(self, run: Run, steps_per_epoch: int, so_far: Progress) -> None:
        self._began, self._step, self._epoch = True, so_far.steps, so_far.epoch
        self._present = -1
        self._tell("run_began", epoch=so_far.epoch, **self._members())

    def step_done(self) -> None:
        self._step += 1
        now = time.monotonic()
        if now - self._told >= SECONDS_BETWEEN:
            self._told = now
            self._tell("progress", epoch=self._epoch, **self._members())

    def epoch_done(self, metrics: EpochMetrics) -> None:
        self._epoch = metrics.epoch
        figures: dict[str, Any] = {}
        if metrics.loss is not None:
            figures["loss"] = round(metrics.loss, 6)
        if metrics.valid:
            figures["recall20"] = round(metrics.valid["recall@20"], 6)
        self._tell("epoch_done", epoch=metrics.epoch, **figures)

    def checkpointed(self, number: int) -> None:
        self._tell("checkpoint", number=number, **self._members())

    def damaged(self, error: CheckpointError) -> None:
        self._tell("checkpoint_damaged", level="warning", message=str(error))

    def run_ended(self, engine: Engine) -> None:
        self._tell("run_ended", **self._members())

    def gathering(self, present: int, wanted: int, missing: list[int]) -> None:
        if worth_telling(present, self._present, wanted):
            self._present = present
            self._tell("gathering", present=present, wanted=wanted)

    def interrupted(self, error: RunInterruptedError) -> None:
        counts: dict[str, Any] = {}
        if isinstance(error, Interrupted):
            counts = {"restarted": len(error.restarted), "silent": len(error.silent)}
        self._tell("interrupted", level="warning", message=str(error), **counts)

    def held_back(self, newcomers: int, least: int) -> None:
        self._tell("held_back", newcomers=newcomers, least=least)

    def term_began(self, number: int, joined: list[int], left: list[int]) -> None:
        self._tell("term_began", joined=len(joined), left=len(left), **self._members())

    def joined(self, name: str, indices: tuple[int, ...]) -> None:
        self._tell("joined", carrier=name, clients=len(indices))

    def left(self, name: str, indices: tuple[int, ...]) -> None:
        self._tell("left", carrier=name, clients=len(indices))

    def silent(self, name: str, indices: tuple[int, ...]) -> None:
        self._tell("silent", level="warning", carrier=name, clients=len(indices))

    def back(self, name: str, indices: tuple[int, ...]) -> None:
        self._tell("back", carrier=name, clients=len(indices))

    def retried(self, name: str, requests: int) -> None:
        self._tell("retried", carrier=name, requests=requests)

    def unanswered(self, name: str, requests: int) -> None:
        self._tell("unanswered", level="warning", carrier=name, requests=requests)

    def refused(self, name: str, reason: str) -> None:
        self._tell("refused", level="warning", carrier=name, reason=reason)

    def waiting(self, reason: str, seconds: float) -> None:
        self._tell("broker_unreachable", level="warning", reason=reason, next=round(seconds, 1))

    def disconnected(self) -> None:
        self._tell("disconnected", level="warning")

    def reconnected(self) -> None:
        self._tell("reconnected")
