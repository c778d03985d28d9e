"""The seeded split and the fingerprint."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.data import DataError, Ids, Interactions, Split, ratio_split
from lpgcn.data.splitting import leave_one_out, temporal_split
from lpgcn.random import Purpose, words

PAIRS = st.sets(st.tuples(st.integers(0, 5), st.integers(0, 30)), min_size=1, max_size=120)
RATIOS = st.tuples(*[st.integers(0, 10)] * 3).filter(lambda shares: shares[0] > 0)


def interactions_of(pairs: set[tuple[int, int]], n_users: int = 6) -> Interactions:
    users, items = zip(*pairs, strict=True) if pairs else ((), ())
    return Interactions.from_pairs(users, items, n_users, 31)


@given(PAIRS, RATIOS, st.integers(0, 2**63))
def test_parts_are_a_partition_with_the_right_sizes(
    pairs: set[tuple[int, int]], shares: tuple[int, int, int], seed: int
) -> None:
    whole = interactions_of(pairs)
    ratio = (shares[0] / sum(shares), shares[1] / sum(shares), shares[2] / sum(shares))
    train, valid, test = ratio_split(whole, ratio, seed)
    everything = np.concatenate((train.keys, valid.keys, test.keys))
    assert np.array_equal(np.sort(everything), whole.keys)
    for user, degree in enumerate(whole.user_degrees.tolist()):
        n_test = min(math.floor(ratio[2] * degree + 0.5), max(degree - 1, 0))
        n_valid = min(math.floor(ratio[1] * degree + 0.5), max(degree - 1, 0) - n_test)
        assert test.user_degrees[user] == n_test
        assert valid.user_degrees[user] == n_valid
        assert train.user_degrees[user] == degree - n_valid - n_test
        assert train.user_degrees[user] > 0 or degree == 0


@given(PAIRS, st.integers(0, 2**63))
def test_a_user_is_split_by_its_own_words_only(pairs: set[tuple[int, int]], seed: int) -> None:
    whole = interactions_of(pairs)
    _, valid, test = ratio_split(whole, (0.5, 0.2, 0.3), seed)
    for user in range(6):
        items = whole.items_of(user)
        order = np.argsort(words(seed, Purpose.SPLIT, [user], count=items.size)[0])
        n_test, n_valid = test.user_degrees[user], valid.user_degrees[user]
        assert set(test.items_of(user)) == set(items[order[:n_test]])
        assert set(valid.items_of(user)) == set(items[order[n_test : n_test + n_valid]])


def test_the_held_out_item_is_uniform() -> None:
    """Of 5 items one is tested; over 2,000 seeds each is, about 400 times (5 sigma: 90)."""
    whole = Interactions.from_pairs([0] * 5, range(5), 1, 5)
    chosen = [int(ratio_split(whole, (0.8, 0, 0.2), seed)[2].items[0]) for seed in range(2000)]
    assert np.abs(np.bincount(chosen, minlength=5) - 400).max() < 90


@given(PAIRS, st.integers(0, 2**63), st.data())
def test_the_last_item_of_every_user_is_left_out(
    pairs: set[tuple[int, int]], seed: int, data: st.DataObject
) -> None:
    whole = interactions_of(pairs)
    drawn = st.lists(st.integers(0, 9), min_size=len(whole), max_size=len(whole))
    times = np.array(data.draw(drawn), dtype=np.float64)
    train, valid, test = leave_one_out(whole, times, seed)
    everything = np.concatenate((train.keys, valid.keys, test.keys))
    assert np.array_equal(np.sort(everything), whole.keys)
    time_of = dict(zip(whole.keys.tolist(), times.tolist(), strict=True))
    for user, degree in enumerate(whole.user_degrees.tolist()):
        sizes = [part.user_degrees[user] for part in (train, valid, test)]
        assert sizes == [max(degree - 2, min(degree, 1)), int(degree > 2), int(degree > 1)]
        parts = [[time_of[user * 31 + i] for i in p.items_of(user)] for p in (train, valid, test)]
        for earlier, later in ((0, 1), (1, 2), (0, 2)):
            assert max(parts[earlier], default=-1) <= min(parts[later], default=10)
    without = leave_one_out(whole, None, seed)
    same = leave_one_out(whole, np.zeros(len(whole)), seed)
    for one, other in zip(without, same, strict=True):
        assert np.array_equal(one.keys, other.keys)


@given(PAIRS, RATIOS, st.data())
def test_one_date_for_everybody(
    pairs: set[tuple[int, int]], shares: tuple[int, int, int], data: st.DataObject
) -> None:
    whole = interactions_of(pairs)
    drawn = st.lists(st.integers(0, 9), min_size=len(whole), max_size=len(whole))
    times = np.array(data.draw(drawn), dtype=np.float64)
    ratio = (shares[0] / sum(shares), shares[1] / sum(shares), shares[2] / sum(shares))
    parts = temporal_split(whole, times, ratio)
    assert np.array_equal(np.sort(np.concatenate([p.keys for p in parts])), whole.keys)
    time_of = dict(zip(whole.keys.tolist(), times.tolist(), strict=True))
    of_part = [[time_of[key] for key in part.keys.tolist()] for part in parts]
    for earlier, later in ((0, 1), (1, 2), (0, 2)):
        assert max(of_part[earlier], default=-1) < min(of_part[later], default=10)
    # So many as asked for, and those of the same date as the last of them.
    for count, share in ((len(of_part[0]), ratio[0]), (sum(map(len, of_part[:2])), 1 - ratio[2])):
        assert count >= share * len(whole) - 1e-6
        limit = sorted(times)[count - 1]
        assert (times < limit).sum() < share * len(whole) + 1e-6


@pytest.mark.parametrize(
    "ratio", [(0.0, 0.5, 0.5), (0.8, 0.1, 0.2), (1.2, -0.1, -0.1), (math.nan, 0.5, 0.5)]
)
def test_a_ratio_that_makes_no_split_is_refused(ratio: tuple[float, float, float]) -> None:
    with pytest.raises(DataError, match=r"add up to 1"):
        ratio_split(interactions_of({(0, 0)}), ratio, 0)


def split_of(*parts: set[tuple[int, int]], users: int = 6) -> Split:
    train, valid, test = (interactions_of(part, users) for part in parts)
    return Split("any", train, valid, test, Ids.of(range(users)), Ids.of(range(31)))


@given(PAIRS, PAIRS, PAIRS, st.integers(0, 2), st.tuples(st.integers(0, 5), st.integers(0, 30)))
def test_fingerprint_is_sensitive_to_any_pair(
    train: set[tuple[int, int]],
    valid: set[tuple[int, int]],
    test: set[tuple[int, int]],
    where: int,
    pair: tuple[int, int],
) -> None:
    parts = [train, valid, test]
    before = split_of(*parts)
    assert before.fingerprint == split_of(*parts).fingerprint
    assert len(before.fingerprint) == 64
    parts[where] = parts[where] ^ {pair}
    assert before.fingerprint != split_of(*parts).fingerprint


def test_fingerprint_tells_parts_ids_and_sizes_apart_but_not_names() -> None:
    a, b = {(0, 1), (1, 2)}, {(0, 3)}
    split = split_of(a, b, set())
    others = [
        split_of(b, a, set()),
        split_of(a, set(), b),
        split_of(a, b, set(), users=7),
        dataclasses.replace(split, item_ids=Ids.of(range(1, 32))),
        dataclasses.replace(split, user_ids=Ids.of([f"user-{n}" for n in range(6)])),
    ]
    assert len({one.fingerprint for one in [split, *others]}) == 6
    assert dataclasses.replace(split, name="other").fingerprint == split.fingerprint


def test_parts_of_another_size_are_refused() -> None:
    split = split_of({(0, 1)}, set(), set())
    with pytest.raises(ValueError, match="7 users and 31 items"):
        dataclasses.replace(split, user_ids=Ids.of(range(7)))
