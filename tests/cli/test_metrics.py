"""`--metrics-port`: what Prometheus reads, from made-up events and from a server at work."""

from __future__ import annotations

import builtins
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from lpgcn.cli import main
from lpgcn.cli.metrics import MetricsError, ServingMetrics
from lpgcn.evaluation import EarlyStopping
from lpgcn.protocol.ledger import Ledger
from lpgcn.protocol.phases import Phase
from lpgcn.runtime.engines.federation import Federation
from lpgcn.runtime.hosts.nats.switchboard import Interrupted
from lpgcn.runtime.runs.run_folder import EpochMetrics, Progress

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(port: int, host: str = "127.0.0.1") -> Samples:
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class FakeTerm:
    number, members = 2, np.arange(9)


class FakeServer:
    def __init__(self) -> None:
        self.term, self.ledger = FakeTerm(), Ledger(np.zeros(9, dtype=np.bool_))


class FakeEngine(Federation):
    """Of an engine the metrics see its server only."""

    def __init__(self) -> None:
        self._server = FakeServer()  # type: ignore[assignment]


@pytest.fixture
def observer(free_port: Callable[[], int]) -> Iterator[tuple[ServingMetrics, int]]:
    port = free_port()
    with ServingMetrics("127.0.0.1", port) as metrics:
        yield metrics, port


def test_metrics_follow_what_the_observer_is_told(observer: tuple[ServingMetrics, int]) -> None:
    metrics, port = observer
    engine = FakeEngine()
    metrics.driving(engine)
    metrics.joined("host-0", (0, 1, 2, 3))
    metrics.joined("host-1", (4, 5, 6, 7, 8))
    metrics.gathering(9, 9, [])
    assert scraped(port)["lpgcn_phase", (("lpgcn_phase", "waiting"),)] == 1
    so_far = Progress(stopping=EarlyStopping(3), epoch=4, steps=40)
    metrics.run_began(None, 10, so_far)  # type: ignore[arg-type]
    for phase in (Phase.FORWARD, Phase.FORWARD, Phase.LOSS):
        metrics.stage_began(phase)
    engine.ledger.add(Phase.FORWARD, "down", np.arange(9), np.full(9, 100))
    metrics.step_done()
    metrics.stage_began(Phase.BACKWARD)
    metrics.silent("host-1", (4, 5, 6, 7, 8))
    metrics.retried("host-1", 5)
    found = scraped(port)
    assert found["lpgcn_step", ()] == 41
    assert found["lpgcn_epoch", ()] == 4
    assert found["lpgcn_term", ()] == 2
    assert found["lpgcn_members", ()] == 9
    assert found["lpgcn_members_silent", ()] == 5
    assert found["lpgcn_phase", (("lpgcn_phase", "backward"),)] == 1
    assert found["lpgcn_phase", (("lpgcn_phase", "forward"),)] == 0
    assert found["lpgcn_requests_retried_total", ()] == 5
    assert found["lpgcn_interruptions_total", ()] == 0
    assert found["lpgcn_bytes_total", (("direction", "down"), ("stage", "forward"))] == 900
    assert found["lpgcn_round_seconds_count", (("phase", "forward"),)] == 2
    assert ("lpgcn_round_seconds_count", (("phase", "backward"),)) not in found

    metrics.interrupted(Interrupted(frozenset(), frozenset({4})))
    metrics.back("host-1", (4, 5, 6, 7, 8))
    # Gone back to a checkpoint, the server has a ledger that had counted less.
    engine.server.ledger = Ledger(np.zeros(9, dtype=np.bool_))  # type: ignore[misc]
    engine.ledger.add(Phase.FORWARD, "down", np.arange(9), np.full(9, 10))
    metrics.checkpointed(7)
    metrics.epoch_done(EpochMetrics(epoch=5, loss=0.1, seconds=1.0, valid={"recall@20": 0.25}))
    found = scraped(port)
    assert found["lpgcn_members_silent", ()] == 0
    assert found["lpgcn_interruptions_total", ()] == 1
    assert found["lpgcn_checkpoint", ()] == 7
    assert found["lpgcn_recall20", ()] == 0.25
    assert found["lpgcn_bytes_total", (("direction", "down"), ("stage", "forward"))] == 990
    assert ("lpgcn_round_seconds_count", (("phase", "backward"),)) not in found, "broken off"


def test_a_port_that_is_taken_is_an_error_in_words() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(MetricsError, match=f"port {port}.*--metrics-port"):
            ServingMetrics("127.0.0.1", port).__enter__()


def test_without_prometheus_client_the_option_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def absent(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("prometheus_client"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.delitem(sys.modules, "prometheus_client", raising=False)
    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(MetricsError, match=r"pip install lpgcn\[network\]"):
        ServingMetrics("127.0.0.1", 1)


def test_a_server_at_work_is_scraped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_port: Callable[[], int]
) -> None:
    """In the middle of a real run, from within its second checkpoint, at the address asked for."""
    found: list[Samples] = []
    port = free_port()
    told = ServingMetrics.checkpointed

    def scrape(self: ServingMetrics, number: int) -> None:
        told(self, number)
        found.append(scraped(port, "127.0.0.2"))
        with pytest.raises(urllib.error.URLError):
            scraped(port)

    monkeypatch.setattr(ServingMetrics, "checkpointed", scrape)
    data = tmp_path / "tiny.csv"
    pairs = {(user, (user * 5 + k * k) % 20) for user in range(6) for k in range(9)}
    data.write_text("user_id,item_id\n" + "".join(f"u{u},i{i}\n" for u, i in sorted(pairs)))
    done = CliRunner().invoke(
        main,
        ["federation", "up", "tiny", "--train", str(data), "--hosts", "1", "--dim", "4",
         "--layers", "2", "--epochs", "2", "--eval-every", "1", "--metrics-port", str(port),
         "--metrics-host", "127.0.0.2"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "Nothing was kept" in done.stdout and "lpgcn-" not in done.stdout
    first, second = found
    assert first["lpgcn_step", ()] == 1 and second["lpgcn_step", ()] == 2
    assert second["lpgcn_members", ()] == 6 and second["lpgcn_members_silent", ()] == 0
    assert second["lpgcn_checkpoint", ()] == 2 and second["lpgcn_epoch", ()] == 1
    for direction in ("up", "down"):
        key = "lpgcn_bytes_total", (("direction", direction), ("stage", "forward"))
        assert 0 < first[key] < second[key]
    assert second["lpgcn_round_seconds_count", (("phase", "update"),)] == 2
