"""Tokens against the library's HMAC."""

from __future__ import annotations

import hmac

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.crypto import FormatError, SecretKey, tokens


def test_the_librarys_hmac_gives_the_vector_of_rfc_4231_case_2() -> None:
    expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    assert hmac.digest(b"Jefe", b"what do ya want for nothing?", "sha256").hex() == expected


@given(st.binary(min_size=32, max_size=32), st.lists(st.integers(0, 2**62), max_size=20))
def test_a_token_is_the_cut_hmac_of_the_item(key: bytes, items: list[int]) -> None:
    found = tokens(SecretKey(key), np.array(items, dtype=np.int64))
    assert found.shape == (len(items), 16) and found.dtype == np.uint8
    expected = [hmac.digest(key, item.to_bytes(8, "big"), "sha256")[:16] for item in items]
    assert [row.tobytes() for row in found] == expected


def test_a_catalogue_has_distinct_tokens_that_another_key_does_not_share() -> None:
    items = np.arange(3000)
    first = {row.tobytes() for row in tokens(SecretKey(b"\1" * 32), items)}
    second = {row.tobytes() for row in tokens(SecretKey(b"\2" * 32), items)}
    assert len(first) == len(second) == 3000 and not first & second


def test_negative_ids_are_refused() -> None:
    with pytest.raises(FormatError, match="-1"):
        tokens(SecretKey.generate(), np.array([3, -1]))
