"""What is public about a federation, and the configuration of its broker, nats-server."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from lpgcn.crypto.certificates import check_host
from lpgcn.errors import LpgcnError
from lpgcn.runtime.hosts.nats.jwt import Nkey, Role, account_token

FORMAT: Final = 1

_BROKER: Final = """\
# The broker of the federation {name}, written by `lpgcn federation`; it is written again when
# somebody is revoked. Start it in this folder: nats-server -c broker.conf
server_name: "{name}"
host: "{listen}"
port: {port}
max_payload: 4MB
# Whoever has more waiting is dropped; a message may have 1 GB, and is sent to slow lines, too.
max_pending: 1280MB
# One write has up to 64 MB, for which a line of 1 Mbit/s takes nine minutes. Whoever answers no
# ping is sent nothing more after a minute, but has what was waiting for it kept for as long.
write_deadline: "10m"
ping_interval: "20s"
authorization {{ timeout: 15 }}
{tls}
operator: {operator}
system_account: {system}
resolver: MEMORY
resolver_preload: {{
  {system}: {system_token}
  {account}: {account_token}
}}
"""
_TLS: Final = """
tls {
  cert_file: "tls/broker.pem"
  key_file: "tls/broker.key"
  min_version: "1.3"
  # Without this the first words are plain, and whoever sits between can talk both out of TLS.
  handshake_first: true
  timeout: 10
  connection_rate_limit: 500
}
"""


class FederationError(LpgcnError):
    """A federation's folder that is in the way, missing or damaged, or a wish it cannot fulfil."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the broker is."""

    hosts: tuple[str, ...]
    """Where it is reached: what its certificate is for."""
    listen: str
    port: int
    plain: bool
    """Without TLS."""

    @classmethod
    def checked(cls, hosts: Sequence[str], port: int, listen: str | None, *, plain: bool) -> Place:
        """It listens on all addresses, or on loopback if no host is anywhere else."""
        if not hosts:
            raise FederationError("a broker needs a host name or an IP address, found none")
        if not 1 <= port <= 65535:
            raise FederationError(f"a port is a number from 1 to 65535, found {port}")
        local = all(is_loopback(check_host(host)) for host in hosts)
        if listen is None:
            at_home = "::1" if set(hosts) == {"::1"} else "127.0.0.1"
            listen = at_home if local else "0.0.0.0"
        if plain and not (local and is_loopback(check_host(listen))):
            raise FederationError(
                "without TLS everybody on the way reads and changes what is sent, so that it is "
                "for loopback addresses (127.0.0.1, ::1, localhost) only, found "
                f"{', '.join(hosts)}, listening on {listen}; leave out --plain"
            )
        return cls(hosts=tuple(hosts), port=port, listen=check_host(listen), plain=plain)


class About(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`federation.json`; all of it is public."""

    format: int = FORMAT
    name: str
    place: Place
    operator: str
    """The operator's token, signed once: a running broker does not take another one."""
    account: str
    """Public key of the account."""
    system: str
    """Public key of the broker's own account; nobody has its seed, so that nobody can enter."""
    signers: dict[Role, str]
    """Public key that signs the tokens of each role."""

    @property
    def urls(self) -> tuple[str, ...]:
        scheme = "nats" if self.place.plain else "tls"
        return tuple(
            f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.place.port}"
            for host in self.place.hosts
        )


def broker_configuration(about: About, operator: Nkey, revoked: Mapping[str, int]) -> str:
    """The text of `broker.conf`: nothing in it is secret."""
    system = account_token("system", about.system, operator, signers={}, revoked={})
    account = account_token(
        about.name, about.account, operator, signers=about.signers, revoked=revoked
    )
    return _BROKER.format(
        name=about.name,
        listen=about.place.listen,
        port=about.place.port,
        tls="" if about.place.plain else _TLS,
        operator=about.operator,
        system=about.system,
        system_token=system,
        account=about.account,
        account_token=account,
    )


def is_loopback(host: str) -> bool:
    """Whether what is sent there leaves no machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
