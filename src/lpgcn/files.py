"""Files that are whole or not there, in places where nothing of anybody's is lost."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from lpgcn.errors import LpgcnError

STALE_SECONDS: Final = 3600.0
"""Nobody has been writing one file for so long without getting anywhere."""
_HALF_WRITTEN: Final = re.compile(r"\..+\.([0-9]+)\.tmp")
"""What is being written is named so, by the process that does."""


class StorageError(LpgcnError):
    """A disk that is full, a place that cannot be written, or one that is taken."""


def write_atomically(
    path: Path, content: bytes | Iterable[bytes | memoryview], *, mode: int = 0o666
) -> None:
    """All of the file or nothing: a temporary file in the same folder, then a rename.

    The content may come in pieces. What fails, as on a full disk, leaves nothing behind. `mode`
    is subject to the umask.
    """
    temporary = _beside(path)
    _check_regular(path)
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if mode == 0o600 else 0o777)
        _write(temporary, content, mode)
        _rename(temporary, path)
        sync_folder(path.parent)


@contextmanager
def growing(path: Path) -> Iterator[BinaryIO]:
    """A file that is written bit by bit, and takes its name when it is complete."""
    temporary = _beside(path)
    _check_regular(path)
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_folder(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def held(folder: Path, *, mode: int = 0o777) -> Iterator[None]:
    """A folder that no other process holds, until this ends in whatever way; made with this mode if
    it is not there.

    Two processes that went on from one checkpoint would seal different messages under the same
    nonces.
    """
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=mode)
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        _hold(descriptor, folder)
        remove_half_written(folder)
        yield
    finally:
        os.close(descriptor)


def remove_half_written(folder: Path, *, by_others: float = STALE_SECONDS) -> None:
    """Remove what kills have left, once it is so many seconds old. With the number of this process
    it is stale later: another thread may be writing it. In a container all have the same number."""
    for left in folder.rglob(".*.tmp"):
        if (named := _HALF_WRITTEN.fullmatch(left.name)) is None:
            continue
        least = STALE_SECONDS if int(named[1]) == os.getpid() else by_others
        with suppress(OSError):
            if left.stat().st_mtime <= time.time() - least:
                left.unlink()


def _hold(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StorageError(
            f"{folder} is used by another process; wait for it, stop it, or choose another folder"
        ) from None


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """What the system refuses is an error that says what, where and why."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}; make room, or choose another place"
        ) from error


def check_output(path: Path, *, overwrite: bool) -> None:
    """Refuse now, before the work, a place where its result could not be written after it."""
    _check_regular(path)
    if path.exists() and not overwrite:
        raise StorageError(
            f"{path} is already there; replace it with --overwrite, or choose another name"
        )
    check_folder(path.parent)


def check_folder(path: Path) -> None:
    """Refuse what is no folder, or cannot become one, or cannot be written."""
    there = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not there.is_dir():
        within = "" if there == path else f", so that {path} cannot be within it"
        raise StorageError(f"{there} is a file and not a folder{within}; choose another place")
    if not os.access(there, os.W_OK | os.X_OK):
        raise StorageError(f"{there} cannot be written by this user; choose another place")


def _check_regular(path: Path) -> None:
    """A device, a pipe or a folder would be replaced by a file, or swallow it."""
    if path.exists() and not path.is_file():
        raise StorageError(
            f"{path} is not a regular file, so it is left alone; choose another name"
        )


def _beside(path: Path) -> Path:
    """A name that nobody could have foreseen, and that says whose it is."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.{os.getpid()}.tmp")


def _write(path: Path, content: bytes | Iterable[bytes | memoryview], mode: int) -> None:
    # What somebody else has put there, with rights or a link of its own, is never taken over.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with open(descriptor, "wb") as file:
            file.writelines((content,) if isinstance(content, bytes) else content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _rename(temporary: Path, path: Path) -> None:
    try:
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """The new name is durable, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
