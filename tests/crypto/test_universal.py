"""The hash against the formula in whole numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.crypto.universal import MAX_WORDS, Float64, fold, hash_key, multilinear

PRIME = 2**31 - 1


def hashes(words: Float64, key: Float64) -> npt.NDArray[np.uint32]:
    return fold(multilinear(words, key))


def reference(words: list[int], key: list[int]) -> list[int]:
    hashes = []
    for shift in range(4):
        total = sum(key[place + shift] * word for place, word in enumerate(words))
        hashes.append(total % 2**31 + total // 2**31)
        assert hashes[-1] < 2**32 and hashes[-1] % PRIME == total % PRIME
    return hashes


@given(st.integers(0, 2**32), st.integers(1, 6), st.sampled_from([1, 2, 152, 511, 512, 513, 1300]))
def test_rows_have_the_hash_of_the_formula(seed: int, rows: int, width: int) -> None:
    draw = np.random.default_rng(seed)
    words = draw.integers(0, 2**16, (rows, width))
    keys = draw.integers(0, 2**28, (rows, width + 3))
    found = hashes(words.astype(np.float64), keys.astype(np.float64))
    assert found.tolist() == [
        reference(row, key) for row, key in zip(words.tolist(), keys.tolist(), strict=True)
    ]
    one = hashes(words.astype(np.float64), keys[0].astype(np.float64))
    assert one.tolist() == [reference(row, keys[0].tolist()) for row in words.tolist()]


@pytest.mark.parametrize("width", [512, MAX_WORDS])
def test_the_largest_numbers_are_exact(width: int) -> None:
    words, key = [2**16 - 1] * width, [2**28 - 1] * (width + 3)
    found = hashes(np.array([words], dtype=np.float64), np.array(key, dtype=np.float64))
    assert found.tolist() == [reference(words, key)]


@given(st.binary(min_size=4, max_size=40))
def test_a_key_is_28_bits_of_each_four_bytes(stream: bytes) -> None:
    stream = stream[: len(stream) // 4 * 4]
    expected = [
        int.from_bytes(stream[first : first + 4], "little") % 2**28
        for first in range(0, len(stream), 4)
    ]
    assert hash_key(np.frombuffer(stream, dtype=np.uint8)).tolist() == expected


def test_a_difference_is_hit_as_often_as_the_bound_says() -> None:
    """Over all keys of 28 bits, a_0 · d ≡ δ mod P has one solution at most."""
    draw = np.random.default_rng(1)
    for difference in draw.integers(1, 2**16, 200).tolist():
        inverse = pow(difference, -1, PRIME)
        wanted = int(draw.integers(0, PRIME))
        solution = wanted * inverse % PRIME
        assert difference * solution % PRIME == wanted
        assert difference * (solution + 1) % PRIME != wanted
