"""The folder of whoever decides who takes part: `lpgcn federation init DIR` makes it.

federation.json      what is public about the federation
broker.conf          the configuration of nats-server; its paths start from this folder
tls/                 ca.pem, and the broker's certificate and key
server.credentials   of `lpgcn serve`
members.json         who was let in and who was thrown out
keys/                operator, account, the signing key of each role, the certificate authority

Secret files have the mode 600. A broker on another machine needs broker.conf and tls/ only.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

import msgspec

from lpgcn.crypto.certificates import AUTHORITY_DAYS, Authority
from lpgcn.files import write_atomically
from lpgcn.runtime.hosts.nats.configuration import (
    FORMAT,
    About,
    FederationError,
    Place,
    broker_configuration,
)
from lpgcn.runtime.hosts.nats.credentials import (
    Credentials,
    read_private,
    write_private,
)
from lpgcn.runtime.hosts.nats.enrolment import (
    CLIENT_DAYS,
    DAY,
    EnrolmentDesk,
    Issuer,
)
from lpgcn.runtime.hosts.nats.jwt import (
    Nkey,
    NkeyKind,
    Role,
    check_name,
    operator_token,
)
from lpgcn.runtime.hosts.nats.registry import Book, Member, Registry

SERVER: Final = "server"
"""The name of who runs `lpgcn serve`; no client can have it."""
PORT: Final = 4222
INVITATION_DAYS: Final = 7
_SERVER_DAYS: Final = AUTHORITY_DAYS
_ROLES: Final[tuple[Role, ...]] = get_args(Role)


@dataclass(frozen=True)
class Revocation:
    """Who was thrown out, and what is left to do."""

    name: str
    role: Role
    key: str
    config: Path
    to_do: str


class FederationFolder:
    """Makes a federation, lets members in and throws them out."""

    def __init__(self, path: Path) -> None:
        """Of a folder that `create` made."""
        self.path = path
        self.config = path / "broker.conf"
        self.server_credentials = path / "server.credentials"
        self.registry = Registry(path / "members.json")
        self._keys = path / "keys"
        self._authority = path / "tls" / "ca.pem"
        self.about = self._read_about()

    @classmethod
    def create(
        cls,
        path: Path,
        *,
        name: str = "federation",
        hosts: Sequence[str] = ("127.0.0.1",),
        port: int = PORT,
        listen: str | None = None,
        plain: bool = False,
    ) -> FederationFolder:
        """A new federation. All of the folder or nothing; what is there is left alone.

        The broker listens on all addresses, or on loopback if no host is anywhere else. `plain` is
        without TLS, which is for loopback only.
        """
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise FederationError(
                f"{path} exists and is not an empty folder; choose a folder that does not exist"
            )
        check_name(name)
        place = Place.checked(hosts, port, listen, plain=plain)
        whole = path.resolve()
        whole.parent.mkdir(parents=True, exist_ok=True)
        building = whole.with_name(f".{whole.name}.{secrets.token_hex(4)}.tmp")
        building.mkdir(mode=0o700)
        try:
            _build(building, name, place)
            building.rename(whole)
        except BaseException:
            shutil.rmtree(building)
            raise
        return cls(path)

    def enrol(self, name: str, *, days: int = CLIENT_DAYS) -> Credentials:
        """Credentials of a new client."""
        return self.enrol_all([name], days=days)[0]

    def enrol_all(self, names: Sequence[str], *, days: int = CLIENT_DAYS) -> list[Credentials]:
        """Credentials of new clients, all or none. The name of somebody revoked is free again."""
        if len(set(names)) < len(names):
            raise FederationError("a name is given twice; give every name once")
        return self._let_in([check_name(name) for name in names], "client", days)

    def invite(self, *, uses: int = 1, days: int = INVITATION_DAYS) -> Credentials:
        """An invitation by which so many newcomers can enrol themselves."""
        if uses < 1:
            raise FederationError(f"an invitation is for at least 1 newcomer, found {uses}")
        return self._let_in([f"invitation-{secrets.token_hex(6)}"], "invited", days, uses)[0]

    def revoke(self, name: str) -> Revocation:
        """Throw a member out, or make an invitation void. The broker has to be told.

        The server is thrown out only to be let in again: it gets new credentials at once.
        """
        now = int(time.time())

        def change(book: Book) -> Book:
            if name not in book.members:
                raise FederationError(
                    f"{name!r} is no member of {self.about.name}; members.json has all names"
                )
            member = book.members[name]
            # Somebody revoked before stays so from then on; the broker's file is written anyhow.
            if member.key in book.revoked:
                return book
            # A token that was signed by a clock ahead of this one is void as well.
            return book.without(member.key, max(now, member.issued))

        member = self.registry.change(change, then=self._write_config).members[name]
        if name == SERVER:
            (new,) = self._let_in([SERVER], "server", _SERVER_DAYS)
            self.server_credentials.unlink(missing_ok=True)
            new.save(self.server_credentials)
        return Revocation(
            name,
            member.role,
            member.key,
            self.config,
            f"{name} is out when the broker has read {self.config} again: send its process "
            "SIGHUP (kill -HUP PID); copy the file first if the broker is on another machine",
        )

    def issuer(self, role: Role) -> Issuer:
        return Issuer(role, self.about.account, self._key(role, NkeyKind.ACCOUNT))

    def desk(self, *, days: int = CLIENT_DAYS) -> EnrolmentDesk:
        """Who lets newcomers with invitations in."""
        return EnrolmentDesk(self.issuer("client"), self.registry, days=days)

    def _let_in(
        self, names: Sequence[str], role: Role, days: int, uses: int = 0
    ) -> list[Credentials]:
        if days < 1:
            raise FederationError(f"credentials are valid for at least 1 day, found {days}")
        now, issuer = int(time.time()), self.issuer(role)
        keys = [Nkey.generate(NkeyKind.USER) for _ in names]
        members = [
            Member(
                name=name,
                key=key.public,
                role=role,
                issued=now,
                expires=now + days * DAY,
                uses=uses,
            )
            for name, key in zip(names, keys, strict=True)
        ]

        def change(book: Book) -> Book:
            for name in names:
                known = book.members.get(name)
                if known is not None and (known.role != role or not book.is_revoked(known)):
                    raise FederationError(
                        f"the name {name!r} is taken; choose another one, or `lpgcn federation "
                        "revoke` who has it"
                    )
            return book.with_members(members)

        authority = "" if self.about.place.plain else self._authority.read_text()
        self.registry.change(change)
        return [
            Credentials(
                federation=self.about.name,
                role=role,
                name=member.name,
                token=issuer.token(member),
                seed=key.reveal(),
                urls=self.about.urls,
                authority=authority,
            )
            for member, key in zip(members, keys, strict=True)
        ]

    def _write_config(self, book: Book) -> None:
        operator = self._key("operator", NkeyKind.OPERATOR)
        text = broker_configuration(self.about, operator, book.revoked)
        write_atomically(self.config, text.encode())

    def _key(self, name: str, kind: NkeyKind) -> Nkey:
        return Nkey(
            read_private(self._keys / f"{name}.seed", "a secret key").decode().strip(), kind
        )

    def _read_about(self) -> About:
        path = self.path / "federation.json"
        try:
            about = msgspec.json.decode(path.read_bytes(), type=About)
        except FileNotFoundError:
            raise FederationError(
                f"{self.path} is not the folder of a federation: {path.name} is missing; check the "
                "folder, or make one with `lpgcn federation init`"
            ) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise FederationError(f"{path} is damaged: {error}; restore it from a copy") from error
        if about.format != FORMAT:
            raise FederationError(
                f"{path} has format {about.format}, expected {FORMAT}; use the version of lpgcn "
                "that wrote it"
            )
        return about


def _build(path: Path, name: str, place: Place) -> None:
    """All files of a new federation, in an empty folder."""
    (path / "keys").mkdir(mode=0o700)
    operator, account = Nkey.generate(NkeyKind.OPERATOR), Nkey.generate(NkeyKind.ACCOUNT)
    signers = {role: Nkey.generate(NkeyKind.ACCOUNT) for role in _ROLES}
    for file, key in (("operator", operator), ("account", account), *signers.items()):
        write_private(path / "keys" / f"{file}.seed", key.reveal() + "\n")
    if not place.plain:
        _write_tls(path, name, place.hosts)
    about = About(
        name=name,
        place=place,
        operator=operator_token(name, operator),
        account=account.public,
        system=Nkey.generate(NkeyKind.ACCOUNT).public,
        signers={role: key.public for role, key in signers.items()},
    )
    content = msgspec.json.format(msgspec.json.encode(about), indent=2)
    write_atomically(path / "federation.json", content + b"\n")
    folder = FederationFolder(path)
    folder.registry.create()
    folder._let_in([SERVER], "server", _SERVER_DAYS)[0].save(folder.server_credentials)
    folder._write_config(folder.registry.read())


def _write_tls(path: Path, name: str, hosts: Sequence[str]) -> None:
    authority = Authority.create(f"federation {name}")
    broker = authority.issue(hosts, days=AUTHORITY_DAYS)
    write_private(path / "keys" / "ca.key", authority.reveal_key().decode())
    write_private(path / "tls" / "broker.key", broker.key.decode())
    write_atomically(path / "tls" / "broker.pem", broker.certificate)
    write_atomically(path / "tls" / "ca.pem", authority.certificate)
