"""The server of a federation over a network: waits for members, trains, writes the run folder."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from lpgcn.checkpoints import InFolder
from lpgcn.config import Config, ConfigError
from lpgcn.errors import LpgcnError
from lpgcn.plan import Progress, TokenGraph, make_plan
from lpgcn.plan.graph import Plan
from lpgcn.protocol.server.server import Planner
from lpgcn.runtime.engines.networked import Networked, OnMissing, Waiting
from lpgcn.runtime.hosts.nats.enrolment import ENROL, EnrolmentDesk
from lpgcn.runtime.hosts.nats.switchboard import Events, Roster, Switchboard
from lpgcn.runtime.planning import plan_options
from lpgcn.runtime.runs.catalogue import Prospectus, PublicCatalogue
from lpgcn.runtime.runs.loop import Loop, Observer
from lpgcn.runtime.runs.run_folder import Advice, Run, RunFolder, RunFolderError, Summary
from lpgcn.runtime.runs.source import Source
from lpgcn.terms import LEAST_MEMBERS, read_terms, write_terms

_log = logging.getLogger(__name__)
_SECONDS_TO_ANSWER: Final = 5.0
"""For carriers that run while the server begins: they answer its roll call at once."""
_ADVICE: Final = Advice(
    taken="bring its config.toml back from a copy, or choose another folder (--state of serve)",
    damaged="bring what is missing back from a copy, or begin a run in another folder (--state of "
    "serve)",
)
"""A server goes on with the run that it finds, or begins another elsewhere; it replaces none."""


@dataclass(frozen=True)
class Serving:
    """How a server deals with its members."""

    clients: int
    """To wait for at the beginning."""
    patience: float = 60.0
    """Seconds of silence after which a run pauses."""
    on_missing: OnMissing = "wait"
    checkpoint_every: int = 50
    """Steps."""
    retry: float = 5.0
    """Seconds after which a request without an answer is sent again, at first."""
    least_members: int = LEAST_MEMBERS
    """No term begins or goes on with fewer."""
    least_change: int = 1
    """Newcomers wait until so many can join together."""

    def __post_init__(self) -> None:
        if self.least_members < LEAST_MEMBERS or self.least_change < 1:
            raise ConfigError(
                f"--least-members {self.least_members} and --least-change {self.least_change}; "
                f"expected {LEAST_MEMBERS} and 1 at least: a sum over one person hides nothing"
            )
        if self.clients < self.least_members:
            raise ConfigError(
                f"--clients {self.clients}, expected --least-members, which is "
                f"{self.least_members}, or more: no term has fewer; wait for more clients, or, to "
                "try things out on one machine, use lpgcn train"
            )


class ServingObserver(Observer, Waiting, Events):
    """All that a server can tell: this one tells nobody."""


class _Network(Networked):
    """Writes the log of terms into the run folder with every checkpoint."""

    def __init__(self, folder: RunFolder, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._folder = folder

    def checkpoint(self, number: int, epoch: int, step: int) -> None:
        super().checkpoint(number, epoch, step)
        write_terms(self._folder.terms, self.terms)


def secret_seed(folder: Path) -> int:
    """The seed of the run in this folder, or a new one at random.

    It decides who is in which batch. An owner sees handles only; with the seed it could name them.
    """
    found = RunFolder(folder)
    return found.describe().config.seed if found.has_run else secrets.randbits(63)


def serve(
    federation: str,
    config: Config,
    catalogue: PublicCatalogue,
    options: dict[str, Any],
    folder: Path,
    serving: Serving,
    observer: ServingObserver | None = None,
    desk: EnrolmentDesk | None = None,
    check: Callable[[], None] | None = None,
) -> Summary:
    """Train with whoever connects to the broker that `options` lead to, and write a run folder.

    A folder with a run goes on with it. There is nobody's vector, item or key in it. `check` looks
    from time to time at what the run cannot do without, in another thread; what it raises ends it.
    """
    config = config.changed(mode="federated")
    if config.never_convolve:
        raise ConfigError(
            "never-convolve names users, whom a server over a network does not know; leave it out"
        )
    observer = observer or ServingObserver()
    run_folder = RunFolder(folder, mode=0o600, advice=_ADVICE)
    source = Source(dataset=federation)
    run = Run(source=source, config=config, fingerprint=catalogue.fingerprint)
    if run_folder.has_run:
        _check_same(run_folder, run)
        serving = _as_begun(serving, run_folder)
        if summary := run_folder.summary():
            # A server that was killed at the very end may not have told everybody.
            with open_board(
                federation, config, catalogue, options, folder, serving, check=check
            ) as board:
                names = Roster(folder / "roster.json").names()
                _tell_the_end(board, summary, names, _SECONDS_TO_ANSWER)
            return summary
    else:
        # Before anybody is asked for anything: who is killed in initialisation begins once more,
        # and the number of the last stretch, which the clients know, must still be there then.
        with run_folder.beginning(run, overwrite=False):
            pass
    with open_board(
        federation, config, catalogue, options, folder, serving, observer, check
    ) as board:
        if desk is not None:
            let_newcomers_in(board, desk)
        engine = _Network(
            run_folder,
            config,
            serving.clients,
            len(catalogue.ids),
            planner_over_network(config, observer.planning),
            board,
            InFolder(run_folder.state),
            on_missing=serving.on_missing,
            least_members=serving.least_members,
            least_change=serving.least_change,
            waiting=observer,
            watch=observer.stage_began,
        )

        def predict() -> dict[str, float]:
            """Everybody gets what it needs to recommend on its own device, and has its own list."""
            engine.server.predict(engine.server.term.members.tolist())
            return {}

        loop = Loop(run_folder, run, engine, observer, predict, serving.checkpoint_every)
        summary = loop.finish()
        _tell_the_end(board, summary)
        return summary


def _tell_the_end(
    board: Switchboard, summary: Summary, also: Iterable[str] = (), timeout: float = 20.0
) -> None:
    tested = summary.test.get("recall@20")
    figure = "" if tested is None else f": Recall@20 {tested:.4f} on the test set"
    board.finish(f"the run is over{figure}", also=also, timeout=timeout)


def open_board(
    federation: str,
    config: Config,
    catalogue: PublicCatalogue,
    options: dict[str, Any],
    folder: Path,
    serving: Serving,
    events: Events | None = None,
    check: Callable[[], None] | None = None,
) -> Switchboard:
    """The server's end of the network; who is let in is told what is public."""
    about = Prospectus(
        federation=federation,
        config=config.changed(seed=0),
        clients=serving.clients,
        catalogue=catalogue,
    )
    content = msgspec.msgpack.encode(about)
    return Switchboard(
        options,
        lambda _: content,
        Roster(folder / "roster.json"),
        patience=serving.patience,
        retry=serving.retry,
        events=events,
        check=check,
    )


def let_newcomers_in(board: Switchboard, desk: EnrolmentDesk) -> None:
    """As long as the board is open; whatever they send, and whatever the disk does, it stays so."""

    def hear(subject: str, payload: bytes) -> None:
        try:
            reply = desk.reply_to(subject, payload)
        except (LpgcnError, OSError) as error:
            # A newcomer asks again; a disk that is full must not end everybody's run.
            _log.warning("a newcomer could not be let in: %s", error)
            return
        if reply:
            board.connection.post([reply])

    board.connection.subscribe(f"{ENROL}.*", hear)


def planner_over_network(config: Config, progress: Progress | None = None) -> Planner:
    options = plan_options(config)

    def plan(graph: TokenGraph) -> Plan:
        return make_plan(graph, options, config.seed, progress)

    return plan


def _as_begun(serving: Serving, folder: RunFolder) -> Serving:
    """With as many clients as the run began with: their number decides how large initial vectors
    are, those of who joins later, too."""
    if not folder.terms.exists():
        return serving
    return replace(serving, clients=len(read_terms(folder.terms)[0].members))


def _check_same(folder: RunFolder, run: Run) -> None:
    saved = folder.describe()
    if saved == run:
        return
    # A seed may be a secret, so that no value is told.
    others = [
        key.replace("_", "-")
        for key in Config.__struct_fields__
        if getattr(saved.config, key) != getattr(run.config, key)
    ]
    what = f"another {', '.join(others)}" if others else "another catalogue or name"
    raise RunFolderError(
        f"{folder.path} has a run of federation {saved.source.dataset!r} with {what}; go on with "
        "what it began with, or choose another --state"
    )
