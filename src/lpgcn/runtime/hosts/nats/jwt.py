"""Signed tokens of NATS: nkeys, and the claims of operator, account and user (NATS JWT, version 2).

The rights of a role are in the account's token, as the template of a signing key: whoever is named
in a token that this key signed has the role's rights, with its name put in. So the broker needs no
line per client, and a stolen signing key gives away nothing but its own role.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
import time
from collections.abc import Mapping
from enum import IntEnum
from types import ModuleType
from typing import Any, Final, Literal

import msgspec

from lpgcn.errors import LpgcnError

Role = Literal["client", "server", "invited"]

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PUBLIC_KEY_BYTES: Final = 1 + 32 + 2
_UNLIMITED: Final = -1
_VERSION: Final = 2


class CredentialsError(LpgcnError):
    """A name, key, token or file that does not say who somebody is."""


class NkeyKind(IntEnum):
    """What an nkey is for: its first byte, which base32 turns into its first letter."""

    OPERATOR = 14 << 3
    ACCOUNT = 0
    USER = 20 << 3


class Rights(msgspec.Struct, frozen=True):
    """What a role may do; whatever is not allowed here is refused by the broker."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    subscriptions: int = _UNLIMITED
    payload: int = _UNLIMITED


RIGHTS: Final[Mapping[Role, Rights]] = {
    "client": Rights(("up.{{name()}}.>",), ("down.{{name()}}.>",), subscriptions=64),
    "server": Rights(("down.>", "enrolled.>"), ("up.>", "enrol.*")),
    "invited": Rights(
        ("enrol.{{name()}}",), ("enrolled.{{name()}}.>",), subscriptions=4, payload=4096
    ),
}


class Nkey:
    """An nkey: an Ed25519 key pair with its kind. The seed is in no repr and no error."""

    __slots__ = ("_seed", "kind", "public")

    def __init__(self, seed: str, kind: NkeyKind) -> None:
        nkeys = _nkeys()
        try:
            prefix, raw = nkeys.decode_seed(seed.encode())
            # decode_seed does not look at the check sum, so that the seed is written again.
            if nkeys.encode_seed(raw, prefix).decode() != seed or prefix != kind:
                raise ValueError
        except (nkeys.NkeysError, ValueError):
            # What was found is a secret, or close to one, and so is the error about it.
            raise CredentialsError(
                f"what should be the seed of a NATS {kind.name.lower()} key is none, or was "
                "changed; restore the file that it is from, or ask for a new one"
            ) from None
        self._seed = seed
        self.kind = kind
        self.public: str = nkeys.from_seed(seed.encode()).public_key.decode()

    @classmethod
    def generate(cls, kind: NkeyKind) -> Nkey:
        return cls(_nkeys().encode_seed(secrets.token_bytes(32), kind).decode(), kind)

    def sign(self, message: bytes) -> bytes:
        signature: bytes = _nkeys().from_seed(self._seed.encode()).sign(message)
        return signature

    def reveal(self) -> str:
        """The seed, to be put into a file that only its owner reads, and nowhere else."""
        return self._seed

    def __repr__(self) -> str:
        return f"Nkey(hidden, public={self.public})"


class Claims(msgspec.Struct, frozen=True):
    """What a token says. Read without a look at its signature: that is the broker's business."""

    sub: str
    """The public key of who it is about."""
    iss: str
    """The public key that signed it."""
    name: str
    iat: int
    nats: dict[str, Any]
    exp: int = 0
    """Seconds since 1970, or 0 for never."""


def check_name(name: str) -> str:
    """The name itself, if it can be one token of a subject; anything else is refused."""
    if not _NAME.fullmatch(name):
        raise CredentialsError(
            f"{name!r} cannot be a name in a federation: it must have 1 to 64 letters (a-z, A-Z), "
            "digits, '-' or '_'; choose another name"
        )
    return name


def check_public_key(text: str) -> str:
    """The public nkey of a user itself, if its check sum is right; anything else is refused."""
    try:
        raw = base64.b32decode(text)
    except (binascii.Error, ValueError):
        raw = b""
    good = len(raw) == _PUBLIC_KEY_BYTES and raw[0] == NkeyKind.USER
    if not good or _nkeys().crc16_checksum(raw[:-2]) != raw[-2:]:
        raise CredentialsError(
            f"{text[:64]!r} is not the public key of a NATS user; send the key "
            "that belongs to the seed"
        )
    return text


def operator_token(name: str, operator: Nkey) -> str:
    """Whom the broker trusts: the operator says it of itself."""
    return _signed(name, operator.public, operator, {"type": "operator"})


def account_token(
    name: str,
    account: str,
    operator: Nkey,
    *,
    signers: Mapping[Role, str],
    revoked: Mapping[str, int],
) -> str:
    """An account: a signing key for each role, and who is thrown out.

    `revoked` has for a user's public key the second up to which its tokens are void.
    """
    limits = ("subs", "data", "payload", "imports", "exports", "conn", "leaf")
    nats: dict[str, Any] = {
        "limits": {**dict.fromkeys(limits, _UNLIMITED), "wildcards": True},
        "signing_keys": [_scope(role, key) for role, key in signers.items()],
        "type": "account",
    }
    if revoked:
        nats["revocations"] = dict(revoked)
    return _signed(name, account, operator, nats)


def user_token(
    name: str, user: str, account: str, signer: Nkey, *, expires: int, issued: int | None = None
) -> str:
    """A user with the rights of the signer's role until the second `expires`."""
    nats = {"issuer_account": account, "type": "user"}
    return _signed(check_name(name), user, signer, nats, expires=expires, issued=issued)


def read_token(token: str) -> Claims:
    """The claims of a token."""
    try:
        _, body, _ = token.split(".")
        return msgspec.json.decode(
            base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=Claims
        )
    except (ValueError, msgspec.DecodeError):
        raise CredentialsError(
            "what should be a token of NATS (three parts between dots) cannot be read; restore "
            "the file that it is from, or ask for a new one"
        ) from None


def _scope(role: Role, key: str) -> dict[str, Any]:
    rights = RIGHTS[role]
    template = {
        "pub": {"allow": rights.publish},
        "sub": {"allow": rights.subscribe},
        "subs": rights.subscriptions,
        "data": _UNLIMITED,
        "payload": rights.payload,
    }
    return {"kind": "user_scope", "key": key, "role": role, "template": template}


def _signed(
    name: str,
    subject: str,
    signer: Nkey,
    nats: Mapping[str, Any],
    *,
    expires: int | None = None,
    issued: int | None = None,
) -> str:
    """header.claims.signature; the token's own id `jti` is the hash of the claims without it."""
    claims: dict[str, Any] = {
        "iat": int(time.time()) if issued is None else issued,
        "iss": signer.public,
        "name": name,
        "nats": {**nats, "version": _VERSION},
        "sub": subject,
    }
    if expires is not None:
        claims["exp"] = expires
    digest = hashlib.new("sha512_256", msgspec.json.encode(claims)).digest()
    claims["jti"] = base64.b32encode(digest).decode().rstrip("=")
    head = _base64url(msgspec.json.encode({"typ": "JWT", "alg": "ed25519-nkey"}))
    content = f"{head}.{_base64url(msgspec.json.encode(claims))}"
    return f"{content}.{_base64url(signer.sign(content.encode()))}"


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _nkeys() -> ModuleType:
    try:
        import nkeys
    except ImportError as error:
        raise CredentialsError(
            "a federation over a network needs nkeys, which is not installed; run "
            "`pip install 'lpgcn[network]'`"
        ) from error
    module: ModuleType = nkeys
    return module
