"""`Ragged` against plain lists of lists."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.ragged import Ragged, flags, starts

ROWS = st.lists(st.lists(st.integers(-5, 99), max_size=6), max_size=8)


def ragged(rows: list[list[int]]) -> Ragged:
    return Ragged.from_arrays([np.array(row, dtype=np.int64) for row in rows])


def lists(found: Ragged) -> list[list[int]]:
    return [found[row].tolist() for row in range(len(found))]


@given(ROWS)
def test_rows_are_those_that_were_given(rows: list[list[int]]) -> None:
    found = ragged(rows)
    assert lists(found) == rows
    assert found.lengths.tolist() == [*map(len, rows)]
    assert found.rows.tolist() == [row for row, values in enumerate(rows) for _ in values]
    assert {found.offsets.dtype, found.values.dtype, found.rows.dtype} == {np.dtype(np.int64)}
    assert starts(found.lengths).tolist() == found.offsets.tolist()
    for again in (
        Ragged.from_lengths(found.lengths, found.values),
        Ragged.from_rows(found.rows, found.values, len(rows)),
    ):
        assert lists(again) == rows


@given(ROWS, st.randoms())
def test_pairs_in_any_order_make_rising_rows(rows: list[list[int]], shuffled: Random) -> None:
    pairs = [(row, value) for row, values in enumerate(rows) for value in values]
    shuffled.shuffle(pairs)
    row, value = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    assert lists(Ragged.from_pairs(row, value, len(rows))) == [*map(sorted, rows)]


@given(st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=8))
def test_transposed_has_the_rows_of_every_value(rows: list[list[int]]) -> None:
    found = [[row for row, own in enumerate(rows) for one in own if one == v] for v in range(10)]
    assert lists(ragged(rows).transposed(10)) == found


@given(ROWS, st.data())
def test_some_rows_and_some_entries(rows: list[list[int]], data: st.DataObject) -> None:
    found = ragged(rows)
    wanted = data.draw(
        st.lists(st.sampled_from(range(len(rows))), max_size=9) if rows else st.just([])
    )
    assert lists(found.only(np.array(wanted, dtype=np.int64))) == [rows[row] for row in wanted]
    flags = found.values % 2 == 0
    even = [[value for value in row if value % 2 == 0] for row in rows]
    assert lists(found.where(flags)) == even
    assert found.count(flags).tolist() == [*map(len, even)]
    assert found.any(flags).tolist() == [*map(bool, even)]
    assert found.sum(found.values).tolist() == [*map(sum, rows)]


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=6))
def test_ranks_count_within_every_row(rows: list[list[int]]) -> None:
    ragged = Ragged.from_arrays([np.array(row, dtype=np.int64) for row in rows])
    assert ragged.ranks.tolist() == [rank for row in rows for rank in range(len(row))]
    whole = Ragged.single(ragged.values)
    assert len(whole) == 1 and whole[0].tolist() == ragged.values.tolist()
    each = Ragged.identity(len(rows))
    assert [each[row].tolist() for row in range(len(rows))] == [[row] for row in range(len(rows))]


@given(st.lists(st.integers(0, 9)))
def test_flags_are_set_where_they_are_chosen(chosen: list[int]) -> None:
    expected = [number in chosen for number in range(10)]
    assert flags(10, chosen).tolist() == expected
    assert flags(10, np.array(chosen, dtype=np.int64)).tolist() == expected
