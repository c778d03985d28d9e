"""AES-256 over explicit counter blocks: counter mode whose counters are written by us.

Counter mode is AES of a counter block per 16 bytes of stream. Writing the blocks ourselves and
encrypting them in ECB mode is the same function, but one call makes the stream of many messages,
and one cipher object serves a key for its whole life.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB

from lpgcn.crypto.keys import SecretKey

UInt8 = npt.NDArray[np.uint8]
UInt32 = npt.NDArray[np.uint32]
UInt64 = npt.NDArray[np.uint64]

BLOCK_BYTES: Final = 16
WORD16: Final = np.dtype("<u2")
WORD32: Final = np.dtype("<u4")
WORD64: Final = np.dtype("<u8")


class Domain(IntEnum):
    """What a block of stream is for; no counter block is ever used for two things."""

    PAD = 0
    HASH_KEY = 1
    MASK = 2


def block_cipher(key: SecretKey) -> CipherContext:
    """AES-256 under `key`; `update` on whole blocks encrypts each of them on its own."""
    return Cipher(AES256(key.reveal()), ECB()).encryptor()


def counter_blocks(domain: Domain, step: int, slot: int, indices: UInt32, blocks: int) -> UInt64:
    """Counter blocks 0 ≤ b < blocks of every index: shape (indices, blocks, 2).

    A block is two little-endian words, (domain: 8 bits, step: 40, slot: 16) and (index: 32, b: 32):
    different arguments, different blocks.
    """
    counters = np.empty((indices.size, blocks, 2), dtype=WORD64)
    counters[:, :, 0] = domain << 56 | step << 16 | slot
    halves = counters.view(WORD32)
    halves[:, :, 2] = np.arange(blocks, dtype=np.uint32)
    halves[:, :, 3] = indices[:, None]
    return counters
