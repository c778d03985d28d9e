"""The stream against NIST SP 800-38A and a counter mode of the library's own."""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.crypto import SecretKey
from lpgcn.crypto.keystream import Domain, block_cipher, counter_blocks

KEY = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
PLAIN = bytes.fromhex(
    "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
    "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
)


def test_blocks_give_the_vectors_of_sp_800_38a_f_1_5() -> None:
    assert block_cipher(SecretKey(KEY)).update(PLAIN).hex() == (
        "f3eed1bdb5d2a03c064b5a7e3db181f8591ccb10d410ed26dc5ba74a31362870"
        "b6ed21b99ca6f4f9f153e7b1beafed1d23304b7a39f9f3ff067d8d8f9e24ecc7"
    )


def test_explicit_counters_give_the_counter_mode_of_sp_800_38a_f_5_5() -> None:
    first = int("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", 16)
    blocks = b"".join((first + number).to_bytes(16, "big") for number in range(4))
    stream = block_cipher(SecretKey(KEY)).update(blocks)
    assert bytes(x ^ y for x, y in zip(stream, PLAIN, strict=True)).hex() == (
        "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5"
        "2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6"
    )


@given(
    st.sampled_from(Domain),
    st.integers(0, 2**40 - 1),
    st.integers(0, 2**16 - 1),
    st.lists(st.integers(0, 2**32 - 1), max_size=4),
    st.integers(0, 5),
)
def test_blocks_name_their_place_and_nothing_else(
    domain: Domain, step: int, slot: int, indices: list[int], count: int
) -> None:
    found = counter_blocks(domain, step, slot, np.array(indices, dtype=np.uint32), count)
    place = domain << 56 | step << 16 | slot
    expected = [
        place.to_bytes(8, "little") + number.to_bytes(4, "little") + index.to_bytes(4, "little")
        for index in indices
        for number in range(count)
    ]
    assert found.tobytes() == b"".join(expected)


@given(st.binary(min_size=32, max_size=32), st.integers(0, 2**40 - 1))
def test_each_block_is_one_of_the_librarys_counter_mode(key: bytes, step: int) -> None:
    blocks = counter_blocks(Domain.PAD, step, 7, np.array([3, 1], dtype=np.uint32), 3).tobytes()
    stream = block_cipher(SecretKey(key)).update(blocks)
    for first in range(0, len(blocks), 16):
        counter = Cipher(AES256(key), CTR(blocks[first : first + 16])).encryptor()
        assert counter.update(bytes(16)) == stream[first : first + 16]
