"""Item tokens: what the server sees instead of item ids (Algorithm 2).

A token must be the same for the same item at every client and tell nothing else to who has not the
key: a pseudo-random function. HMAC-SHA256 is one; AES-SIV would be as deterministic, but it also
decrypts, which nobody needs (a client that meets a foreign token compares it with the tokens of the
catalogue), and its output is longer than its 16-byte tag. Cut to 16 bytes, a token has one size for
every item, and two of n items share a token with probability below n² / 2^129: 2^-98 for 41,000.
"""

from __future__ import annotations

import hmac
from typing import Final

import numpy as np
import numpy.typing as npt

from lpgcn.crypto.errors import FormatError
from lpgcn.crypto.keys import SecretKey

TOKEN_BYTES: Final = 16


def tokens(key: SecretKey, items: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """HMAC-SHA256 of each item id as 8 big-endian bytes, cut to 16 bytes: shape (items, 16)."""
    if items.size and int(items.min()) < 0:
        raise FormatError(f"item id {int(items.min())} is negative; ids count from zero")
    secret = key.reveal()
    ids = items.astype(">u8").tobytes()
    digests = [
        hmac.digest(secret, ids[first : first + 8], "sha256")[:TOKEN_BYTES]
        for first in range(0, len(ids), 8)
    ]
    return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(items.size, TOKEN_BYTES)
