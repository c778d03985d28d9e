"""Counter-based randomness: every number is a pure function of (seed, purpose, entity, step, draw).

A generator with a state gives a number to whoever asks next; then the order of execution decides
what is drawn, and a federation can never draw what a data centre draws. Here randomness belongs to
the thing it is drawn for (DESIGN: "Lossless means equal"): a row asked for alone has the same bits
as that row among all rows, on any party and in any order.

The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
SC 2011): a keyed bijection of a 128-bit counter, here (draw, entity, step, purpose).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Int64, UInt64

UInt32 = npt.NDArray[np.uint32]
Entities = npt.ArrayLike

_MULTIPLIER_0: Final = 0xD2511F53
_MULTIPLIER_1: Final = 0xCD9E8D57
_WEYL_0: Final = 0x9E3779B9
_WEYL_1: Final = 0xBB67AE85
"""What each round adds to the two words of the key, modulo 2^32."""
_ROUNDS: Final = 10
_LOW: Final = 0xFFFFFFFF
_BLOCKS_AT_ONCE: Final = 1 << 16
_FEW_BLOCKS: Final = 8
"""For so many blocks Python's own integers are faster than arrays of them."""


class Purpose(IntEnum):
    """What a number is drawn for. Values are part of the format: they may be added, not changed."""

    USER_EMBEDDING = 1
    ITEM_EMBEDDING = 2
    ITEM_USER_EMBEDDING = 3
    """W of LightGCN+, the item vectors that users are built from."""
    BATCH_USER = 4
    POSITIVE = 5
    NEGATIVE = 6
    VIRTUAL_ITEM = 7
    CATALOGUE_ORDER = 8
    SPLIT = 9
    PLAN = 10
    DEMO_DATA = 11
    KEY_CLIENT = 12
    """Which client is u_c, the one that makes the shared key."""
    HANDLE = 13
    """The order in which an owner knows its neighbours, and a client its owners."""
    MASK_CIRCLE = 14
    """Who shares masks with whom."""
    HEIR = 15
    """Who can open the copies that an owner leaves with the server."""
    GROUP = 16
    """Which clients share a pool of negatives."""
    POOL = 17
    ROUND = 18
    """Which clients take part in a round of a federated method that has rounds of clients."""
    AUDIT = 19
    """What an audit draws for itself: seeds of its parties, who colludes, whom it asks about."""
    BOOTSTRAP = 20
    VIRTUAL_START = 21
    """Where a walk to virtual items that go together begins."""
    COOCCURRENCE_SAMPLE = 22
    """Whose items are counted to find out what goes together."""
    DENSE_WEIGHT = 24
    """Of the matrices of a backbone, of which every party has a copy."""
    USER_CLUSTER = 28
    """Where the clustering of users by their vectors begins."""
    PERCEPTRON = 32
    """The matrices of a compared method that has any."""
    DROPOUT = 33
    LATENT = 34
    """The noise of a variational auto-encoder."""
    PRIVACY_NOISE = 35
    PSEUDO_ITEM = 36
    PSEUDO_GRADIENT = 37
    CONTACT = 38
    """The order in which those who meet in one step through negatives get their handles."""


def philox(c0: Any, c1: Any, c2: Any, c3: Any, key: tuple[int, int]) -> tuple[Any, Any, Any, Any]:
    """Philox4x32-10 of a counter of four words below 2^32, each an integer or an array of them.

    A round is (c0, c1, c2, c3) -> (hi(M1 c2) ^ c1 ^ k0, lo(M1 c2), hi(M0 c0) ^ c3 ^ k1, lo(M0 c0)).
    """
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0, p1 = c0 * _MULTIPLIER_0, c2 * _MULTIPLIER_1
        c0, c1, c2, c3 = (p1 >> 32) ^ (c1 ^ k0), p1 & _LOW, (p0 >> 32) ^ (c3 ^ k1), p0 & _LOW
        k0, k1 = (k0 + _WEYL_0) & _LOW, (k1 + _WEYL_1) & _LOW
    return c0, c1, c2, c3


def bits(
    seed: int, purpose: Purpose, entities: Entities, step: int, first: int, count: int
) -> UInt32:
    """32 random bits for draws first ≤ j < first + count of every entity: shape (entities, count).

    Draw j is word j mod 4 of the block whose counter is (j div 4, entity, step, purpose).
    """
    rows = np.asarray(entities, dtype=np.uint64).reshape(-1)
    if not 0 <= step < 2**32 or (rows.size and int(rows.max()) >= 2**32):
        raise ValueError("entity and step must be in [0, 2^32): they are words of a counter")
    block_first, block_last = first // 4, (first + count + 3) // 4
    skip, key = first - 4 * block_first, (seed & _LOW, (seed >> 32) & _LOW)
    blocks = np.arange(block_first, block_last, dtype=np.uint64)
    if rows.size * blocks.size <= _FEW_BLOCKS:
        few = [
            philox(block, row, step, int(purpose), key)
            for row in rows.tolist()
            for block in range(block_first, block_last)
        ]
        words_of_rows = np.array(few, dtype=np.uint32).reshape(rows.size, 4 * blocks.size)
        return words_of_rows[:, skip : skip + count]
    out = np.empty((rows.size, count), dtype=np.uint32)
    rows_at_once = max(1, _BLOCKS_AT_ONCE // max(1, blocks.size))
    for start in range(0, rows.size, rows_at_once):
        part = rows[start : start + rows_at_once]
        found = philox(blocks, part[:, None], step, int(purpose), key)
        flat = np.stack(found, axis=-1).reshape(part.size, -1)
        out[start : start + rows_at_once] = flat[:, skip : skip + count]
    return out


def words(
    seed: int,
    purpose: Purpose,
    entities: Entities,
    step: int = 0,
    *,
    first: int = 0,
    count: int = 1,
) -> UInt64:
    """64 random bits for draws first ≤ j < first + count of each entity: (entities, count)."""
    halves = bits(seed, purpose, entities, step, 2 * first, 2 * count).astype(np.uint64)
    result: UInt64 = (halves[:, 0::2] << np.uint64(32)) | halves[:, 1::2]
    return result


def uniform(
    seed: int,
    purpose: Purpose,
    entities: Entities,
    step: int = 0,
    *,
    first: int = 0,
    count: int = 1,
) -> npt.NDArray[np.float64]:
    """Uniform numbers in [0, 1) with 32 random bits each: shape (entities, count)."""
    return bits(seed, purpose, entities, step, first, count).astype(np.float64) * 2.0**-32


def integers(
    seed: int,
    purpose: Purpose,
    entities: Entities,
    bounds: npt.ArrayLike,
    step: int = 0,
    *,
    draw: int = 0,
) -> Int64:
    """One integer in [0, bound) for every entity, by its own bound or one for all.

    The high half of word · bound (Lemire 2019) with a 64-bit word split so that no product
    overflows; the bias is below bound / 2^64.
    """
    half = bits(seed, purpose, entities, step, 2 * draw, 2).astype(np.uint64)
    bound = np.asarray(bounds, dtype=np.uint64)
    if bound.size and int(bound.max()) >= 2**32:
        raise ValueError("bounds must be below 2^32")
    low = half[:, 1] * bound
    return ((half[:, 0] * bound + (low >> 32)) >> 32).astype(np.int64)


def permutation(seed: int, purpose: Purpose, size: int, step: int = 0) -> Int64:
    """A random order of range(size): the entities sorted by 64 random bits of their own."""
    return np.argsort(words(seed, purpose, np.arange(size), step)[:, 0], kind="stable")


def normal(
    seed: int, purpose: Purpose, entities: Entities, step: int = 0, *, count: int = 1
) -> npt.NDArray[np.float64]:
    """Standard normal numbers: shape (entities, count). Two uniform numbers make two of them (Box
    and Muller, 1958); 1 − uniform is never zero."""
    pairs = uniform(seed, purpose, entities, step, count=count + count % 2)
    radius, angle = np.sqrt(-2 * np.log(1 - pairs[:, 0::2])), 2 * np.pi * pairs[:, 1::2]
    both = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=2)
    return both.reshape(len(pairs), -1)[:, :count]
