"""Checkpoints: the last two, whole or not there, and the same in memory and in a folder."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.checkpoints import KEPT, CheckpointError, Checkpoints, InFolder, InMemory
from lpgcn.files import StorageError

contents = st.binary(max_size=40)
numbers = st.integers(1, 9)
Histories = list[tuple[int, bytes]]


def both(folder: str) -> Iterator[Checkpoints]:
    yield InMemory()
    yield InFolder(Path(folder) / "deep" / "client")


class Expected:
    """What is kept, said in another way: a rising list whose end is rewritten."""

    def __init__(self) -> None:
        self.written: Histories = []

    def write(self, number: int, content: bytes) -> None:
        before = [one for one in self.written if one[0] < number]
        near = [one for one in before if one[0] > number - KEPT]
        self.written = [*near, (number, content)]


@given(st.lists(st.tuples(numbers, contents), max_size=12))
def test_the_last_two_are_kept_and_later_ones_forgotten(history: Histories) -> None:
    with TemporaryDirectory() as folder:
        for checkpoints in both(folder):
            expected = Expected()
            assert checkpoints.numbers() == []
            for number, content in history:
                checkpoints.write(number, content)
                expected.write(number, content)
                there = dict(expected.written)
                assert checkpoints.numbers() == list(there)
                assert {one: checkpoints.read(one) for one in there} == there
                assert len(there) <= KEPT
                for other in set(range(12)) - there.keys():
                    with pytest.raises(CheckpointError, match=f"no checkpoint {other} in "):
                        checkpoints.read(other)


@given(contents, st.lists(contents, min_size=1, max_size=5))
def test_in_a_rising_history_the_one_before_is_there(first: bytes, rest: list[bytes]) -> None:
    """Who is killed while the next one is being written has the one before it."""
    with TemporaryDirectory() as folder:
        for checkpoints in both(folder):
            checkpoints.write(1, first)
            before = first
            for number, content in enumerate(rest, 2):
                checkpoints.write(number, content)
                assert checkpoints.numbers() == [number - 1, number]
                assert (checkpoints.read(number - 1), checkpoints.read(number)) == (before, content)
                before = content


@given(st.lists(st.integers(0, 2**20), max_size=5))
def test_a_stretch_is_the_last_that_began(stretches: list[int]) -> None:
    with TemporaryDirectory() as folder:
        for checkpoints in both(folder):
            assert checkpoints.stretch == -1
            for number in stretches:
                checkpoints.begin_stretch(number)
                assert checkpoints.stretch == number
            assert checkpoints.numbers() == []


@given(st.lists(st.tuples(numbers, contents), min_size=1, max_size=5), st.integers(0, 99))
def test_a_folder_outlives_its_process(history: Histories, stretch: int) -> None:
    with TemporaryDirectory() as folder:
        before = InFolder(Path(folder) / "client")
        before.begin_stretch(stretch)
        for number, content in history:
            before.write(number, content)
        after = InFolder(Path(folder) / "client")
        assert (after.stretch, after.numbers()) == (stretch, before.numbers())
        assert all(after.read(one) == before.read(one) for one in after.numbers())


@given(contents, st.data())
def test_any_bit_that_flips_is_found(content: bytes, data: st.DataObject) -> None:
    """And any byte that is missing, or was added."""
    with TemporaryDirectory() as folder:
        checkpoints = InFolder(Path(folder))
        checkpoints.write(3, content)
        path = Path(folder) / "checkpoint-3"
        whole = path.read_bytes()
        bit = data.draw(st.integers(0, 8 * len(whole) - 1))
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        cut = data.draw(st.integers(0, len(whole) - 1))
        for bad in (bytes(flipped), whole[:cut], whole + b"\0"):
            path.write_bytes(bad)
            with pytest.raises(CheckpointError, match="changed or damaged"):
                checkpoints.read(3)
        path.write_bytes(whole)
        assert checkpoints.read(3) == content


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("usual_umask")
def test_only_its_owner_may_look_into_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "client"
    checkpoints = InFolder(folder)
    checkpoints.begin_stretch(0)
    checkpoints.write(1, b"keys")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = sorted(folder.iterdir())
    assert [path.name for path in files] == ["checkpoint-1", "stretch"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def full_disk(_: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def everything_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "action",
    [
        lambda one: one.write(3, b"three"),
        lambda one: one.write(2, b"two again"),
        lambda one: one.write(1, b"one again"),
        lambda one: one.begin_stretch(8),
    ],
)
def test_what_fails_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: Callable[[InFolder], None]
) -> None:
    checkpoints = InFolder(tmp_path)
    checkpoints.begin_stretch(7)
    checkpoints.write(1, b"one")
    checkpoints.write(2, b"two")
    before = everything_in(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full_disk)
        with pytest.raises(StorageError, match="No space left on device; make room"):
            action(checkpoints)
    assert everything_in(tmp_path) == before
    action(checkpoints)
    assert everything_in(tmp_path) != before


def test_a_file_is_durable_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real_fsync: Callable[[int], None]
) -> None:
    """First the content, then the name: so that a name never stands for half a file."""
    seen = list[list[str]]()

    def watched(descriptor: int) -> None:
        seen.append([path.name for path in tmp_path.iterdir() if path.name[0] != "."])
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    InFolder(tmp_path).write(1, b"one")
    assert seen == [[], ["checkpoint-1"]]


def test_other_files_are_no_checkpoints(tmp_path: Path) -> None:
    for name in ("checkpoint-", "checkpoint-x", "checkpoint-1.bak", "notes", ".checkpoint-4.1.tmp"):
        (tmp_path / name).write_bytes(b"something")
    checkpoints = InFolder(tmp_path)
    checkpoints.write(2, b"two")
    assert checkpoints.numbers() == [2]
    assert len(list(tmp_path.iterdir())) == 6


@pytest.mark.parametrize("damaged", [b"", b"x", b"1 2"])
def test_a_stretch_that_cannot_be_read_is_named(tmp_path: Path, damaged: bytes) -> None:
    (tmp_path / "stretch").write_bytes(damaged)
    with pytest.raises(CheckpointError, match="stretch is damaged"):
        InFolder(tmp_path).stretch  # noqa: B018


def test_a_stretch_of_other_bytes_is_named(tmp_path: Path) -> None:
    (tmp_path / "stretch").write_bytes(b"\xff\xfe")
    with pytest.raises(CheckpointError, match="stretch is damaged"):
        InFolder(tmp_path).stretch  # noqa: B018
