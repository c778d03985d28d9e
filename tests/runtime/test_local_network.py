"""A federation on this machine: what is said about hosts that end badly."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from lpgcn.config import Config
from lpgcn.runtime.runs import local_network
from lpgcn.runtime.runs.local_network import HostError, LocalNetwork
from lpgcn.runtime.runs.serving import Serving
from lpgcn.runtime.runs.source import Source


def network_of_two(folder: Path) -> LocalNetwork:
    data = folder / "two.csv"
    data.write_text("user_id,item_id\n" + "".join(f"{n % 2},{n}\n" for n in range(20)))
    source = Source(dataset="two", train=str(data))
    return LocalNetwork(folder / "network", source, source.open(), 2)


@pytest.mark.parametrize("bad", [None, 0, 1])
def test_a_host_that_ends_badly_is_named_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: int | None
) -> None:
    """Also after the last step: a client may have lost its model. The hosts here do nothing else,
    and there is no run that they take part in."""
    network = network_of_two(tmp_path)

    def command(number: int, config: Config) -> list[str]:
        code = 3 if number == bad else 0
        return [sys.executable, "-P", "-c", f"print('host {number}'); raise SystemExit({code})"]

    summary: Any = object()
    monkeypatch.setattr(network, "broker", nullcontext)
    monkeypatch.setattr(network, "host_command", command)
    monkeypatch.setattr(local_network, "serve", lambda *_, **__: summary)
    if bad is None:
        assert network.run(Config(), Serving(clients=2)) is summary
        return
    with pytest.raises(HostError, match=f"host-{bad} ended with exit code 3; see ") as error:
        network.run(Config(), Serving(clients=2))
    log = Path(str(error.value).partition("; see ")[2])
    assert log.read_text() == f"host {bad}\n"


def test_a_host_that_ends_at_the_start_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here broker and server are real, and no host ever says hello."""
    network = network_of_two(tmp_path)
    monkeypatch.setattr(
        network, "host_command", lambda *_: [sys.executable, "-P", "-c", "raise SystemExit(3)"]
    )
    with pytest.raises(HostError, match="host-0 ended with exit code 3; see "):
        network.run(Config(dim=4, layers=1, epochs=1), Serving(clients=2))


def test_a_host_that_does_not_end_is_an_error_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = network_of_two(tmp_path)
    endless = "import signal; signal.pause()"
    monkeypatch.setattr(network, "broker", nullcontext)
    monkeypatch.setattr(network, "host_command", lambda *_: [sys.executable, "-P", "-c", endless])
    monkeypatch.setattr(local_network, "serve", lambda *_, **__: None)
    monkeypatch.setattr(local_network, "_SECONDS_TO_END", 0.1)
    with pytest.raises(HostError, match=r"host-0 still runs 0\.1 s after .*host-0\.log"):
        network.run(Config(), Serving(clients=2))
