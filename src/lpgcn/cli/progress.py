"""The progress of a run on standard error: a live bar on a terminal, else a line a validation."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final, Self

from rich import progress as rich_progress
from rich.status import Status

from lpgcn.checkpoints import CheckpointError
from lpgcn.cli.terminal import console, counted, duration, say, size, warn
from lpgcn.config import Config
from lpgcn.data import Interactions, Split
from lpgcn.model.backbones import trains_backbone
from lpgcn.model.batches import group_count, smallest_group
from lpgcn.model.sampling import VirtualItems
from lpgcn.protocol.phases import Phase
from lpgcn.runtime.local_cost import LocalCost
from lpgcn.runtime.memory import available_memory
from lpgcn.runtime.runs.loop import Observer
from lpgcn.runtime.runs.run_folder import EpochMetrics, Progress, Run
from lpgcn.runtime.verification import VerificationObserver

SECONDS_BETWEEN: Final = 10.0
"""Two lines about steps, where there is no bar."""
_STAGES: Final = {
    Phase.RESUME: "clients hear from where they begin, or go on",
    Phase.KEYS: "every client makes a key pair",
    Phase.SHARE_KEY: "one client makes the shared key and seals it to all",
    Phase.LIST: "clients list their items, real and virtual, as tokens",
    Phase.CATALOGUE: "tokens of the whole catalogue",
    Phase.PLAN: "the plan: who computes which item",
    Phase.VERIFY: "clients tell owners, sealed, which items are real",
    Phase.ANSWERS: "owners open the answers",
    Phase.COUNT: "the number of interactions, as a masked sum",
}


class Pace:
    """Whether it is time for the next line about steps."""

    def __init__(self) -> None:
        self.line_said()

    def line_said(self) -> None:
        self._line_at = time.monotonic()

    def is_due(self) -> bool:
        if time.monotonic() - self._line_at <= SECONDS_BETWEEN:
            return False
        self.line_said()
        return True


def fewer_groups(config: Config, n_clients: int) -> str:
    """What becomes of --groups where there are not clients enough for so many; or nothing."""
    from lpgcn.methods.lp_gcn import as_backbone

    if not config.pooled or not trains_backbone(config.model):
        return ""
    config = as_backbone(config)
    count = group_count(config, n_clients)
    if count == config.groups:
        return ""
    groups = "1 group" if count == 1 else f"{count:,} groups"
    return (
        f"{groups} instead of {config.groups:,}: each needs {smallest_group(config)} clients, and "
        f"there are {n_clients:,}"
    )


def fewer_virtual_items(config: Config, train: Interactions) -> str:
    """How many users list fewer virtual items than --virtual-items, as there are no more; or
    nothing."""
    if not trains_backbone(config.model):
        return ""
    virtual, real = VirtualItems.of(config), train.user_degrees
    short = int((virtual.alpha(real, train.n_items) < virtual.wanted(real)).sum())
    if not short:
        return ""
    return (
        f"{counted(short, 'user')} of {train.n_users:,} cannot list --virtual-items "
        f"{config.virtual_items}: there are {train.n_items:,} items, and they list all but one"
    )


class VerificationDisplay(VerificationObserver):
    """What `lpgcn verify` is at: a line that changes on a terminal, else one now and then."""

    def __init__(self, status: Status, *, is_terminal: bool) -> None:
        self._status, self._is_terminal = status, is_terminal
        self._run, self._pace = "", Pace()

    def way_began(self, run: str) -> None:
        self._run = run
        self._status.update(run)

    def planning(self, stage: str, share: float) -> None:
        self._status.update(f"{self._run}: planning, {stage}")

    def step_done(self, done: int, total: int) -> None:
        at = f"{self._run}: step {done:,} of {total:,}"
        self._status.update(at)
        if not self._is_terminal and self._pace.is_due():
            say(at)


class ProgressDisplay(Observer):
    """Shows what the training loop tells. As a context, it leaves the terminal in order."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self.began = False
        """Whether there is something in the folder that can be resumed."""
        self._clients: int | None = None
        self._train: Interactions | None = None
        self._stage = ""
        self._task = rich_progress.TaskID(0)
        self._validated: EpochMetrics | None = None
        self._loss, self._has_loss = "", True
        self._step, self._steps, self._pace = 0, 0, Pace()
        self._best: EpochMetrics | None = None
        self._console = console(stderr=True)
        self._bar = rich_progress.Progress(
            rich_progress.TextColumn("epoch {task.description}"),
            rich_progress.BarColumn(bar_width=None),
            rich_progress.TextColumn("{task.fields[stage]}"),
            rich_progress.TextColumn("{task.fields[figures]}"),
            rich_progress.TimeRemainingColumn(compact=True),
            rich_progress.TextColumn("left"),
            console=self._console,
            expand=True,
            disable=not self._console.is_terminal,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def planning(self, stage: str, share: float) -> None:
        if self._stage != stage:
            self._stage = stage
            say(f"planning: {stage}")

    def estimated(self, cost: LocalCost) -> None:
        there = available_memory()
        of = "" if there is None else f" of {size(there)} that are free"
        processes = "a process" if cost.processes == 1 else f"{cost.processes} processes"
        say(
            f"estimate: about {duration(cost.seconds)} for all epochs in {processes}, and about "
            f"{size(cost.memory)} of memory{of}"
        )
        if there is not None and cost.memory > there:
            warn(
                "that may be more memory than there is: take fewer users, fewer --virtual-items, "
                "or --mode simulated, which has the same bits"
            )

    def stage_began(self, phase: Phase) -> None:
        """Before the first step the stages of initialisation, then where a step is."""
        name = phase.name.lower().replace("_", " ")
        if self.began:
            self._bar.update(self._task, stage=name)
        elif self._stage != name:
            self._stage = name
            say(f"initialising: {_STAGES.get(phase, name)}")

    def data_read(self, split: Split) -> None:
        self._clients, self._train = split.n_users, split.train
        train, valid, test = (f"{len(part):,}" for part in split.parts.values())
        say(
            f"{split.name}: {counted(split.n_users, 'user')}, {counted(split.n_items, 'item')}, "
            f"{train} interactions to train on, {valid} to validate, {test} to test"
        )

    def run_began(self, run: Run, steps_per_epoch: int, so_far: Progress) -> None:
        from lpgcn.methods.registry import described

        # What is computed in one go has none.
        self._has_loss = not described(run.config.model).fixed
        within = f", step {so_far.step}" if so_far.step else ""
        verb = f"continuing after epoch {so_far.epoch}{within}" if so_far.steps else "training"
        say(f"fingerprint {run.fingerprint[:12]}, {verb} in {self._out}")
        if self._clients is not None and (fewer := fewer_groups(run.config, self._clients)):
            warn(fewer)
        if self._train is not None and (fewer := fewer_virtual_items(run.config, self._train)):
            warn(fewer)
        if self.began:
            self._bar.remove_task(self._task)
        self.began = True
        self._epochs, self._step, self._steps = run.config.epochs, so_far.step, steps_per_epoch
        self._epoch = so_far.epoch
        self._pace.line_said()
        best = so_far.best
        self._validated = self._best = best if best is not None and best.valid else None
        self._bar.start()
        self._task = self._bar.add_task(
            self._of(so_far.epoch),
            total=self._epochs * steps_per_epoch,
            completed=so_far.epoch * steps_per_epoch + so_far.step,
            figures="",
            stage="",
        )

    def damaged(self, error: CheckpointError) -> None:
        warn(error)
        say("going back to the checkpoint before it")

    def step_done(self) -> None:
        self._bar.advance(self._task)
        self._step += 1
        if not self._console.is_terminal and self._pace.is_due():
            say(f"epoch {self._of(self._epoch + 1)}, step {self._step:,} of {self._steps:,}")

    def epoch_done(self, metrics: EpochMetrics) -> None:
        if metrics.valid:
            self._validated = metrics
            if self._best is None or _recall(metrics) > _recall(self._best):
                self._best = metrics
        if metrics.loss is not None and self._has_loss:
            self._loss = f"loss {metrics.loss:.4f}"
        told = [self._loss] if self._loss else []
        if self._validated and self._best:
            told.append(f"Recall@20 {_recall(self._validated):.4f}")
            told.append(f"best {_recall(self._best):.4f} at {self._best.epoch}")
        figures = "  ".join(told)
        self._epoch, self._step = metrics.epoch, 0
        epoch = self._of(metrics.epoch)
        self._bar.update(self._task, description=epoch, figures=figures)
        due = metrics.valid or (metrics.loss is not None and self._pace.is_due())
        if due and not self._console.is_terminal:
            self._pace.line_said()
            say(f"epoch {epoch}  {figures}  {duration(metrics.seconds)}")

    def _of(self, epoch: int) -> str:
        return f"{epoch}/{self._epochs}"


def _recall(metrics: EpochMetrics) -> float:
    return (metrics.valid or {})["recall@20"]
