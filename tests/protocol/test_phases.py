"""The table of phases is complete, and allows what a real server sends and nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from typing import get_args, get_type_hints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.config import Config
from lpgcn.data import Ids, Interactions, Split
from lpgcn.plan import Plan
from lpgcn.protocol.client.client import Client
from lpgcn.protocol.client.newcomer import KeyHolder, Lister, Newcomer
from lpgcn.protocol.client.party import Party
from lpgcn.protocol.client.verification import Answered, Expectant, Placed
from lpgcn.protocol.errors import ReplayedMessageError, UnexpectedMessageError
from lpgcn.protocol.phases import (
    NEXT,
    PHASES,
    REQUESTS,
    RESTART,
    START,
    Asked,
    Phase,
    PhaseOrder,
    Row,
    describe,
    restarted,
)
from lpgcn.protocol.server.server import Line, Server
from lpgcn.protocol.wire import encoding
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire.encoding import STRETCH_PASSES, Header
from lpgcn.runtime.hosts.one_process import profiles

LIVES = (Newcomer, KeyHolder, Lister, Placed, Answered, Expectant, Party)
N_USERS, N_ITEMS = 6, 9
TRAIN = [
    (0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 3), (3, 2), (3, 3), (3, 4), (4, 5), (5, 6),
]  # fmt: skip
OWNER = np.array([0, 1, 1, 3, 3, 0, 3, 1, 0])
"""By hand, by place: clients 0, 1 and 3 own something, 2, 4 and 5 nothing."""
NEXT_OWNER = np.array([0, 2, 3, 3, 2, 2, 3, 2, 0])
"""In the second term: 0 gives only, 1 gives all that it has, 2 gets only, 3 does both."""

every_sequence = pytest.mark.parametrize("layers", [1, 2, 3, 4])
both_kinds_of_users = pytest.mark.parametrize("builds_users", [False, True])


class Recorded:
    """A federation on a graph of a few edges, and the headers of all that its server sent."""

    def __init__(self, config: Config) -> None:
        users, items = zip(*TRAIN, strict=True)
        train = Interactions.from_pairs(users, items, N_USERS, N_ITEMS)
        held = Interactions.from_pairs([0], [3], N_USERS, N_ITEMS)
        ids = Ids(np.arange(N_USERS)), Ids(np.arange(N_ITEMS))
        split = Split("tiny", train, held, held, *ids)
        self._clients = [Client(profile) for _, profile in profiles(split, config)]
        self.steps: list[tuple[bool, Header, Header]] = []
        """Whether a client owns items, as far as it knows; what came last to it, and what then."""
        self.rounds: list[tuple[Header, list[m.Message], list[m.Message]]] = []
        """Header, requests and replies of every call."""
        self.config = config
        self.server = Server.begin(
            config, np.arange(N_USERS), N_ITEMS, lambda _: Plan(OWNER, "by hand"), Line(self)
        )

    def call(self, requests: Iterable[tuple[int, bytes]]) -> Iterable[tuple[int, bytes]]:
        asked, answers, replies = [], [], {}
        for client, data in requests:
            message = encoding.decode(data, REQUESTS, limit=len(data))
            header = encoding.read_header(message, encoding.run_of(message), client)
            party = self._clients[client]
            self.steps.append((party._life.owns, party._last, header))
            replies[client] = self._clients[client].handle(data)
            kind = PHASES[Phase(header.phase)].reply
            asked.append(message)
            answers.append(encoding.decode(replies[client], kind, limit=len(replies[client])))
        self.rounds.append((header, asked, answers))
        return replies.items()


@cache
def recorded(layers: int, builds_users: bool, shares: bool = False) -> Recorded:
    """All that a server ever does, in every order that matters, with batches of two samples."""
    model = "gcn" if shares else "lightgcn+" if builds_users else "lightgcn"
    config = Config(model=model, dim=2, layers=layers, batch_size=2, virtual_items="1", seed=4)
    federation = Recorded(config)
    server = federation.server
    for epoch in range(4):
        for step in range(server.batches.steps):
            server.step(epoch, step, 0.01)
        server.take_loss()
        server.measure("valid")
        server.predict([1, 2])
    server.step(4, 0, 0.01)
    server.measure("test")
    server.take_loss()
    server.predict(range(N_USERS))
    server.take_loss()
    server.measure("valid")
    server.measure("test")
    server.predict([0, 4])
    server.predict([3])
    server.keep()
    server.go_back()
    saved = server.checkpoint(1)
    server.step(5, 0, 0.01)
    server = Server.restored(saved, federation.config, Line(federation))
    server.resume(1)
    server.step(5, 0, 0.01)
    server.checkpoint(2)
    everybody, plan = np.arange(N_USERS), Plan(NEXT_OWNER, "by hand")
    server = server.changed(everybody, lambda _: plan, Line(federation), 2)
    server.step(5, 1, 0.01)
    return federation


def begins_stretch(header: Header) -> bool:
    return header.phase == Phase.RESUME and header.begins_stretch


# The table.


def test_every_phase_has_a_row_and_every_row_a_phase() -> None:
    assert list(PHASES) == list(Phase)


@pytest.mark.parametrize("phase", Phase)
def test_a_row_names_a_method_of_one_life_that_takes_its_request(phase: Phase) -> None:
    """Of the two that an heir can be at; RESUME is the client's own, whatever its life."""
    row = PHASES[phase]
    lives = [life for life in LIVES if hasattr(life, row.method)]
    assert len(lives) == {Phase.RESUME: 0, Phase.INHERIT: 2}.get(phase, 1)
    for life in lives:
        taken = get_type_hints(getattr(life, row.method))["message"]
        assert issubclass(row.request, taken)


def test_every_method_of_a_life_that_answers_a_message_is_in_a_row() -> None:
    answering = {
        name
        for life in LIVES
        for kind in life.__mro__
        for name, method in vars(kind).items()
        if not name.startswith("_")
        and {"message", "header", "return"} == getattr(method, "__annotations__", {}).keys()
    }
    assert answering == {row.method for row in PHASES.values()} - {PHASES[Phase.RESUME].method}


def test_what_a_client_decodes_is_what_it_is_asked() -> None:
    assert set(get_args(REQUESTS)) == {row.request for row in PHASES.values()}
    assert set(get_args(REQUESTS)).isdisjoint(row.reply for row in PHASES.values())


def certain(row: Row) -> bool:
    """It comes to every client, whatever the configuration."""
    return (
        row.asked is Asked.EVERYBODY and row.first_layer is None and not (row.built or row.shared)
    )


@pytest.mark.parametrize("phase", Phase)
def test_what_may_follow_comes_later(phase: Phase) -> None:
    """So that headers rise, and an old one is recognised by its number."""
    row = PHASES[phase]
    assert row.then and all(one is NEXT or one > phase for one in row.then)
    always = [one for one in row.then if one is not NEXT and certain(PHASES[one])]
    assert always in ([], [row.then[-1]]), "nothing comes behind what is certain to come"


@every_sequence
@both_kinds_of_users
@pytest.mark.parametrize("owns", [False, True])
def test_every_phase_is_reached_where_it_is_needed(
    layers: int, builds_users: bool, owns: bool
) -> None:
    sequence = PhaseOrder(layers, builds_users)
    reached, todo = set(), [START]
    while todo:
        for header in sequence.after(todo.pop(), owns=owns):
            if header not in reached and header.pass_number <= 1:
                reached.add(header)
                todo.append(header)
    for phase in Phase:
        needed = set(sequence.layers_of(phase))
        if PHASES[phase].asked is Asked.OWNERS and not owns:
            needed = set()
        assert {header.layer for header in reached if header.phase == phase} == needed, phase
    built = {phase for phase in Phase if PHASES[phase].built}
    assert bool(built & {header.phase for header in reached}) == (builds_users and owns)
    assert all((header.pass_number == 0) == (header.phase < Phase.BUILD) for header in reached)


def test_a_step_has_an_exchange_for_every_layer_forward_and_backward() -> None:
    for layers in range(1, 17):
        sequence = PhaseOrder(layers, builds_users=False)
        phases = (Phase.FORWARD, Phase.GRADIENT, Phase.BACKWARD)
        assert sum(len(sequence.layers_of(phase)) for phase in phases) == 2 * layers


# The table and a server.


@every_sequence
@both_kinds_of_users
def test_what_a_server_sends_is_accepted(layers: int, builds_users: bool) -> None:
    sequence, met = PhaseOrder(layers, builds_users), set()
    for owns, last, header in recorded(layers, builds_users).steps:
        assert sequence.check(header, last, owns=owns) is PHASES[Phase(header.phase)]
        assert begins_stretch(header) or header in sequence.after(last, owns=owns)
        met.add(header.phase)
    assert met == {phase for phase in Phase if sequence.layers_of(phase)}


def test_dense_weights_are_summed_up_and_stepped_by_everybody_after_an_update() -> None:
    sequence, met = PhaseOrder(2, builds_users=False, shares_weights=True), []
    for owns, last, header in recorded(2, builds_users=False, shares=True).steps:
        assert sequence.check(header, last, owns=owns) is PHASES[Phase(header.phase)]
        assert begins_stretch(header) or header in sequence.after(last, owns=owns)
        met.append(header.phase)
    joining = {Phase.HAND_ON, Phase.TAKE_OVER}
    assert {*met} == {phase for phase in Phase if sequence.layers_of(phase)} - joining
    shared = met.count(Phase.SUM_SHARED), met.count(Phase.UPDATE_SHARED)
    assert shared == (met.count(Phase.UPDATE),) * 2


def everywhere(layers: int, pass_number: int) -> set[Header]:
    """Every header around a pass, and some that nobody can mean."""
    phases = [*Phase, 0, 8, 255]
    passes = {0, *range(max(0, pass_number - 1), pass_number + 3)}
    return {
        Header(one, phase, layer)
        for one in passes
        for phase in phases
        for layer in (*range(layers + 1), 255)
    }


NEVER_SENT = {(False, Phase.FINAL, Phase.GRADIENT), (False, Phase.INHERIT, Phase.ENDOW)}
"""Whether it owns items, last phase, next phase: the table allows it, but no server does it. Who
owns nothing has a part in FINAL for the batch's sake only, so that its LOSS comes first; and it
has a part in INHERIT as an heir only."""


@every_sequence
@both_kinds_of_users
def test_whatever_no_server_sends_is_refused(layers: int, builds_users: bool) -> None:
    """What ever followed a header, at some client of a recorded run, is all that may follow it;
    where a pass may end, the next may begin with all that one ever began with."""
    sequence = PhaseOrder(layers, builds_users)
    seen: dict[tuple[bool, int, int], set[tuple[int, int, int]]] = defaultdict(set)
    beginnings: dict[bool, set[tuple[int, int, int]]] = defaultdict(set)
    example: dict[tuple[bool, int, int], Header] = {}
    for owns, last, header in recorded(layers, builds_users).steps:
        if begins_stretch(header) and last != START:
            continue
        place, passes = (owns, last.phase, last.layer), header.pass_number - last.pass_number
        example[place] = last
        seen[place].add((passes, header.phase, header.layer))
        if passes:
            beginnings[owns].add((passes, header.phase, header.layer))
    for place, last in example.items():
        owns, allowed = place[0], seen[place]
        if allowed & beginnings[owns]:
            allowed |= beginnings[owns]
        for header in everywhere(layers, last.pass_number):
            passes = header.pass_number - last.pass_number
            if (passes, header.phase, header.layer) in allowed:
                assert header in sequence.after(last, owns=owns)
                continue
            followed = owns, last.phase, header.phase
            if followed in NEVER_SENT and not passes and not header.layer:
                continue
            wrong = ReplayedMessageError if header <= last else UnexpectedMessageError
            with pytest.raises(wrong) as error:
                sequence.check(header, last, owns=owns)
            assert describe(header) in str(error.value) and describe(last) in str(error.value)


@every_sequence
@both_kinds_of_users
def test_rows_arrive_from_the_phase_in_which_they_were_pushed(
    layers: int, builds_users: bool
) -> None:
    """The context under which a receiver opens them is that of the last call that pushed any."""
    sequence, federation = PhaseOrder(layers, builds_users), recorded(layers, builds_users)
    pushed, checked = None, set()
    for header, requests, replies in federation.rounds:
        if any(getattr(one, name, b"") for one in requests for name in ("pushes", "wishes")):
            assert sequence.pushed_before(header) == pushed
            checked.add(header.phase)
        if any(isinstance(one, m.Push) and (one.user or one.pushes) for one in replies):
            pushed = header
    expected = {Phase.FINAL, Phase.UPDATE}
    expected |= {Phase.FORWARD} if layers > 1 or builds_users else set()
    expected |= {Phase.BACKWARD} if layers > 1 else set()
    assert checked == expected
    assert (sequence.pushed_before(Header(3, Phase.FORWARD)) is None) == (not builds_users)


@every_sequence
def test_who_is_asked_is_what_the_table_says(layers: int) -> None:
    everybody, owners = set(range(N_USERS)), (set(OWNER.tolist()), set(NEXT_OWNER.tolist()))
    asked: dict[Phase, set[frozenset[int]]] = defaultdict(set)
    federation = recorded(layers, True)
    for header, requests, _ in federation.rounds:
        clients = frozenset(int.from_bytes(one.header[-4:], "big") for one in requests)
        asked[Phase(header.phase)].add(clients)
    for phase, groups in asked.items():
        who = PHASES[phase].asked
        if who is Asked.EVERYBODY:
            assert groups == {frozenset(everybody)}
        elif who is Asked.OWNERS:
            assert groups == set(map(frozenset, owners))
        elif who is Asked.KEY_CLIENT:
            assert {len(group) for group in groups} == {1}
        elif who is Asked.BATCH:
            assert all(0 < len(group) <= 2 for group in groups)
    for _, requests, _ in federation.rounds:
        assert len({type(one) for one in requests}) == 1


def test_headers_have_words() -> None:
    assert describe(START) == "the start"
    assert describe(Header(3, Phase.FORWARD, 1)) == "pass 3 FORWARD 1"
    assert describe(Header(3, Phase.LOSS, 1)) == "pass 3 LOSS"
    assert describe(Header(3, 200)) == "pass 3 phase 200"
    assert describe(restarted(4)) == "a restart in stretch 4"


# Stretches.

stretches = st.integers(0, 2**16 - 2)
places = st.builds(
    Header,
    st.integers(0, 2**40 - STRETCH_PASSES),
    st.sampled_from(sorted(Phase)),
    st.integers(0, 3),
)
sequences = st.builds(PhaseOrder, st.integers(1, 4), st.booleans())


@given(sequences, places, stretches, st.booleans())
def test_a_later_stretch_may_begin_at_any_time_and_no_other(
    sequence: PhaseOrder, last: Header, stretch: int, owns: bool
) -> None:
    """Wherever a client is: what is run again runs under numbers that were never used."""
    resume = Header(stretch * STRETCH_PASSES, Phase.RESUME)
    if resume > last:
        assert sequence.check(resume, last, owns=owns) is PHASES[Phase.RESUME]
        assert stretch > last.stretch
    else:
        with pytest.raises(ReplayedMessageError):
            sequence.check(resume, last, owns=owns)
    for wrong in (
        Header(resume.pass_number + 1, Phase.RESUME),
        Header(resume.pass_number, Phase.RESUME, 1),
    ):
        with pytest.raises((ReplayedMessageError, UnexpectedMessageError)):
            sequence.check(wrong, last, owns=owns)


@given(sequences, places, stretches, st.booleans())
def test_who_lost_its_memory_waits_for_a_later_stretch(
    sequence: PhaseOrder, header: Header, stretch: int, owns: bool
) -> None:
    last = restarted(stretch)
    assert last.stretch == stretch and last.phase == RESTART
    next_one = Header((stretch + 1) * STRETCH_PASSES, Phase.RESUME)
    assert sequence.after(last, owns=owns) == [next_one]
    assert sequence.check(next_one, last, owns=owns) is PHASES[Phase.RESUME]
    for one in (header, Header(last.pass_number, header.phase, header.layer)):
        if begins_stretch(one) and not one.layer and one.stretch > stretch:
            continue
        wrong = ReplayedMessageError if one <= last else UnexpectedMessageError
        with pytest.raises(wrong):
            sequence.check(one, last, owns=owns)


def test_who_never_was_in_a_stretch_is_at_the_start() -> None:
    assert restarted(-1) == START
