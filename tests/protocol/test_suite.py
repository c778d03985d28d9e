"""Suites say how everything is protected, and one that no client could keep to is refused."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.protocol.errors import SuiteError
from lpgcn.protocol.suite import SUITES, Key, Kind, OwnerPush, Suite

ROWS = [kind for kind in Kind if kind not in (Kind.NUMBERS, Kind.ESTATE, Kind.ANSWERS, Kind.COPY)]
"""Masked numbers, estates and copies of weights are the same in every suite."""
USERS = (Kind.USER_FORWARD, Kind.USER_BACKWARD, Kind.USER_FINAL)
POSSIBLE = {
    **{kind: {Key.CLEAR, Key.GROUP, Key.SENDER} for kind in USERS},
    Kind.PUSH: {Key.CLEAR, Key.PAIRWISE},
    **{kind: {Key.CLEAR, Key.GROUP} for kind in (Kind.ITEM_FINAL, Kind.POOL)},
    **{
        kind: {Key.CLEAR, Key.PAIRWISE}
        for kind in (Kind.WISH, Kind.GRANT, Kind.SCALARS, Kind.NEGATIVE)
    },
}
"""The keys that the two ends of each kind of row have in common."""
suites = st.builds(
    Suite,
    st.sampled_from(OwnerPush),
    st.fixed_dictionaries({kind: st.sampled_from(Key) for kind in ROWS}),
)
likely_suites = st.builds(
    Suite,
    st.sampled_from(OwnerPush),
    st.fixed_dictionaries(
        {kind: st.sampled_from(sorted(POSSIBLE[kind], key=str)) for kind in ROWS}
    ),
)


def test_every_suite_says_how_everything_is_protected() -> None:
    """Masked numbers are masked in all of them, and estates sealed."""
    assert all(sorted(suite.keys) == ROWS for suite in SUITES.values())
    assert {name: suite.user_key for name, suite in SUITES.items()} == {
        "paper": Key.GROUP,
        "sealed": Key.SENDER,
    }


def test_only_the_suite_of_the_paper_leaves_anything_in_the_clear() -> None:
    assert all(SUITES["sealed"].protects(kind) for kind in ROWS)
    assert [kind for kind in ROWS if SUITES["paper"].protects(kind)] == [Kind.USER_FORWARD]
    assert SUITES["paper"].owner_push is OwnerPush.ROW_PER_ITEM


def can_be_kept(suite: Suite) -> bool:
    """Both ends of every row have its key; a client has one key K_u, and what goes to everybody who
    lists an item is under no key of a pair."""
    keys = suite.keys
    both_ends = all(keys[kind] in POSSIBLE[kind] for kind in ROWS)
    one_key = len({keys[kind] for kind in USERS} - {Key.CLEAR}) <= 1
    to_all = suite.owner_push is OwnerPush.ROW_PER_ITEM
    return both_ends and one_key and not (to_all and keys[Kind.PUSH] is Key.PAIRWISE)


@given(suites | likely_suites)
def test_a_suite_that_no_client_could_keep_to_is_refused(suite: Suite) -> None:
    if can_be_kept(suite):
        under = {suite.keys[kind] for kind in USERS} - {Key.CLEAR}
        assert {suite.user_key} == (under or {Key.CLEAR})
        return
    with pytest.raises(SuiteError) as error:
        suite.user_key  # noqa: B018
    assert all(f"{kind.name} {key.name}" in str(error.value) for kind, key in suite.keys.items())


@pytest.mark.parametrize(("name", "kind", "key"), list(product(SUITES, ROWS, Key)))
def test_one_change_to_a_suite_is_refused_if_it_makes_it_impossible(
    name: str, kind: Kind, key: Key
) -> None:
    suite = SUITES[name]  # type: ignore[index]
    changed = Suite(suite.owner_push, {**suite.keys, kind: key})
    if can_be_kept(changed):
        assert changed.user_key in (Key.CLEAR, Key.GROUP, Key.SENDER)
    else:
        with pytest.raises(SuiteError, match=f"{kind.name} {key.name}"):
            changed.user_key  # noqa: B018
