"""Virtual items that go together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.model.cooccurrence import STEPS, Cooccurrence, CooccurrenceError, read_cooccurrence
from lpgcn.model.sampling import VirtualItems, bucket_sizes, virtual_items
from lpgcn.ragged import Ragged

PROFILES = Ragged.from_arrays([np.array(one) for one in ([0, 1, 2], [0, 1], [1, 2], [4, 5])])


def test_companions_are_counted_with_the_item_itself_first() -> None:
    found = Cooccurrence.counted(PROFILES, 7)
    rows = [
        dict(zip(found.companions[item].tolist(), found.counts[begin:end].tolist(), strict=True))
        for item, (begin, end) in enumerate(
            zip(found.companions.offsets[:-1], found.companions.offsets[1:], strict=True)
        )
    ]
    assert rows == [
        {0: 2, 1: 2, 2: 1}, {1: 3, 0: 2, 2: 2}, {2: 2, 1: 2, 0: 1}, {3: 1}, {4: 1, 5: 1},
        {5: 1, 4: 1}, {6: 1},
    ]  # fmt: skip
    assert all(found.companions[item][0] == item for item in range(7))
    assert Cooccurrence.counted(PROFILES, 7, most=2).companions[0].tolist() == [0, 1]


def test_the_draws_of_a_walk_are_companions_of_one_start_by_their_counts() -> None:
    found = Cooccurrence.counted(PROFILES, 7)
    users = np.arange(3000)
    points = np.random.default_rng(0).random((3000, STEPS))
    drawn = found.drawn(5, users, points, 0)
    groups = [{0, 1, 2}, {3}, {4, 5}, {6}]
    assert all(any(set(row) <= one for one in groups) for row in drawn.tolist())
    from_first = drawn[[0 in row for row in drawn.tolist()]].reshape(-1)
    counts = np.bincount(from_first, minlength=3)
    # Starts 0, 1 and 2 are alike likely: (2+2+1 parts of 5, 7 and 5).
    expected = np.array([2 / 5 + 2 / 7 + 1 / 5, 2 / 5 + 3 / 7 + 2 / 5, 1 / 5 + 2 / 7 + 2 / 5]) / 3
    assert np.abs(counts / counts.sum() - expected).max() < 0.02
    later = found.drawn(5, users, points, STEPS)
    assert (later[:, 0] != drawn[:, 0]).mean() > 0.5, "another walk begins elsewhere"


@given(st.integers(0, 300), st.integers(1, 200))
def test_draws_do_not_depend_on_how_many_are_drawn_at_once(first: int, count: int) -> None:
    found = Cooccurrence.counted(PROFILES, 7)
    points = np.random.default_rng(1).random((2, 500))
    users = np.array([3, 8])
    whole = found.drawn(9, users, points, 0)
    part = found.drawn(9, users, points[:, first : first + count], first)
    assert np.array_equal(part, whole[:, first : first + count])


def test_a_list_is_read_as_it_was_written_and_anything_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "together.npz"
    Cooccurrence.counted(PROFILES, 7).write(path)
    found = read_cooccurrence(str(path), 7)
    assert np.array_equal(
        found.companions.values, Cooccurrence.counted(PROFILES, 7).companions.values
    )
    with pytest.raises(CooccurrenceError, match="7 items"):
        read_cooccurrence(str(path), 8)
    (tmp_path / "bad.npz").write_bytes(b"nothing")
    for name in ("bad.npz", "missing.npz"):
        with pytest.raises(CooccurrenceError, match="lpgcn data cooccurrence"):
            read_cooccurrence(str(tmp_path / name), 7)


def test_coherent_virtual_items_are_the_same_alone_and_among_others(tmp_path: Path) -> None:
    path = tmp_path / "together.npz"
    Cooccurrence.counted(PROFILES, 7).write(path)
    how = VirtualItems(3, 0, "coherent", cooccurrence=str(path))
    real = Ragged.from_arrays([np.array([0]), np.array([1, 4]), np.array([6])])
    users = np.array([2, 5, 9])
    together = virtual_items(4, users, real, 7, how)
    for row, user in enumerate(users):
        own = Ragged.single(real[row])
        alone = virtual_items(4, np.array([user]), own, 7, how)
        assert np.array_equal(alone.values, together[row])
        assert not np.intersect1d(alone.values, real[row]).size
        assert len(np.unique(alone.values)) == 3


def test_lists_that_walks_cannot_fill_are_the_same_alone_and_among_others(tmp_path: Path) -> None:
    """After so many draws without enough new items the rest is drawn uniformly: by the number of
    the draw, whatever the others of a block still need."""
    path, n_items = tmp_path / "together.npz", 60
    pairs = Ragged.from_arrays([np.array([2 * pair, 2 * pair + 1]) for pair in range(3)])
    Cooccurrence.counted(pairs, n_items).write(path)
    how = VirtualItems(0, 1.0, "coherent", cooccurrence=str(path))
    real = Ragged.from_arrays([np.arange(start, start + size) for start, size in ((0, 4), (9, 25))])
    users = np.array([1, 2])
    together = virtual_items(4, users, real, n_items, how)
    for row, user in enumerate(users):
        alone = virtual_items(4, np.array([user]), Ragged.single(real[row]), n_items, how)
        assert np.array_equal(alone.values, together[row])


@given(st.integers(2, 5000), st.lists(st.integers(1, 4000), min_size=1, max_size=20))
def test_bucketed_lists_have_one_of_a_few_sizes_and_are_never_shorter(
    n_items: int, lengths: list[int]
) -> None:
    real = np.minimum(np.array(lengths), n_items)
    for count, ratio in ((0, 0.0), (5, 0.0), (0, 1.0)):
        exact = VirtualItems(count, ratio).alpha(real, n_items)
        bucketed = VirtualItems(count, ratio, list_sizes="bucketed").alpha(real, n_items)
        assert (bucketed >= exact).all()
        listed = (real + bucketed)[real < n_items]
        assert set(listed.tolist()) <= {*bucket_sizes(n_items).tolist()}


def test_sizes_of_lists_grow_by_half_and_the_tail_is_merged() -> None:
    assert bucket_sizes(400).tolist() == [8, 12, 18, 27, 41, 62, 93, 140, 399]
    assert bucket_sizes(5).tolist() == [4]
