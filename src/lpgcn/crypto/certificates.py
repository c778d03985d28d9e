"""A small X.509 authority: one self-signed certificate, and those that it issues for hosts.

Keys are ECDSA P-256. Everything is PEM in bytes; who keeps it where is not decided here.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lpgcn.crypto.errors import FormatError

AUTHORITY_DAYS: Final = 3650
_SKEW: Final = timedelta(hours=1)
"""A certificate begins this long ago, for machines whose clocks are behind."""
_LABEL: Final = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST_NAME: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_LONGEST_HOST_NAME: Final = 253
_LONGEST_NAME: Final = 64


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its private key, both PEM; the key is in no repr."""

    certificate: bytes
    key: bytes = field(repr=False)


class Authority:
    """Signs certificates that whoever trusts `certificate` accepts."""

    __slots__ = ("_key", "_own", "certificate")

    def __init__(self, certificate: bytes, key: bytes) -> None:
        """From what `certificate` and `reveal_key` gave, both PEM."""
        try:
            own = x509.load_pem_x509_certificate(certificate)
            private = load_pem_private_key(key, password=None)
        except (ValueError, TypeError) as error:
            raise FormatError(
                "the certificate or the key of the authority is not readable PEM; "
                "restore both files from a copy"
            ) from error
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise FormatError("the authority's key is not an elliptic-curve key; restore its file")
        if private.public_key() != own.public_key():
            raise FormatError(
                "the authority's key and certificate belong to two different authorities; "
                "restore both files from the same copy"
            )
        self.certificate = certificate
        self._own = own
        self._key = private

    @classmethod
    def create(cls, name: str, *, days: int = AUTHORITY_DAYS) -> Authority:
        """A new authority that trusts nobody but itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        public = key.public_key()
        subject = _subject(name)
        usage = _usage(key_cert_sign=True, crl_sign=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(public)
        builder = (
            _builder(subject, subject, public, *_period(days, None))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(identifier, critical=False)
        )
        return cls(builder.sign(key, SHA256()).public_bytes(Encoding.PEM), _pem(key))

    def issue(
        self, hosts: Sequence[str], *, days: int, start: datetime | None = None
    ) -> Certificate:
        """A certificate for a server with these host names and IP addresses.

        It begins at `start`, or an hour ago, and never outlives the authority.
        """
        if not hosts:
            raise FormatError("a certificate needs a host name or an IP address, found none")
        names = [_general_name(host) for host in hosts]
        key = ec.generate_private_key(ec.SECP256R1())
        public = key.public_key()
        begin, end = _period(days, start)
        end = min(end, self._own.not_valid_after_utc)
        if end <= begin:
            raise FormatError(
                f"the authority's certificate ended on {self._own.not_valid_after_utc:%Y-%m-%d}; "
                "make a new authority"
            )
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _builder(_subject(hosts[0]), self._own.subject, public, begin, end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(issuer, critical=False)
        )
        signed = builder.sign(self._key, SHA256())
        return Certificate(signed.public_bytes(Encoding.PEM), _pem(key))

    def reveal_key(self) -> bytes:
        """The private key as PEM, to be put into a file that only its owner reads."""
        return _pem(self._key)

    def __repr__(self) -> str:
        return f"Authority({self._own.subject.rfc4514_string()!r}, key hidden)"


def check_host(host: str) -> str:
    """The host itself, if it is a DNS name or an IP address; anything else is refused."""
    _general_name(host)
    return host


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if len(host) <= _LONGEST_HOST_NAME and _HOST_NAME.fullmatch(host):
            return x509.DNSName(host)
    raise FormatError(
        f"{host!r} is neither a host name (letters, digits, '-', between dots) nor an IP address; "
        "give the name under which others reach this machine, without port or scheme"
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    begin: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )


def _period(days: int, start: datetime | None) -> tuple[datetime, datetime]:
    if days < 1:
        raise FormatError(f"a certificate is valid for at least 1 day, found {days}")
    now = datetime.now(UTC)
    return (start or now - _SKEW), (start or now) + timedelta(days=days)


def _subject(name: str) -> x509.Name:
    if not name:
        raise FormatError("an authority needs a name, found an empty one")
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:_LONGEST_NAME])])


def _usage(**on: bool) -> x509.KeyUsage:
    names = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
        "key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{name: on.get(name, False) for name in names})


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
