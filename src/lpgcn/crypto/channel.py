"""Byte messages under AES-256-GCM."""

from __future__ import annotations

import struct
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from lpgcn.crypto.context import VERSION, Context, NonceGuard
from lpgcn.crypto.errors import AuthenticationError, FormatError
from lpgcn.crypto.keys import SecretKey

CHANNEL_OVERHEAD: Final = 1 + 16
_NONCE: Final = struct.Struct(">QI")


class Channel:
    """Seals and opens byte messages under a key that belongs to one run, sender and purpose.

    The nonce is (step: 48 bits, phase: 8, layer: 8, index: 32), so two messages of one sender never
    share one unless it says the same place twice, which `seal` refuses. Two directions between the
    same two parties are two senders and need two keys.
    """

    __slots__ = ("_cipher", "_guard")

    def __init__(self, key: SecretKey) -> None:
        self._cipher = AESGCM(key.reveal())
        self._guard = NonceGuard()

    def seal(self, context: Context, index: int, plaintext: bytes) -> bytes:
        """version ‖ ciphertext ‖ tag, with the encoded context as associated data."""
        nonce = _nonce(context, index)
        self._guard.claim(context, index)
        return bytes((VERSION,)) + self._cipher.encrypt(nonce, plaintext, context.encode())

    def open(self, context: Context, index: int, sealed: bytes) -> bytes:
        """The plaintext of what `seal` made with this key, context and index."""
        if len(sealed) < CHANNEL_OVERHEAD:
            raise FormatError(f"{len(sealed)} sealed bytes, but {CHANNEL_OVERHEAD} is the least")
        if sealed[0] != VERSION:
            raise FormatError(f"sealed message of version {sealed[0]}, expected {VERSION}")
        nonce = _nonce(context, index)
        try:
            return self._cipher.decrypt(nonce, memoryview(sealed)[1:], context.encode())
        except InvalidTag as error:
            raise AuthenticationError(
                f"the message of sender {context.sender} for {context}, index {index} does not "
                "open: another key or context, or changed on its way"
            ) from error


def _nonce(context: Context, index: int) -> bytes:
    if not 0 <= index < 1 << 32:
        raise FormatError(f"message index {index} is outside [0, 2^32)")
    return _NONCE.pack(context.step << 16 | context.slot, index)
