"""Interactions against plain sets of pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.data import Interactions

PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 8)), max_size=60)


@given(PAIRS)
def test_equals_the_sorted_set_of_pairs(pairs: list[tuple[int, int]]) -> None:
    users, items = [u for u, _ in pairs], [i for _, i in pairs]
    interactions = Interactions.from_pairs(users, items, 7, 9)
    expected = sorted(set(pairs))
    assert len(interactions) == len(expected)
    assert (
        list(zip(interactions.users.tolist(), interactions.items.tolist(), strict=True)) == expected
    )
    assert len(interactions.by_user) == 7
    for user in range(7):
        assert interactions.items_of(user).tolist() == [i for u, i in expected if u == user]
    assert interactions.user_degrees.tolist() == [
        sum(u == user for u, _ in expected) for user in range(7)
    ]
    assert interactions.item_degrees.tolist() == [
        sum(i == item for _, i in expected) for item in range(9)
    ]
    assert interactions.keys.tolist() == [9 * u + i for u, i in expected]
    assert {
        array.dtype
        for array in (
            interactions.users,
            interactions.items,
            interactions.by_user.offsets,
            interactions.user_degrees,
            interactions.item_degrees,
        )
    } == {np.dtype(np.int64)}


@pytest.mark.parametrize(
    ("users", "items", "message"),
    [([0], [0, 1], "do not make pairs"), ([2], [0], r"\[0, 2\)"), ([0], [-1], r"\[0, 3\)")],
)
def test_what_are_not_pairs_is_refused(users: list[int], items: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Interactions.from_pairs(users, items, 2, 3)
