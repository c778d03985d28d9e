"""What a carrier of clients shows, and how it connects."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from lpgcn.cli.terminal import say
from lpgcn.files import StorageError
from lpgcn.runtime.hosts.nats.carrier import CarrierEvents


class CarryingDisplay(CarrierEvents):
    """Lines on standard error."""

    def waiting(self, reason: str, seconds: float) -> None:
        say(f"the broker cannot be reached ({reason}); trying again")

    def welcomed(self, indices: Mapping[int, int]) -> None:
        say(f"in the federation with {len(indices):,} client{'s' if len(indices) > 1 else ''}")

    def disconnected(self) -> None:
        say("the connection is lost; reconnecting")

    def reconnected(self) -> None:
        say("connected again")

    def storage_failed(self, error: StorageError) -> None:
        say(f"{error}; the server asks again", style="yellow", label="warning")


def connect_options(
    path: Path, broker: str | None, name: str | None, state: Path
) -> tuple[str, dict[str, Any]]:
    """The carrier's name and how it reaches the broker. An invitation is used once: what came of it
    is kept in the client's own folder."""
    from lpgcn.runtime.hosts.nats.credentials import Credentials
    from lpgcn.runtime.hosts.nats.enrolment import enrol

    credentials, own = Credentials.load(path), state / "own.credentials"
    if credentials.role == "invited":
        if own.exists():
            credentials = Credentials.load(own)
        elif name is None:
            raise click.UsageError(f"{path} is an invitation: say with --name who you are.")
        else:
            credentials = asyncio.run(enrol(credentials, name, urls=(broker,) if broker else ()))
            credentials.save(own)
    if broker is not None:
        credentials = msgspec.structs.replace(credentials, urls=(broker,))
    return credentials.name, credentials.connect_options()
