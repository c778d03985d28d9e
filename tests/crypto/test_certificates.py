"""What the authority signs is accepted by Python's own TLS, for the right host and time only."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lpgcn.crypto import FormatError
from lpgcn.crypto.certificates import Authority, Certificate


def handshake(issued: Certificate, trusted: bytes, host: str, folder: Path) -> None:
    """A whole TLS handshake in memory; raises what the client raises."""
    (folder / "certificate.pem").write_bytes(issued.certificate)
    (folder / "key.pem").write_bytes(issued.key)
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    client_context = ssl.create_default_context(cadata=trusted.decode())
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server, server_hostname=host)
    waiting = [client, server]
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(side)
        if not waiting:
            return
    raise AssertionError("the handshake does not end")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("a federation")


@pytest.mark.parametrize("host", ["broker.example", "127.0.0.1", "::1"])
def test_a_host_of_the_certificate_is_accepted(
    authority: Authority, host: str, tmp_path: Path
) -> None:
    issued = authority.issue(["broker.example", "127.0.0.1", "::1"], days=2)
    handshake(issued, authority.certificate, host, tmp_path)


@pytest.mark.parametrize("host", ["other.example", "a.broker.example", "127.0.0.2"])
def test_another_host_is_refused(authority: Authority, host: str, tmp_path: Path) -> None:
    issued = authority.issue(["broker.example", "127.0.0.1"], days=2)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"mismatch|not valid for"):
        handshake(issued, authority.certificate, host, tmp_path)


def test_an_expired_certificate_is_refused(authority: Authority, tmp_path: Path) -> None:
    past = datetime.now(UTC) - timedelta(days=3)
    issued = authority.issue(["broker.example"], days=2, start=past)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        handshake(issued, authority.certificate, "broker.example", tmp_path)


def test_a_certificate_of_the_future_is_refused(authority: Authority, tmp_path: Path) -> None:
    future = datetime.now(UTC) + timedelta(days=1)
    issued = authority.issue(["broker.example"], days=2, start=future)
    with pytest.raises(ssl.SSLCertVerificationError, match="not yet valid"):
        handshake(issued, authority.certificate, "broker.example", tmp_path)


def test_another_authority_of_the_same_name_is_refused(
    authority: Authority, tmp_path: Path
) -> None:
    issued = authority.issue(["broker.example"], days=2)
    other = Authority.create("a federation")
    with pytest.raises(ssl.SSLCertVerificationError, match="verify failed"):
        handshake(issued, other.certificate, "broker.example", tmp_path)


def test_an_issued_certificate_issues_none(authority: Authority, tmp_path: Path) -> None:
    leaf = authority.issue(["broker.example"], days=2)
    below = Authority(leaf.certificate, leaf.key).issue(["broker.example"], days=1)
    chained = Certificate(below.certificate + leaf.certificate, below.key)
    with pytest.raises(ssl.SSLCertVerificationError, match="verify failed"):
        handshake(chained, authority.certificate, "broker.example", tmp_path)


def test_an_authority_can_be_kept_and_taken_up_again(authority: Authority, tmp_path: Path) -> None:
    again = Authority(authority.certificate, authority.reveal_key())
    handshake(again.issue(["localhost"], days=1), authority.certificate, "localhost", tmp_path)


def test_nothing_outlives_its_authority(tmp_path: Path) -> None:
    authority = Authority.create("short", days=1)
    handshake(
        authority.issue(["localhost"], days=900), authority.certificate, "localhost", tmp_path
    )
    with pytest.raises(FormatError, match="make a new authority"):
        authority.issue(["localhost"], days=1, start=datetime.now(UTC) + timedelta(days=2))


@pytest.mark.parametrize(
    "host", ["", "*", "*.example", "a b", "a..b", "-a", "localhost:4222", "tls://a", "a\n", "ä.de"]
)
def test_what_is_no_host_is_refused(authority: Authority, host: str) -> None:
    with pytest.raises(FormatError, match="neither a host name"):
        authority.issue([host], days=1)


def test_what_cannot_be_issued(authority: Authority) -> None:
    with pytest.raises(FormatError, match="found none"):
        authority.issue([], days=1)
    with pytest.raises(FormatError, match="at least 1 day"):
        authority.issue(["localhost"], days=0)


def test_damaged_and_mixed_files_are_refused(authority: Authority) -> None:
    with pytest.raises(FormatError, match="not readable PEM"):
        Authority(authority.certificate[:100], authority.reveal_key())
    with pytest.raises(FormatError, match="two different"):
        Authority(authority.certificate, Authority.create("other").reveal_key())


def test_no_key_is_shown(authority: Authority) -> None:
    issued = authority.issue(["localhost"], days=1)
    for secret, shown in ((issued.key, repr(issued)), (authority.reveal_key(), repr(authority))):
        lines = secret.decode().splitlines()[1:-1]
        assert lines and not [line for line in lines if line in shown]
