"""Terms, checkpoints and crashes: whoever leaves, joins or dies, the bits follow from the log."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import Phase as Step
from hypothesis import strategies as st

from lpgcn.checkpoints import CheckpointError, InMemory
from lpgcn.config import Config
from lpgcn.crypto import (
    AuthenticationError,
    Channels,
    Context,
    Directory,
    Masks,
    PrivateKey,
    entry_bytes,
)
from lpgcn.data import Split
from lpgcn.data.features import sized
from lpgcn.files import StorageError
from lpgcn.model.backbones import backbone_of
from lpgcn.plan import Plan, TokenGraph, cover
from lpgcn.protocol.client import estate
from lpgcn.protocol.client.client import Client
from lpgcn.protocol.client.newcomer import Newcomer
from lpgcn.protocol.client.profile import Profile
from lpgcn.protocol.client.standing import ClientSnapshot, FormerIdentity
from lpgcn.protocol.errors import (
    ChangedDataError,
    MalformedMessageError,
    ReplayedMessageError,
    TooFewMembersError,
    UnexpectedMessageError,
    WrongRunError,
)
from lpgcn.protocol.phases import REQUESTS, Phase
from lpgcn.protocol.server.caller import Caller
from lpgcn.protocol.server.estates import LostItemsError, draw_heirs
from lpgcn.protocol.server.server import Server
from lpgcn.protocol.server.topology import Topology
from lpgcn.protocol.suite import Kind
from lpgcn.protocol.wire import encoding, reading
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire.encoding import STRETCH_PASSES, STRETCHES, Header
from lpgcn.protocol.wire.fields import Round
from lpgcn.protocol.wire.sizes import HEIRS
from lpgcn.ragged import Ragged
from lpgcn.runtime.engines.engine import Tables
from lpgcn.runtime.engines.federated import Federated
from lpgcn.terms import Term

Make = Callable[..., Any]
Check = Callable[..., None]
Pairs = list[tuple[int, int]]
TINY = Config(dim=2, layers=2, lr=0.05, batch_size=5, at=(2,), virtual_items="1", seed=5)
POOLED = TINY.changed(loss="softmax", batch_size="full", negatives=4, answers=3, groups=2)
TRAIN: Pairs = [
    (0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 3), (3, 2), (3, 3), (3, 4), (4, 1), (5, 4),
    (5, 5),
]  # fmt: skip
HELD_OUT: Pairs = [(user, 6) for user in range(6)]
both_models = pytest.mark.parametrize("model", ["lightgcn", "lightgcn+"])
both_suites = pytest.mark.parametrize("suite", ["sealed", "paper"])
both_losses = pytest.mark.parametrize("base", [TINY, POOLED], ids=["bpr", "softmax"])


def read(request: bytes) -> Any:
    return encoding.decode(request, REQUESTS, limit=1 << 24)


def header_of(request: bytes) -> Header:
    return Header(*encoding._HEADER.unpack(read(request).header)[2:5])


def with_fields(request: bytes, **fields: bytes) -> bytes:
    return encoding.encode(msgspec.structs.replace(read(request), **fields))


def present_rows(tables: Tables, config: Config, members: list[int]) -> Tables:
    """Of users only the members' rows, of items all."""
    users = backbone_of(config).held("users")
    return {
        name: value[members] if name.partition(".")[0] in users else value
        for name, value in tables.items()
    }


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lpgcn.model.batches.smallest_group", lambda _: 2)


# Any history of a federation, and the data centre that follows its log.


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Pairs, int, int, Pairs]:
    """Every user has an item, and one that is held out."""
    n_users, n_items = draw(st.integers(2, 7)), draw(st.integers(4, 8))
    pairs = st.tuples(st.integers(0, n_users - 1), st.integers(0, n_items - 3))
    train = {(user, user % 2) for user in range(n_users)} | draw(st.sets(pairs, max_size=12))
    return sorted(train), n_users, n_items, [(user, n_items - 1) for user in range(n_users)]


class History:
    """What a federation did, as far as it was not undone by going back to a checkpoint."""

    def __init__(self, engine: Federated, config: Config) -> None:
        self.engine, self.config = engine, config
        self.at, self.number = (0, 0), 0
        self.done: list[tuple[Any, ...]] = []
        self.marks: dict[int, tuple[list[tuple[Any, ...]], tuple[int, int]]] = {0: ([], (0, 0))}
        """By checkpoint what was done before it, and where the run was."""
        engine.begin()

    def step(self) -> None:
        epoch, step = self.at
        if step >= self.engine.steps_per_epoch:
            epoch, step = epoch + 1, 0
        self.engine.step(epoch, step, self.config.lr)
        self.done.append(("step", epoch, step))
        self.at = epoch, step + 1

    def act(self, action: str, *arguments: Any) -> None:
        self.done.append((action, *arguments, getattr(self.engine, action)(*arguments)))

    def checkpoint(self) -> None:
        self.number += 1
        self.engine.checkpoint(self.number, *self.at)
        self.done.append(("checkpoint", self.number, *self.at))
        self.marks[self.number] = list(self.done), self.at

    def resume(self, number: int) -> None:
        self.engine.resume(number)
        done, self.at = self.marks[number]
        self.done, self.number = list(done), number

    def change(self, members: list[int]) -> None:
        """From the last checkpoint on; what came after it is undone."""
        try:
            self.engine.change_members(np.array(members))
        except LostItemsError:
            self.resume(self.number)
            return
        done, self.at = self.marks[self.number]
        self.done = [*done, ("renew",)]

    def follow(self, reference: Any) -> None:
        """The same on the whole graph, with the same losses and metrics on the way."""
        for action, *arguments in self.done:
            if action == "step":
                reference.step(*arguments, self.config.lr)
            elif action in ("checkpoint", "renew"):
                getattr(reference, action)(*arguments)
            else:
                *given, result = arguments
                assert getattr(reference, action)(*given) == result, (action, self.done)


def play(history: History, draw: Callable[[st.SearchStrategy[Any]], Any], n_users: int) -> None:
    engine = history.engine
    several = ["step"] * 4 + ["keep", "go_back", "take_loss", "measure", "checkpoint", "change"]
    for _ in range(draw(st.integers(3, 12))):
        match draw(st.sampled_from([*several, "resume"])):
            case "step":
                history.step()
            case "checkpoint":
                history.checkpoint()
            case "measure":
                history.act("measure", draw(st.sampled_from(["valid", "test"])))
            case "resume":
                there = engine._checkpoints.numbers()
                history.resume(draw(st.sampled_from(there or [0])))
            case "change":
                history.checkpoint()
                # A log does not say what was measured between two changes at one step.
                if any((one.epoch, one.step) == history.at for one in engine.terms):
                    continue
                members = draw(st.sets(st.integers(0, n_users - 1), min_size=1))
                stays = draw(st.sampled_from(engine.server.term.members.tolist()))
                history.change(sorted(members | {stays}))
            case action:
                history.act(action)
    history.step()


@settings(max_examples=90, phases=[Step.generate], suppress_health_check=list(HealthCheck))
@given(
    graph=graphs(),
    base=st.sampled_from([TINY, TINY, POOLED]),
    model=st.sampled_from(["lightgcn", "lightgcn+"]),
    suite=st.sampled_from(["sealed", "paper"]),
    layers=st.integers(1, 2),
    dtype=st.sampled_from(["float32", "float64"]),
    virtual_items=st.sampled_from(["0", "1", "1.0x"]),
    batch_size=st.integers(1, 12),
    seed=st.integers(0, 2**40),
    owners=st.randoms(use_true_random=False),
    features=st.sampled_from([(0, 0), (0, 0), (2, 3)]),
    data=st.data(),
)
def test_any_history_gives_the_bits_of_the_centralised_model(
    split_of: Make,
    described: Make,
    centralized_of: Make,
    assert_same: Check,
    small_groups: None,
    graph: tuple[Pairs, int, int, Pairs],
    base: Config,
    batch_size: int,
    owners: random.Random,
    features: tuple[int, int],
    data: st.DataObject,
    **fields: Any,
) -> None:
    """With a loss against pools, an epoch has one step, and other members are other groups."""
    size = "full" if base.pooled else batch_size
    split = described(split_of(*graph), *features)
    config = sized(base.changed(batch_size=size, **fields), split)
    first = sorted(data.draw(st.sets(st.integers(0, split.n_users - 1), min_size=1)))

    def planner(graph: TokenGraph) -> Plan:
        if owners.random() < 0.3:
            return cover(graph, config.seed)
        drawn = [owners.randrange(graph.n_clients) for _ in range(graph.n_tokens)]
        return Plan(np.array(drawn, dtype=np.int64), "any")

    engine = Federated(split, config, planner, members=np.array(first))
    history = History(engine, config)
    play(history, data.draw, split.n_users)
    members = engine.server.term.members.tolist()
    reference = centralized_of(split, config, engine.terms)
    history.act("measure", "valid")
    history.act("take_loss")
    history.follow(reference)
    found = present_rows(engine.inspector().state(), config, members)
    assert_same(found, present_rows(reference.state(), config, members))
    found_vectors, vectors = engine.inspector().scorer(), reference.scorer()
    assert found_vectors.items.tobytes() == vectors.items.tobytes()
    assert found_vectors.users[members].tobytes() == vectors.users[members].tobytes()


def test_who_leaves_and_comes_back_before_the_next_step_begins_anew(
    split_of: Make, centralized_of: Make, assert_same: Check
) -> None:
    """A client that dies, is left out, and waits at the checkpoint that is due at once."""
    split, config = split_of(TRAIN, 6, 8, HELD_OUT), TINY.changed(model="lightgcn")
    engine = Federated(split, config, lambda graph: cover(graph, config.seed))
    history = History(engine, config)
    history.step()
    history.checkpoint()
    history.change([0, 1, 2, 3, 4])
    history.checkpoint()
    history.change([0, 1, 2, 3, 4, 5])
    history.checkpoint()
    history.step()
    reference = centralized_of(split, config, engine.terms)
    history.follow(reference)
    assert_same(engine.inspector().state(), reference.state())


# A run that is told step by step, so that anybody can die at any message of it.


class CrashError(Exception):
    """A process has ended."""


class Story:
    """A small run with everything in it, which goes on from the last checkpoint after a crash."""

    FIRST = (0, 1, 2)
    SECOND = (1, 2, 3)
    """0 leaves, who is an owner, and 3 joins."""

    def __init__(self, federation: Any) -> None:
        self.federation = federation
        self.stretch, self.crashes = -1, 0
        self.saved: tuple[bytes, int, tuple[Any, ...]] | None = None
        """The server's checkpoint, what comes after it, and what was found before it."""
        # With pools, an epoch has one step.
        self.steps = (
            ((0, 0), (1, 0), (2, 0)) if federation.config.pooled else ((0, 0), (0, 1), (1, 0))
        )
        self.events: list[Callable[[], Any]] = [
            lambda: self.step(*self.steps[0]),
            lambda: self.checkpoint(1),
            lambda: self.step(*self.steps[1]),
            self.keep,
            lambda: self.checkpoint(2),
            self.change,
            lambda: self.checkpoint(3),
            lambda: self.step(*self.steps[2]),
            lambda: self.server.take_loss(),
            self.go_back,
            lambda: self.server.measure("valid"),
        ]

    @property
    def server(self) -> Server:
        server: Server = self.federation.server
        return server

    def next_stretch(self) -> int:
        self.stretch += 1
        return self.stretch

    def step(self, epoch: int, step: int) -> None:
        self.server.step(epoch, step, 0.05)

    def keep(self) -> None:
        self.server.keep()

    def go_back(self) -> None:
        self.server.go_back()

    def checkpoint(self, number: int) -> bytes:
        return self.server.checkpoint(number)

    def change(self) -> None:
        one = self.federation
        members = np.array(self.SECOND)
        one.server = one.server.changed(members, one.plan, one.line, self.next_stretch())

    def run(self) -> tuple[Any, ...]:
        """What was found on the way; a crash is followed by going on."""
        while True:
            try:
                return self._go_on()
            except CrashError:
                self.crashes += 1

    def _go_on(self) -> tuple[Any, ...]:
        one, position, found = self.federation, 0, ()
        if self.saved is None:
            one.initialise(self.next_stretch())
        else:
            content, position, found = self.saved
            one.server = Server.restored(content, one.config, one.line)
            one.server.resume(self.next_stretch())
        for number, event in enumerate(self.events[position:], position + 1):
            result = event()
            if isinstance(result, bytes):
                self.saved = result, number, found
            else:
                found = (*found, result)
        return found


def story_of(federation_of: Make, split: Split, config: Config) -> Story:
    def mine(graph: TokenGraph) -> Plan:
        """Everybody owns something, in both terms."""
        return Plan(np.arange(graph.n_tokens) % graph.n_clients, "by turns")

    return Story(federation_of(split, config, mine, None, Story.FIRST))


def dying(story: Story, at: int, how: str) -> None:
    """At message `at` of the run the client dies before or after it handled it, or the server does,
    or both."""
    federation = story.federation
    deliver = federation.deliver

    def disturbed(client: int, request: bytes) -> bytes:
        if len(federation.requests) != at or story.crashes:
            reply: bytes = deliver(client, request)
            return reply
        if how == "before":
            federation.requests.append((client, request))
        else:
            deliver(client, request)
        if how != "server":
            federation.clients[client] = federation.started(client)
        raise CrashError

    federation.deliver = disturbed


@pytest.fixture(scope="module")
def small(split_of: Make) -> Split:
    split: Split = split_of(TRAIN[:-3], 4, 7, HELD_OUT[:-2])
    return split


def configured(model: str, suite: str, base: Config = TINY) -> Config:
    return base.changed(layers=1, dim=1, model=model, suite=suite)


def die_everywhere(
    federation_of: Make,
    small: Split,
    assert_same: Check,
    config: Config,
    ways: tuple[str, ...],
    every: int = 1,
) -> None:
    """In one of these ways by turns, at every message or at some."""
    quiet = story_of(federation_of, small, config)
    expected = quiet.run()
    messages = quiet.federation.requests
    assert {header_of(request).phase for _, request in messages} >= {
        Phase.RESUME, Phase.KEYS, Phase.SHARE_KEY, Phase.INHERIT, Phase.ENDOW, Phase.CHECKPOINT,
        Phase.KEEP, Phase.GO_BACK, Phase.LOSS,
    }  # fmt: skip
    for at in range(0, len(messages), every):
        story = story_of(federation_of, small, config)
        dying(story, at, ways[at % len(ways)])
        where = f"message {at}, {header_of(messages[at][1])}, {ways[at % len(ways)]}"
        try:
            assert story.run() == expected, where
            assert_same(story.federation.state(), quiet.federation.state())
        except BaseException as error:
            error.add_note(where)
            raise
        assert story.crashes == 1, where


@pytest.mark.parametrize(
    ("config", "every"),
    [
        (configured("lightgcn+", "sealed"), 3),
        (configured("lightgcn", "paper"), 4),
        (configured("lightgcn+", "sealed", POOLED), 3),
        (configured("lightgcn", "paper", POOLED), 4),
    ],
    ids=["bpr sealed", "bpr paper", "softmax sealed", "softmax paper"],
)
def test_whoever_dies_at_any_message_the_bits_are_the_same(
    federation_of: Make, small: Split, assert_same: Check, config: Config, every: int
) -> None:
    ways = ("before", "after", "server")
    die_everywhere(federation_of, small, assert_same, config, ways, every)


@pytest.mark.slow
@both_losses
@both_models
@both_suites
@pytest.mark.parametrize("way", ["before", "after", "server"])
def test_whoever_dies_in_any_way_at_any_message_the_bits_are_the_same(
    federation_of: Make,
    small: Split,
    assert_same: Check,
    base: Config,
    model: str,
    suite: str,
    way: str,
) -> None:
    die_everywhere(federation_of, small, assert_same, configured(model, suite, base), (way,))


@both_losses
@both_models
@both_suites
def test_a_story_without_crashes_is_that_of_the_data_centre(
    federation_of: Make,
    small: Split,
    centralized_of: Make,
    assert_same: Check,
    base: Config,
    model: str,
    suite: str,
) -> None:
    config = configured(model, suite, base)
    story = story_of(federation_of, small, config)
    *_, loss, _, measured = story.run()
    terms = [
        Term(epoch=0, step=0, members=Story.FIRST),
        Term(epoch=story.steps[2][0], step=0, members=Story.SECOND),
    ]
    reference = centralized_of(small, config, terms)
    reference.step(*story.steps[0], 0.05)
    reference.step(*story.steps[1], 0.05)
    reference.keep()
    reference.step(*story.steps[2], 0.05)
    assert reference.take_loss() == loss
    reference.go_back()
    assert reference.measure("valid") == measured
    members = list(Story.SECOND)
    found = present_rows(story.federation.state(), config, members)
    assert_same(found, present_rows(reference.state(), config, members))


@contextmanager
def nonces_recorded(used: Counter[tuple[bytes, bytes]]) -> Iterator[None]:
    """Every key with every nonce that it sealed with, and every key of a mask, as either end of it,
    with every place that was masked for."""
    seal, mask = Channels.seal, Masks.mask

    def sealing(
        channels: Channels, context: Context, which: Any, messages: Any, indices: Any = None
    ) -> list[bytes]:
        done = seal(channels, context, which, messages, indices)
        numbers = [0] * len(which) if indices is None else indices
        for key, number in zip(which, numbers, strict=True):
            used[channels._keys[key], context.place + number.to_bytes(4, "big")] += 1
        return done

    def masking(masks: Masks, context: Context, count: int) -> Any:
        for key, sign in masks._peers:
            used[bytes(key.key), b"+-"[sign < 0 :][:1] + context.place] += 1
        return mask(masks, context, count)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Channels, "seal", sealing)
        patched.setattr(Masks, "mask", masking)
        yield


@both_losses
@both_suites
def test_no_nonce_is_ever_used_twice(
    federation_of: Make, small: Split, base: Config, suite: str
) -> None:
    """Over a history in which somebody dies every few messages. Two clients may share a key for
    masks over everybody and within a group."""
    config = configured("lightgcn+", suite, base)
    story, used = story_of(federation_of, small, config), Counter[tuple[bytes, bytes]]()
    federation = story.federation
    deliver, due = federation.deliver, 11

    def disturbed(client: int, request: bytes) -> bytes:
        nonlocal due
        reply: bytes = deliver(client, request)
        assert federation.clients[client].handle(request) == reply, "and again"
        if len(federation.requests) < due:
            return reply
        # Later and later, or the run would never come to its next checkpoint.
        due += 40 + 15 * story.crashes
        if story.crashes % 2:
            federation.clients[client] = federation.started(client)
        raise CrashError

    federation.deliver = disturbed
    with nonces_recorded(used):
        story.run()
    assert story.crashes >= 4
    assert len(used) > (200 if suite == "sealed" else 30)
    assert set(used.values()) == {1}
    kinds = {place[-1] for _, place in used if place[:1] in (b"+", b"-")}
    assert kinds == ({Kind.NUMBERS, Kind.ANSWERS} if config.pooled else {Kind.NUMBERS})


def test_who_restarted_refuses_everything_but_a_later_stretch(
    federation_of: Make, split_of: Make, picture_of: Make
) -> None:
    federation = federation_of(split_of(TRAIN, 6, 8, HELD_OUT), TINY)
    federation.train(2)
    saved = federation.server.checkpoint(1)
    federation.server.step(1, 0, 0.05)
    restarted = federation.clients[2] = federation.started(2)
    before = picture_of(restarted)
    for client, request in federation.requests:
        if client == 2:
            with pytest.raises(ReplayedMessageError, match="after a restart in stretch 0"):
                restarted.handle(request)
    with pytest.raises(ReplayedMessageError, match="after a restart in stretch 0"):
        federation.server.step(2, 0, 0.05)
    last = next(request for client, request in federation.requests[::-1] if client == 2)
    run = encoding.run_of(read(last))
    for phase in set(Phase) - {Phase.RESUME}:
        for pass_number in (STRETCH_PASSES, STRETCH_PASSES + 1, 7 * STRETCH_PASSES):
            header = encoding.encode_header(run, Header(pass_number, phase), 2)
            with pytest.raises(UnexpectedMessageError, match="a restart in stretch 0; expected"):
                restarted.handle(with_fields(last, header=header))
    beyond = resume_at(run, Header(STRETCHES * STRETCH_PASSES, Phase.RESUME), 2)
    with pytest.raises(MalformedMessageError, match=f"stretch {STRETCHES}; there are {STRETCHES}"):
        restarted.handle(beyond)
    assert picture_of(restarted) == before
    with pytest.raises(UnexpectedMessageError, match="not been verified"):
        restarted.party  # noqa: B018
    federation.server = Server.restored(saved, TINY, federation.line)
    with pytest.raises(ReplayedMessageError):
        federation.server.resume(0)
    federation.server = Server.restored(saved, TINY, federation.line)
    federation.server.resume(7)
    federation.server.step(1, 0, 0.05)
    assert restarted._last.stretch == 7 == federation.disks[2].stretch


def test_who_begins_anew_has_no_use_for_what_only_a_party_does(
    federation_of: Make, split_of: Make, picture_of: Make
) -> None:
    """After RESUME anything may come that a pass begins with, but here there is no checkpoint."""
    federation = federation_of(split_of(TRAIN, 6, 8, HELD_OUT), TINY)
    client, run = federation.clients[2], bytes(16)
    client.handle(resume_at(run, Header(0, Phase.RESUME), 2, number=0))
    before = picture_of(client)
    for phase in (Phase.COUNT, Phase.SUM_LOSS, Phase.KEEP, Phase.GO_BACK):
        asked = m.Ask(header=encoding.encode_header(run, Header(1, phase), 2))
        with pytest.raises(UnexpectedMessageError, match=f"{phase.name}, .* being a Newcomer"):
            client.handle(encoding.encode(asked))
    assert picture_of(client) == before
    federation.initialise(1)
    assert client.verified


def test_a_checkpoint_that_cannot_be_used_is_named_and_changes_nothing(
    federation_of: Make, split_of: Make, picture_of: Make
) -> None:
    split = split_of(TRAIN, 6, 8, HELD_OUT)
    federation, other = federation_of(split, TINY), federation_of(split, TINY)
    for one in (federation, other):
        one.train(1)
        one.saved = one.server.checkpoint(1)
    client, disk = federation.clients[1], federation.disks[1]
    good = disk.read(1)
    snapshot = msgspec.msgpack.decode(good, type=ClientSnapshot)
    wrong = msgspec.msgpack.encode(msgspec.structs.replace(snapshot, format=99))
    cases = {
        wrong: (CheckpointError, "format 99"),
        good[:-1]: (CheckpointError, "cannot be read"),
        b"": (CheckpointError, "cannot be read"),
        msgspec.msgpack.encode(msgspec.structs.replace(snapshot, items=b"")): (
            MalformedMessageError, "node states",
        ),
        other.disks[1].read(1): (WrongRunError, "another run"),
    }  # fmt: skip
    for content, (error, message) in cases.items():
        disk.write(1, content)
        before = picture_of(client)
        server = Server.restored(federation.saved, TINY, federation.line)
        server._caller.begin_stretch(4)
        with pytest.raises(error, match=message):
            client.handle(resume_of(server, 1))
        assert picture_of(client) == before
        assert disk.stretch == 0
    disk.write(1, good)
    federation.server = Server.restored(federation.saved, TINY, federation.line)
    federation.server.resume(4)
    for content in (b"", federation.saved[:-1]):
        with pytest.raises(CheckpointError, match="server's checkpoint cannot be read"):
            Server.restored(content, TINY, federation.line)
    for number in (0, 2):
        changed = msgspec.msgpack.decode(federation.saved) | {"format": number}
        with pytest.raises(CheckpointError, match=f"format {number}, expected 1"):
            Server.restored(msgspec.msgpack.encode(changed), TINY, federation.line)


class FullDisk(InMemory):
    """Nothing can be written, for the time being."""

    def __init__(self, disk: InMemory) -> None:
        self.__dict__.update(disk.__dict__)
        self.full = False

    def write(self, number: int, content: bytes) -> None:
        self._check()
        super().write(number, content)

    def begin_stretch(self, number: int) -> None:
        self._check()
        super().begin_stretch(number)

    def _check(self) -> None:
        if self.full:
            raise StorageError("no room")


@both_suites
def test_a_full_disk_changes_nothing(
    federation_of: Make, small: Split, picture_of: Make, assert_same: Check, suite: str
) -> None:
    """Neither at a checkpoint nor where a stretch begins; when there is room, the run goes on."""
    config = configured("lightgcn+", suite)
    quiet, story = (story_of(federation_of, small, config) for _ in range(2))
    expected, federation = quiet.run(), story.federation
    federation.disks = [FullDisk(disk) for disk in federation.disks]
    federation.clients = [federation.started(number) for number in range(4)]
    deliver, refused = federation.deliver, Counter[Phase]()

    def disturbed(client: int, request: bytes) -> bytes:
        party, disk = federation.clients[client], federation.disks[client]
        phase = Phase(header_of(request).phase)
        if phase in (Phase.RESUME, Phase.CHECKPOINT):
            disk.full = True
            before = picture_of(party)
            with pytest.raises(StorageError, match="no room"):
                party.handle(request)
            assert picture_of(party) == before
            disk.full = False
            refused[phase] += 1
        reply: bytes = deliver(client, request)
        return reply

    federation.deliver = disturbed
    assert story.run() == expected
    assert_same(federation.state(), quiet.federation.state())
    assert refused == {Phase.RESUME: 6, Phase.CHECKPOINT: 9}


def resume_at(run: bytes, place: Header, client: int, number: int = 1) -> bytes:
    header = encoding.encode_header(run, place, client)
    return encoding.encode(m.Resume(header=header, number=reading.pack_numbers([number])))


def resume_of(server: Server, client: int, number: int = 1) -> bytes:
    place = Header(server._caller._pass, Phase.RESUME)
    return resume_at(server._caller.run, place, client, number)


# Heirs.


def changed(federation: Any, members: list[int], stretch: int = 1) -> None:
    one = federation
    one.server = one.server.changed(np.array(members), one.plan, one.line, stretch)


@both_models
@both_suites
def test_the_items_of_who_leaves_come_from_an_heir(
    federation_of: Make, split_of: Make, assert_same: Check, model: str, suite: str
) -> None:
    """Any one of the owner's heirs is enough; the rows that arrive are those that were left."""
    split, config = split_of(TRAIN, 6, 8, HELD_OUT), TINY.changed(model=model, suite=suite)
    for only in range(HEIRS):
        federation = federation_of(split, config)
        federation.train(2)
        federation.server.keep()
        federation.server.step(1, 0, 0.05)
        federation.server.checkpoint(1)
        before, server = federation.state(), federation.server
        owner = int(server.plan.convolution_clients[0])
        _, *others = server._heirs[owner].tolist()
        assert len(others) == HEIRS and owner not in others
        gone = {owner, *others} - {others[only]}
        federation.requests.clear()
        changed(federation, [user for user in range(6) if user not in gone])
        asked = {c for c, data in federation.requests if header_of(data).phase == Phase.INHERIT}
        assert others[only] in asked
        after = federation.state()
        members = federation.server.term.members.tolist()
        assert_same(present_rows(after, config, members), present_rows(before, config, members))
        federation.server.step(2, 0, 0.05)


@pytest.mark.parametrize("names", [1, 7])
def test_items_whose_owner_and_heirs_are_gone_are_lost_and_counted(
    federation_of: Make, split_of: Make, monkeypatch: pytest.MonkeyPatch, names: int
) -> None:
    """With the numbers of some owners, and a way out: come back, and go on."""
    monkeypatch.setattr("lpgcn.protocol.server.term.secrets.randbits", lambda _: names)
    train = [(user, item) for user in range(14) for item in range(9)]

    def planner(graph: TokenGraph) -> Plan:
        return Plan(np.arange(graph.n_tokens) % min(names, graph.n_clients), "first ones")

    federation = federation_of(split_of(train, 14, 21), TINY.changed(dim=1, layers=1), planner)
    federation.train(1)
    saved, server = federation.server.checkpoint(1), federation.server
    before = federation.state()
    gone = {one for owner in range(names) for one in server._heirs[owner].tolist()}
    gone -= {13} if len(gone) == 14 else set()
    left = sorted(set(range(14)) - gone)
    lost = [owner for owner in range(names) if not set(server._heirs[owner].tolist()) & set(left)]
    items = server.topology.owned.lengths[lost].sum()
    with pytest.raises(LostItemsError, match=f"the state of {items} items is lost") as error:
        changed(federation, left)
    assert ("…" in str(error.value)) == (len(lost) > 5)
    assert all(f"{one}" in str(error.value) for one in lost[:5])
    federation.server = Server.restored(saved, federation.config, federation.line)
    federation.server.resume(2)
    changed(federation, sorted({*left, *lost}), 3)
    found = federation.state()["items.parameter"]
    assert found.tobytes() == before["items.parameter"].tobytes()


@given(st.integers(1, 40), st.integers(0, 2**60), st.data())
def test_heirs_are_the_owner_and_others_at_random(n: int, seed: int, data: st.DataObject) -> None:
    owner = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=20)))
    listed = Ragged.from_arrays([np.arange(len(owner))] * n)
    topology = Topology(listed, owner, seed)
    heirs = draw_heirs(topology)
    for client in range(n):
        some = heirs[client].tolist()
        if client not in owner:
            assert not some
            continue
        assert some[0] == client
        assert len(set(some)) == len(some) == min(HEIRS + 1, n)
        assert set(some) <= set(range(n))


def test_everybody_is_an_heir_as_often_as_anybody() -> None:
    n, times = 12, Counter[int]()
    listed = Ragged.from_arrays([np.arange(n)] * n)
    for seed in range(300):
        heirs = draw_heirs(Topology(listed, np.arange(n), seed))
        times.update(one for client in range(n) for one in heirs[client].tolist()[1:])
    expected = 300 * HEIRS
    assert all(abs(count - expected) < 6 * expected**0.5 for count in times.values())


def test_nobody_but_an_heir_opens_an_estate(federation_of: Make, split_of: Make) -> None:
    split = split_of([*TRAIN, (6, 1), (7, 2)], 8, 8, HELD_OUT)
    federation = federation_of(split, TINY)
    federation.train(2)
    federation.server.checkpoint(3)
    server, opened = federation.server, 0
    stores, offsets = server._caller.stores, server._heirs.offsets
    state = federation.state()
    for owner in server.plan.convolution_clients.tolist():
        content, heirs = stores["estates"][owner], server._heirs[owner].tolist()
        keys = stores["estate keys"][offsets[owner] : offsets[owner + 1]]
        for client, party in enumerate(one.party for one in federation.clients):
            former = party.belongings().former
            for heir, key in zip(heirs, keys, strict=True):
                if client != heir:
                    with pytest.raises(AuthenticationError):
                        estate._opened(former, 3, key, content)
                    continue
                rows = estate._opened(former, 3, key, content)
                items = federation.clients[owner].party.owned_items()
                assert state["items.mean"][items[0]].tobytes() in rows
                opened += 1
                for wrong in (former.run[::-1], former.run):
                    number = 3 if wrong != former.run else 4
                    with pytest.raises(AuthenticationError):
                        estate._opened(FormerIdentity(wrong, former.private), number, key, content)
    assert opened == len(server._heirs.values) < 8 * len(server.plan.convolution_clients)


@both_models
def test_the_sizes_of_all_rounds_are_as_they_are_counted(
    federation_of: Make, small: Split, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    """Of those too that no account has: INHERIT, ENDOW and RESUME of a checkpoint."""
    carry_out, checked = Caller.carry_out, set[Phase]()
    story = story_of(federation_of, small, configured(model, "sealed"))
    federation = story.federation

    def measured(caller: Caller, one: Round) -> None:
        first = len(federation.requests)
        carry_out(caller, one)
        numbers = caller.members[one.called].tolist()
        sizes = {"down": federation.requests, "up": federation.replies}
        for direction, sent in sizes.items():
            found = {client: len(data) for client, data in sent[first:]}
            if direction == "up" and one.phase in (Phase.LIST, Phase.CATALOGUE):
                continue
            expected = one.sizes_down if direction == "down" else one.sizes_up
            assert found == dict(zip(numbers, expected.tolist(), strict=True)), one.phase
        checked.add(one.phase)

    monkeypatch.setattr(Caller, "carry_out", measured)
    dying(story, 100, "server")
    story.run()
    assert checked >= {Phase.INHERIT, Phase.ENDOW, Phase.RESUME, Phase.CHECKPOINT}
    assert story.crashes == 1


# The directory.


def impostor(field: bytes, width: int, root: bytes) -> Iterator[bytes]:
    """The first key of a field is the server's own, with the proof of the key that was there, or
    with a good one for a directory of the server's."""
    own = PrivateKey.generate().public_bytes
    entry = field[:width]
    yield own + field[len(own) :]
    others = [PrivateKey.generate().public_bytes for _ in range(5)]
    made = Directory([own, *others]).entry(own)
    assert len(made) == width
    yield made + field[width:]
    place = own[:0] + entry[32:36]
    yield own + place + made[36:] + field[width:]


KEY_FIELDS = {
    m.Placement: ("peers", "own", "group_peers"),
    m.Questions: ("askers",),
    m.Samples: ("new_contacts",),
    m.Mark: ("heirs",),
    m.Estates: ("receivers",),
}


@both_losses
@both_models
def test_a_public_key_that_is_not_in_the_directory_is_refused(
    federation_of: Make, split_of: Make, picture_of: Make, base: Config, model: str
) -> None:
    """A server that hands one client another key: of a mask peer, an asker, a contact, an heir, a
    new owner."""
    split, config = split_of(TRAIN, 6, 8, HELD_OUT), base.changed(model=model)
    federation = federation_of(split, config)
    deliver, refused = federation.deliver, Counter[tuple[str, str]]()
    width = entry_bytes(6)
    assert width == entry_bytes(5)

    def disturbed(client: int, request: bytes) -> bytes:
        message, party = read(request), federation.clients[client]
        for name in KEY_FIELDS.get(type(message), ()):
            field = getattr(message, name)
            if not field:
                continue
            before = picture_of(party)
            for bad in impostor(field, width, b""):
                with pytest.raises(AuthenticationError):
                    party.handle(with_fields(request, **{name: bad}))
                refused[type(message).__name__, name] += 1
            assert picture_of(party) == before
        reply: bytes = deliver(client, request)
        return reply

    federation.deliver = disturbed
    federation.train(2)
    federation.server.checkpoint(1)
    changed(federation, [user for user in range(6) if user != federation.server.plan.owner[0]])
    federation.server.step(1, 0, 0.05)
    expected = {(kind.__name__, name) for kind, names in KEY_FIELDS.items() for name in names}
    # Who shares a pool meets nobody, and only who does has a group.
    unused = ("Samples", "new_contacts") if base.pooled else ("Placement", "group_peers")
    assert refused.keys() == expected - {unused}


def test_everybody_shows_the_same_words_and_u_c_those_of_the_keys_it_sealed_to(
    federation_of: Make, split_of: Make
) -> None:
    split = split_of(TRAIN, 6, 8, HELD_OUT)
    words = set[str]()
    for _ in range(2):
        federation = federation_of(split, TINY)
        federation.initialise()
        (shown,) = {client.party.fingerprint for client in federation.clients}
        words.add(shown)
    assert len(words) == 2
    federation = federation_of(split, TINY)
    deliver = federation.deliver

    def exchanged(client: int, request: bytes) -> bytes:
        """u_c is given a key of the server's, under which the server could read S."""
        message = read(request)
        if isinstance(message, m.PublicKeys):
            own = federation.clients[client]._life.private.public_bytes
            publics = [one for one in reading.split(message.keys, 32, "keys") if one != own]
            keys = message.keys.replace(publics[0], PrivateKey.generate().public_bytes)
            request = with_fields(request, keys=keys)
        reply: bytes = deliver(client, request)
        return reply

    federation.deliver = exchanged
    with pytest.raises(AuthenticationError):
        federation.initialise()


def test_no_directory_has_more_keys_than_there_are_said_to_be_members(
    federation_of: Make, split_of: Make
) -> None:
    """Seven leaves are a tree as deep as six: whose place is beyond the sixth finds it out."""
    federation = federation_of(split_of(TRAIN, 6, 8, HELD_OUT), TINY)
    deliver = federation.deliver

    def crowded(client: int, request: bytes) -> bytes:
        life = federation.clients[client]._life
        if isinstance(read(request), m.Placement) and not life.standing.root:
            own = PrivateKey(life.standing.private).public_bytes
            directory = Directory([*(bytes([0] * 31 + [number]) for number in range(6)), own])
            request = with_fields(request, root=directory.root, own=directory.entry(own))
        reply: bytes = deliver(client, request)
        return reply

    federation.deliver = crowded
    with pytest.raises(AuthenticationError, match="more keys than the 6 members"):
        federation.initialise()


def test_u_c_refuses_another_directory_than_that_of_the_keys_it_sealed_to(
    federation_of: Make, split_of: Make
) -> None:
    """The server hides from everybody else that u_c sealed S to a key of the server's."""
    federation = federation_of(split_of(TRAIN, 6, 8, HELD_OUT), TINY)
    deliver, u_c = federation.deliver, list[int]()

    def exchanged(client: int, request: bytes) -> bytes:
        message = read(request)
        if isinstance(message, m.PublicKeys):
            u_c.append(client)
        if isinstance(message, m.Placement) and client in u_c:
            life = federation.clients[client]._life
            own = PrivateKey(life.standing.private).public_bytes
            publics = [own, *(PrivateKey.generate().public_bytes for _ in range(5))]
            other = Directory(publics)
            fields = {
                "root": other.root, "own": other.entry(own), "peers": other.entry(publics[1])
            }  # fmt: skip
            with pytest.raises(AuthenticationError, match="that u_c was given"):
                federation.clients[client].handle(with_fields(request, **fields))
            u_c.append(client)
        reply: bytes = deliver(client, request)
        return reply

    federation.deliver = exchanged
    federation.initialise()
    assert len(u_c) == 2


# Who is who in a later term.


def second_term(federation: Any, members: list[int]) -> None:
    federation.train(1)
    federation.server.checkpoint(1)
    changed(federation, members)


def test_the_clients_seed_is_that_of_the_terms_before(
    federation_of: Make, split_of: Make, picture_of: Make
) -> None:
    """Whoever is u_c: another seed would put every item in another place. And who has just joined
    is not asked for one."""
    split = split_of(TRAIN, 6, 8, HELD_OUT)
    federation = federation_of(split, TINY, None, None, (0, 1, 2, 3))
    deliver, tried = federation.deliver, Counter[str]()
    publics: dict[int, bytes] = {}

    def disturbed(client: int, request: bytes) -> bytes:
        message, party = read(request), federation.clients[client]
        later = header_of(request).stretch > 0
        before = picture_of(party)
        if isinstance(message, m.SealedKey) and later and client < 4:
            life = party._life
            content = bytes(32) + (99).to_bytes(8, "big")
            bound = b"lpgcn shared key\0" + life.run + life.private.public_bytes
            sealed = estate.seal(life.private.public_bytes, content, bound)
            with pytest.raises(AuthenticationError, match="seed is not that"):
                party.handle(with_fields(request, sealed=sealed))
            tried["seed"] += 1
        if isinstance(message, m.Begin) and later and client < 4:
            with pytest.raises(UnexpectedMessageError, match="a first term for a client"):
                party.handle(with_fields(request, term=bytes(4)))
            tried["first"] += 1
        assert picture_of(party) == before
        reply: bytes = deliver(client, request)
        if isinstance(message, m.Begin) and later:
            publics[client] = encoding.decode(reply, m.PublicKey, limit=999).key
            if client == 4:
                header = encoding.encode_header(
                    encoding.run_of(message), Header(STRETCH_PASSES, 3), 4
                )
                keys = m.PublicKeys(header=header, keys=b"".join(publics.values()))
                with pytest.raises(UnexpectedMessageError, match="does not know the clients' seed"):
                    party.handle(encoding.encode(keys))
                tried["joined"] += 1
        return reply

    federation.deliver = disturbed
    second_term(federation, [0, 1, 2, 3, 4])
    assert tried == {"seed": 4, "first": 4, "joined": 1}
    federation.server.step(0, 1, 0.05)


def test_copies_are_for_heirs_and_for_new_owners_only(
    federation_of: Make, split_of: Make, picture_of: Make
) -> None:
    """A row that an estate does not have, items that a new owner does not lack."""
    federation = federation_of(split_of(TRAIN, 6, 8, HELD_OUT), TINY)
    deliver, tried = federation.deliver, Counter[str]()

    def disturbed(client: int, request: bytes) -> bytes:
        message, party = read(request), federation.clients[client]
        bad: dict[str, dict[str, bytes]] = {}
        if isinstance(message, m.Estates):
            count = reading.numbers(message.counts, "counts", below=99).max()
            rows = reading.pack_numbers([count]) + message.rows[4:]
            bad["rows"] = {"rows": rows}
            bad["bundles"] = {"bundles": reading.pack_numbers([77]) + message.bundles[4:]}
        if isinstance(message, m.Bequests):
            rows = np.frombuffer(message.rows, dtype="<u4")
            bad["others"] = {"rows": reading.pack_numbers((rows + 1) % 8)}
            bad["twice"] = {"rows": message.rows[:4] * len(rows)} if len(rows) > 1 else {}
        before = picture_of(party)
        for name, fields in bad.items():
            if fields:
                with pytest.raises(MalformedMessageError):
                    party.handle(with_fields(request, **fields))
                tried[name] += 1
        assert picture_of(party) == before
        reply: bytes = deliver(client, request)
        return reply

    federation.deliver = disturbed
    federation.train(1)
    federation.server.checkpoint(1)
    owner = int(federation.server.plan.owner[0])
    changed(federation, [user for user in range(6) if user != owner])
    assert tried.keys() >= {"rows", "bundles", "others"}


@pytest.mark.parametrize(("owner", "life"), [(5, "Expectant"), (1, "Party")])
def test_who_has_just_joined_is_heir_of_nobody(
    federation_of: Make, split_of: Make, picture_of: Make, owner: int, life: str
) -> None:
    """Client 5, whether it waits for items that are its own from now on, or owns none."""

    def one_owner(graph: TokenGraph) -> Plan:
        return Plan(np.full(graph.n_tokens, owner if graph.n_clients == 6 else 0), "one")

    split = split_of(TRAIN, 6, 8, HELD_OUT)
    federation = federation_of(split, TINY, one_owner, None, (0, 1, 2, 3, 4))
    deliver, joins = federation.deliver, federation.clients[5]
    refused = list[str]()

    def disturbed(client: int, request: bytes) -> bytes:
        if isinstance(read(request), m.Estates):
            header = encoding.encode_header(joins._life.run, header_of(request), 5)
            before = picture_of(joins)
            with pytest.raises(UnexpectedMessageError, match="was in no term before"):
                joins.handle(with_fields(request, header=header))
            assert picture_of(joins) == before
            refused.append(type(joins._life).__name__)
        reply: bytes = deliver(client, request)
        return reply

    federation.deliver = disturbed
    second_term(federation, list(range(6)))
    assert refused == [life]


def test_an_epoch_that_is_over_already_has_no_step(federation_of: Make, split_of: Make) -> None:
    """Fewer members have fewer samples."""
    federation = federation_of(split_of(TRAIN, 6, 8, HELD_OUT), TINY)
    second_term(federation, [1, 2, 4])
    federation.requests.clear()
    assert federation.server.batches.steps == 1
    federation.server.step(0, 1, 0.05)
    assert not federation.requests and federation.server.steps == 1
    federation.server.step(1, 0, 0.05)
    assert federation.requests and federation.server.steps == 2


def test_a_term_needs_somebody_who_was_in_the_one_before(
    federation_of: Make, split_of: Make
) -> None:
    """Only who was there knows the clients' seed, and has keys that copies were sealed to."""
    federation = federation_of(split_of(TRAIN, 6, 8), TINY, None, None, (0, 1, 2))
    with pytest.raises(LostItemsError, match="the state of 8 items is lost: their owners"):
        second_term(federation, [3, 4, 5])


def test_a_prediction_is_for_members_only(federation_of: Make, split_of: Make) -> None:
    federation = federation_of(split_of(TRAIN, 6, 8), TINY, None, None, (0, 2, 4))
    federation.initialise()
    for stranger in (1, 5):
        with pytest.raises(UnexpectedMessageError, match=f"client {stranger}, which is no member"):
            federation.server.predict([0, stranger])
    federation.server.predict([4, 0])
    found = [len(federation.clients[user].party.recommend(3)) for user in (0, 4)]
    assert found == [3, 3]
    with pytest.raises(UnexpectedMessageError, match="ask the server"):
        federation.clients[2].party.recommend(3)


def test_members_change_from_a_checkpoint_on(federation_of: Make, split_of: Make) -> None:
    federation = federation_of(split_of(TRAIN, 6, 8, HELD_OUT), TINY)
    federation.train(1)
    with pytest.raises(UnexpectedMessageError, match="from a checkpoint on; there is none"):
        changed(federation, [0, 1, 2])


def test_who_restarts_in_a_larger_term_reads_its_messages(
    federation_of: Make, split_of: Make
) -> None:
    """What a client takes for too long depends on how many members there are now."""
    n = 40
    train = [(user, item) for user in range(n) for item in (0, 1 + user % 5)]

    def one_owner(graph: TokenGraph) -> Plan:
        return Plan(np.zeros(graph.n_tokens, dtype=np.int64), "one")

    config = TINY.changed(dim=16, layers=1, batch_size=1, virtual_items="0")
    federation = federation_of(split_of(train, n, 8), config, one_owner, None, (0, 1))
    second_term(federation, list(range(n)))
    saved = federation.server.checkpoint(2)
    federation.clients[0] = federation.started(0)
    federation.server = Server.restored(saved, config, federation.line)
    federation.server.resume(2)
    federation.server.step(0, 1, 0.05)
    federation.server.predict([0])


@both_models
def test_one_owner_of_everything_leaves_and_inherits_all_of_it(
    federation_of: Make, split_of: Make, assert_same: Check, model: str
) -> None:
    """The longest copies that there are."""
    train = [(user, (7 * user + way) % 300) for user in range(3) for way in range(5)]
    config = TINY.changed(dim=64, layers=1, batch_size=1, virtual_items="0", model=model)
    turn = [0]

    def one_owner(graph: TokenGraph) -> Plan:
        return Plan(np.full(graph.n_tokens, turn.pop() if turn else 0), "one")

    federation = federation_of(split_of(train, 3, 300), config, one_owner)
    federation.train(1)
    federation.server.checkpoint(1)
    before = federation.state()
    changed(federation, [1, 2])
    after = federation.state()
    assert_same(present_rows(after, config, [1, 2]), present_rows(before, config, [1, 2]))
    assert federation.server.plan.convolution_clients.tolist() == [0]


# Among how many.


def wary(federation: Any, number: int, least: int) -> Client:
    """A client, as a new process, that wants to be one of so many."""
    profile, disk = federation.profiles[number], federation.disks[number]
    return Client(profile, checkpoints=disk, least_members=least)


@pytest.mark.parametrize(("least", "refuses"), [(6, False), (7, True)])
def test_a_first_term_of_too_few_is_refused_before_a_key_is_sent(
    federation_of: Make, split_of: Make, picture_of: Make, least: int, refuses: bool
) -> None:
    federation = federation_of(split_of(TRAIN, 6, 8, HELD_OUT), TINY)
    federation.clients[2] = wary(federation, 2, least)
    if not refuses:
        federation.train(1)
        return
    with pytest.raises(TooFewMembersError, match=r"a term of 6, expected 7 members.*--least-mem"):
        federation.train(1)
    assert isinstance(federation.clients[2]._life, Newcomer)
    answered = [
        encoding.header_of(reply).phase for client, reply in federation.replies if client == 2
    ]
    assert answered == [Phase.RESUME], "an empty answer, and no key"
    before = picture_of(federation.clients[2])
    (refused,) = [data for client, data in federation.requests[-1:] if client == 2]
    with pytest.raises(TooFewMembersError):
        federation.clients[2].handle(refused)
    assert picture_of(federation.clients[2]) == before


def test_a_later_term_of_too_few_is_refused_by_who_was_in_a_larger_one(
    federation_of: Make, split_of: Make
) -> None:
    federation = federation_of(split_of(TRAIN, 6, 8, HELD_OUT), TINY)
    federation.clients[2] = wary(federation, 2, 5)
    federation.train(1)
    federation.server.checkpoint(1)
    changed(federation, [0, 1, 2, 3, 4])
    federation.server.checkpoint(2)
    with pytest.raises(TooFewMembersError, match="a term of 4, expected 5"):
        changed(federation, [0, 1, 2, 3], 2)


def test_who_wants_more_than_its_checkpoint_has_does_not_go_on_from_it(
    federation_of: Make, split_of: Make
) -> None:
    """Its number of the stretch is the old one, so that it can still be asked."""
    federation = federation_of(split_of(TRAIN, 6, 8, HELD_OUT), TINY)
    federation.train(1)
    saved = federation.server.checkpoint(1)
    stretch = federation.disks[2].stretch
    for least, refuses in ((7, True), (6, False)):
        federation.clients[2] = wary(federation, 2, least)
        federation.server = Server.restored(saved, TINY, federation.line)
        if refuses:
            with pytest.raises(TooFewMembersError, match="a term of 6, expected 7"):
                federation.server.resume(1)
            assert federation.disks[2].stretch == stretch
        else:
            federation.server.resume(2)
    federation.server.step(0, 1, 0.05)


@pytest.mark.parametrize("part", ["train", "valid", "test"])
def test_who_comes_back_with_other_data_does_not_go_on(
    federation_of: Make, split_of: Make, part: str
) -> None:
    """Owners know what was real when the term began; with the data of then it goes on."""
    federation = federation_of(split_of(TRAIN, 6, 8, HELD_OUT), TINY)
    federation.train(1)
    saved = federation.server.checkpoint(1)
    before, stretch = federation.profiles[2], federation.disks[2].stretch
    about = msgspec.msgpack.decode(before, type=Profile)
    other = {part: getattr(about, part)[8:] + b"\7" + bytes(7)}
    federation.profiles[2] = msgspec.msgpack.encode(msgspec.structs.replace(about, **other))
    federation.clients[2] = Client(federation.profiles[2], checkpoints=federation.disks[2])
    federation.server = Server.restored(saved, TINY, federation.line)
    with pytest.raises(ChangedDataError, match="data of client 2 have changed since this run"):
        federation.server.resume(1)
    assert federation.disks[2].stretch == stretch
    federation.profiles[2] = before
    federation.clients[2] = federation.started(2)
    federation.server = Server.restored(saved, TINY, federation.line)
    federation.server.resume(2)


def test_what_goes_into_the_next_term_or_a_checkpoint_hides_in_repr(
    federation_of: Make, split_of: Make
) -> None:
    """A log or a traceback that shows a client tells neither the clients' seed nor its vectors."""
    federation = federation_of(split_of(TRAIN, 6, 8, HELD_OUT), TINY)
    federation.train(1)
    federation.server.checkpoint(1)
    for number, client in enumerate(federation.clients):
        life = Newcomer(client.party._device, client.party.belongings())
        snapshot = msgspec.msgpack.decode(federation.disks[number].read(1), type=ClientSnapshot)
        shown = repr(life) + repr(snapshot)
        assert "seed" not in shown and "array" not in shown and "\\x" not in shown, shown
