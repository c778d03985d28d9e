"""A field is as long as it says for every client, and is read as it was filled."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.protocol.errors import MalformedMessageError
from lpgcn.protocol.phases import PHASES, Phase
from lpgcn.protocol.wire import encoding, reading
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire.fields import (
    Field,
    Flag,
    Listed,
    Packed,
    Present,
    Round,
    Selection,
    Stored,
    Summed,
    SummedRows,
    TableRows,
)
from lpgcn.ragged import Ragged

numbers = st.integers(0, 2**32 - 1)
KINDS = sorted({kind for row in PHASES.values() for kind in (row.request, row.reply)}, key=str)
AROUND = [0, 1, 31, 255, 256, 257, 2**16 - 1, 2**16, 2**16 + 1]
"""Lengths at which MessagePack takes another byte or two."""


@st.composite
def ragged(draw: st.DrawFn, values: st.SearchStrategy[int], least: int = 1) -> Ragged:
    lists = draw(st.lists(st.lists(values, max_size=11), min_size=least, max_size=5))
    return Ragged.from_arrays([np.array(one, dtype=np.int64) for one in lists])


@st.composite
def shared_out(draw: st.DrawFn, count: int) -> Ragged:
    """Some of `count` rows, each to one of a few clients, in any order."""
    order = draw(st.permutations(range(count)))
    cuts = sorted(draw(st.lists(st.integers(0, count), min_size=2, max_size=5)))
    return Ragged(np.array(cuts) - cuts[0], np.array(order[cuts[0] : cuts[-1]], dtype=np.int64))


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[bytes], npt.NDArray[np.int64] | int]:
    """Rows of one size, or each of its own."""
    count = draw(st.integers(1, 12))
    if draw(st.booleans()):
        size = draw(st.integers(1, 40))
        return [draw(st.binary(min_size=size, max_size=size)) for _ in range(count)], size
    rows = [draw(st.binary(max_size=40)) for _ in range(count)]
    return rows, np.array([len(row) for row in rows], dtype=np.int64)


def check_lengths(field: Field, stores: dict[str, Any], n_clients: int) -> None:
    lengths = np.broadcast_to(field.lengths, n_clients)
    assert lengths.tolist() == [len(field.fill(stores, client)) for client in range(n_clients)]


@given(tables(), st.data())
def test_rows_that_were_read_are_those_that_were_filled(
    table: tuple[list[bytes], npt.NDArray[np.int64] | int], data: st.DataObject
) -> None:
    rows, sizes = table
    ids = data.draw(shared_out(len(rows)))
    field = TableRows("here", len(rows), ids, sizes)
    there: dict[str, Any] = {"here": rows}
    here: dict[str, Any] = {}
    check_lengths(field, there, len(ids))
    field.prepare(here)
    for client in range(len(ids)):
        field.read(here, client, field.fill(there, client), "rows")
    taken = set(ids.values.tolist())
    assert here["here"] == [row if number in taken else b"" for number, row in enumerate(rows)]
    assert [field.fill(here, client) for client in range(len(ids))] == [
        b"".join(rows[number] for number in ids[client]) for client in range(len(ids))
    ]


@given(tables(), st.data())
def test_rows_to_several_clients_have_their_length_at_each(
    table: tuple[list[bytes], npt.NDArray[np.int64] | int], data: st.DataObject
) -> None:
    rows, sizes = table
    ids = data.draw(ragged(st.integers(0, len(rows) - 1)))
    check_lengths(TableRows("here", len(rows), ids, sizes), {"here": rows}, len(ids))


@given(tables(), st.data())
def test_rows_of_another_length_are_refused(
    table: tuple[list[bytes], npt.NDArray[np.int64] | int], data: st.DataObject
) -> None:
    rows, sizes = table
    ids = data.draw(shared_out(len(rows)))
    field, stores = TableRows("here", len(rows), ids, sizes), {}  # type: tuple[Rows, dict[str, Any]]
    field.prepare(stores)
    client = data.draw(st.integers(0, len(ids) - 1))
    right = field.fill({"here": rows}, client)
    wrong = data.draw(st.sampled_from([right + b"x", right + right + b"x", right[:-1]]))
    if wrong != right:
        with pytest.raises(MalformedMessageError, match="field of rows"):
            field.read(stores, client, wrong, "of rows")
        assert stores["here"] == [b""] * len(rows)


@given(ragged(numbers), st.data())
def test_bits_say_which_rows_are_present(possible: Ragged, data: st.DataObject) -> None:
    count = len(possible.values)
    one = st.lists(st.booleans(), min_size=count, max_size=count)
    flags = np.array(data.draw(one | st.just([True] * count)), dtype=np.bool_)
    selection = Selection(possible, flags)
    field = Present(selection)
    check_lengths(field, {}, len(possible))
    for client in range(len(possible)):
        own = flags[possible.offsets[client] : possible.offsets[client + 1]]
        content = field.fill({}, client)
        assert np.array_equal(reading.bits(content, "bits", len(own)), own)
        assert (content == b"") == bool(own.all()), "of all rows there is nothing to say"
        assert np.array_equal(selection[client], possible[client][own])
        assert selection.lengths[client] == np.count_nonzero(own)


@given(ragged(numbers))
def test_numbers_are_read_as_they_were_packed(lists: Ragged) -> None:
    field = Packed(lists)
    check_lengths(field, {}, len(lists))
    for client in range(len(lists)):
        content = field.fill({}, client)
        assert np.array_equal(reading.numbers(content, "x", below=1 << 32), lists[client])
        assert content == reading.pack_numbers(lists[client])


@given(st.lists(st.booleans(), min_size=1, max_size=5), st.binary(max_size=9))
def test_flags_and_what_is_the_same_for_everybody(flags: list[bool], content: bytes) -> None:
    field, same, stores = Flag(np.array(flags)), Stored("here", len(content)), {"here": content}
    check_lengths(field, {}, len(flags))
    check_lengths(same, stores, len(flags))
    assert [reading.flag(field.fill({}, one), "flag") for one in range(len(flags))] == flags
    assert {same.fill(stores, client) for client in range(len(flags))} == {content}


@given(st.integers(0, 6), st.integers(1, 9), st.data())
def test_a_whole_table_goes_to_everybody(count: int, width: int, data: st.DataObject) -> None:
    rows = [data.draw(st.binary(min_size=width, max_size=width)) for _ in range(count)]
    field, stores = Stored("here", count * width), {"here": list(rows)}
    check_lengths(field, stores, 3)
    for client in range(3):
        assert reading.split(field.fill(stores, client), width, "items") == rows


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5), st.integers(1, 9), st.data())
def test_lists_are_read_as_they_were_sent(
    counts: list[int], width: int, data: st.DataObject
) -> None:
    token = st.binary(min_size=width, max_size=width)
    lists = {
        client: [data.draw(token) for _ in range(count)] for client, count in enumerate(counts)
    }
    field, stores = Listed("here", np.array(counts), width), {}  # type: tuple[Listed, dict[str, Any]]
    field.prepare(stores)
    for client, tokens in lists.items():
        field.read(stores, client, b"".join(tokens), "tokens")
    assert stores["here"] == lists
    sent = [len(b"".join(tokens)) for tokens in lists.values()]
    assert np.asarray(field.lengths).tolist() == sent
    if width > 1:
        with pytest.raises(MalformedMessageError, match="tokens"):
            field.read(stores, 0, bytes(width + 1), "tokens")


ONE = Ragged(np.array([0, 1]), np.zeros(1, dtype=np.int64))


@pytest.mark.parametrize(
    "field",
    [
        Present(Selection(ONE, np.array([True]))),
        Packed(ONE),
        Flag(np.array([True])),
        Stored("here", 1),
        SummedRows("sums", np.array([0]), 1, Selection(ONE, np.array([True])), 1),
    ],
    ids=lambda field: type(field).__name__,
)
def test_what_only_the_server_fills_is_never_read(field: Field) -> None:
    stores = {"here": [b"x"], "sums": np.zeros((1, 1), dtype=np.uint64)}
    with pytest.raises(TypeError, match="the server's to fill"):
        field.read({}, 0, field.fill(stores, 0), "mine")


def test_what_only_clients_fill_is_never_filled() -> None:
    with pytest.raises(TypeError, match="a client's to fill"):
        Listed("here", None, 16).fill({}, 0)
    with pytest.raises(TypeError, match="a client's to fill"):
        Summed("here", np.array([0]), 1).fill({"here": np.zeros((1, 1), dtype=np.uint64)}, 0)


@st.composite
def answers(draw: st.DrawFn) -> tuple[list[int], list[list[int]], int, int]:
    """The group of every client, the places that each group answers about, and of how many."""
    table_rows, groups = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    count = draw(st.integers(1, table_rows))
    about = [draw(st.permutations(range(table_rows)))[:count] for _ in range(groups)]
    extra = draw(st.lists(st.integers(0, groups - 1), max_size=5))
    group = draw(st.permutations([*range(groups), *extra]))
    return group, about, table_rows, draw(st.integers(1, 3))


@given(answers(), st.data())
def test_totals_are_the_sums_of_what_all_groups_said(
    said: tuple[list[int], list[list[int]], int, int], data: st.DataObject
) -> None:
    """Modulo 2^64, in any order, and as often as they are looked at; whatever the shapes."""
    group, about, table_rows, dim = said
    per_client, stores = len(about[0]) * dim, {}  # type: tuple[int, dict[str, Any]]
    up = Summed("sums", np.array(group), per_client)
    numbers = st.lists(st.integers(0, 2**64 - 1), min_size=per_client, max_size=per_client)
    up.prepare(stores)
    expected = [[0] * dim for _ in range(table_rows)]
    for client in data.draw(st.permutations(range(len(group)))):
        sent = data.draw(numbers)
        assert up.lengths == 8 * per_client
        up.read(stores, client, np.array(sent, dtype="<u8").tobytes(), "answers")
        for number, one in enumerate(sent):
            row = expected[about[group[client]][number // dim]]
            row[number % dim] = (row[number % dim] + one) % 2**64
    ids = data.draw(shared_out(table_rows))
    flags = np.array(data.draw(st.lists(st.booleans(), min_size=99, max_size=99)))
    chosen = Selection(ids, flags[: len(ids.values)])
    places = np.array([place for places in about for place in places], dtype=np.int64)
    down = SummedRows("sums", places, table_rows, chosen, dim)
    for _ in range(2):
        check_lengths(down, stores, len(ids))
        for client in range(len(ids)):
            rows = [expected[row] for row in chosen[client].tolist()]
            filled = np.frombuffer(down.fill(stores, client), dtype="<u8")
            assert filled.reshape(-1, dim).tolist() == rows


@given(st.integers(1, 5), st.integers(0, 60))
def test_numbers_to_be_summed_of_another_length_are_refused(count: int, length: int) -> None:
    field, stores = Summed("sums", np.array([0, 0]), count), {}  # type: tuple[Summed, dict[str, Any]]
    field.prepare(stores)
    if length != 8 * count:
        with pytest.raises(MalformedMessageError, match="field answers has"):
            field.read(stores, 1, b"\7" * length, "answers")
    assert not stores["sums"].any()


# Messages of fields.


@given(st.sampled_from(KINDS), st.data())
def test_a_message_has_the_size_that_follows_from_its_fields(
    kind: type[m.Message], data: st.DataObject
) -> None:
    lengths = {name: data.draw(st.sampled_from(AROUND)) for name in encoding.content_fields(kind)}
    message = kind(
        header=bytes(encoding.HEADER_BYTES), **{name: bytes(n) for name, n in lengths.items()}
    )
    assert encoding.encoded_size(kind, **lengths) == len(encoding.encode(message))


@given(st.sampled_from(KINDS), st.data())
def test_fields_left_out_have_the_size_of_their_defaults(
    kind: type[m.Message], data: st.DataObject
) -> None:
    required = [f for f in encoding.content_fields(kind) if f in required_fields(kind)]
    lengths = {name: data.draw(st.integers(0, 300)) for name in required}
    message = kind(
        header=bytes(encoding.HEADER_BYTES), **{name: bytes(n) for name, n in lengths.items()}
    )
    assert encoding.encoded_size(kind, **lengths) == len(encoding.encode(message))
    with pytest.raises(TypeError, match="strange"):
        encoding.encoded_size(kind, strange=1)


def required_fields(kind: type[m.Message]) -> set[str]:
    optional = len(kind.__struct_defaults__)
    return set(kind.__struct_fields__[: len(kind.__struct_fields__) - optional])


rounds = st.integers(1, 5).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n - 1), min_size=1, unique=True))
)


@given(rounds, st.data())
def test_the_sizes_of_a_round_are_those_of_its_messages(
    who: tuple[int, list[int]], data: st.DataObject
) -> None:
    """Of an exchange, with some fields at some clients empty."""
    n, called = who
    rows = [data.draw(st.binary(min_size=130, max_size=130)) for _ in range(4)]
    lists = [data.draw(st.lists(st.integers(0, 3), max_size=4)) for _ in range(n)]
    ids = Ragged.from_arrays([np.array(one, dtype=np.int64) for one in lists])
    flags = np.array([data.draw(st.booleans()) for _ in ids.values], dtype=np.bool_)
    wants = np.array([data.draw(st.booleans()) for _ in range(n)])
    own = Ragged.from_lengths(np.ones(n), np.arange(n))
    down: dict[str, Field] = {
        "pushes": TableRows("there", 4, Selection(ids, flags), 130),
        "pushes_present": Present(Selection(ids, flags)),
        "wants_user": Flag(wants),
    }
    up: dict[str, Field] = {"user": TableRows("users", n, Selection(own, wants), 300)}
    one = Round(Phase.FORWARD, np.array(called), down, up, layer=1)
    stores: dict[str, Any] = {"there": rows}
    header = bytes(encoding.HEADER_BYTES)
    sent = [len(encoding.encode(one.request(stores, client, header))) for client in called]
    assert one.sizes_down.tolist() == sent
    for field in up.values():
        field.prepare(stores)
    for number, client in enumerate(called):
        reply = m.Push(header=header, user=bytes((client,)) * 300 * bool(wants[client]))
        assert len(encoding.encode(reply)) == one.sizes_up[number]
        one.read(stores, client, reply)
        if wants[client]:
            assert bytes(stores["users"][client]) == bytes((client,)) * 300
        with pytest.raises(MalformedMessageError, match="pushes"):
            one.read(stores, client, m.Push(header=header, user=reply.user, pushes=b"unasked"))
