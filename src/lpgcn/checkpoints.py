"""Numbered checkpoints, the last two of them: at a party's own place, whole or not there.

A checkpoint that everybody has written is one that everybody can go back to. Who is killed while
the next one is being written has the one before it; so two are kept, and no more.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from lpgcn.errors import LpgcnError
from lpgcn.files import sync_folder, write_atomically

Saved = TypeVar("Saved", bound=msgspec.Struct)
KEPT: Final = 2
_DIGEST_BYTES: Final = 32
_NAME: Final = "checkpoint-"
_STRETCH: Final = "stretch"


class CheckpointError(LpgcnError):
    """A checkpoint that is not there, or that was changed since it was written."""


class Checkpoints(Protocol):
    """Where one party keeps its own."""

    def write(self, number: int, content: bytes) -> None:
        """Durable when this returns. Numbers after it are forgotten, and those long before it."""
        ...

    def read(self, number: int) -> bytes: ...

    def numbers(self) -> list[int]:
        """Those that can be gone back to, rising."""
        ...

    def begin_stretch(self, number: int) -> None:
        """Durable when this returns: no message of an earlier stretch will be sealed again."""
        ...

    @property
    def stretch(self) -> int:
        """The last one that began, or -1."""
        ...


class InMemory:
    """For parties that end with their process."""

    def __init__(self) -> None:
        self._contents: dict[int, bytes] = {}
        self._stretch = -1

    def write(self, number: int, content: bytes) -> None:
        for other in self.numbers():
            if not number - KEPT < other < number:
                del self._contents[other]
        self._contents[number] = content

    def read(self, number: int) -> bytes:
        if number not in self._contents:
            raise _not_there(number, self.numbers(), "memory")
        return self._contents[number]

    def numbers(self) -> list[int]:
        return sorted(self._contents)

    def begin_stretch(self, number: int) -> None:
        self._stretch = number

    @property
    def stretch(self) -> int:
        return self._stretch


class InFolder:
    """Files that only their owner may read, each with a digest of its content behind it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, number: int, content: bytes) -> None:
        digest = sha256(content).digest()
        write_atomically(self._path(number), content + digest, mode=0o600)
        for other in self.numbers():
            if not number - KEPT < other <= number:
                self._path(other).unlink()

    def read(self, number: int) -> bytes:
        path = self._path(number)
        try:
            found = path.read_bytes()
        except FileNotFoundError as error:
            raise _not_there(number, self.numbers(), str(self._folder)) from error
        content, digest = found[:-_DIGEST_BYTES], found[-_DIGEST_BYTES:]
        if sha256(content).digest() != digest:
            raise CheckpointError(
                f"{path} was changed or damaged since it was written; bring it back from a copy, "
                "or go on from the checkpoint before it"
            )
        return content

    def numbers(self) -> list[int]:
        names = (path.name.removeprefix(_NAME) for path in self._folder.glob(f"{_NAME}*"))
        return sorted(int(name) for name in names if name.isdecimal())

    def forget_after(self, number: int) -> None:
        """Durable when this returns."""
        later = [other for other in self.numbers() if other > number]
        for other in later:
            self._path(other).unlink()
        if later:
            sync_folder(self._folder)

    def begin_stretch(self, number: int) -> None:
        write_atomically(self._folder / _STRETCH, b"%d\n" % number, mode=0o600)

    @property
    def stretch(self) -> int:
        path = self._folder / _STRETCH
        try:
            return int(path.read_text(encoding="ascii"))
        except FileNotFoundError:
            return -1
        except ValueError as error:
            raise CheckpointError(
                f"{path} is damaged; expected one number: write the number of the last stretch "
                "that the server names, or join anew with another folder"
            ) from error

    def _path(self, number: int) -> Path:
        return self._folder / f"{_NAME}{number}"


def unpacked(content: bytes, kind: type[Saved], what: str, *, version: int | None = None) -> Saved:
    """The struct of which a checkpoint consists, in this version of its field `format`."""
    try:
        found = msgspec.msgpack.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise CheckpointError(f"{what} cannot be read: {error}") from error
    if version is not None and (its := getattr(found, "format", None)) != version:
        raise CheckpointError(
            f"{what} has format {its}, expected {version}; use the version of lpgcn that wrote it"
        )
    return found


def _not_there(number: int, present: list[int], where: str) -> CheckpointError:
    there = ", ".join(map(str, present)) or "none"
    return CheckpointError(f"no checkpoint {number} in {where}; there are: {there}")
