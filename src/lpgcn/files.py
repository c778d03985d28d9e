"""Files that are whole or not there."""

from __future__ import annotations

import os
from pathlib import Path

from lpgcn.errors import LpgcnError


class StorageError(LpgcnError):
    """A disk that is full, or a place that cannot be written."""


def write_atomically(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """All of the file or nothing: a temporary file in the same folder, then a rename.

    What fails, as on a full disk, leaves nothing behind. `mode` is subject to the umask.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if mode == 0o600 else 0o777)
        _write(temporary, content, mode)
        _rename(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}; make room, or choose another place"
        ) from error


def _write(path: Path, content: bytes, mode: int) -> None:
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(content)
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


def _sync_folder(folder: Path) -> None:
    """The new name is durable, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
