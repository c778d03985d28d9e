"""How a newcomer with an invitation becomes a client, without its key ever leaving its machine.

The newcomer makes a key, connects as the invitation, and sends the public half and the name that it
would like on `enrol.<invitation>`: the broker lets nobody else publish there. Whoever holds the
client signing key answers on `enrolled.<invitation>.<public key>` with a token for that key.
Both may be lost on their way, so that the newcomer asks again; the same key gets the same answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from lpgcn.errors import LpgcnError
from lpgcn.runtime.hosts.nats.credentials import Credentials
from lpgcn.runtime.hosts.nats.frames import shown
from lpgcn.runtime.hosts.nats.jwt import (
    CredentialsError,
    Nkey,
    NkeyKind,
    Role,
    check_name,
    check_public_key,
    read_token,
    user_token,
)
from lpgcn.runtime.hosts.nats.registry import Book, Member, Registry

if TYPE_CHECKING:
    from nats.aio.client import Client

ENROL: Final = "enrol"
"""Whoever answers subscribes to `enrol.*`."""
ENROLLED: Final = "enrolled"
DAY: Final = 24 * 60 * 60
CLIENT_DAYS: Final = 365
_ASK_AGAIN: Final = 2.0
_log = logging.getLogger(__name__)


class EnrolmentError(LpgcnError):
    """A newcomer was not let in, or nobody answered it."""


class EnrolmentRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From the newcomer: the name that it would like, and its public key."""

    name: str
    key: str


class EnrolmentReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token, or the reason why there is none."""

    token: str = ""
    refusal: str = ""


@dataclass(frozen=True)
class Issuer:
    """Signs tokens of one role."""

    role: Role
    account: str
    signer: Nkey

    def token(self, member: Member) -> str:
        return user_token(
            member.name,
            member.key,
            self.account,
            self.signer,
            expires=member.expires,
            issued=member.issued,
        )


def answer_enrolment(
    request: EnrolmentRequest,
    invitation: str,
    book: Book,
    issuer: Issuer,
    *,
    days: int = CLIENT_DAYS,
    now: int | None = None,
) -> tuple[EnrolmentReply, Book]:
    """The answer, and the book after it; the book must be durable before the answer is sent.

    An invitation is used up by keys, not by messages: who asks again is given what it has.
    """
    now = int(time.time()) if now is None else now
    if refusal := _refusal(request, invitation, book, now):
        return EnrolmentReply(refusal=refusal), book
    known = book.members.get(request.name)
    if known is not None:
        return EnrolmentReply(token=issuer.token(known)), book
    member = Member(
        name=request.name,
        key=request.key,
        role=issuer.role,
        issued=now,
        expires=now + days * DAY,
        invitation=invitation,
    )
    offer = book.members[invitation]
    used = msgspec.structs.replace(offer, used=(*offer.used, request.key))
    return EnrolmentReply(token=issuer.token(member)), book.with_members([member, used])


def _refusal(request: EnrolmentRequest, invitation: str, book: Book, now: int) -> str:
    """Why a newcomer is not let in, or nothing."""
    try:
        check_name(request.name)
        check_public_key(request.key)
    except CredentialsError as error:
        return str(error)
    offer = book.members.get(invitation)
    if offer is None or offer.role != "invited":
        return f"the invitation {invitation!r} is not known here; ask for another one"
    if book.is_revoked(offer) or offer.expires <= now:
        return f"the invitation {invitation!r} is not valid any more; ask for another one"
    if request.key in book.revoked:
        return "this key was revoked; ask whoever runs the federation"
    known = book.members.get(request.name)
    if known is not None and (known.key != request.key or known.role != "client"):
        return f"the name {request.name!r} is taken; choose another name"
    owner = book.owner_of(request.key)
    if owner not in ("", request.name):
        return f"this key belongs to {owner!r} already; make a key for every name"
    if known is None and len(offer.used) >= offer.uses:
        return f"the invitation {invitation!r} is used up ({offer.uses}); ask for another one"
    return ""


class EnrolmentDesk:
    """The end that lets newcomers in: it answers what comes on `enrol.*`."""

    def __init__(self, issuer: Issuer, registry: Registry, *, days: int = CLIENT_DAYS) -> None:
        self._issuer, self._registry, self._days = issuer, registry, days

    def reply_to(self, subject: str, data: bytes) -> tuple[str, bytes] | None:
        """What to publish where, if anything. Whatever a newcomer sends, nothing is raised."""
        invitation = subject.removeprefix(f"{ENROL}.")
        try:
            request = msgspec.json.decode(data, type=EnrolmentRequest)
            # The key becomes a part of a subject, so that it must be one before all else.
            check_public_key(request.key)
        except (msgspec.DecodeError, UnicodeDecodeError, CredentialsError) as error:
            _log.warning(
                "invitation %s sent a request that cannot be read: %s",
                shown(invitation),
                shown(str(error)),
            )
            return None
        reply = self.answer(request, invitation)
        if reply.refusal:
            _log.warning("invitation %s was refused: %s", shown(invitation), shown(reply.refusal))
        return f"{ENROLLED}.{invitation}.{request.key}", msgspec.json.encode(reply)

    def answer(self, request: EnrolmentRequest, invitation: str) -> EnrolmentReply:
        """The answer, after the book is on the disk."""
        reply = EnrolmentReply()

        def change(book: Book) -> Book:
            nonlocal reply
            reply, after = answer_enrolment(
                request, invitation, book, self._issuer, days=self._days
            )
            return after

        self._registry.change(change)
        return reply


def request_enrolment(invitation: Credentials, name: str, key: Nkey) -> EnrolmentRequest:
    """What a newcomer sends."""
    if invitation.role != "invited":
        raise EnrolmentError(
            f"the file is of {invitation.name!r}, who is a {invitation.role} already, expected an "
            "invitation; use it with --credentials"
        )
    return EnrolmentRequest(check_name(name), key.public)


def accept_enrolment(
    invitation: Credentials, request: EnrolmentRequest, key: Nkey, reply: EnrolmentReply
) -> Credentials:
    """The newcomer's credentials from the answer, which must be about what it asked for."""
    if not reply.token:
        raise EnrolmentError(
            f"{invitation.federation} did not let {request.name!r} in: {shown(reply.refusal)}"
        )
    claims = read_token(reply.token)
    found = (claims.name, claims.sub, claims.nats.get("issuer_account"))
    if found != (request.name, key.public, invitation.account):
        raise EnrolmentError(
            f"the answer is about {claims.name!r} with another key or account than was asked for; "
            "try again, and tell whoever runs the federation"
        )
    return Credentials(
        federation=invitation.federation,
        role="client",
        name=request.name,
        token=reply.token,
        seed=key.reveal(),
        urls=invitation.urls,
        authority=invitation.authority,
    )


async def enrol(
    invitation: Credentials,
    name: str,
    *,
    key: Nkey | None = None,
    timeout: float = 20.0,
) -> Credentials:
    """Become the client `name` by an invitation, at its broker.

    With a `key` that was kept, somebody who was stopped in the middle can ask again.
    """
    from lpgcn.runtime.hosts.nats.nats_client import close

    key = key or Nkey.generate(NkeyKind.USER)
    request = request_enrolment(invitation, name, key)
    client = await _connect(invitation)
    try:
        reply = await _ask(client, invitation.name, request, timeout)
    finally:
        await close(client)
    return accept_enrolment(invitation, request, key, reply)


async def _ask(
    client: Client, invitation: str, request: EnrolmentRequest, seconds: float
) -> EnrolmentReply:
    """Ask until there is an answer, or the time is up."""
    from nats.errors import Error
    from nats.errors import TimeoutError as NoMessageError

    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    try:
        answers = await client.subscribe(f"{ENROLLED}.{invitation}.{request.key}")
        while (left := end - loop.time()) > 0:
            await client.publish(f"{ENROL}.{invitation}", msgspec.json.encode(request))
            try:
                message = await answers.next_msg(timeout=min(left, _ASK_AGAIN))
            except NoMessageError:
                continue
            return msgspec.json.decode(message.data, type=EnrolmentReply)
    except (Error, OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EnrolmentError(
            f"the connection broke before there was an answer: {error!r}; try again"
        ) from error
    raise EnrolmentError(
        f"nobody answered within {seconds:g} s; `lpgcn serve` must be running, try again then"
    )


async def _connect(invitation: Credentials) -> Client:
    from nats.aio.client import Client
    from nats.errors import Error

    from lpgcn.runtime.hosts.nats.nats_client import CONNECT_SECONDS, close

    seen: list[Exception] = []

    async def note(error: Exception) -> None:
        seen.append(error)

    options = invitation.connect_options() | {
        "allow_reconnect": False,
        "max_reconnect_attempts": 1,
        "reconnect_time_wait": 0.1,
        "connect_timeout": CONNECT_SECONDS,
        "error_cb": note,
    }
    client = Client()
    try:
        await client.connect(**options)
    except (Error, OSError, TimeoutError) as error:
        await close(client)
        raise EnrolmentError(
            f"{', '.join(invitation.urls)} does not let the invitation {invitation.name!r} in: "
            f"{(seen or [error])[0]!r}; check that the broker runs and that the invitation is "
            "neither expired nor revoked"
        ) from error
    return client
