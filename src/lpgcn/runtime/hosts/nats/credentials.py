"""One file that is enough to take part: who somebody is, the key that proves it, and where to go.

Whoever reads the file can act in its owner's name, so that it is refused if others may read it.
"""

from __future__ import annotations

import base64
import ssl
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import msgspec

from lpgcn.files import write_atomically
from lpgcn.runtime.hosts.nats.configuration import is_loopback
from lpgcn.runtime.hosts.nats.jwt import (
    Claims,
    CredentialsError,
    Nkey,
    NkeyKind,
    Role,
    check_name,
    read_token,
)

FORMAT: Final = 1
_PRIVATE: Final = 0o600
_OTHERS: Final = 0o077


class Credentials(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `lpgcn join --credentials` reads; an invitation is one with the role `invited`."""

    format: int = FORMAT
    federation: str
    role: Role
    name: str
    token: str
    """The user's token, signed by the federation."""
    seed: str
    """The user's key; secret."""
    urls: tuple[str, ...]
    """The broker's: tls://host:port, or nats://host:port where there is no TLS."""
    authority: str = ""
    """The certificate, PEM, of who signed the broker's; empty where there is no TLS."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Of a whole file, expired or not; one that others may read is refused."""
        content = read_private(path, "credentials")
        try:
            found = msgspec.json.decode(content, type=cls)
            found.check()
        except (msgspec.DecodeError, UnicodeDecodeError, CredentialsError) as error:
            raise CredentialsError(
                f"{path} is not a whole credentials file: {error}; copy it again, or ask whoever "
                "runs the federation for a new one"
            ) from None
        return found

    @classmethod
    def load(cls, path: Path) -> Self:
        """Of a file, to be used now."""
        found = cls.read(path)
        if found.expired():
            raise CredentialsError(
                f"{path} expired on {found.expires:%Y-%m-%d %H:%M} UTC; ask whoever runs the "
                "federation for a new one"
            )
        return found

    def save(self, path: Path) -> None:
        """Write a file for its owner's eyes; nothing is overwritten."""
        refuse_to_overwrite(path)
        content = msgspec.json.format(msgspec.json.encode(self), indent=2)
        write_atomically(path, content + b"\n", mode=_PRIVATE)

    def check(self) -> None:
        """Refuse parts that do not belong together. The signature is checked by the broker."""
        if self.format != FORMAT:
            raise CredentialsError(f"it has format {self.format}, expected {FORMAT}")
        check_name(self.name)
        check_name(self.federation)
        claims, key = self._claims, Nkey(self.seed, NkeyKind.USER)
        if claims.sub != key.public:
            raise CredentialsError("its token is about another key than its seed")
        if claims.name != self.name:
            raise CredentialsError(f"its token is for {claims.name!r}, its name is {self.name!r}")
        if not self.urls:
            raise CredentialsError("it has no broker's address")
        for url in self.urls:
            self._check_url(url)

    def at(self, url: str) -> Self:
        """For another address of the broker, if these credentials are good for it."""
        moved = msgspec.structs.replace(self, urls=(url,))
        try:
            moved._check_url(url)
        except CredentialsError as error:
            raise CredentialsError(
                f"the credentials of {self.name!r} are not for the broker {url!r}: {error}"
            ) from None
        return moved

    def _check_url(self, url: str) -> None:
        scheme, host = _address(url)
        if (scheme == "tls") != bool(self.authority):
            raise CredentialsError(
                f"it is {scheme}://, expected tls:// with an authority's certificate, and nats:// "
                "without one"
            )
        if scheme == "nats" and not is_loopback(host):
            raise CredentialsError(
                f"without TLS everybody on the way to {host} reads and changes what is sent, "
                "expected a loopback address (127.0.0.1, ::1, localhost); ask for credentials of a "
                "federation that was made without --plain"
            )

    @property
    def _claims(self) -> Claims:
        return read_token(self.token)

    @property
    def public_key(self) -> str:
        """Under which the broker and the register of members know this user."""
        return self._claims.sub

    @property
    def account(self) -> str:
        """The public key of the federation's account."""
        return str(self._claims.nats.get("issuer_account", ""))

    @property
    def expires(self) -> datetime:
        return datetime.fromtimestamp(self._claims.exp, UTC)

    def expired(self) -> bool:
        return 0 < self._claims.exp <= time.time()

    def connect_options(self) -> dict[str, Any]:
        """For `nats.connect(**options)`: addresses, proof of who this is, and TLS.

        With TLS the handshake comes before the first word: else whoever sits between could leave
        out the broker's wish for TLS and be told everything in plain words. The broker's
        certificate must be of this federation's authority and for the host that was asked for.
        """
        key = Nkey(self.seed, NkeyKind.USER)
        options: dict[str, Any] = {
            "servers": list(self.urls),
            "dont_randomize": True,
            "name": f"{self.role} {self.name}",
            "user_jwt_cb": self.token.encode,
            "signature_cb": lambda nonce: base64.b64encode(key.sign(nonce.encode())),
        }
        if self.authority:
            options |= {"tls": self.tls_context(), "tls_handshake_first": True}
        return options

    def tls_context(self) -> ssl.SSLContext:
        """Trusts this federation's authority and nobody else."""
        try:
            context = ssl.create_default_context(cadata=self.authority)
        except ssl.SSLError:
            raise CredentialsError(
                f"the credentials of {self.name!r} have a certificate that cannot be read; ask "
                "whoever runs the federation for new ones"
            ) from None
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context

    def __repr__(self) -> str:
        return (
            f"Credentials(federation={self.federation!r}, role={self.role!r}, name={self.name!r}, "
            f"urls={self.urls!r}, seed hidden)"
        )

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("federation", self.federation), ("role", self.role), ("name", self.name)]


def _address(url: str) -> tuple[str, str]:
    """Scheme and host."""
    try:
        parts = urlsplit(url)
        # Looking at the port finds out whether it is one.
        found = parts.scheme, parts.hostname or "", parts.port
    except ValueError:
        found = "", "", None
    scheme, host, _ = found
    if scheme not in ("tls", "nats") or not host:
        raise CredentialsError(f"{url!r} is no address tls://host:port or nats://host:port")
    return scheme, host


def read_private(path: Path, what: str) -> bytes:
    """The content of a file that only its owner may read."""
    try:
        with path.open("rb") as file:
            mode = path.stat().st_mode
            if mode & _OTHERS:
                raise CredentialsError(
                    f"{path} may be read or changed by others (mode {mode & 0o777:o}), but who has "
                    f"it can act in its owner's name; run `chmod 600 {path}`, and ask for new "
                    f"{what} if somebody may have read it"
                )
            return file.read()
    except FileNotFoundError:
        raise CredentialsError(
            f"{path} does not exist, expected a file with {what}; check the path"
        ) from None
    except IsADirectoryError:
        raise CredentialsError(f"{path} is a folder, expected a file with {what}") from None


def write_private(path: Path, content: str) -> None:
    write_atomically(path, content.encode(), mode=_PRIVATE)


def refuse_to_overwrite(path: Path) -> None:
    if path.exists():
        raise CredentialsError(
            f"{path} exists and is not overwritten; move it away, or choose another place"
        )
