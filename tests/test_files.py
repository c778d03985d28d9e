"""Files are whole or not there; what is in the way stays."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lpgcn import files
from lpgcn.files import StorageError, check_folder, check_output, growing, held, write_atomically


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """No file grows beyond so many bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    write_atomically(path, b"old")
    with disk_of(100), pytest.raises(StorageError, match=r"cannot write .*new/file: .*make room"):
        write_atomically(path, bytes(1000))
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == ["file"]


def test_what_is_no_regular_file_is_left_alone(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for place in (pipe, tmp_path):
        for write in (
            lambda path: write_atomically(path, b"x"),
            lambda path: check_output(path, overwrite=True),
        ):
            with pytest.raises(StorageError, match="is not a regular file"):
                write(place)
    assert pipe.is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]


def test_an_output_that_is_there_is_replaced_only_if_asked(tmp_path: Path) -> None:
    path = tmp_path / "result"
    check_output(path, overwrite=False)
    path.write_text("mine")
    with pytest.raises(StorageError, match="result is already there; replace it with --overwrite"):
        check_output(path, overwrite=False)
    check_output(path, overwrite=True)
    assert path.read_text() == "mine"


def test_a_folder_that_cannot_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check_folder(tmp_path / "a" / "b")
    assert os.listdir(tmp_path) == ["file"]
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(StorageError, match="file is a file and not a folder"):
            check_folder(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(StorageError, match="cannot be written by this user"):
        check_folder(tmp_path / "locked" / "run")


def test_a_file_that_grows_has_its_name_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    with growing(path) as file:
        file.write(b"some")
        assert not path.exists()
        file.write(b"thing")
    assert path.read_bytes() == b"something"
    with pytest.raises(TypeError), growing(path) as file:
        file.write("no bytes")  # type: ignore[arg-type]
    with pytest.raises(StorageError, match="cannot write"), disk_of(100), growing(path) as file:
        file.write(bytes(10_000))
    assert path.read_bytes() == b"something"
    assert os.listdir(path.parent) == ["file"]


def test_what_others_put_in_the_way_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with rights of its own, or a link to somewhere else, under the temporary name."""
    monkeypatch.setattr(files, "_beside", lambda path: path.with_name(".foreseen"))
    path, elsewhere = tmp_path / "secret", tmp_path / "elsewhere"
    foreseen = tmp_path / ".foreseen"
    for plant in (lambda: foreseen.write_bytes(b"old"), lambda: foreseen.symlink_to(elsewhere)):
        plant()
        with pytest.raises(StorageError, match=r"cannot write .*secret: File exists"):
            write_atomically(path, b"new", mode=0o600)
        assert not path.exists() and not elsewhere.exists()
        foreseen.unlink()
    write_atomically(path, b"new", mode=0o600)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_folder_that_is_made_to_be_held_has_its_mode(tmp_path: Path) -> None:
    with held(tmp_path / "mine", mode=0o700):
        assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o700


def test_a_folder_is_held_once_and_let_go_with_whoever_held_it(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "state"
    with held(folder):
        with (
            pytest.raises(StorageError, match=r"state is used by another process.*stop it"),
            held(folder),
        ):
            pass
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDING, str(tmp_path / "other")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(StorageError, match="used by another process"), held(tmp_path / "other"):
            pass
        holder.kill()
        holder.communicate()
        with held(tmp_path / "other"):
            pass
    with held(folder):
        assert os.listdir(folder) == []


HOLDING = """
import sys
from pathlib import Path
from lpgcn.files import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""

KILLED = """
import os, signal, sys
from pathlib import Path
from lpgcn.files import growing
with growing(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_kill_left_half_written_is_removed_in_time(tmp_path: Path) -> None:
    """What is young may be somebody's who is writing, and other names are other people's."""
    old, young, others = tmp_path / "a" / "b" / "old", tmp_path / "young", tmp_path / ".mine.tmp"
    others.write_text("")
    for path in (old, young):
        subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    (left,) = old.parent.iterdir()
    for path in (left, others):
        os.utime(path, (0, 0))
    with held(tmp_path):
        assert not left.exists() and others.exists()
        assert len(list(tmp_path.glob(".young.*.tmp"))) == 1
