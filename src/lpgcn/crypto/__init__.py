"""Keys, tokens, sealed messages, masks and certificates: the only importer of `cryptography`.

It knows no protocol: a message's place is a `Context` of numbers. Opening raises a typed error and
never returns a bool; keys appear in no repr and no error.
"""

from lpgcn.crypto.channel import TAG_BYTES, Channels
from lpgcn.crypto.context import Context
from lpgcn.crypto.directory import (
    ROOT_BYTES,
    Directory,
    entry_bytes,
    fingerprint,
    position,
    proved_key,
)
from lpgcn.crypto.errors import AuthenticationError, CryptoError, FormatError, NonceReuseError
from lpgcn.crypto.keys import KEY_BYTES, SEAL_OVERHEAD, Label, PrivateKey, SecretKey, seal
from lpgcn.crypto.masks import Masks
from lpgcn.crypto.tokens import TOKEN_BYTES, tokens

__all__ = [
    "KEY_BYTES",
    "ROOT_BYTES",
    "SEAL_OVERHEAD",
    "TAG_BYTES",
    "TOKEN_BYTES",
    "AuthenticationError",
    "Channels",
    "Context",
    "CryptoError",
    "Directory",
    "FormatError",
    "Label",
    "Masks",
    "NonceReuseError",
    "PrivateKey",
    "SecretKey",
    "entry_bytes",
    "fingerprint",
    "position",
    "proved_key",
    "seal",
    "tokens",
]
