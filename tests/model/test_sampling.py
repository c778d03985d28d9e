"""Samples and virtual items against an oracle in plain Python, drawn alone and all together."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpgcn.model import sampling
from lpgcn.model.sampling import (
    SamplingError,
    VirtualItems,
    batch_users,
    catalogue,
    contains,
    listing_keys,
    negative_places,
    places,
    positive_ranks,
    renumbered,
    union,
    virtual_items,
)
from lpgcn.ragged import Ragged
from lpgcn.random import Purpose, integers, uniform

SEED = st.integers(0, 2**63 - 1)


def lists_of(sets: list[set[int]]) -> Ragged:
    return Ragged.from_arrays([np.array(sorted(own), dtype=np.int64) for own in sets])


def keys_of(sets: list[set[int]], n_items: int) -> np.ndarray:
    return listing_keys(lists_of(sets), n_items)


@st.composite
def item_sets(draw: st.DrawFn, *, leave_one: bool = False) -> tuple[list[set[int]], int]:
    n_items = draw(st.integers(2, 15))
    most = n_items - 1 if leave_one else n_items
    items = st.sets(st.integers(0, n_items - 1), min_size=1, max_size=most)
    return draw(st.lists(items, min_size=1, max_size=8)), n_items


@given(item_sets(), st.data())
def test_lists_are_sorted_sets_under_any_name_and_together(
    case: tuple[list[set[int]], int], data: st.DataObject
) -> None:
    sets, n_items = case
    lists = lists_of(sets)
    keys = [user * n_items + item for user, own in enumerate(sets) for item in sorted(own)]
    assert listing_keys(lists, n_items).tolist() == keys

    order = catalogue(5, n_items)
    by_place = renumbered(lists, places(order))
    assert len(by_place) == len(sets)
    for user, own in enumerate(sets):
        assert by_place[user].tolist() == sorted(places(order)[sorted(own)])

    rest = [data.draw(st.sets(st.integers(0, n_items - 1))) - own for own in sets]
    together = union(lists, lists_of(rest), n_items)
    assert len(together) == len(sets)
    for user, (own, others) in enumerate(zip(sets, rest, strict=True)):
        assert together[user].tolist() == sorted(own | others)

    wanted = np.arange(len(sets) * n_items + 5)
    assert contains(np.array(keys), wanted).tolist() == np.isin(wanted, keys).tolist()


@given(SEED, st.integers(1, 50))
def test_places_are_the_inverse_of_the_catalogue(seed: int, n_items: int) -> None:
    order = catalogue(seed, n_items)
    assert (places(order)[order] == np.arange(n_items)).all()
    assert (order[places(order)] == np.arange(n_items)).all()


def virtual_items_of(
    seed: int, user: int, own: set[int], n_items: int, how: VirtualItems, shares: list[float]
) -> set[int]:
    """Algorithm 2, line 10, one draw at a time."""
    wanted = how.count + -int(-how.ratio * len(own) // 1)
    chosen: set[int] = set()
    draw = 0
    while len(chosen) < min(wanted, n_items - len(own) - 1):
        point = float(uniform(seed, Purpose.VIRTUAL_ITEM, user, first=draw)[0, 0])
        draw += 1
        if how.draw == "uniform":
            item = int(point * n_items)
        else:
            reached = np.cumsum(np.array(shares) + 1.0)
            item = next(i for i in range(n_items) if point < reached[i] / reached[-1])
        if item not in own:
            chosen.add(item)
    return chosen


@settings(max_examples=60)
@given(
    case=item_sets(),
    seed=SEED,
    count=st.integers(0, 20),
    ratio=st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    draw=st.sampled_from(["uniform", "popularity"]),
    first_user=st.integers(0, 10**6),
)
def test_virtual_items_are_those_of_the_oracle_for_a_client_alone_and_for_all(
    case: tuple[list[set[int]], int],
    seed: int,
    count: int,
    ratio: float,
    draw: sampling.VirtualDraw,
    first_user: int,
) -> None:
    sets, n_items = case
    how = VirtualItems(count, ratio, draw)
    real = lists_of(sets)
    popularity = np.bincount(real.values, minlength=n_items).astype(np.float64)
    clients = first_user + np.arange(len(sets))
    together = virtual_items(seed, clients, real, n_items, how, popularity)
    for row, own in enumerate(sets):
        mine = together[row].tolist()
        alone = virtual_items(seed, clients[[row]], lists_of([own]), n_items, how, popularity)
        expected = virtual_items_of(seed, clients[row], own, n_items, how, popularity.tolist())
        assert mine == alone[0].tolist() == sorted(expected)
        assert own.isdisjoint(mine)
        assert len(mine) == len(set(mine))
        assert len(own) == n_items or len(own) + len(mine) <= n_items - 1


def test_more_virtual_items_than_are_drawn_at_once() -> None:
    how = VirtualItems(5000)
    sets = [{0, 1}, set(range(5000))]
    together = virtual_items(1, np.arange(2), lists_of(sets), 9000, how)
    assert together.lengths.tolist() == [5000, 3999]
    alone = virtual_items(1, np.array([1]), lists_of(sets[1:]), 9000, how)
    assert np.array_equal(alone[0], together[1])
    assert alone[0].min() >= 5000


def test_uniform_virtual_items_are_uniform_and_popular_ones_follow_popularity() -> None:
    n_users = 20_000
    real, users = lists_of([{0}] * n_users), np.arange(n_users)
    popularity = np.array([n_users, 0, 999, 1999, 6999], dtype=np.float64)
    expected = {
        "uniform": np.full(4, n_users / 4),
        "popularity": np.array([1, 1000, 2000, 7000]) * n_users / 10_001,
    }
    for draw in ("uniform", "popularity"):
        drawn = virtual_items(3, users, real, 5, VirtualItems(1, 0, draw), popularity)
        found = np.bincount(drawn.values, minlength=5)
        assert found[0] == 0
        assert (np.abs(found[1:] - expected[draw]) < 4 * np.sqrt(expected[draw]) + 1).all()


@pytest.mark.parametrize("popularity", [None, np.ones(4)])
def test_popularity_must_be_there_for_every_item(popularity: np.ndarray | None) -> None:
    how = VirtualItems(1, 0, "popularity")
    with pytest.raises(SamplingError, match=r"each of the 5 items; found (none|4)"):
        virtual_items(0, np.arange(1), lists_of([{0}]), 5, how, popularity)


def negative_of(seed: int, epoch: int, position: int, listed: set[int], n_items: int) -> int:
    attempt = 0
    while True:
        place = int(integers(seed, Purpose.NEGATIVE, position, n_items, epoch, draw=attempt)[0])
        if place not in listed:
            return place
        attempt += 1


@settings(max_examples=60)
@given(item_sets(leave_one=True), SEED, st.integers(0, 1000), st.integers(0, 10**6))
def test_negatives_are_those_of_the_oracle_for_a_client_alone_and_for_all(
    case: tuple[list[set[int]], int], seed: int, epoch: int, first: int
) -> None:
    sets, n_items = case
    keys = keys_of(sets, n_items)
    positions = first + np.arange(40)
    users = batch_users(seed, epoch, positions, len(sets))
    together = negative_places(seed, epoch, positions, users, keys, n_items)
    expected = [
        negative_of(seed, epoch, position, sets[user], n_items)
        for position, user in zip(positions, users, strict=True)
    ]
    assert together.tolist() == expected
    for user, listed in enumerate(sets):
        mine = users == user
        own_keys = keys_of([listed], n_items)
        rows = np.zeros(mine.sum(), dtype=np.int64)
        alone = negative_places(seed, epoch, positions[mine], rows, own_keys, n_items)
        assert np.array_equal(alone, together[mine])
        assert listed.isdisjoint(together[mine].tolist())


@given(SEED, st.integers(0, 1000), st.lists(st.integers(1, 30), min_size=1, max_size=30))
def test_users_and_positives_are_within_bounds_and_the_same_alone(
    seed: int, epoch: int, sizes: list[int]
) -> None:
    positions = np.arange(100)
    users = batch_users(seed, epoch, positions, len(sizes))
    own_sizes = np.array(sizes)[users]
    ranks = positive_ranks(seed, epoch, positions, own_sizes)
    assert ((users >= 0) & (users < len(sizes))).all()
    assert ((ranks >= 0) & (ranks < own_sizes)).all()
    one = slice(57, 58)
    assert batch_users(seed, epoch, positions[one], len(sizes)) == users[one]
    assert positive_ranks(seed, epoch, positions[one], own_sizes[one]) == ranks[one]


def test_users_positives_and_negatives_are_uniform_and_independent() -> None:
    n_samples = 60_000
    positions = np.arange(n_samples)
    users = batch_users(4, 2, positions, 3)
    ranks = positive_ranks(4, 2, positions, np.full(n_samples, 4))
    listed = keys_of([{0}, {1, 2}, {0, 1, 2}], 5)
    negatives = negative_places(4, 2, positions, users, listed, 5)
    free = {0: 4, 1: 3, 2: 2}
    drawn = Counter(zip(users.tolist(), ranks.tolist(), negatives.tolist(), strict=True))
    assert len(drawn) == 4 * sum(free.values())
    for (user, _, _), count in drawn.items():
        expected = n_samples / (3 * 4 * free[user])
        assert abs(count - expected) < 4 * expected**0.5


def test_epochs_and_purposes_draw_other_numbers() -> None:
    positions = np.arange(200)
    drawn = [batch_users(0, epoch, positions, 10**6) for epoch in (0, 1)]
    drawn.append(positive_ranks(0, 0, positions, np.full(200, 10**6)))
    assert all((drawn[i] != drawn[j]).all() for i in range(3) for j in range(i))


def test_a_user_who_listed_everything_has_no_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is noticed after a few attempts; one of two hundred items is not given up for it."""
    attempts: list[int] = []

    def counted(*given: Any, draw: int, **others: Any) -> Any:
        attempts.append(draw)
        return integers(*given, draw=draw, **others)

    monkeypatch.setattr(sampling, "integers", counted)
    keys = keys_of([{0}, {0, 1, 2}], 3)
    with pytest.raises(SamplingError, match=r"listed \(almost\) all 3 items .* no negative"):
        negative_places(0, 0, np.arange(4), np.array([0, 1, 0, 1]), keys, 3)
    assert len(attempts) < 100
    keys = keys_of([{*range(200)} - {7}], 200)
    found = negative_places(0, 0, np.arange(50), np.zeros(50, dtype=np.int64), keys, 200)
    assert (found == 7).all() and max(attempts) > 100
