"""Who may do what, asked of a real broker; and the files that say who somebody is."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error
from rich.pretty import pretty_repr

from lpgcn.crypto.certificates import Authority
from lpgcn.runtime.hosts.nats.authority import FederationFolder
from lpgcn.runtime.hosts.nats.broker import Broker
from lpgcn.runtime.hosts.nats.configuration import FederationError
from lpgcn.runtime.hosts.nats.connection import Batch, Receive
from lpgcn.runtime.hosts.nats.credentials import Credentials
from lpgcn.runtime.hosts.nats.enrolment import (
    EnrolmentDesk,
    EnrolmentError,
    EnrolmentReply,
    EnrolmentRequest,
    Issuer,
    accept_enrolment,
    answer_enrolment,
    enrol,
    request_enrolment,
)
from lpgcn.runtime.hosts.nats.jwt import (
    CredentialsError,
    Nkey,
    NkeyKind,
    check_name,
    check_public_key,
    read_token,
    user_token,
)
from lpgcn.runtime.hosts.nats.nats_client import close
from lpgcn.runtime.hosts.nats.registry import Book, Member
from lpgcn.runtime.runs.serving import let_newcomers_in

DEADLINE = 20.0


class Federation:
    """A folder and its broker."""

    def __init__(self, folder: FederationFolder, broker: Broker) -> None:
        self.folder, self.broker = folder, broker

    @property
    def server(self) -> Credentials:
        return Credentials.load(self.folder.server_credentials)

    def signed(self, name: str, *, expires: int, issuer: Issuer | None = None) -> Credentials:
        """Credentials by any issuer and for any time, which the folder would not give."""
        like, key = self.server, Nkey.generate(NkeyKind.USER)
        issuer = issuer or self.folder.issuer("client")
        member = Member(
            name=name, key=key.public, role="client", issued=expires - 60, expires=expires
        )
        return msgspec.structs.replace(
            like, role="client", name=name, token=issuer.token(member), seed=key.reveal()
        )


@pytest.fixture
def federation(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[Federation]:
    folder = FederationFolder.create(tmp_path / "federation", port=free_port())
    with Broker(folder.config, log=tmp_path / "broker.log") as broker:
        yield Federation(folder, broker)


class Link:
    """A connection, the errors that it reports, and its end."""

    def __init__(self) -> None:
        self.client = Client()
        self.errors: asyncio.Queue[Exception] = asyncio.Queue()
        self.closed = asyncio.Event()

    async def settle(self) -> None:
        """Return when the broker has dealt with all that was sent.

        nats-py writes the PING of a flush at once, which can be before what was waiting to be
        sent; that is sent by the time of the PONG, and before a second PING.
        """
        await self.client.flush()
        await self.client.flush()

    async def error(self) -> str:
        return str(await asyncio.wait_for(self.errors.get(), DEADLINE))


@asynccontextmanager
async def connected(credentials: Credentials, **other: Any) -> AsyncIterator[Link]:
    link = Link()

    async def error_cb(error: Exception) -> None:
        link.errors.put_nowait(error)

    async def closed_cb() -> None:
        link.closed.set()

    options = {"allow_reconnect": False, "max_reconnect_attempts": 1, "reconnect_time_wait": 0.1}
    try:
        await link.client.connect(
            **credentials.connect_options(),
            **options | other,
            error_cb=error_cb,
            closed_cb=closed_cb,
        )
        yield link
    finally:
        await close(link.client)


def refused(credentials: Credentials, error: type[Exception] = Error) -> str:
    """What the broker, or TLS, says to somebody who may not connect."""

    async def attempt() -> str:
        with pytest.raises(error) as caught:
            async with connected(credentials):
                pass
        return str(caught.value)

    return asyncio.run(attempt())


def test_a_client_has_its_own_subjects(federation: Federation) -> None:
    async def talk() -> None:
        alice = federation.folder.enrol("alice")
        async with connected(federation.server) as server, connected(alice) as client:
            up = await server.client.subscribe("up.>")
            down = await client.client.subscribe("down.alice.>")
            await asyncio.gather(server.settle(), client.settle())
            await client.client.publish("up.alice.hello", b"1")
            assert (await up.next_msg(DEADLINE)).subject == "up.alice.hello"
            await server.client.publish("down.alice.hello", b"2")
            assert (await down.next_msg(DEADLINE)).data == b"2"
            assert server.errors.empty() and client.errors.empty()

    asyncio.run(talk())


@pytest.mark.parametrize(
    "subject",
    ["up.bob.x", "up.x", "up.alice", "down.alice.x", "down.bob.x", "enrol.x", "_INBOX.x", "$SYS.x"],
)
def test_a_client_cannot_publish_elsewhere(federation: Federation, subject: str) -> None:
    async def talk() -> str:
        alice = federation.folder.enrol("alice")
        async with connected(federation.server) as server, connected(alice) as client:
            up = await server.client.subscribe("up.>")
            await server.settle()
            await client.client.publish(subject, b"")
            await client.client.publish("up.alice.last", b"")
            assert (await up.next_msg(DEADLINE)).subject == "up.alice.last"
            return await client.error()

    assert asyncio.run(talk()) == f'nats: permissions violation for publish to "{subject.lower()}"'


@pytest.mark.parametrize(
    "subject",
    ["down.bob.>", "down.*.x", "down.>", ">", "up.alice.>", "up.>", "enrolled.>", "_INBOX.>"],
)
def test_a_client_cannot_listen_elsewhere(federation: Federation, subject: str) -> None:
    async def talk() -> str:
        alice = federation.folder.enrol("alice")
        async with connected(federation.server) as server, connected(alice) as client:
            heard: list[Msg] = []

            async def hear(message: Msg) -> None:
                heard.append(message)

            await client.client.subscribe(subject, cb=hear)
            last = await client.client.subscribe("down.alice.last")
            await client.settle()
            await server.client.publish("down.bob.x", b"")
            await server.client.publish("down.alice.last", b"")
            assert (await last.next_msg(DEADLINE)).subject == "down.alice.last"
            assert heard == []
            return await client.error()

    found = asyncio.run(talk())
    assert found == f'nats: permissions violation for subscription to "{subject.lower()}"'


def test_a_server_is_no_client(federation: Federation) -> None:
    async def talk() -> str:
        async with connected(federation.server) as server:
            await server.client.publish("up.alice.x", b"")
            return await server.error()

    assert "publish" in asyncio.run(talk())


def test_another_signer_is_refused(federation: Federation, tmp_path: Path) -> None:
    soon = int(time.time()) + 60
    unknown = Issuer("client", federation.folder.about.account, Nkey.generate(NkeyKind.ACCOUNT))
    assert "Authorization Violation" in refused(
        federation.signed("alice", expires=soon, issuer=unknown)
    )
    other = FederationFolder.create(tmp_path / "other").enrol("alice")
    here = federation.server
    moved = msgspec.structs.replace(other, urls=here.urls, authority=here.authority)
    assert "Authorization Violation" in refused(moved)


def test_the_client_signing_key_gives_no_other_rights(federation: Federation) -> None:
    """Rights in the token itself are void, as the signing key has a scope."""
    genuine = federation.folder.enrol("alice")
    head, body, _ = genuine.token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "==="))
    claims["nats"]["pub"] = {"allow": [">"]}
    wider = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    signer = federation.folder.issuer("client").signer
    signature = base64.urlsafe_b64encode(signer.sign(f"{head}.{wider}".encode())).decode()
    forged = f"{head}.{wider}.{signature.rstrip('=')}"
    assert "Authorization Violation" in refused(msgspec.structs.replace(genuine, token=forged))


def test_a_token_is_nothing_without_its_key(federation: Federation) -> None:
    alice = federation.folder.enrol("alice")
    stolen = msgspec.structs.replace(alice, seed=Nkey.generate(NkeyKind.USER).reveal())
    assert "Authorization Violation" in refused(stolen)


def test_expired_credentials_are_refused(federation: Federation, tmp_path: Path) -> None:
    expired = federation.signed("alice", expires=int(time.time()) - 1)
    assert "Authorization Violation" in refused(expired)
    expired.save(tmp_path / "alice.credentials")
    with pytest.raises(CredentialsError, match="expired on"):
        Credentials.load(tmp_path / "alice.credentials")


@pytest.mark.slow
def test_credentials_expire_while_they_are_used(federation: Federation) -> None:
    """Slow, as a machine that has much to do may not be connected within three seconds."""

    async def wait() -> None:
        soon = federation.signed("alice", expires=int(time.time()) + 3)
        async with connected(soon) as link:
            await link.settle()
            assert link.client.is_connected
            await asyncio.wait_for(link.closed.wait(), DEADLINE)

    asyncio.run(wait())


def test_who_is_revoked_is_thrown_out_and_stays_out(federation: Federation) -> None:
    alice, bob = federation.folder.enrol_all(["alice", "bob"])

    async def wait() -> None:
        async with connected(alice) as out, connected(bob) as stays:
            done = federation.folder.revoke("alice")
            assert str(federation.folder.config) in done.to_do
            federation.broker.reload()
            await asyncio.wait_for(out.closed.wait(), DEADLINE)
            await stays.settle()
            assert stays.client.is_connected

    asyncio.run(wait())
    assert "Authorization Violation" in refused(alice)
    federation.broker.restart()
    assert "Authorization Violation" in refused(alice)
    again = federation.folder.enrol("alice")

    async def come_back() -> None:
        async with connected(again) as link:
            await link.settle()

    asyncio.run(come_back())
    federation.folder.revoke("bob")
    federation.broker.reload()
    assert "Authorization Violation" in refused(alice)
    assert "Authorization Violation" in refused(bob)


def test_who_was_enrolled_by_a_clock_that_was_ahead_is_thrown_out_all_the_same(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker compares the time of the revocation with that of the token."""
    now = time.time()
    with monkeypatch.context() as ahead:
        ahead.setattr(time, "time", lambda: now + 600)
        alice = federation.folder.enrol("alice")
    federation.folder.revoke("alice")
    federation.broker.reload()
    assert "Authorization Violation" in refused(alice)


def test_a_revoked_server_has_new_credentials(federation: Federation) -> None:
    before = federation.server
    federation.folder.revoke("server")
    federation.broker.reload()
    assert "Authorization Violation" in refused(before)
    with pytest.raises(FederationError, match="taken"):
        federation.folder.enrol("server")

    async def come() -> None:
        async with desk_at(federation):
            pass

    asyncio.run(come())


def test_a_later_configuration_has_the_same_operator(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a running broker refuses to read it."""
    later = time.time() + 1000
    federation.folder.enrol("alice")
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: later)
        federation.folder.revoke("alice")
    federation.broker.reload()


def test_another_authority_is_refused(federation: Federation) -> None:
    alice = federation.folder.enrol("alice")
    other = Authority.create("federation federation").certificate.decode()
    wrong = msgspec.structs.replace(alice, authority=other)
    assert "verify failed" in refused(wrong, ssl.SSLCertVerificationError)


def test_another_host_than_the_certificates_is_refused(federation: Federation) -> None:
    alice = federation.folder.enrol("alice")
    elsewhere = tuple(url.replace("127.0.0.1", "localhost") for url in alice.urls)
    wrong = msgspec.structs.replace(alice, urls=elsewhere)
    assert "localhost" in refused(wrong, ssl.SSLCertVerificationError)


def test_nobody_can_talk_a_client_out_of_tls(federation: Federation) -> None:
    """A broker, or who pretends to be it, that wants no TLS hears nothing but a TLS greeting."""
    alice = federation.folder.enrol("alice")

    async def attempt() -> bytes:
        heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b'INFO {"nonce":"abc","auth_required":true}\r\n')
            heard.set_result(await reader.read(5))
            writer.close()

        async with await asyncio.start_server(pretend, "127.0.0.1", 0) as server:
            url = f"tls://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            with pytest.raises(OSError):  # noqa: PT011
                async with connected(msgspec.structs.replace(alice, urls=(url,))):
                    pass
            return await asyncio.wait_for(heard, DEADLINE)

    assert asyncio.run(attempt())[:2] == b"\x16\x03"


# Invitations


@asynccontextmanager
async def desk_at(federation: Federation) -> AsyncIterator[EnrolmentDesk]:
    """What `lpgcn serve` does for newcomers."""
    async with connected(federation.server) as server:
        desk = federation.folder.desk()

        async def answer(message: Msg) -> None:
            if reply := desk.reply_to(message.subject, message.data):
                await server.client.publish(*reply)

        await server.client.subscribe("enrol.*", cb=answer)
        await server.settle()
        yield desk


def test_an_invitation_lets_newcomers_in(federation: Federation) -> None:
    invitation = federation.folder.invite(uses=2)

    async def come() -> None:
        async with desk_at(federation):
            key = Nkey.generate(NkeyKind.USER)
            alice = await enrol(invitation, "alice", key=key, timeout=DEADLINE)
            assert await enrol(invitation, "alice", key=key, timeout=DEADLINE) == alice
            with pytest.raises(EnrolmentError, match="'alice' is taken"):
                await enrol(invitation, "alice", timeout=DEADLINE)
            with pytest.raises(EnrolmentError, match="'server' is taken"):
                await enrol(invitation, "server", timeout=DEADLINE)
            with pytest.raises(EnrolmentError, match="belongs to 'alice'"):
                await enrol(invitation, "bob", key=key, timeout=DEADLINE)
            bob = await enrol(invitation.at(invitation.urls[0]), "bob", timeout=DEADLINE)
            assert bob.urls == invitation.urls[:1]
            with pytest.raises(EnrolmentError, match=r"used up \(2\)"):
                await enrol(invitation, "carol", timeout=DEADLINE)
        alice.check()
        assert (alice.role, alice.name, alice.federation) == ("client", "alice", "federation")
        for one in (alice, bob):
            async with connected(one) as link:
                await link.client.publish(f"up.{one.name}.x", b"")
                await link.settle()
                assert link.errors.empty()

    asyncio.run(come())
    members = federation.folder.registry.read().members
    assert {"alice", "bob"} <= members.keys()
    assert len(members[invitation.name].used) == 2


def test_uses_are_remembered_by_the_next_server(federation: Federation) -> None:
    invitation = federation.folder.invite(uses=1)

    async def come(name: str) -> Credentials:
        async with desk_at(federation):
            return await enrol(invitation, name, timeout=DEADLINE)

    asyncio.run(come("alice"))
    federation.folder = FederationFolder(federation.folder.path)
    with pytest.raises(EnrolmentError, match="used up"):
        asyncio.run(come("bob"))


def test_a_revoked_invitation_lets_nobody_in(federation: Federation) -> None:
    invitation = federation.folder.invite(uses=9)
    federation.folder.revoke(invitation.name)

    async def come() -> None:
        async with desk_at(federation):
            await enrol(invitation, "alice", timeout=DEADLINE)

    with pytest.raises(EnrolmentError, match="not valid any more"):
        asyncio.run(come())
    federation.broker.reload()
    with pytest.raises(EnrolmentError, match="Authorization Violation"):
        asyncio.run(come())


def test_who_was_revoked_does_not_come_back_by_an_invitation(federation: Federation) -> None:
    invitation = federation.folder.invite(uses=9)
    key = Nkey.generate(NkeyKind.USER)

    async def come(name: str) -> None:
        async with desk_at(federation):
            await enrol(invitation, name, key=key, timeout=DEADLINE)

    asyncio.run(come("alice"))
    federation.folder.revoke("alice")
    for name in ("alice", "another"):
        with pytest.raises(EnrolmentError, match="key was revoked"):
            asyncio.run(come(name))


def test_an_invitation_is_good_for_nothing_else(federation: Federation) -> None:
    invitation, other = federation.folder.invite(), federation.folder.invite()

    async def talk() -> set[str]:
        async with connected(invitation) as link:
            for subject in ("up.alice.x", f"enrol.{other.name}", f"enrolled.{invitation.name}.x"):
                await link.client.publish(subject, b"")
            for subject in ("down.>", f"enrolled.{other.name}.>", "enrol.>"):
                await link.client.subscribe(subject)
            return {(await link.error()).rpartition(" to ")[2].strip('"') for _ in range(6)}

    assert asyncio.run(talk()) == {
        "up.alice.x",
        f"enrol.{other.name}",
        f"enrolled.{invitation.name}.x",
        "down.>",
        f"enrolled.{other.name}.>",
        "enrol.>",
    }


def test_nobody_at_the_desk(federation: Federation) -> None:
    with pytest.raises(EnrolmentError, match="`lpgcn serve` must be running"):
        asyncio.run(enrol(federation.folder.invite(), "alice", timeout=0.2))
    federation.broker.close()
    with pytest.raises(EnrolmentError, match="check that the broker runs"):
        asyncio.run(enrol(federation.folder.invite(), "alice", timeout=0.2))
    with pytest.raises(EnrolmentError, match="expected an invitation"):
        asyncio.run(enrol(federation.folder.enrol("alice"), "alice"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"name": "alice"}',
        b'{"name": "alice", "key": "UABC.>"}',
        b'{"name": "\xff", "key": "x"}',
        b"1" * 9999,
    ],
)
def test_a_bad_request_is_not_answered(tmp_path: Path, data: bytes) -> None:
    folder = FederationFolder.create(tmp_path / "federation")
    invitation = folder.invite()
    before = folder.registry.read()
    assert folder.desk().reply_to(f"enrol.{invitation.name}", data) is None
    assert folder.registry.read() == before


def requests_like(request: bytes) -> st.SearchStrategy[bytes]:
    """The request with some of it replaced by other bytes, or anything at all."""
    places = st.integers(0, len(request))
    changed = st.builds(
        lambda first, second, new: request[: min(first, second)] + new + request[first:],
        places,
        places,
        st.binary(max_size=4),
    )
    return st.one_of(st.binary(max_size=100), changed)


def test_whatever_a_newcomer_sends_nothing_is_raised(tmp_path: Path) -> None:
    folder = FederationFolder.create(tmp_path / "federation")
    invitation, desk = folder.invite(), folder.desk()
    request = msgspec.json.encode(EnrolmentRequest("alice", Nkey.generate(NkeyKind.USER).public))

    @given(requests_like(request))
    def send(data: bytes) -> None:
        if (answer := desk.reply_to(f"enrol.{invitation.name}", data)) is not None:
            enrolled, name, key = answer[0].split(".")
            assert (enrolled, name) == ("enrolled", invitation.name) and check_public_key(key)
            reply = msgspec.json.decode(answer[1], type=EnrolmentReply)
            assert bool(reply.token) != bool(reply.refusal)

    send()


def test_what_a_newcomer_sends_steers_no_terminal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = FederationFolder.create(tmp_path / "federation")
    assert folder.desk().reply_to("enrol.a", b'{"\\u001b]0;owned\\u0007": 1}') is None
    assert "owned" in caplog.text and all(line.isprintable() for line in caplog.messages)


def test_a_refusal_steers_no_terminal(tmp_path: Path) -> None:
    invitation = FederationFolder.create(tmp_path / "federation").invite()
    key = Nkey.generate(NkeyKind.USER)
    with pytest.raises(EnrolmentError, match="owned") as caught:
        accept_enrolment(
            invitation, EnrolmentRequest("a", key.public), key, EnrolmentReply(refusal="\x1bowned")
        )
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("wrong", ["nothing", "name", "key", "account"])
def test_only_an_answer_about_what_was_asked_for_is_taken(tmp_path: Path, wrong: str) -> None:
    """A token is good at its own broker, whomever it is about."""
    folder, key = FederationFolder.create(tmp_path / "federation"), Nkey.generate(NkeyKind.USER)
    issued_by = FederationFolder.create(tmp_path / "other") if wrong == "account" else folder
    invitation = folder.invite()
    request = request_enrolment(invitation, "alice", key)
    public = Nkey.generate(NkeyKind.USER).public if wrong == "key" else key.public
    asked = EnrolmentRequest("mallory" if wrong == "name" else "alice", public)
    book, issuer = folder.registry.read(), issued_by.issuer("client")
    reply, _ = answer_enrolment(asked, invitation.name, book, issuer)
    assert reply.token
    if wrong == "nothing":
        taken = accept_enrolment(invitation, request, key, reply)
        assert (taken.name, taken.token, taken.seed) == ("alice", reply.token, key.reveal())
        return
    with pytest.raises(EnrolmentError, match=f"about '{asked.name}' with another key or account"):
        accept_enrolment(invitation, request, key, reply)


class _Post:
    """A switchboard's connection, as far as newcomers are concerned."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, bytes]] = []
        self.connection = self

    def subscribe(self, subject: str, receive: Receive) -> None:
        assert subject == "enrol.*"
        self.hear = receive

    def post(self, batch: Batch) -> None:
        self.posted += batch


def test_neither_a_newcomer_nor_a_disk_ends_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, board = FederationFolder.create(tmp_path / "federation"), _Post()
    invitation = folder.invite()
    let_newcomers_in(board, folder.desk())  # type: ignore[arg-type]
    request = msgspec.json.encode(EnrolmentRequest("alice", Nkey.generate(NkeyKind.USER).public))

    def refuse(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    board.hear(f"enrol.{invitation.name}", b'{"name": "\xff", "key": "x"}')
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        board.hear(f"enrol.{invitation.name}", request)
    assert board.posted == []
    board.hear(f"enrol.{invitation.name}", request)
    [(_, reply)] = board.posted
    assert msgspec.json.decode(reply, type=EnrolmentReply).token


def test_an_expired_invitation_is_refused_at_the_desk_too(tmp_path: Path) -> None:
    folder = FederationFolder.create(tmp_path / "federation")
    invitation = folder.invite(days=1)
    request = EnrolmentRequest("alice", Nkey.generate(NkeyKind.USER).public)
    book, issuer = folder.registry.read(), folder.issuer("client")
    end = book.members[invitation.name].expires
    reply, after = answer_enrolment(request, invitation.name, book, issuer, now=end)
    assert "not valid any more" in reply.refusal and after is book
    reply, after = answer_enrolment(request, invitation.name, book, issuer, now=end - 1)
    assert read_token(reply.token).sub == request.key and "alice" in after.members
    for unknown in ("nobody", "server"):
        assert "not known" in answer_enrolment(request, unknown, book, issuer)[0].refusal


def test_many_at_the_desk_at_once(tmp_path: Path) -> None:
    """From several processes, too: each desk opens the file and its lock anew."""
    folder = FederationFolder.create(tmp_path / "federation")
    invitation = folder.invite(uses=5)

    def come(number: int) -> bool:
        request = EnrolmentRequest(f"client-{number}", Nkey.generate(NkeyKind.USER).public)
        return bool(folder.desk().answer(request, invitation.name).token)

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(come, range(24))) == 5
    members = folder.registry.read().members
    assert len(members) == 2 + 5 and len(set(members[invitation.name].used)) == 5


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=12))
def test_a_name_has_one_key_and_an_invitation_its_number_of_uses(
    asked: list[tuple[str, int]],
) -> None:
    keys = [Nkey.generate(NkeyKind.USER).public for _ in range(4)]
    offer = Member(name="i", key="", role="invited", issued=0, expires=100, uses=2)
    book = Book().with_members([offer])
    issuer = Issuer("client", "A", Nkey.generate(NkeyKind.ACCOUNT))
    given_out: set[tuple[str, str]] = set()
    for name, number in asked:
        request = EnrolmentRequest(name, keys[number])
        reply, book = answer_enrolment(request, "i", book, issuer, now=50)
        assert bool(reply.token) != bool(reply.refusal)
        if reply.token:
            claims = read_token(reply.token)
            given_out.add((claims.name, claims.sub))
    names, holders = {name for name, _ in given_out}, {key for _, key in given_out}
    assert len(names) == len(holders) == len(given_out) <= 2


# Files


@pytest.fixture
def alice(tmp_path: Path) -> Credentials:
    return FederationFolder.create(tmp_path / "quiet").enrol("alice")


def test_a_file_holds_everything(alice: Credentials, tmp_path: Path) -> None:
    path = tmp_path / "alice.credentials"
    alice.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Credentials.load(path) == alice
    with pytest.raises(CredentialsError, match="not overwritten"):
        alice.save(path)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o602])
def test_a_file_that_others_may_read_is_refused(
    alice: Credentials, tmp_path: Path, mode: int
) -> None:
    path = tmp_path / "alice.credentials"
    alice.save(path)
    path.chmod(mode)
    with pytest.raises(CredentialsError, match=f"chmod 600 {path}"):
        Credentials.load(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="does not exist"):
        Credentials.load(tmp_path / "none")
    with pytest.raises(CredentialsError, match="is a folder"):
        Credentials.load(tmp_path)


def test_damaged_files_are_refused_and_show_no_secret(alice: Credentials, tmp_path: Path) -> None:
    other = Nkey.generate(NkeyKind.USER)
    whole = msgspec.to_builtins(alice)
    changed = alice.seed[:20] + ("A" if alice.seed[20] != "A" else "B") + alice.seed[21:]
    bad: list[Any] = [
        whole | wrong
        for wrong in (
            {"seed": changed},
            {"seed": other.reveal()},
            {"seed": alice.seed.lower()},
            {"seed": 7},
            {"token": alice.token[:-1].replace(".", "-")},
            {"token": "a.b.c"},
            {"name": "bob"},
            {"name": "a.b"},
            {"urls": []},
            {"urls": ["http://127.0.0.1"]},
            {"urls": ["nats://127.0.0.1:4222"]},
            {"urls": ["tls://[::1"]},
            {"urls": ["tls://127.0.0.1:port"]},
            {"urls": ["nats://203.0.113.5:4222"], "authority": ""},
            {"authority": ""},
            {"format": 2},
            {"role": "king"},
            {"more": alice.seed},
        )
    ]
    bad += [{}, [], {key: value for key, value in whole.items() if key != "seed"}]
    contents = [json.dumps(one).encode() for one in bad]
    contents += [json.dumps(whole).encode()[:-30], b"", b"\xff\xfe", b'{"name": "\xff"}']
    for number, content in enumerate(contents):
        path = tmp_path / str(number)
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(CredentialsError, match="not a whole credentials file") as caught:
            Credentials.load(path)
        for secret in (alice.seed, changed, other.reveal()):
            assert secret not in f"{caught.value!r} {caught.value.__cause__!r}"


def test_without_tls_credentials_are_for_loopback_only(tmp_path: Path) -> None:
    plain = FederationFolder.create(tmp_path / "plain", plain=True).enrol("alice")
    for local in ("nats://127.0.0.1:7", "nats://[::1]:7", "nats://localhost:7"):
        assert plain.at(local).connect_options()["servers"] == [local]
    for far in ("nats://203.0.113.5:4222", "nats://broker.example.org", "nats://0.0.0.0:4222"):
        with pytest.raises(CredentialsError, match="expected a loopback address"):
            plain.at(far)
    with pytest.raises(CredentialsError, match="expected tls:// with"):
        plain.at("tls://127.0.0.1:7")


def test_another_address_must_be_one_with_tls(alice: Credentials) -> None:
    assert alice.at("tls://203.0.113.5:4222").urls == ("tls://203.0.113.5:4222",)
    for wrong in ("nats://127.0.0.1:4222", "127.0.0.1:4222", "broker", "tls://[::1"):
        with pytest.raises(CredentialsError, match="'alice' are not for the broker"):
            alice.at(wrong)


def test_no_repr_shows_a_seed(alice: Credentials) -> None:
    key = Nkey(alice.seed, NkeyKind.USER)
    for shown in (repr(alice), str(alice), pretty_repr(alice), pretty_repr([alice]), repr(key)):
        assert alice.seed not in shown
    assert alice.seed not in repr(alice.connect_options())


@pytest.mark.parametrize("name", ["", "a.b", "*", ">", "a b", "a\n", "ä", "a" * 65, "{{name()}}"])
def test_what_cannot_be_a_name(name: str) -> None:
    with pytest.raises(CredentialsError, match="cannot be a name"):
        check_name(name)
    with pytest.raises(CredentialsError, match="cannot be a name"):
        user_token(name, "U", "A", Nkey.generate(NkeyKind.ACCOUNT), expires=1)


@given(st.text(max_size=70))
def test_a_name_is_one_token_of_a_subject(name: str) -> None:
    try:
        check_name(name)
    except CredentialsError:
        return
    assert name.isascii() and not set(name) & set(".*> \t\r\n") and 0 < len(name) <= 64


def test_public_keys_are_told_from_others() -> None:
    user, account = Nkey.generate(NkeyKind.USER), Nkey.generate(NkeyKind.ACCOUNT)
    assert check_public_key(user.public) == user.public
    damaged = user.public[:-1] + ("A" if user.public[-1] != "A" else "B")
    for wrong in (account.public, damaged, user.public[:-8], user.public.lower(), "", "ü"):
        with pytest.raises(CredentialsError, match="not the public key"):
            check_public_key(wrong)
    with pytest.raises(CredentialsError, match="seed of a NATS user key"):
        Nkey(account.reveal(), NkeyKind.USER)
