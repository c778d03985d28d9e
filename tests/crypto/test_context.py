"""The canonical encoding and the guard against repeated nonces."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lpgcn.crypto import BROADCAST, Context, FormatError, NonceReuseError
from lpgcn.crypto.context import NonceGuard

RUN = bytes(range(16))
contexts = st.builds(
    Context,
    run=st.binary(min_size=16, max_size=16),
    step=st.integers(0, 2**40 - 1),
    phase=st.integers(0, 255),
    layer=st.integers(0, 255),
    sender=st.integers(0, 2**32 - 1),
    receiver=st.integers(0, 2**32 - 1),
)


def test_the_encoding_is_this() -> None:
    context = Context(RUN, step=0x0102030405, phase=6, layer=7, sender=0x08090A0B)
    assert context.receiver == BROADCAST
    fields = "01 06 07 00 000102030405060708090a0b0c0d0e0f 0000000102030405 08090a0b ffffffff"
    assert context.encode() == bytes.fromhex(fields)


@given(contexts, contexts)
def test_different_contexts_have_different_encodings(one: Context, other: Context) -> None:
    assert (one == other) == (one.encode() == other.encode())
    assert len(one.encode()) == 36


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"run": b"short"},
        {"step": 2**40},
        {"step": -1},
        {"phase": 256},
        {"layer": -1},
        {"sender": 2**32},
        {"receiver": -1},
    ],
)
def test_fields_out_of_range_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        replace(Context(RUN, 1, 2, 3, 4), **change)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2))))
def test_the_guard_lets_no_place_pass_twice(places: list[tuple[int, int, int]]) -> None:
    guard, passed, latest = NonceGuard(), set(), 0
    for step, layer, index in places:
        context = Context(RUN, step, 0, layer, 0)
        if step < latest or (step, layer, index) in passed:
            with pytest.raises(NonceReuseError):
                guard.claim(context, index)
        else:
            guard.claim(context, index)
            passed.add((step, layer, index))
            latest = step


def test_a_slot_is_claimed_whole_or_by_index() -> None:
    whole, parts = Context(RUN, 1, 0, 0, 0), Context(RUN, 1, 0, 1, 0)
    guard = NonceGuard()
    guard.claim(whole)
    guard.claim(parts, 3)
    for context, index in ((whole, None), (whole, 3), (parts, None), (parts, 3)):
        with pytest.raises(NonceReuseError):
            guard.claim(context, index)
    guard.claim(parts, 4)
