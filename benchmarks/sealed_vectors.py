"""Opening sealed vectors of 256 bytes, against one AES-256-GCM call for each.

    python benchmarks/sealed_vectors.py

Times are the fifth percentile of many calls, in microseconds, so that other load does not show.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from lpgcn.crypto import (
    Channel,
    Context,
    Label,
    PrivateKey,
    SecretKey,
    VectorChannel,
    VectorChannels,
    seal,
    tokens,
)

PAYLOAD_BYTES = 256
SLOTS = [(phase, layer) for phase in (1, 2, 3) for layer in range(3)]


def microseconds(act: Callable[[], object], calls: int = 400) -> float:
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        act()
        times.append(time.perf_counter() - start)
    return 1e6 * sorted(times)[calls // 20]


def context(step: int, slot: tuple[int, int] = SLOTS[0]) -> Context:
    return Context(bytes(16), step, *slot, sender=0)


def one_key(rows: int) -> tuple[float, float]:
    """Sealing and opening `rows` vectors of one key."""
    channel, indices = VectorChannel(SecretKey.generate()), np.arange(rows, dtype=np.uint32)
    payload = np.zeros((rows, PAYLOAD_BYTES), dtype=np.uint8)
    sealed = channel.seal(context(0), indices, payload)
    steps = iter(range(1, 10_000))
    sealing = microseconds(lambda: channel.seal(context(next(steps)), indices, payload))
    return sealing, microseconds(lambda: channel.open(context(0), indices, sealed))


def many_keys(rows: int) -> tuple[float, float, float]:
    """Opening one vector of each key, making a step's streams, and opening without keeping any."""
    keys = [SecretKey.generate() for _ in range(rows)]
    payload = np.zeros((1, PAYLOAD_BYTES), dtype=np.uint8)
    first = np.zeros(1, dtype=np.uint32)
    senders = np.zeros(rows, dtype=np.uint32)

    def sealed_at(step: int) -> np.ndarray:
        place = context(step)
        return np.concatenate([VectorChannel(key).seal(place, first, payload) for key in keys])

    sealed, other = sealed_at(1), sealed_at(2)
    kept, single = VectorChannels(keys, SLOTS), VectorChannels(keys)
    opening = microseconds(lambda: kept.open(context(1), senders, sealed))

    def two_steps() -> None:
        kept.open(context(1), senders, sealed)
        kept.open(context(2), senders, other)

    making = microseconds(two_steps) / 2 - opening
    return opening, making, microseconds(lambda: single.open(context(1), senders, sealed))


def main() -> None:
    channel, plain = Channel(SecretKey.generate()), bytes(PAYLOAD_BYTES)
    sealed = channel.seal(context(0), 0, plain)
    gcm = microseconds(lambda: channel.open(context(0), 0, sealed), 5000)
    print(f"AES-256-GCM, one call: {gcm:.2f} µs a vector")
    for rows in (1, 10, 100, 400, 1000):
        sealing, opening = one_key(rows)
        print(
            f"one key, {rows:4d} vectors: seal {sealing:6.1f} µs, open {opening:6.1f} µs, "
            f"{opening / rows:.2f} a vector, {rows * gcm / opening:.1f}x"
        )
    for rows in (100, 400, 1000):
        opening, making, single = many_keys(rows)
        total = opening + making / len(SLOTS)
        print(
            f"many keys, {rows:4d}: open {opening / rows:.2f} µs a vector and "
            f"{making / rows:.2f} a key and step of {len(SLOTS)} slots, {rows * gcm / total:.1f}x; "
            f"keeping nothing {single / rows:.2f} a vector"
        )
    key, private = SecretKey.generate(), PrivateKey.generate()
    letter = seal(private.public_bytes, bytes(64), b"")
    catalogue = np.arange(40_981)
    print(f"HPKE seal {microseconds(lambda: seal(private.public_bytes, bytes(64), b'')):.0f} µs")
    print(f"HPKE open {microseconds(lambda: private.open(letter, b'')):.0f} µs")
    print(
        f"X25519 agreement {microseconds(lambda: private.agree(private.public_bytes, b'')):.0f} µs"
    )
    print(f"key pair {microseconds(PrivateKey.generate):.0f} µs")
    print(f"HKDF {microseconds(lambda: key.derive(Label.SENDER)):.1f} µs")
    print(
        f"tokens of 40,981 items {microseconds(lambda: tokens(key, catalogue), 20) / 1000:.0f} ms"
    )


if __name__ == "__main__":
    main()
