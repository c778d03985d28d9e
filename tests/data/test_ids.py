"""External ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.data import DataError, Ids

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
ANY = st.one_of(st.sets(NUMBERS), st.sets(NAMES))


@given(ANY)
def test_index_is_the_rank_and_finds_the_id_again(external: set[int] | set[str]) -> None:
    ids = Ids.of(external)
    assert len(ids) == len(external)
    numbers = all(isinstance(one, int) or str_of_int(one) for one in external)
    assert list(ids) == sorted(map(int, external) if numbers else external)
    for index, one in enumerate(ids):
        assert ids.index_of(one) == index
        assert ids.index_of(str(one)) == index
        assert ids[index] == one


def str_of_int(text: str) -> bool:
    try:
        return str(int(text)) == text and -(2**63) <= int(text) < 2**63
    except ValueError:
        return False


@given(ANY, ANY)
def test_union_keeps_every_id_and_knows_where_it_is(
    one: set[int] | set[str], other: set[int] | set[str]
) -> None:
    parts = (Ids.of(one), Ids.of(other))
    whole = Ids.union(*parts)
    assert {str(name) for name in whole} == {str(name) for part in parts for name in part}
    for part in parts:
        places = part.indices_in(whole)
        assert [str(whole[place]) for place in places] == [str(name) for name in part]


@given(ANY, ANY)
def test_encoded_tells_ids_apart(one: set[int] | set[str], other: set[int] | set[str]) -> None:
    assert (Ids.of(one).encoded() == Ids.of(other).encoded()) == (Ids.of(one) == Ids.of(other))


def test_boundaries_of_names_matter() -> None:
    assert Ids.of(["ab", "c"]).encoded() != Ids.of(["a", "bc"]).encoded()


@pytest.mark.parametrize("spelling", ["007", "+7", "7.0", "1_000", "-0", "٣", "7\n", "9" * 19])
def test_what_does_not_spell_a_number_stays_a_string(spelling: str) -> None:
    assert list(Ids.of(["7", spelling])) == sorted(["7", spelling])


@pytest.mark.parametrize(
    ("external", "asked", "message"),
    [
        (["alice", "bob"], "Alcie", "did you mean 'alice'"),
        (["alice", "bob"], "ALICE", "did you mean 'alice'"),
        (["alice", "bob"], "xyzzy", "ids look like 'alice', 'bob'"),
        ([1, 5, 9], 6, r"the nearest are \[5, 9\]; ids go from 1 to 9"),
        ([1, 5, 9], "bob", "whole numbers from 1 to 9"),
        ([], 3, "there are none"),
    ],
)
def test_an_unknown_id_gets_a_hint(
    external: list[int | str], asked: int | str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        Ids.of(external).index_of(asked)


def test_blanks_around_an_id_do_not_matter_unless_they_are_part_of_one() -> None:
    assert Ids.of(["alice", "bob"]).index_of(" bob\n") == 1
    assert Ids.of([1, 5]).index_of(" 5") == 1
    assert Ids.of(["bob", "bob "]).index_of("bob ") == 1
    assert Ids.of(["alice", "bob"]).indices_of(["bob", " alice"]).tolist() == [1, 0]


@pytest.mark.parametrize("kind", [float, np.float64, np.float32])
def test_a_float_that_is_a_whole_number_finds_it(kind: Any) -> None:
    assert Ids.of([0, 7]).index_of(kind(7)) == 1
    assert Ids.of(["7", "a"]).index_of(kind(7)) == 0
    assert Ids.of([0, 7]).indices_of(np.array([7, 0], dtype=kind).tolist()).tolist() == [1, 0]
    for wrong in (kind(7.5), kind("nan"), kind("inf")):
        with pytest.raises(DataError, match="unknown id"):
            Ids.of([0, 7]).index_of(wrong)


def test_ids_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="ascending"):
        Ids(Ids.of([1, 2]).values[::-1])


@given(st.lists(st.integers(0, 50) | st.text("ab7", min_size=1, max_size=2), min_size=1))
def test_many_at_once_are_found_as_one_by_one(names: list[int | str]) -> None:
    ids = Ids.of(names)
    assert ids.indices_of(names).tolist() == [ids.index_of(name) for name in names]
    assert ids.indices_of([]).tolist() == []
    for wrong in ("missing", 51):
        with pytest.raises(DataError, match="unknown id"):
            ids.indices_of([*names, wrong])
