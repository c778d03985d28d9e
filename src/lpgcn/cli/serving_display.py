"""What a server over a network shows: who is there, who is missing, and how far it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich import progress as rich_progress

from lpgcn.cli.logs import EventLog
from lpgcn.cli.progress import ProgressDisplay
from lpgcn.cli.roll import Roll, clients, worth_telling
from lpgcn.cli.serving_log import ServingLog
from lpgcn.cli.terminal import say, warn
from lpgcn.runtime.engines.engine import RunInterruptedError
from lpgcn.runtime.hosts.nats.switchboard import Interrupted
from lpgcn.runtime.runs.run_folder import Progress, Run
from lpgcn.runtime.runs.serving import Serving, ServingObserver

_METHODS: Final = tuple(name for name in dir(ServingObserver) if not name.startswith("_"))


class Several(ServingObserver):
    """Tells each of several observers everything."""

    def __init__(self, *observers: ServingObserver) -> None:
        self._observers = observers
        for name in _METHODS:
            setattr(self, name, partial(self._tell_all, name))

    def _tell_all(self, name: str, *arguments: Any) -> None:
        for one in self._observers:
            getattr(one, name)(*arguments)


@contextmanager
def observed(
    state: Path, serving: Serving, log: EventLog | None, metrics: tuple[str, int | None]
) -> Iterator[ServingObserver]:
    """A display or a log, and metrics on a port if there is one."""
    with ExitStack() as stack:
        if log is None:
            shown: ServingObserver = stack.enter_context(ServingDisplay(state, serving))
        else:
            shown = ServingLog(log)
        host, port = metrics
        if port is None:
            yield shown
            return
        from lpgcn.cli.metrics import ServingMetrics

        yield Several(shown, stack.enter_context(ServingMetrics(host, port)))


class ServingDisplay(ProgressDisplay, ServingObserver):
    """The progress of a run, and of its members."""

    def __init__(self, out: Path, serving: Serving) -> None:
        super().__init__(out)
        self._serving, self._roll = serving, Roll()
        self._told = -1
        """How many members were there when that was said last."""
        self._gathering = rich_progress.Progress(
            rich_progress.TextColumn("waiting for members"),
            rich_progress.BarColumn(bar_width=None),
            rich_progress.MofNCompleteColumn(),
            rich_progress.TextColumn("{task.fields[missing]}"),
            rich_progress.TimeElapsedColumn(),
            console=self._console,
            expand=True,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._waiting = self._gathering.add_task("", total=None, missing="")

    def __exit__(self, *_: object) -> None:
        self._gathering.stop()
        super().__exit__()

    def gathering(self, present: int, wanted: int, missing: list[int]) -> None:
        """A bar on a terminal; else a line when it has changed by a good part."""
        self._clients = present
        known = self._roll.carriers(missing) if self.began else {}
        whom = f"waiting for {self._roll.named(missing)}" if known else ""
        if self._console.is_terminal and present < wanted:
            self._bar.stop()
            self._gathering.start()
            self._gathering.update(self._waiting, completed=present, total=wanted, missing=whom)
            return
        self._gathering.stop()
        if worth_telling(present, self._told, wanted):
            self._told = present
            say(f"{present:,} of {wanted:,} members are here" + (f"; {whom}" if whom else ""))

    def run_began(self, run: Run, steps_per_epoch: int, so_far: Progress) -> None:
        self._gathering.stop()
        self._told = -1
        super().run_began(run, steps_per_epoch, so_far)

    def interrupted(self, error: RunInterruptedError) -> None:
        if not isinstance(error, Interrupted):
            warn(f"interrupted: {error}")
            return
        if error.restarted:
            say(
                f"interrupted: {self._roll.named(error.restarted)} came back without memory; "
                "everybody goes back to the last checkpoint"
            )
        if error.silent:
            say(self._missing(error.silent))

    def _missing(self, indices: frozenset[int]) -> str:
        left = self._roll.said_goodbye(indices)
        why = "left" if left else f"silent for {self._serving.patience:g} s"
        found = f"{self._roll.named(indices)} {why}"
        if self._serving.on_missing == "leave":
            least = self._serving.least_members
            return f"{found}; going on without, if there is a checkpoint and {least:,} are left"
        return f"paused: {found}; waiting for it; --on-missing leave would go on without"

    def checkpointed(self, number: int) -> None:
        say(f"checkpoint {number}: everybody can go back to here")

    def held_back(self, newcomers: int, least: int) -> None:
        say(f"{clients(newcomers)} could join; waiting until {least:,} can (--least-change)")

    def term_began(self, number: int, joined: list[int], left: list[int]) -> None:
        parts = [
            f"{self._roll.named(who)} {verb}"
            for who, verb in ((joined, "joined"), (left, "left"))
            if who
        ]
        say(f"term {number} begins: {'; '.join(parts) or 'the same members'}")

    def joined(self, name: str, indices: tuple[int, ...]) -> None:
        self._roll.joined(name, indices)

    def left(self, name: str, indices: tuple[int, ...]) -> None:
        self._roll.left(name)

    def silent(self, name: str, indices: tuple[int, ...]) -> None:
        self._roll.silent(name)
        warn(f"{name} is silent ({clients(len(indices))})")

    def back(self, name: str, indices: tuple[int, ...]) -> None:
        self._roll.back(name)
        say(f"{name} is back ({clients(len(indices))})")

    def unanswered(self, name: str, requests: int) -> None:
        warn(
            f"{name} does not answer, though it was asked again and again ({requests:,} requests); "
            "everybody waits for it, and its own log may say why, such as a full disk"
        )

    def refused(self, name: str, reason: str) -> None:
        warn(f"refused {name}: {reason}")

    def waiting(self, reason: str, seconds: float) -> None:
        warn(f"the broker cannot be reached ({reason}); trying again")

    def disconnected(self) -> None:
        warn("the connection to the broker is lost; reconnecting")

    def reconnected(self) -> None:
        say("connected to the broker again")
