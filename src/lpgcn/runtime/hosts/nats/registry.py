"""Who was let in, by which invitation, and who was thrown out: one file of public keys.

Several processes may change it (the command line while a server runs); each change holds a lock,
and is on the disk before anybody acts upon it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from lpgcn.files import write_atomically
from lpgcn.runtime.hosts.nats.jwt import CredentialsError, Role

_FORMAT: Final = 1
_PRIVATE: Final = 0o600


class Member(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A name and the key that it was given to. Times are seconds since 1970."""

    name: str
    key: str
    role: Role
    issued: int
    expires: int
    invitation: str = ""
    """The invitation by which it came, if it came by one."""
    uses: int = 0
    """Of an invitation: how many may come by it."""
    used: tuple[str, ...] = ()
    """Of an invitation: the keys of who came."""


class Book(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file. Invitations are members with the role `invited`."""

    format: int = _FORMAT
    members: dict[str, Member] = {}
    revoked: dict[str, int] = {}
    """For a public key the second up to which its tokens are void."""

    def with_members(self, members: Sequence[Member]) -> Book:
        """New ones, and those that replace what they have the name of."""
        added = {member.name: member for member in members}
        return msgspec.structs.replace(self, members=self.members | added)

    def without(self, key: str, now: int) -> Book:
        return msgspec.structs.replace(self, revoked=self.revoked | {key: now})

    def owner_of(self, key: str) -> str:
        """The name that a key was given, or nothing."""
        return next((one.name for one in self.members.values() if one.key == key), "")

    def is_revoked(self, member: Member) -> bool:
        return member.key in self.revoked


class Registry:
    """Reads and changes the file `members.json`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self) -> None:
        self._write(Book())

    def read(self) -> Book:
        try:
            book = msgspec.json.decode(self.path.read_bytes(), type=Book)
        except FileNotFoundError:
            raise CredentialsError(
                f"{self.path} is missing; restore it from a copy: without it nobody knows who was "
                "let in and who was thrown out"
            ) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CredentialsError(
                f"{self.path} is damaged: {error}; restore it from a copy: without it nobody knows "
                "who was let in"
            ) from error
        if book.format != _FORMAT:
            raise CredentialsError(
                f"{self.path} has format {book.format}, expected {_FORMAT}; use the version of "
                "lpgcn that wrote it"
            )
        return book

    def change(
        self, change: Callable[[Book], Book], *, then: Callable[[Book], None] | None = None
    ) -> Book:
        """The book after a change, alone with the file, and durable. An error changes nothing.

        `then` writes what follows from the book before anybody else can change it again.
        """
        place = self.path.with_name(f".{self.path.name}.lock")
        lock = os.open(place, os.O_RDWR | os.O_CREAT, _PRIVATE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = self.read()
            after = change(before)
            if after is not before:
                self._write(after)
            if then is not None:
                then(after)
            return after
        finally:
            os.close(lock)

    def _write(self, book: Book) -> None:
        content = msgspec.json.format(msgspec.json.encode(book), indent=1)
        write_atomically(self.path, content + b"\n", mode=_PRIVATE)
