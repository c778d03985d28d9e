"""Metrics of a server for Prometheus: `--metrics-port`. They have counts and times, no names."""

from __future__ import annotations

import time
from typing import Any, Final, Self

from lpgcn.cli.roll import Roll
from lpgcn.errors import LpgcnError
from lpgcn.protocol.ledger import Direction
from lpgcn.protocol.phases import Phase
from lpgcn.runtime.engines.engine import Engine, RunInterruptedError
from lpgcn.runtime.engines.federation import Federation
from lpgcn.runtime.runs.run_folder import EpochMetrics, Progress, Run
from lpgcn.runtime.runs.serving import ServingObserver

WAITING: Final = "waiting"
"""For members, before or between the phases of the protocol."""
_BUCKETS: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


class MetricsError(LpgcnError):
    """Metrics that cannot be served."""


class ServingMetrics(ServingObserver):
    """What the server tells, as metrics on a port of its own; as a context."""

    def __init__(self, host: str, port: int) -> None:
        try:
            import prometheus_client as p
        except ImportError as error:
            raise MetricsError(
                "--metrics-port needs prometheus_client, which is not installed here; run "
                "`pip install lpgcn[network]`, or leave the option out"
            ) from error
        self._address = host, port
        self._roll = Roll()
        self._engine: Federation | None = None
        self._sent: dict[tuple[str, Direction], int] = {}
        self._round: tuple[Phase, float] | None = None
        self.registry = r = p.CollectorRegistry()
        self._step = p.Gauge("lpgcn_step", "Steps of the run that are done.", registry=r)
        self._epoch = p.Gauge("lpgcn_epoch", "Epochs that are done.", registry=r)
        states = [WAITING, *(phase.name.lower() for phase in Phase)]
        self._phase = p.Enum("lpgcn_phase", "Where the server is.", states=states, registry=r)
        self._term = p.Gauge("lpgcn_term", "Number of the present term.", registry=r)
        self._members = p.Gauge("lpgcn_members", "Members of the present term.", registry=r)
        silent = p.Gauge("lpgcn_members_silent", "Clients of silent carriers.", registry=r)
        silent.set_function(lambda: self._roll.silent_clients)
        self._bytes = p.Counter(
            "lpgcn_bytes", "Of messages, since this process began.", ["stage", "direction"],
            registry=r,
        )  # fmt: skip
        self._seconds = p.Histogram(
            "lpgcn_round_seconds", "From the call of a phase to what comes next.", ["phase"],
            buckets=_BUCKETS, registry=r,
        )  # fmt: skip
        self._retried = p.Counter(
            "lpgcn_requests_retried", "Requests that were sent again.", registry=r
        )
        self._interruptions = p.Counter(
            "lpgcn_interruptions", "Times that the run went back to a checkpoint.", registry=r
        )
        self._checkpoint = p.Gauge("lpgcn_checkpoint", "Number of the last one.", registry=r)
        self._recall = p.Gauge("lpgcn_recall20", "Recall@20, last validation.", registry=r)
        self._serve: Any = p.start_http_server

    def __enter__(self) -> Self:
        host, port = self._address
        try:
            self._server, self._thread = self._serve(port, host, self.registry)
        except OSError as error:
            raise MetricsError(
                f"metrics cannot be served on {host}, port {port}: {error.strerror or error}; "
                "choose another --metrics-port or --metrics-host"
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def driving(self, engine: Engine) -> None:
        self._engine = engine if isinstance(engine, Federation) else None

    def run_began(self, run: Run, steps_per_epoch: int, so_far: Progress) -> None:
        self._end_round()
        self._step.set(so_far.steps)
        self._epoch.set(so_far.epoch)
        self._look()

    def gathering(self, present: int, wanted: int, missing: list[int]) -> None:
        self._phase.state(WAITING)

    def stage_began(self, phase: Phase) -> None:
        self._end_round()
        self._round = phase, time.monotonic()
        self._phase.state(phase.name.lower())

    def step_done(self) -> None:
        self._end_round()
        self._step.inc()
        self._look()

    def epoch_done(self, metrics: EpochMetrics) -> None:
        self._end_round()
        self._epoch.set(metrics.epoch)
        if metrics.valid:
            self._recall.set(metrics.valid["recall@20"])
        self._look()

    def checkpointed(self, number: int) -> None:
        self._end_round()
        self._checkpoint.set(number)
        self._look()

    def run_ended(self, engine: Engine) -> None:
        self._end_round()
        self._look()

    def interrupted(self, error: RunInterruptedError) -> None:
        # How long a round took that was broken off says nothing.
        self._round = None
        self._interruptions.inc()

    def term_began(self, number: int, joined: list[int], left: list[int]) -> None:
        self._look()

    def joined(self, name: str, indices: tuple[int, ...]) -> None:
        self._roll.joined(name, indices)

    def left(self, name: str, indices: tuple[int, ...]) -> None:
        self._roll.left(name)

    def silent(self, name: str, indices: tuple[int, ...]) -> None:
        self._roll.silent(name)

    def back(self, name: str, indices: tuple[int, ...]) -> None:
        self._roll.back(name)

    def retried(self, name: str, requests: int) -> None:
        self._retried.inc(requests)

    def _end_round(self) -> None:
        if self._round is not None:
            phase, began = self._round
            self._seconds.labels(phase.name.lower()).observe(time.monotonic() - began)
            self._round = None

    def _look(self) -> None:
        """At the server, in its own thread."""
        if self._engine is None:
            return
        self._term.set(self._engine.server.term.number)
        self._members.set(len(self._engine.server.term.members))
        total: dict[tuple[str, Direction], int] = {}
        for line in self._engine.ledger.lines():
            key = line.stage, line.direction
            total[key] = total.get(key, 0) + line.bytes
        for key, count in total.items():
            # A ledger begins again with a term, and with a checkpoint that was gone back to.
            before = self._sent.get(key, 0)
            self._bytes.labels(*key).inc(count - before if count >= before else count)
        self._sent = total
