"""Whatever bytes a party is given, it answers or refuses with a typed error, and soon.

Real messages of a running federation are mutated and given to the parties that the real ones were
for. In the suite `paper` vectors are in the clear, so a change may give other numbers that are as
good: the client is then put back to what it was before.
"""

from __future__ import annotations

import copy
import copyreg
import random
import resource
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from itertools import product
from operator import or_
from typing import Any

import msgspec
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES256

from lpgcn.config import Config
from lpgcn.errors import LpgcnError
from lpgcn.protocol.phases import PHASES
from lpgcn.protocol.server.caller import Caller, Line
from lpgcn.protocol.server.server import Server
from lpgcn.protocol.wire import encoding
from lpgcn.protocol.wire.fields import Round

Make = Callable[..., Any]
REPLIES = reduce(or_, {row.reply for row in PHASES.values()})
TINY = Config(dim=2, layers=2, batch_size=6, virtual_items="2", seed=5)
POOLED = TINY.changed(loss="softmax", batch_size="full", negatives=5, answers=3)
TRAIN = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 3), (3, 2), (3, 3), (3, 4)]
HELD_OUT = [(0, 3), (1, 1), (3, 0)]
MOST_MEMORY = 200_000  # in kilobytes
# Numbers that were changed on their way may be huge, and overflow as floating-point numbers do.
huge_numbers = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def mutated(data: bytes, pool: list[bytes], rng: random.Random) -> bytes:
    """Bits flipped, bytes set, cut off, cut out, put in, doubled, or the end of another message."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        place = rng.randrange(len(changed) + 1)
        match rng.randrange(8):
            case 0 | 1 if place < len(changed):
                changed[place] ^= 1 << rng.randrange(8)
            case 2 if place < len(changed):
                changed[place] = rng.choice((0, 1, 0x7F, 0x80, 0xC4, 0xC6, 0xDC, 0xDD, 0xFF))
            case 3:
                del changed[place:]
            case 4:
                del changed[place : place + rng.randrange(1, 9)]
            case 5:
                changed[place:place] = rng.randbytes(rng.randrange(1, 9))
            case 6:
                changed[place:place] = changed[place : place + rng.randrange(1, 40)]
            case 7:
                other = rng.choice(pool)
                changed[place:] = other[min(place, len(other)) :]
    return bytes(changed)


class Canned:
    """A transport that has the answers already."""

    def __init__(self, answers: Mapping[int, bytes]) -> None:
        self.answers = answers

    def call(self, requests: Iterable[tuple[int, bytes]]) -> Iterable[tuple[int, bytes]]:
        assert all(data for _, data in requests)
        return self.answers.items()


class Fuzzed:
    """A federation in which each message is preceded by `each` mutated ones."""

    def __init__(self, federation: Any, each: int, rng: random.Random, picture: Make) -> None:
        self.federation, self.each, self.rng, self.picture = federation, each, rng, picture
        self.deliver, federation.deliver = federation.deliver, self.fuzz_client
        self.carry_out = Caller.carry_out
        self.tried: Counter[str] = Counter()

    def run(self, patched: pytest.MonkeyPatch) -> Counter[str]:
        patched.setattr(Caller, "carry_out", lambda *round_: self.fuzz_round(*round_))
        self.federation.train(2)
        server = self.federation.server
        server.measure("valid")
        server.predict([1, 2])
        server.take_loss()
        server.keep()
        saved = server.checkpoint(1)
        federation = self.federation
        server = federation.server = Server.restored(saved, federation.config, federation.line)
        server.resume(1)
        server.go_back()
        left = np.setdiff1d(server.term.members, server.plan.convolution_clients[:1])
        server = federation.server = server.changed(left, federation.plan, federation.line, 2)
        server.step(1, 0, 0.05)
        return self.tried

    def fuzz_client(self, client: int, request: bytes) -> bytes:
        clients, pool = self.federation.clients, [request]
        pool += [data for _, data in self.federation.requests[-20:]]
        before = copy.deepcopy(clients[client])
        untouched = self.picture(clients[client])
        for _ in range(self.each):
            bad = mutated(request, pool, self.rng)
            try:
                clients[client].handle(bad)
            except LpgcnError:
                self.tried["refused by a client"] += 1
            else:
                self.tried["answered by a client"] += 1
                clients[client] = copy.deepcopy(before)
                untouched = self.picture(clients[client])
        assert self.picture(clients[client]) == untouched, "what was refused has changed something"
        clients[client] = before
        return self.deliver(client, request)

    def fuzz_round(self, caller: Caller, round_: Round) -> None:
        """The server reads mutated replies to the round, and then the real ones."""
        line, stores = caller._line, dict(caller.stores)
        header, kind = round_.header(caller._pass), round_.kinds[1]
        answers = dict(line.transport.call(caller._requests(round_, header, [])))
        pool = [reply for _, reply in self.federation.replies[-20:]]
        for client, data in answers.items():
            for _ in range(self.each):
                for field in round_.up.values():
                    field.prepare(stores)
                bad = mutated(data, [data, *pool], self.rng)
                try:
                    reply = caller._read(client, bad, header, kind)
                    round_.read(stores, caller._rank[client], reply)
                    self.tried["read by the server"] += 1
                except LpgcnError:
                    self.tried["refused by the server"] += 1
        caller._line = Line(Canned(answers))
        self.carry_out(caller, round_)
        caller._line = line


def fuzz(federation_of: Make, split_of: Make, picture_of: Make, each: int) -> Counter[str]:
    tried: Counter[str] = Counter()
    models, suites = ("lightgcn", "lightgcn+"), ("sealed", "paper")
    for base, model, suite in product((TINY, POOLED), models, suites):
        split = split_of(TRAIN, 4, 9, HELD_OUT)
        federation = federation_of(split, base.changed(model=model, suite=suite))
        rng = random.Random(f"{base.loss} {model} {suite}")
        with pytest.MonkeyPatch.context() as patched:
            tried += Fuzzed(federation, each, rng, picture_of).run(patched)
    return tried


@pytest.fixture
def copied_ciphers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of a client share its ciphers, which have no state."""
    for kind in (AESGCM, AES256, X25519PrivateKey, type(X25519PrivateKey.generate())):
        monkeypatch.setitem(copyreg.dispatch_table, kind, lambda cipher: "the same")


@huge_numbers
@pytest.mark.usefixtures("copied_ciphers")
def test_mutated_messages_are_answered_or_refused(
    federation_of: Make, split_of: Make, picture_of: Make
) -> None:
    tried = fuzz(federation_of, split_of, picture_of, each=8)
    assert tried.total() > 10_000, tried
    assert tried["refused by a client"] > 5_000
    assert len(tried) == 4, tried


@huge_numbers
@pytest.mark.slow
@pytest.mark.usefixtures("copied_ciphers")
def test_a_hundred_thousand_mutated_messages_are_answered_or_refused(
    federation_of: Make,
    split_of: Make,
    picture_of: Make,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tried = fuzz(federation_of, split_of, picture_of, each=150)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    with capsys.disabled():
        print(f"\n{tried.total():,} mutated messages: {dict(tried)}, {grown:,} kB")  # noqa: T201
    assert tried.total() >= 100_000
    assert grown < MOST_MEMORY


def one_bad_reply(federation: Any, rng: random.Random) -> bool:
    """Train with one mutated reply somewhere; whether the server went on."""
    deliver, at = federation.deliver, rng.randrange(1, 75)

    def disturbed(client: int, request: bytes) -> bytes:
        reply: bytes = deliver(client, request)
        if len(federation.replies) != at:
            return reply
        message = encoding.decode(reply, REPLIES, limit=1 << 20)
        names = [name for name in encoding.content_fields(type(message)) if getattr(message, name)]
        if not names or rng.random() < 0.2:
            return mutated(reply, [reply], rng)
        name = rng.choice(names)
        field = mutated(getattr(message, name), [reply], rng)
        return encoding.encode(msgspec.structs.replace(message, **{name: field}))

    federation.deliver = disturbed
    try:
        federation.train(2)
    except LpgcnError:
        return False
    assert len(federation.replies) >= at
    return True


def bad_replies(federation_of: Make, split_of: Make, runs: int) -> None:
    rng, split, went_on = random.Random(8), split_of(TRAIN, 4, 9, HELD_OUT), 0
    for run in range(runs):
        config = (TINY, POOLED)[run // 6 % 2].changed(
            model=("lightgcn", "lightgcn+")[run % 2], suite=("sealed", "paper")[run % 3 % 2]
        )
        went_on += one_bad_reply(federation_of(split, config), rng)
    assert 0 < went_on < runs


@huge_numbers
def test_a_mutated_reply_goes_as_far_as_a_typed_error(federation_of: Make, split_of: Make) -> None:
    bad_replies(federation_of, split_of, runs=60)


@huge_numbers
@pytest.mark.slow
def test_a_thousand_mutated_replies_go_as_far_as_typed_errors(
    federation_of: Make, split_of: Make
) -> None:
    bad_replies(federation_of, split_of, runs=1000)
