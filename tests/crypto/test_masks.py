"""Masks cancel in every sum and hide every value."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lpgcn.crypto import Context, FormatError, Masks, NonceReuseError, SecretKey
from lpgcn.crypto.masks import Sign

CONTEXT = Context(bytes(16), step=3, phase=9, layer=0, kind=10)


def key_of(one: int, other: int) -> SecretKey:
    return SecretKey(bytes((one, other)) + bytes(30))


def party(number: int, edges: set[tuple[int, int]]) -> Masks:
    peers: list[tuple[SecretKey, Sign]] = []
    for one, other in sorted(edges):
        if number in (one, other):
            peers.append((key_of(one, other), 1 if number == one else -1))
    return Masks(peers)


@given(st.data(), st.integers(2, 9), st.integers(1, 5))
def test_the_masks_of_a_connected_graph_cancel(
    data: st.DataObject, parties: int, count: int
) -> None:
    tree = {(data.draw(st.integers(0, number - 1)), number) for number in range(1, parties)}
    pairs = st.tuples(st.integers(0, parties - 1), st.integers(0, parties - 1))
    more = data.draw(st.sets(pairs.filter(lambda pair: pair[0] < pair[1])))
    draw = np.random.default_rng(parties)
    values = draw.integers(0, 2**64, (parties, count), dtype=np.uint64)
    masks = [party(number, tree | more).mask(CONTEXT, count) for number in range(parties)]
    masked = values + np.array(masks)
    assert (masked.sum(axis=0) == values.sum(axis=0)).all()
    assert (masked[:-1].sum(axis=0) != values[:-1].sum(axis=0)).all()


def test_a_mask_is_uniform_to_look_at() -> None:
    """Each of 64 bits is set in half of 20,000 values, within five standard deviations."""
    mask = Masks([(key_of(1, 2), 1), (key_of(1, 3), -1)]).mask(CONTEXT, 20_000)
    bits = np.unpackbits(mask.view(np.uint8).reshape(-1, 8), axis=1).sum(axis=0, dtype=np.int64)
    assert np.abs(bits - 10_000).max() < 5 * np.sqrt(20_000 / 4)
    assert np.unique(mask).size == mask.size


def test_each_place_has_a_mask_of_its_own_and_only_one() -> None:
    places = [
        replace(CONTEXT, **change) for change in ({}, {"layer": 1}, {"phase": 8}, {"kind": 9})
    ]
    places.append(replace(CONTEXT, step=4))
    masks = Masks([(key_of(1, 2), 1)])
    assert len({masks.mask(place, 2).tobytes() for place in places}) == len(places)
    for place in (places[-1], places[0], replace(CONTEXT, step=4, run=b"another run 0123")):
        with pytest.raises(NonceReuseError):
            masks.mask(place, 2)


def test_a_mask_is_the_key_stream_of_aes_in_counter_mode() -> None:
    counter = bytes((0, 0, 0, 0, 3, 9, 0, 10)) + bytes(8)
    streams = [
        Cipher(AES256(key_of(1, peer).reveal()), CTR(counter)).encryptor().update(bytes(24))
        for peer in (2, 3)
    ]
    added, taken = (np.frombuffer(stream, dtype="<u8") for stream in streams)
    mask = Masks([(key_of(1, 2), 1), (key_of(1, 3), -1)]).mask(CONTEXT, 3)
    assert np.array_equal(mask, added - taken)


def test_nobody_masks_alone() -> None:
    with pytest.raises(FormatError, match="no peers"):
        Masks([])
