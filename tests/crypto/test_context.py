"""The canonical encoding and the guard against repeated nonces."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lpgcn.crypto import Context, FormatError, NonceReuseError
from lpgcn.crypto.context import NonceGuard

RUN = bytes(range(16))
bytes_of_one = st.integers(0, 255)
contexts = st.builds(
    Context,
    run=st.binary(min_size=16, max_size=16),
    step=st.integers(0, 2**40 - 1),
    phase=bytes_of_one,
    layer=bytes_of_one,
    kind=bytes_of_one,
)


def test_the_encoding_is_this() -> None:
    context = Context(RUN, step=0x0102030405, phase=6, layer=7, kind=8)
    fields = "02 06 07 08 000102030405060708090a0b0c0d0e0f 0000000102030405"
    assert context.encode() == bytes.fromhex(fields)
    assert context.place == bytes.fromhex("0102030405 06 07 08")


@given(contexts, contexts)
def test_different_contexts_have_different_encodings(one: Context, other: Context) -> None:
    assert (one == other) == (one.encode() == other.encode())
    assert len(one.encode()) == 28


@given(contexts, contexts)
def test_a_place_is_all_of_a_context_but_the_run(one: Context, other: Context) -> None:
    same = replace(one, run=RUN) == replace(other, run=RUN)
    assert same == (one.place == other.place)
    assert (one.step < other.step) <= (one.place < other.place)
    assert one.place == one.step.to_bytes(5, "big") + one.slot.to_bytes(3, "big")


@given(contexts, st.sampled_from(["step", "phase", "layer", "kind", "run"]), st.data())
def test_every_field_counts(context: Context, field: str, data: st.DataObject) -> None:
    other = replace(context, **{field: getattr(data.draw(contexts), field)})
    changed = getattr(other, field) != getattr(context, field)
    assert changed == (other.encode() != context.encode())
    assert (changed and field != "run") == (other.place != context.place)


@pytest.mark.parametrize(
    "change",
    [
        {"run": b"short"},
        {"run": bytes(17)},
        {"step": 2**40},
        {"step": -1},
        {"phase": 256},
        {"phase": -1},
        {"layer": 256},
        {"layer": -1},
        {"kind": 256},
        {"kind": -1},
    ],
)
def test_fields_out_of_range_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        replace(Context(RUN, 1, 2, 3, 4), **change)


small = st.integers(0, 2)


@given(st.lists(st.tuples(st.integers(0, 3), small, small, small)))
def test_the_guard_lets_no_place_pass_twice(places: list[tuple[int, int, int, int]]) -> None:
    guard, passed, latest = NonceGuard(), set(), 0
    for place in places:
        context = Context(RUN, *place)
        if place[0] < latest or place in passed:
            with pytest.raises(NonceReuseError):
                guard.claim(context)
        else:
            guard.claim(context)
            passed.add(place)
            latest = place[0]


def test_a_claim_that_is_refused_changes_nothing() -> None:
    guard = NonceGuard()
    guard.claim(Context(RUN, 5, 0, 0, 0))
    for _ in range(2):
        with pytest.raises(NonceReuseError, match="step 5"):
            guard.claim(Context(RUN, 4, 9, 9, 9))
    guard.claim(Context(RUN, 5, 9, 9, 9))
