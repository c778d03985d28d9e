"""A message that is not exactly the one that comes next is named, and changes nothing.

A tiny federation is trained while every real message is preceded by bad ones. It must refuse each
of them with a typed error, be the same object graph as before, and end in the same bits as a
federation that nobody disturbed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from lpgcn.config import Config
from lpgcn.crypto import AuthenticationError
from lpgcn.errors import LpgcnError
from lpgcn.fixed_point import DivergedError
from lpgcn.plan import Plan, TokenGraph
from lpgcn.protocol import messages as m
from lpgcn.protocol.errors import (
    MalformedMessageError,
    OversizedMessageError,
    ReplayedMessageError,
    UnexpectedMessageError,
    UnknownVersionError,
    WrongPartyError,
    WrongRunError,
)

Make = Callable[..., Any]
Expected = type[LpgcnError] | tuple[type[LpgcnError], ...]
TINY = Config(dim=3, layers=2, lr=0.05, batch_size=6, virtual_items="2", seed=5)
TRAIN = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 3), (3, 2), (3, 3), (3, 4)]
HELD_OUT = [(0, 3), (1, 1), (3, 0)]
STEPS = 1
both_models = pytest.mark.parametrize("model", ["lightgcn", "lightgcn+"])
both_suites = pytest.mark.parametrize("suite", ["sealed", "paper"])


def changed(data: bytes, **fields: Any) -> bytes:
    """The message with other fields, or with a header of other values."""
    message = msgspec.msgpack.decode(data, type=m.REQUESTS | m.REPLIES)
    header = [*m._HEADER.unpack(message.header)]
    names = ("version", "run", "step", "phase", "layer", "party")
    for place, name in enumerate(names):
        if name in fields:
            header[place] = fields.pop(name)
    fields.setdefault("header", m._HEADER.pack(*header))
    return m.encode(msgspec.structs.replace(message, **fields))


def header_of(data: bytes) -> m.Header:
    message = msgspec.msgpack.decode(data, type=m.REQUESTS | m.REPLIES)
    return m.Header(*m._HEADER.unpack(message.header)[2:5])


def disturbances(
    data: bytes, client: int, earlier: list[bytes], others: list[bytes], rng: random.Random
) -> Iterator[tuple[str, bytes, Expected]]:
    """Bad versions of a message: what they are, their bytes, and what they are refused with."""
    for length in {0, 1, len(data) - 1, *rng.sample(range(len(data)), min(6, len(data)))}:
        yield (
            f"cut to {length} bytes",
            data[:length],
            (MalformedMessageError, UnexpectedMessageError),
        )
    yield "trailing bytes", data + b"\0", MalformedMessageError
    yield "oversized", data + bytes(300_000), OversizedMessageError
    yield "unknown version", changed(data, version=2), UnknownVersionError
    header = header_of(data)
    if header.phase != m.Phase.KEYS:
        # The first message is the one that names the run.
        yield "another run", changed(data, run=bytes(16)), WrongRunError
    yield "to another client", changed(data, party=client + 1), WrongPartyError
    yield "a short header", changed(data, header=b"\1"), MalformedMessageError
    for step in (header.step + 1, header.step + 2, 2**64 - 1):
        yield f"skips to step {step}", changed(data, step=step), UnexpectedMessageError
    yield "another phase", changed(data, phase=99), UnexpectedMessageError
    yield "another layer", changed(data, layer=200), UnexpectedMessageError
    wrong_kind = m.encode(m.Reply(header=m.encode_header(bytes(16), header, client)))
    yield "an answer, not a request", wrong_kind, UnexpectedMessageError
    for old in earlier:
        yield "replayed", old, ReplayedMessageError
    for other in others:
        if header_of(other) == header:
            yield "another client's", other, WrongPartyError


def wrong_fields(data: bytes) -> Iterator[tuple[str, bytes, Expected]]:
    """Every field longer, shorter, gone; the first and the last bit of what is sealed."""
    message = msgspec.msgpack.decode(data, type=m.REQUESTS)
    for name in message.__struct_fields__[:-1]:
        field = getattr(message, name)
        yield f"{name} longer", changed(data, **{name: field + b"\7"}), LpgcnError
        yield f"{name} shorter", changed(data, **{name: field[:-1]}), LpgcnError
        if (
            name in SEALED
            and field
            and not (name == "negatives" and isinstance(message, m.Samples))
        ):
            for bit in (0, 8 * len(field) - 1):
                flipped = bytearray(field)
                flipped[bit // 8] ^= 1 << bit % 8
                yield f"{name} bit {bit}", changed(data, **{name: bytes(flipped)}), LpgcnError


SEALED = (
    "sealed", "answers", "item_rows", "user_rows", "pair_rows", "negative_rows", "negatives",
    "introductions",
)  # fmt: skip


class Disturbed:
    """A federation whose every message comes after bad ones."""

    def __init__(self, federation: Any, picture: Make) -> None:
        self.federation, self.rng, self.picture = federation, random.Random(3), picture
        self.deliver, federation.deliver = federation.deliver, self.disturb
        self.earlier: dict[int, list[bytes]] = {}
        self.refused: Counter[str] = Counter()

    def disturb(self, client: int, request: bytes) -> bytes:
        party = self.federation.clients[client]
        earlier = self.earlier.setdefault(client, [])
        old = [*earlier[-2:], *self.rng.sample(earlier, min(2, len(earlier)))]
        others = [data for number, data in self.federation.requests[-9:] if number != client]
        bad = list(disturbances(request, client, old, others, self.rng))
        if self.federation.config.suite == "sealed":
            bad += [one for one in wrong_fields(request) if self.is_noticed(one[0], request)]
        before = self.picture(party)
        for what, data, expected in bad:
            where = f"{header_of(request)} of client {client}, {what}"
            try:
                with pytest.raises(expected) as found:
                    party.handle(data)
            except BaseException as error:
                error.add_note(where)
                raise
            assert str(found.value), where
            self.refused[type(found.value).__name__] += 1
        after = self.picture(party)
        assert after == before, [name for name in after if after[name] != before.get(name)]
        earlier.append(request)
        return self.deliver(client, request)

    def is_noticed(self, what: str, request: bytes) -> bool:
        """A field that this stage does not read may say anything; an empty one stands for all."""
        name, phase = what.split()[0], header_of(request).phase
        length = len(getattr(msgspec.msgpack.decode(request, type=m.REQUESTS), name))
        unread = (
            name in UNREAD.get(phase, ())
            or (name == "learning_rate" and phase not in (m.Phase.UPDATE, m.Phase.UPDATE_BUILT))
            or (name.endswith("_present") and header_of(request).layer == 0)
        )
        bits = name == "wanted" or name.endswith("_present")
        return not unread and not (bits and length <= 1) and length + what.endswith("longer") > 0


UNREAD = {
    m.Phase.BUILD: ("wants_user",),
    m.Phase.FINAL: ("wants_user",),
    m.Phase.UPDATE: ("wants_user", "wanted"),
    m.Phase.UPDATE_BUILT: ("wants_user", "wanted"),
    m.Phase.RANK: ("user_rows", "user_present", "item_present", "wanted", "wants_user"),
}


@both_models
@both_suites
def test_bad_messages_are_refused_and_change_nothing(
    federation_of: Make, split_of: Make, picture_of: Make, model: str, suite: str
) -> None:
    split, config = split_of(TRAIN, 4, 9, HELD_OUT), TINY.changed(model=model, suite=suite)
    quiet, federation = federation_of(split, config), federation_of(split, config)
    disturbed = Disturbed(federation, picture_of)
    for one in (quiet, federation):
        one.train(STEPS)
    assert quiet.server.measure("valid") == federation.server.measure("valid")
    assert quiet.server.take_loss() == federation.server.take_loss()
    expected, found = quiet.state(), federation.state()
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    kinds = {
        MalformedMessageError, OversizedMessageError, UnknownVersionError, WrongRunError,
        WrongPartyError, ReplayedMessageError, UnexpectedMessageError,
    }  # fmt: skip
    assert {kind.__name__ for kind in kinds} <= disturbed.refused.keys()
    if suite == "sealed":
        assert disturbed.refused[AuthenticationError.__name__] > 100
    assert disturbed.refused.total() > 1500


def bad_replies(data: bytes, client: int, other: bytes) -> Iterator[tuple[str, bytes, Expected]]:
    header = header_of(data)
    yield "truncated", data[:-1], MalformedMessageError
    yield "trailing bytes", data + b"\0", MalformedMessageError
    yield "oversized", data + bytes(300_000), OversizedMessageError
    yield "unknown version", changed(data, version=2), UnknownVersionError
    yield "another run", changed(data, run=bytes(16)), WrongRunError
    yield "from another client", changed(data, party=client + 1), WrongPartyError
    yield "another client's", other, (WrongPartyError, UnexpectedMessageError)
    yield "another kind", m.encode(m.Ask(header=b"")), UnexpectedMessageError
    if header.step:
        yield "of an earlier step", changed(data, step=header.step - 1), ReplayedMessageError
    yield "of a later step", changed(data, step=header.step + 1), UnexpectedMessageError
    yield "of a later layer", changed(data, layer=header.layer + 1), UnexpectedMessageError


@both_models
def test_the_server_refuses_bad_replies_and_changes_nothing(
    federation_of: Make, split_of: Make, picture_of: Make, model: str
) -> None:
    """Every reply of a run is preceded by bad ones, read as the server reads the good one."""
    federation = federation_of(split_of(TRAIN, 4, 9, HELD_OUT), TINY.changed(model=model))
    server, read, refused = federation.server, federation.server._read, Counter[str]()

    def disturbed(client: int, data: bytes, asked: m.Header, kind: type[m.Message]) -> m.Message:
        before = picture_of((server.ledger, server._step))
        other = next((d for c, d in reversed(federation.replies) if c != client), data)
        for what, bad, expected in bad_replies(data, client, other):
            if bad != data:
                with pytest.raises(expected, match=f"client {client}: ") as found:
                    read(client, bad, asked, kind)
                refused[type(found.value).__name__] += 1
                assert picture_of((server.ledger, server._step)) == before, what
        return read(client, data, asked, kind)

    server._read = disturbed
    federation.train(STEPS)
    assert len(refused) == 7
    assert refused.total() > 500


def longer(field: bytes) -> bytes:
    return field + b"\7"


def shorter(field: bytes) -> bytes:
    return field[:-1]


def run_with_one_changed(
    federation: Any, phase: m.Phase, name: str, change: Callable[[bytes], bytes]
) -> list[str]:
    """The first reply of a phase has one of its fields changed; the names of all its fields."""
    deliver, names = federation.deliver, list[str]()

    def disturbed(client: int, request: bytes) -> bytes:
        reply: bytes = deliver(client, request)
        if header_of(reply).phase != phase or names:
            return reply
        message = msgspec.msgpack.decode(reply, type=m.REPLIES)
        names.extend(n for n in message.__struct_fields__ if getattr(message, n))
        return changed(reply, **{name: change(getattr(message, name))}) if name else reply

    federation.deliver = disturbed
    federation.train(1)
    federation.server.measure("valid")
    return [one for one in names if one != "header"]


@pytest.mark.parametrize(("suite", "change"), [("sealed", shorter), ("paper", longer)])
@pytest.mark.parametrize("phase", list(m.Phase))
def test_the_server_refuses_replies_with_wrong_fields(
    federation_of: Make,
    split_of: Make,
    suite: str,
    phase: m.Phase,
    change: Callable[[bytes], bytes],
) -> None:
    split, config = split_of(TRAIN, 4, 9, HELD_OUT), TINY.changed(model="lightgcn+", suite=suite)
    for name in run_with_one_changed(federation_of(split, config), phase, "", change):
        with pytest.raises(MalformedMessageError, match=r"\d"):
            run_with_one_changed(federation_of(split, config), phase, name, change)


@pytest.mark.parametrize("change", [lambda one: one + one[:16], lambda one: one[:-16] + bytes(16)])
def test_the_server_refuses_tokens_that_it_cannot_place(
    federation_of: Make, split_of: Make, change: Callable[[bytes], bytes]
) -> None:
    """One twice, one that is not in the catalogue."""
    federation = federation_of(split_of(TRAIN, 4, 9), TINY)
    with pytest.raises(MalformedMessageError, match="client 0 listed a token"):
        run_with_one_changed(federation, m.Phase.LIST, "tokens", change)


def test_numbers_that_cannot_be_a_count_are_refused(federation_of: Make, split_of: Make) -> None:
    """A masked number that was changed is noticed in the sum, if the sum cannot be."""
    federation = federation_of(split_of(TRAIN, 4, 9), TINY)
    with pytest.raises(MalformedMessageError, match="add up to"):
        run_with_one_changed(
            federation, m.Phase.SUM, "masked", lambda one: one[:7] + bytes((one[7] ^ 0x80,))
        )


def test_a_client_without_interactions_has_no_samples(federation_of: Make, split_of: Make) -> None:
    federation = federation_of(split_of([(0, 1), (0, 2), (2, 3)], 3, 6), TINY)
    with pytest.raises(UnexpectedMessageError, match="no interactions"):
        federation.train(3)


def test_numbers_too_large_to_be_added_up_are_refused_and_change_nothing(
    federation_of: Make, split_of: Make, picture_of: Make
) -> None:
    """In the suite `paper` a count can be changed on its way; then the loss is no number."""
    config = TINY.changed(suite="paper", reg=1e9)
    federation = federation_of(split_of(TRAIN, 4, 9), config)
    deliver, refused = federation.deliver, []

    def disturbed(client: int, request: bytes) -> bytes:
        message = msgspec.msgpack.decode(request, type=m.REQUESTS)
        if isinstance(message, m.LossRows) and message.negatives:
            bad = changed(request, negatives=message.negatives[:-4] + b"\xff" * 4)
            before = picture_of(federation.clients[client])
            with pytest.raises(DivergedError):
                federation.clients[client].handle(bad)
            assert picture_of(federation.clients[client]) == before
            refused.append(client)
        reply: bytes = deliver(client, request)
        return reply

    federation.deliver = disturbed
    federation.train(1)
    assert refused


def test_one_owner_of_everything_is_sent_what_it_needs(federation_of: Make, split_of: Make) -> None:
    """The longest messages that there are: all neighbours, all items, many negatives each."""
    train = [(user, (user * 7 + way) % 40) for user in range(40) for way in range(10)]
    config = TINY.changed(dim=64, batch_size=2048, virtual_items="0")

    def one_owner(graph: TokenGraph) -> Plan:
        return Plan(np.zeros(graph.n_tokens, dtype=np.int64), "one")

    federation = federation_of(split_of(train, 40, 40), config, one_owner)
    federation.train(2)
    sizes = [len(data) for _, data in federation.requests]
    assert max(sizes) > 100_000


def test_a_prediction_is_kept_as_it_was(federation_of: Make, split_of: Make) -> None:
    """A device that asks in the middle of the training gets vectors that belong together."""
    federation = federation_of(split_of(TRAIN, 4, 9), TINY)
    federation.train(1)
    federation.server.predict(range(4))
    asked = msgspec.msgpack.encode(5)
    before = [client.recommend(asked) for client in federation.clients]
    federation.server.step(0, 1, 0.1)
    assert [client.recommend(asked) for client in federation.clients] == before
    federation.server.predict(range(4))
    assert [client.recommend(asked) for client in federation.clients] != before
