"""nats-py's client, less trusting: what members can send and brokers can say does it no harm."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Final

from nats import errors
from nats.aio.client import Client

from lpgcn.errors import LpgcnError
from lpgcn.runtime.hosts.nats.frames import shown

CONNECT_SECONDS: Final = 5
FLUSH_SECONDS: Final = 2
_CLOSE_SECONDS: Final = 2


class NetworkError(LpgcnError):
    """Something between this process and the broker."""


class UnauthorizedError(NetworkError):
    """The broker does not accept the credentials."""


class UntrustedBrokerError(NetworkError):
    """No TLS, or a certificate of somebody else."""


class ForbiddenSubjectError(NetworkError):
    """The credentials do not allow to send to, or to hear, a subject."""


class DistrustfulClient(Client):
    """nats-py, less trusting."""

    ending: asyncio.Task[None] | None = None

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        """nats-py hears nothing more after a subject that is no UTF-8, or after some headers; any
        member can send those. Here subjects are ASCII, and nobody needs a reply or headers.

        A pong queues behind what a slow line still has to carry, so that a message, too, is a sign
        of life.
        """
        self._pings_outstanding = 0
        if subject.isascii():
            await super()._process_msg(sid, subject, b"", data, b"")

    def _connect_command(self) -> bytes:
        """nats-py goes on without TLS where the broker says that it has none: so could anybody."""
        writer = getattr(self._transport, "_io_writer", None)
        encrypted = writer is not None and writer.get_extra_info("ssl_object") is not None
        if "tls" in self.options and not encrypted:
            raise errors.SecureConnRequiredError
        return super()._connect_command()


def refusal(error: Exception) -> NetworkError | None:
    """What another attempt would not change."""
    found = shown(str(error))
    if isinstance(error, (ssl.SSLError, errors.SecureConnRequiredError)):
        return UntrustedBrokerError(
            f"the broker cannot be trusted: {found}; expected TLS with a certificate of the "
            "federation's own authority"
        )
    if isinstance(error, errors.AuthorizationError) or "authorization" in found.lower():
        return UnauthorizedError(
            f"the broker refused the credentials: {found}; ask the federation's server for new ones"
        )
    return None


async def close(client: Client) -> None:
    """End a connection, or what was left of an attempt.

    After a TLS handshake that failed, nats-py would wait for ever to hear of the end of a
    connection that is closed already; and where its own tasks ended first, it passes on that they
    were cancelled.
    """
    with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await client.close()


async def flush(client: Client) -> None:
    """Twice: nats-py writes its ping at once, possibly ahead of what is still in its buffer; the
    second one comes after that."""
    for _ in range(2):
        await client.flush(timeout=FLUSH_SECONDS)
