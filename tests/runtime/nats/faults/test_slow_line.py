"""A line of 1 Mbit/s, the slowest that is reckoned with."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from lpgcn.runtime.hosts.nats import frames as f
from lpgcn.runtime.hosts.nats.authority import FederationFolder
from lpgcn.runtime.hosts.nats.broker import Broker
from lpgcn.runtime.hosts.nats.calls import SLOWEST_RATE
from lpgcn.runtime.hosts.nats.carrier import Carrier
from lpgcn.runtime.hosts.nats.credentials import Credentials
from lpgcn.runtime.hosts.nats.switchboard import Roster, Switchboard

SECONDS = 30.0


@pytest.mark.slow
def test_what_takes_longer_than_pings_and_writes_may_arrives_at_once(
    tmp_path: Path, free_port: Callable[[], int], proxies: ModuleType
) -> None:
    folder = FederationFolder.create(tmp_path / "federation", port=free_port())
    alice, body = folder.enrol("alice"), bytes(11_000_000)
    with Broker(folder.config, log=tmp_path / "broker.log") as broker:
        proxy = proxies.Proxy(broker.port, rate=SLOWEST_RATE)
        options = Credentials.load(folder.server_credentials).connect_options()
        carrier = Carrier(
            alice.at(proxy.url).connect_options(),
            "alice",
            [f.Offer(0)],
            lambda _: {0: lambda body: b"%d" % len(body)},
            lambda _: (),
        )
        running = threading.Thread(target=carrier.run, daemon=True)
        running.start()
        try:
            with Switchboard(options, lambda _: b"", Roster(tmp_path / "roster.json")) as board:
                board.wait_for(1, timeout=SECONDS)
                assert dict(board.call([(0, body)])) == {0: b"%d" % len(body)}
            assert proxy.connections == 1
        finally:
            carrier.stop()
            running.join(SECONDS)
            proxy.close()
