"""A message that is not exactly the one that comes next is named, and changes nothing.

A tiny federation is trained while every real message is preceded by bad ones. It must refuse each
of them with a typed error, be the same object graph as before, and end in the same bits as a
federation that nobody disturbed. The message that came last is answered again, and changes nothing.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from operator import or_
from typing import Any, Final

import msgspec
import numpy as np
import pytest

from lpgcn.checkpoints import CheckpointError
from lpgcn.config import Config
from lpgcn.crypto import AuthenticationError, entry_bytes
from lpgcn.errors import LpgcnError
from lpgcn.fixed_point import DivergedError
from lpgcn.model.grid import GridError
from lpgcn.model.sampling import SamplingError
from lpgcn.plan import Plan, TokenGraph
from lpgcn.protocol.client import newcomer
from lpgcn.protocol.client.client import Client
from lpgcn.protocol.client.profile import Profile
from lpgcn.protocol.errors import (
    MalformedMessageError,
    OversizedMessageError,
    ReplayedMessageError,
    UnexpectedMessageError,
    UnknownVersionError,
    WrongPartyError,
    WrongRunError,
)
from lpgcn.protocol.phases import PHASES, REQUESTS, Phase, PhaseOrder
from lpgcn.protocol.server.caller import Caller, Line
from lpgcn.protocol.server.server import Server
from lpgcn.protocol.suite import SUITES, Kind, Suite
from lpgcn.protocol.wire import encoding, reading
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire.fields import Round
from lpgcn.runtime.hosts.one_process import profiles

Make = Callable[..., Any]
Check = Callable[..., None]
Expected = type[LpgcnError] | tuple[type[LpgcnError], ...]
Bad = Iterator[tuple[str, bytes, Expected]]
TINY = Config(dim=3, layers=3, lr=0.05, batch_size=6, virtual_items="2", seed=5)
POOLED = TINY.changed(loss="softmax", batch_size="full", negatives=6, answers=4)
TRAIN = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 3), (3, 2), (3, 3), (3, 4)]
HELD_OUT = [(0, 3), (1, 1), (3, 0)]
REPLIES = reduce(or_, {row.reply for row in PHASES.values()})
HEADER = ("version", "run", "pass_number", "phase", "layer", "party")
TWINS = (
    {Phase.COUNT, Phase.SUM_LOSS, Phase.KEEP, Phase.GO_BACK},
    {Phase.RANK_VALID, Phase.RANK_TEST, Phase.PREDICT},
)
"""Phases that may come at the same time with messages of the same kind."""


def read(data: bytes) -> m.Message:
    message: m.Message = encoding.decode(data, REQUESTS | REPLIES, limit=1 << 20)
    return message


def changed(data: bytes, **fields: Any) -> bytes:
    """The message with other fields, or with a header of other values."""
    message = read(data)
    values = dict(zip(HEADER, encoding._HEADER.unpack(message.header), strict=True))
    values |= {name: fields.pop(name) for name in HEADER if name in fields}
    fields.setdefault("header", encoding._HEADER.pack(*values.values()))
    return encoding.encode(msgspec.structs.replace(message, **fields))


def header_of(data: bytes) -> encoding.Header:
    return encoding.Header(*encoding._HEADER.unpack(read(data).header)[2:5])


def wrong_bytes(data: bytes, rng: random.Random) -> Bad:
    cuts = {0, 1, len(data) - 1, *rng.sample(range(len(data)), min(6, len(data)))}
    for length in cuts:
        yield f"cut to {length}", data[:length], (MalformedMessageError, UnexpectedMessageError)
    yield "trailing bytes", data + b"\0", MalformedMessageError
    yield "oversized", data + bytes(300_000), OversizedMessageError


def wrong_headers(data: bytes, client: int) -> Bad:
    header, elsewhere = header_of(data), (ReplayedMessageError, UnexpectedMessageError)
    yield "a version before", changed(data, version=encoding.VERSION - 1), UnknownVersionError
    yield "an unknown version", changed(data, version=encoding.VERSION + 1), UnknownVersionError
    yield "to another client", changed(data, party=client + 1), WrongPartyError
    yield "a short header", changed(data, header=b"\1"), MalformedMessageError
    message = read(data)
    begins = isinstance(message, m.Resume) and message.number == bytes(4)
    if not begins and not isinstance(message, m.Begin):
        # The first message of a run is the one that names it.
        yield "another run", changed(data, run=bytes(16)), WrongRunError
    if isinstance(message, m.Resume):
        missing = reading.pack_numbers([77])
        yield "a checkpoint that is not there", changed(data, number=missing), CheckpointError
    for number in (header.pass_number + 1, header.pass_number + 2, 2**64 - 1):
        yield f"pass {number}", changed(data, pass_number=number), UnexpectedMessageError
    if header.pass_number:
        before = header.pass_number - 1
        yield "a pass before", changed(data, pass_number=before), elsewhere
    for phase in {0, 99, 255, *Phase} - {header.phase}:
        if not any({phase, header.phase} <= twins for twins in TWINS):
            yield f"phase {phase}", changed(data, phase=phase), elsewhere
    for layer in {0, header.layer + 1, 200} - {header.layer}:
        yield f"layer {layer}", changed(data, layer=layer), elsewhere


def wrong_kinds(data: bytes, kinds: Any, expected: Expected) -> Bad:
    """Every other kind of message, at the same place."""
    message = read(data)
    for kind in set(kinds) - {type(message)}:
        empty = dict.fromkeys(encoding.content_fields(kind), b"")
        yield f"a {kind.__name__}", encoding.encode(kind(header=message.header, **empty)), expected


def flags(name: str) -> bool:
    """A field of bits: if it is empty all of them are meant."""
    return name in ("wanted", "wishing", "answered") or name.endswith("_present")


def wrong_lengths(data: bytes) -> Bad:
    """Every field longer, shorter, gone: refused, unless what is left has another good meaning."""
    message = read(data)
    for name in encoding.content_fields(type(message)):
        field = getattr(message, name)
        more = bytes(99) if flags(name) else b"\7"
        yield f"{name} longer", changed(data, **{name: field + more}), LpgcnError
        if field and not (name == "wanted" and len(field) == 1):
            yield f"{name} shorter", changed(data, **{name: field[:-1]}), LpgcnError
        # Against a pool, a pass without an epoch is one for a prediction.
        predicts = name == "epoch" and not getattr(message, "positions", b"")
        if field and name not in ("wanted", "owned") and not predicts:
            yield f"{name} gone", changed(data, **{name: b""}), LpgcnError


def sealed_fields(message: m.Message, header: encoding.Header, suite: Suite) -> list[str]:
    """The fields of a request that hold what nobody can change unnoticed."""
    backward = header.phase > Phase.LOSS
    kinds: dict[type[m.Message], dict[str, Kind | None]] = {
        m.SealedKey: {"sealed": None},
        m.SealedAnswers: {"answers": None},
        m.Finish: {"wishes": Kind.WISH},
        m.Samples: {"granted": Kind.GRANT, "negative_rows": Kind.ITEM_FINAL},
        m.LossRows: {
            "users": Kind.USER_FINAL,
            "scalars": Kind.SCALARS,
            "negatives": Kind.NEGATIVE,
            "introductions": None,
        },
        m.Catalogue: {"items": Kind.ITEM_FINAL},
        m.Estates: {"keys": None, "estates": None},
        m.Bequests: {"packages": None},
    }
    found = kinds.get(type(message), {})
    if isinstance(message, m.Arrivals):
        users = Kind.USER_BACKWARD if backward else Kind.USER_FORWARD
        found = {**found, "pushes": Kind.PUSH, "users": users}
    return [
        name
        for name, kind in found.items()
        if getattr(message, name) and (kind is None or suite.protects(kind))
    ]


PROVED: Mapping[type[m.Message], tuple[str, ...]] = {
    m.Placement: ("root", "own", "peers", "group_peers"),
    m.Questions: ("askers",),
    m.Samples: ("new_contacts",),
    m.Mark: ("heirs",),
    m.Estates: ("receivers",),
}
"""Fields of public keys, which come with proofs."""


def proved_fields(message: m.Message) -> list[str]:
    return [name for name in PROVED.get(type(message), ()) if getattr(message, name)]


def tampered(data: bytes, earlier: list[bytes], suite: Suite, rng: random.Random) -> Bad:
    """What is sealed or proved, with bits of it changed, or as it was in an earlier phase."""
    message = read(data)
    for name in (*sealed_fields(message, header_of(data), suite), *proved_fields(message)):
        field = getattr(message, name)
        for bit in {0, 8 * len(field) - 1, *(rng.randrange(8 * len(field)) for _ in range(3))}:
            flipped = bytearray(field)
            flipped[bit // 8] ^= 1 << bit % 8
            yield f"{name} bit {bit}", changed(data, **{name: bytes(flipped)}), LpgcnError
        others = [getattr(read(old), name, b"") for old in earlier]
        for old in [other for other in others if len(other) == len(field)][-2:]:
            if old != field:
                yield f"{name} of before", changed(data, **{name: old}), AuthenticationError


class Disturbed:
    """A federation whose every message comes after bad ones."""

    def __init__(self, federation: Any, picture: Make) -> None:
        self.federation, self.rng, self.picture = federation, random.Random(3), picture
        self.deliver, federation.deliver = federation.deliver, self.disturb
        self.earlier: dict[int, list[bytes]] = {}
        self.answer: dict[int, bytes] = {}
        """Of each client to the last of its earlier requests."""
        self.again = 0
        self.refused: Counter[str] = Counter()
        self.phases: set[int] = set()
        self.kinds: set[str] = set()

    def bad(self, client: int, request: bytes) -> Bad:
        earlier = self.earlier.setdefault(client, [])
        yield from wrong_bytes(request, self.rng)
        yield from wrong_headers(request, client)
        # Where a term begins, another run is noticed first.
        elsewhere = (UnexpectedMessageError, WrongRunError)
        yield from wrong_kinds(request, REQUESTS.__args__, elsewhere)
        yield from wrong_kinds(request, REPLIES.__args__, UnexpectedMessageError)
        yield from wrong_lengths(request)
        yield from tampered(request, earlier, SUITES[self.federation.config.suite], self.rng)
        before, over = earlier[:-1], (ReplayedMessageError, WrongRunError)
        for old in [*before[-2:], *self.rng.sample(before, min(2, len(before)))]:
            # Every term is a run of its own; it is RESUME and KEYS that say which one.
            of_now = encoding.run_of(read(old)) == encoding.run_of(read(request))
            yield "replayed", old, ReplayedMessageError if of_now else over
        for number, other in self.federation.requests[-9:]:
            if number != client and header_of(other) == header_of(request):
                yield "another client's", other, WrongPartyError

    def disturb(self, client: int, request: bytes) -> bytes:
        # That clients have nothing in common, so that no other can change, is in test_isolation.
        party = self.federation.clients[client]
        before = self.picture(party)
        for what, data, expected in self.bad(client, request):
            where = f"{header_of(request)} of client {client}, {what}"
            try:
                with pytest.raises(expected) as found:
                    party.handle(data)
            except BaseException as error:
                error.add_note(where)
                raise
            assert str(found.value), where
            self.refused[type(found.value).__name__] += 1
            self.kinds.add(what)
        if client in self.answer:
            assert party.handle(self.earlier[client][-1]) == self.answer[client]
            self.again += 1
        after = self.picture(party)
        assert after == before, [name for name in after if after[name] != before.get(name)]
        self.earlier[client].append(request)
        self.phases.add(header_of(request).phase)
        self.answer[client] = self.deliver(client, request)
        return self.answer[client]


def whole_run(federation: Any) -> tuple[object, ...]:
    """Every phase that the model has, more than once where it comes in every step: also going on
    from a checkpoint, and a second term, which an owner does not see."""
    federation.train(2)
    server = federation.server
    server.predict([0, 2])
    server.keep()
    found = [server.measure("valid"), server.measure("test"), server.take_loss()]
    saved = server.checkpoint(1)
    server = federation.server = Server.restored(saved, federation.config, federation.line)
    server.resume(1)
    server.step(1, 0, 0.05)
    server.go_back()
    server.checkpoint(2)
    left = np.setdiff1d(server.term.members, server.plan.convolution_clients[:1])
    server = federation.server = server.changed(left, federation.plan, federation.line, 2)
    server.step(2, 0, 0.05)
    return *found, server.measure("valid"), server.take_loss()


MET: Final = (
    TINY.changed(model="ngcf"),
    TINY.changed(model="lightgcn", suite="paper"),
    POOLED.changed(model="lightgcn+", suite="sealed"),
)
"""Both losses, both suites, weights that all have in common: what `make test` goes through."""

every_configuration = pytest.mark.parametrize(
    "config",
    [
        *MET,
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in (
                TINY.changed(model="lightgcn"),
                TINY.changed(model="lightgcn+"),
                TINY.changed(model="lightgcn+", suite="paper"),
                POOLED.changed(model="lightgcn", suite="paper"),
            )
        ),
    ],
    ids=lambda one: f"{one.loss}-{one.model}-{one.suite}",
)


def phases_of(config: Config) -> set[Phase]:
    """But for those that need somebody who joins a model with shared weights."""
    joining = {Phase.HAND_ON, Phase.TAKE_OVER}
    return {phase for phase in Phase if PhaseOrder.of(config).layers_of(phase)} - joining


@every_configuration
def test_bad_messages_are_refused_and_change_nothing(
    federation_of: Make, split_of: Make, picture_of: Make, assert_same: Check, config: Config
) -> None:
    split, suite = split_of(TRAIN, 4, 9, HELD_OUT), config.suite
    quiet, federation = federation_of(split, config), federation_of(split, config)
    disturbed = Disturbed(federation, picture_of)
    assert whole_run(federation) == whole_run(quiet)
    assert_same(federation.state(), quiet.state())
    assert disturbed.phases == phases_of(config)
    assert disturbed.again > 200
    kinds = {
        AuthenticationError, MalformedMessageError, OversizedMessageError, UnknownVersionError,
        WrongRunError, WrongPartyError, ReplayedMessageError, UnexpectedMessageError,
    }  # fmt: skip
    assert {kind.__name__ for kind in kinds} <= disturbed.refused.keys()
    assert disturbed.refused[AuthenticationError.__name__] > (1000 if suite == "sealed" else 100)
    assert disturbed.refused.total() > 10_000
    met = [PHASES[phase] for phase in phases_of(config)]
    fields = {name for row in met for name in encoding.content_fields(row.request)}
    assert {f"{name} longer" for name in fields} <= disturbed.kinds


def test_every_sealed_field_was_among_those_that_were_changed(
    federation_of: Make, split_of: Make
) -> None:
    """Whatever a suite seals: a field that is not in the list above would not be found missing."""
    found = set[str]()
    for config in (TINY, POOLED):
        split = split_of(TRAIN, 4, 9, HELD_OUT)
        opened_in(federation_of(split, config, None, lambda one: None), found)
    assert found >= {kind.name for kind in SUITES["sealed"].keys}


def opened_in(federation: Any, found: set[str]) -> None:
    deliver = federation.deliver

    def watched(client: int, request: bytes) -> bytes:
        reply: bytes = deliver(client, request)
        sealed = sealed_fields(read(request), header_of(request), SUITES["sealed"])
        opened = [one.what for one in federation.clients[client]._device.opened if one.rows]
        # What holds keys and states opens without a note of its own.
        noted = set(sealed) - {"sealed", "introductions", "keys", "estates", "packages"}
        assert len(opened) == len(noted), (opened, sealed, read(request))
        found.update(opened)
        return reply

    federation.deliver = watched
    whole_run(federation)


def test_a_list_that_cannot_be_drawn_changes_nothing(
    federation_of: Make,
    split_of: Make,
    picture_of: Make,
    assert_same: Check,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The shared key has been opened by then; a client keeps it only with a list."""
    split = split_of(TRAIN, 4, 9, HELD_OUT)
    quiet, federation = federation_of(split, TINY), federation_of(split, TINY)
    deliver, failed = federation.deliver, list[int]()

    def fails(*_: object) -> None:
        raise SamplingError("no virtual items today")

    def disturbed(client: int, request: bytes) -> bytes:
        if header_of(request).phase == Phase.LIST:
            before = picture_of(federation.clients[client])
            with monkeypatch.context() as patched:
                patched.setattr(newcomer, "draw_virtual_items", fails)
                with pytest.raises(SamplingError, match="today"):
                    federation.clients[client].handle(request)
            assert picture_of(federation.clients[client]) == before
            failed.append(client)
        reply: bytes = deliver(client, request)
        return reply

    federation.deliver = disturbed
    assert whole_run(federation) == whole_run(quiet)
    assert_same(federation.state(), quiet.state())
    assert failed[:4] == [0, 1, 2, 3]
    assert failed[4:] == federation.server.term.members.tolist()


def test_a_client_that_does_not_know_what_is_popular_cannot_list(
    federation_of: Make, split_of: Make, picture_of: Make
) -> None:
    split, config = split_of(TRAIN, 4, 9), TINY.changed(virtual_draw="popularity")
    federation = federation_of(split, config)
    profile = msgspec.msgpack.decode(dict(profiles(split, config))[2], type=Profile)
    unknowing = msgspec.structs.replace(profile, popularity=b"")
    federation.clients[2] = Client(msgspec.msgpack.encode(unknowing))
    for _ in range(2):
        with pytest.raises(SamplingError, match="popularity"):
            federation.initialise()
        request = federation.requests[-1][1]
        assert header_of(request).phase == Phase.LIST
        before = picture_of(federation.clients[2])
        with pytest.raises(SamplingError, match="popularity"):
            federation.clients[2].handle(request)
        assert picture_of(federation.clients[2]) == before
        federation.clients = [*federation_of(split, config).clients]
        federation.clients[2] = Client(msgspec.msgpack.encode(unknowing))


# Replies to the server.


class Canned:
    """A transport that has the answers already."""

    def __init__(self, answers: Mapping[int, bytes]) -> None:
        self.answers = answers

    def call(self, requests: Iterable[tuple[int, bytes]]) -> Iterable[tuple[int, bytes]]:
        assert all(data for _, data in requests)
        return self.answers.items()


def bad_replies(data: bytes, client: int) -> Bad:
    header = header_of(data)
    yield "truncated", data[:-1], MalformedMessageError
    yield "trailing bytes", data + b"\0", MalformedMessageError
    yield "oversized", data + bytes(300_000), OversizedMessageError
    yield "unknown version", changed(data, version=encoding.VERSION + 1), UnknownVersionError
    yield "another run", changed(data, run=bytes(16)), WrongRunError
    yield "from another client", changed(data, party=client + 1), WrongPartyError
    yield "a short header", changed(data, header=b"\1"), MalformedMessageError
    if header.pass_number:
        before = header.pass_number - 1
        yield "of an earlier pass", changed(data, pass_number=before), ReplayedMessageError
    yield "of an earlier phase", changed(data, phase=header.phase - 1), ReplayedMessageError
    yield (
        "of a later pass",
        changed(data, pass_number=header.pass_number + 1),
        UnexpectedMessageError,
    )
    yield "of a later layer", changed(data, layer=header.layer + 1), UnexpectedMessageError
    yield from wrong_kinds(data, REPLIES.__args__, UnexpectedMessageError)
    yield from wrong_kinds(data, REQUESTS.__args__, UnexpectedMessageError)


def wrong_fields(data: bytes) -> Bad:
    """Every field of a reply too long or too short, also those that were not asked for."""
    message = read(data)
    for name in encoding.content_fields(type(message)):
        field = getattr(message, name)
        yield f"{name} longer", changed(data, **{name: field + b"\7"}), MalformedMessageError
        if field:
            yield f"{name} shorter", changed(data, **{name: field[:-1]}), MalformedMessageError


class DisturbedServer:
    """Every round is carried out with each bad reply before it is with the good ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, picture: Make) -> None:
        self.carry_out, self.picture = Caller.carry_out, picture
        self.refused: Counter[str] = Counter()
        self.wrong: dict[int, set[str]] = {}
        monkeypatch.setattr(Caller, "carry_out", self._carry_out_of)

    @property
    def _carry_out_of(self) -> Callable[..., None]:
        def carry_out(caller: Caller, round_: Round) -> None:
            self.disturb(caller, round_)

        return carry_out

    def disturb(self, caller: Caller, round_: Round) -> None:
        line, stores = caller._line, dict(caller.stores)
        header = round_.header(caller._pass)
        answers = dict(line.transport.call(caller._requests(round_, header, [])))
        before = self.picture(caller.ledger)

        def read_again(answers: Mapping[int, bytes]) -> None:
            caller._line, caller.stores = Line(Canned(answers)), dict(stores)
            self.carry_out(caller, round_)

        for client, data in answers.items():
            for what, bad, expected in (*bad_replies(data, client), *wrong_fields(data)):
                with pytest.raises(expected, match=f"^from client {client}: ") as found:
                    read_again({**answers, client: bad})
                self.refused[type(found.value).__name__] += 1
                if what.endswith(("longer", "shorter")):
                    self.wrong.setdefault(round_.phase, set()).add(what)
            for some in ({c: d for c, d in answers.items() if c != client}, {**answers, 99: data}):
                with pytest.raises(MalformedMessageError, match="clients were asked"):
                    read_again(some)
        assert self.picture(caller.ledger) == before
        read_again(answers)
        caller._line = line


@every_configuration
def test_the_server_refuses_bad_replies_and_changes_nothing(
    federation_of: Make,
    split_of: Make,
    picture_of: Make,
    assert_same: Check,
    monkeypatch: pytest.MonkeyPatch,
    config: Config,
) -> None:
    """In every phase, from every client, in every field. The heirs, who are drawn, are the same."""
    monkeypatch.setattr("lpgcn.protocol.server.term.secrets.randbits", lambda _: 8)
    split = split_of(TRAIN, 4, 9, HELD_OUT)
    quiet, federation = federation_of(split, config), federation_of(split, config)
    expected = whole_run(quiet)
    disturbed = DisturbedServer(monkeypatch, picture_of)
    assert whole_run(federation) == expected
    assert_same(federation.state(), quiet.state())
    assert federation.server.ledger.lines() == quiet.server.ledger.lines()
    assert len(disturbed.refused) == 7
    assert disturbed.refused.total() > 5000
    for phase in phases_of(config):
        fields = encoding.content_fields(PHASES[phase].reply)
        wrong = disturbed.wrong.get(phase, set())
        assert {f"{name} longer" for name in fields} <= wrong, phase.name
        assert bool(fields) == bool(wrong)


def run_with_one_changed(
    federation: Any, phase: Phase, name: str, change: Callable[[bytes], bytes]
) -> None:
    """The first reply of a phase has one of its fields changed."""
    deliver, done = federation.deliver, list[int]()

    def disturbed(client: int, request: bytes) -> bytes:
        reply: bytes = deliver(client, request)
        if header_of(reply).phase != phase or done:
            return reply
        done.append(client)
        return changed(reply, **{name: change(getattr(read(reply), name))})

    federation.deliver = disturbed
    federation.train(1)


@pytest.mark.parametrize("change", [lambda one: one + one[:16], lambda one: one[:-16] + bytes(16)])
def test_the_server_refuses_tokens_that_it_cannot_place(
    federation_of: Make, split_of: Make, change: Callable[[bytes], bytes]
) -> None:
    """One twice, one that is not in the catalogue."""
    federation = federation_of(split_of(TRAIN, 4, 9), TINY)
    with pytest.raises(MalformedMessageError, match="client 0 listed a token"):
        run_with_one_changed(federation, Phase.LIST, "tokens", change)


@pytest.mark.parametrize("change", [lambda one: one[:-16], lambda one: one[16:] + one[16:32]])
def test_the_server_refuses_a_catalogue_that_is_none(
    federation_of: Make, split_of: Make, change: Callable[[bytes], bytes]
) -> None:
    """One token too few, one twice."""
    federation = federation_of(split_of(TRAIN, 4, 9), TINY)
    with pytest.raises(MalformedMessageError, match="a catalogue of"):
        run_with_one_changed(federation, Phase.CATALOGUE, "tokens", change)


def test_numbers_that_cannot_be_a_count_are_refused(federation_of: Make, split_of: Make) -> None:
    """A masked number that was changed is noticed in the sum, if the sum cannot be."""
    federation = federation_of(split_of(TRAIN, 4, 9), TINY)
    with pytest.raises(MalformedMessageError, match="add up to"):
        run_with_one_changed(
            federation, Phase.COUNT, "masked", lambda one: one[:7] + bytes((one[7] ^ 0x80,))
        )


@pytest.mark.parametrize(
    ("dtype", "reg", "ending", "error"),
    [
        ("float32", 100.0, b"\xff" * 4, DivergedError),
        ("float32", 0.0, np.array([1e6], "<f4").tobytes() + b"\1\0\0\0", GridError),
        ("float32", 0.0, np.array([np.inf], "<f4").tobytes() + b"\1\0\0\0", GridError),
        ("float64", 0.0, np.array([1e9], "<f8").tobytes() + b"\1\0\0\0", GridError),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_numbers_too_large_to_be_added_up_are_refused_and_change_nothing(
    federation_of: Make,
    split_of: Make,
    picture_of: Make,
    dtype: str,
    reg: float,
    ending: bytes,
    error: type[LpgcnError],
) -> None:
    """In the suite `paper` s or n of a negative can be changed on its way; then a sum is too
    large, of the loss or of a gradient."""
    config = TINY.changed(model="lightgcn", suite="paper", reg=reg, dtype=dtype)
    federation = federation_of(split_of(TRAIN, 4, 9), config)
    deliver, refused = federation.deliver, []

    def disturbed(client: int, request: bytes) -> bytes:
        message = read(request)
        if isinstance(message, m.LossRows) and message.negatives:
            bad = changed(request, negatives=message.negatives[: -len(ending)] + ending)
            before = picture_of(federation.clients[client])
            with pytest.raises(error):
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
    with pytest.raises(UnexpectedMessageError, match="ask the server"):
        federation.clients[0].party.recommend(5)
    federation.server.predict(range(4))

    def recommended() -> list[list[tuple[int, float]]]:
        return [client.party.recommend(5) for client in federation.clients]

    before = recommended()
    federation.server.step(0, 1, 0.1)
    assert recommended() == before
    federation.server.predict(range(4))
    assert recommended() != before


def test_questions_and_placements_that_ask_for_more_are_refused(
    federation_of: Make, split_of: Make, picture_of: Make
) -> None:
    """K_u goes to nobody who asks about nothing, and masks are shared with others only."""
    federation = federation_of(split_of(TRAIN, 4, 8), TINY)
    deliver, tried, width = federation.deliver, Counter[str](), entry_bytes(4)
    entries: dict[int, bytes] = {}
    """Of all clients: everybody is told its own."""

    def disturbed(client: int, request: bytes) -> bytes:
        message, party = read(request), federation.clients[client]
        bad: dict[str, dict[str, bytes]] = {}
        if isinstance(message, m.Questions) and message.askers:
            own, askers = entries[client], reading.split(message.askers, width, "askers")
            others = [one for one in entries.values() if one not in (own, *askers)]
            bad = {
                "about nothing": {
                    "askers": message.askers + others[0],
                    "offsets": message.offsets + message.offsets[-4:],
                } if others else {},
                "itself": {"askers": b"".join((own, *askers[1:]))},
                "twice": {"askers": b"".join((askers[-1], *askers[1:]))} if askers[1:] else {},
            }  # fmt: skip
        if isinstance(message, m.Placement):
            entries[client] = message.own
            bad = {
                "own peer": {"peers": message.own + message.peers[width:]},
                "peer twice": {"peers": message.peers + message.peers[:width]},
            }
            if len(message.offsets) > 4:
                bad["neighbour of nothing"] = {"offsets": message.offsets + message.offsets[-4:]}
        before = picture_of(party)
        for what, fields in bad.items():
            if fields:
                with pytest.raises(MalformedMessageError):
                    party.handle(changed(request, **fields))
                tried[what] += 1
        assert picture_of(party) == before
        return deliver(client, request)

    federation.deliver = disturbed
    federation.initialise()
    assert set(tried) == {
        "about nothing", "itself", "twice", "own peer", "peer twice", "neighbour of nothing",
    }  # fmt: skip


def test_owners_grant_only_what_a_neighbour_really_has(federation_of: Make, split_of: Make) -> None:
    config = TINY.changed(suite="paper", virtual_items="3")
    federation = federation_of(split_of(TRAIN, 4, 8), config)
    federation.initialise()
    deliver, refused = federation.deliver, 0

    def disturbed(client: int, request: bytes) -> bytes:
        nonlocal refused
        message, owner = read(request), federation.clients[client].party._owner
        if isinstance(message, m.Finish) and owner is not None and message.wishes:
            slots = np.frombuffer(message.slots, dtype="<u4")
            wishing = reading.bits(message.wishing, "wishing", len(owner.neighbours))
            handle = int(np.flatnonzero(wishing)[0])
            entries = slice(*owner.neighbours.offsets[handle : handle + 2])
            virtual = np.flatnonzero(~owner._is_real[entries])
            if len(virtual) and slots[0]:
                wish = int(virtual[0]).to_bytes(4, "little")
                with pytest.raises(MalformedMessageError, match="does not have"):
                    federation.clients[client].handle(
                        changed(request, wishes=wish + message.wishes[4:])
                    )
                refused += 1
        return deliver(client, request)

    federation.deliver = disturbed
    federation.server.step(0, 0, 0.1)
    assert refused


def test_contacts_that_nobody_introduced_are_refused_by_the_name_of_the_field(
    federation_of: Make, split_of: Make
) -> None:
    federation = federation_of(split_of(TRAIN, 4, 9), TINY)
    deliver, tried = federation.deliver, set[str]()

    def disturbed(client: int, request: bytes) -> bytes:
        message = read(request)
        for name in ("new_contacts", "introductions"):
            if field := getattr(message, name, b""):
                for wrong in (b"", field[:-1]):
                    with pytest.raises(MalformedMessageError, match=f"field {name} "):
                        federation.clients[client].handle(changed(request, **{name: wrong}))
                tried.add(name)
        return deliver(client, request)

    federation.deliver = disturbed
    federation.train(3)
    assert tried == {"new_contacts", "introductions"}
