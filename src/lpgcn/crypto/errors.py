"""What can go wrong with a key or a sealed message; no message ever holds key or plain bytes."""

from __future__ import annotations

from lpgcn.errors import LpgcnError


class CryptoError(LpgcnError):
    """The root of this room's errors."""


class FormatError(CryptoError):
    """What cannot be what it is said to be: wrong length, unknown version, out of range."""


class AuthenticationError(CryptoError):
    """A sealed message not made with this key for this context, or changed on its way."""

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row
        """The first message that failed, when many were opened at once."""


class NonceReuseError(CryptoError):
    """A second message for a place that this key has sealed for before."""
