"""Item tokens: what the server sees instead of item ids (Algorithm 2).

A token must be the same for the same item at every client and tell nothing else to who has not the
key: a pseudo-random function. HMAC-SHA256 is one; AES-SIV would be as deterministic, but it also
decrypts, which nobody needs (a client that meets a foreign token compares it with the tokens of the
catalogue), and its output is longer than its 16-byte tag. Cut to 16 bytes, a token has one size for
every item, and two of n items share a token with probability below n² / 2^129: 2^-98 for 41,000.
"""

from __future__ import annotations

from hashlib import sha256
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
    # HMAC's two states after the key are made once for all items (RFC 2104, section 4).
    block = key.reveal().ljust(64, b"\0")
    inner, outer = (sha256(bytes(byte ^ pad for byte in block)) for pad in (0x36, 0x5C))
    ids = items.astype(">u8").tobytes()
    found = bytearray()
    for first in range(0, len(ids), 8):
        inside, outside = inner.copy(), outer.copy()
        inside.update(ids[first : first + 8])
        outside.update(inside.digest())
        found += outside.digest()[:TOKEN_BYTES]
    return np.frombuffer(found, dtype=np.uint8).reshape(items.size, TOKEN_BYTES)
