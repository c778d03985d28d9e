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


@pytest.mark.parametrize("bad", [None, 0, 1])
def test_a_host_that_ends_badly_is_named_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: int | None
) -> None:
    """Also after the last step: a client may have lost its model. The hosts here do nothing else,
    and there is no run that they take part in."""
    data = tmp_path / "two.csv"
    data.write_text("user_id,item_id\n" + "".join(f"{n % 2},{n}\n" for n in range(20)))
    source = Source(dataset="two", train=str(data))
    network = LocalNetwork(tmp_path / "network", source, source.open(), 2)

    def command(number: int, config: Config) -> list[str]:
        code = 3 if number == bad else 0
        return [sys.executable, "-P", "-c", f"print('host {number}'); raise SystemExit({code})"]

    summary: Any = object()
    monkeypatch.setattr(network, "broker", nullcontext)
    monkeypatch.setattr(network, "host_command", command)
    monkeypatch.setattr(local_network, "serve", lambda *_: summary)
    if bad is None:
        assert network.run(Config(), Serving(clients=2)) is summary
        return
    with pytest.raises(HostError, match=f"host-{bad} ended with exit code 3; see ") as error:
        network.run(Config(), Serving(clients=2))
    log = Path(str(error.value).partition("; see ")[2])
    assert log.read_text() == f"host {bad}\n"
