"""The loss against pools of negatives: masked sums, who can read what, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from operator import or_
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from lpgcn import fixed_point
from lpgcn.array_types import Int64
from lpgcn.config import Config
from lpgcn.crypto import entry_bytes
from lpgcn.data import Split
from lpgcn.errors import LpgcnError
from lpgcn.model.batches import PooledBatch
from lpgcn.model.kernels.plain import Plain
from lpgcn.model.losses.softmax import Softmax, columns
from lpgcn.model.sampling import catalogue, places
from lpgcn.plan import Plan, TokenGraph
from lpgcn.protocol.client import newcomer
from lpgcn.protocol.client.profile import Profile
from lpgcn.protocol.client.sealing import Keys
from lpgcn.protocol.errors import MalformedMessageError, UnexpectedMessageError
from lpgcn.protocol.phases import PHASES, REQUESTS, Phase
from lpgcn.protocol.server.caller import Caller
from lpgcn.protocol.transcript import Observation
from lpgcn.protocol.wire import encoding, reading
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire.fields import Round
from lpgcn.protocol.wire.sizes import MASK_REACH, Sizes
from lpgcn.ragged import Ragged
from lpgcn.runtime.engines.engine import Tables

Make = Callable[..., Any]
Check = Callable[[Tables, Tables], None]
Bad = Iterable[tuple[str, dict[str, bytes]]]
N_USERS, N_ITEMS = 10, 24
TRAIN = sorted(
    {(user, (3 * user + way * way) % (N_ITEMS - 4)) for user in range(N_USERS) for way in (0, 1, 2)}
)
POOLED = Config(
    model="lightgcn", loss="softmax", batch_size="full", negatives=9, answers=6, groups=3, dim=8,
    layers=2, lr=0.05, virtual_items="1", seed=5,
)  # fmt: skip
SAMPLED = POOLED.sampled(batch_size=7)
MESSAGES = REQUESTS | reduce(or_, {row.reply for row in PHASES.values()})
both_suites = pytest.mark.parametrize("suite", ["sealed", "paper"])
both_dtypes = pytest.mark.parametrize("dtype", ["float32", "float64"])


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of three and four."""
    monkeypatch.setattr("lpgcn.model.batches.smallest_group", lambda _: 3)


@pytest.fixture
def split(split_of: Make) -> Split:
    made: Split = split_of(TRAIN, N_USERS, N_ITEMS, [(0, N_ITEMS - 1)])
    return made


def read(data: bytes) -> Any:
    return encoding.decode(data, MESSAGES, limit=1 << 24)


def in_phase(messages: Iterable[tuple[int, bytes]], phase: Phase) -> dict[int, Any]:
    """The messages of a phase that comes once, by client."""
    return {
        client: read(data) for client, data in messages if encoding.header_of(data).phase == phase
    }


class Plainly:
    """What each client has to say in the first step, from the model of a data centre."""

    def __init__(self, reference: Any, split: Split, config: Config, batch: PooledBatch) -> None:
        reference.measure("valid")
        softmax, kernels, vectors = Softmax.of(config), Plain(), reference.scorer()
        self.finals = vectors.users
        self.directions = softmax.directions(vectors.users, kernels).rows
        at_items = softmax.directions(vectors.items, kernels).rows
        self.answers: list[Int64] = []
        """Of each client, for the places that its group answers about."""
        self.coefficients: list[npt.NDArray[np.floating[Any]]] = []
        order = catalogue(config.seed, split.n_items)
        for user in range(split.n_users):
            pool = order[batch.pools[int(batch.group[user])]]
            positives = Ragged.single(split.train.items_of(user))
            found = softmax.gradients(
                positives,
                self.directions[user : user + 1],
                at_items,
                at_items[pool],
                columns(positives, pool, split.n_items),
                batch.answered,
                kernels,
            )
            self.answers.append(found.answers)
            self.coefficients.append(found.coefficient)

    def slopes(self, user: int) -> Int64:
        """Of the negatives, in steps: what its answers are multiples of its direction by."""
        direction = self.directions[user].astype(np.float64)
        along = self.answers[user] @ direction / (direction @ direction)
        slopes: Int64 = np.rint(along).astype(np.int64)
        assert np.array_equal(slopes[:, None] * direction, self.answers[user])
        return slopes


def first_step(federation: Any, reference: Any) -> tuple[Plainly, PooledBatch]:
    federation.initialise()
    batch = federation.server.batches.draw(0, 0)
    plainly = Plainly(reference, federation.split, federation.config, batch)
    federation.requests.clear()
    federation.replies.clear()
    federation.server.step(0, 0, 0.05)
    return plainly, batch


# Sums.


@both_suites
@both_dtypes
def test_masked_sums_are_those_of_what_was_masked_and_no_message_is(
    federation_of: Make,
    split: Split,
    centralized_of: Make,
    monkeypatch: pytest.MonkeyPatch,
    suite: str,
    dtype: str,
) -> None:
    config = POOLED.changed(suite=suite, dtype=dtype)
    federation, summed = federation_of(split, config), list[npt.NDArray[np.uint64]]()
    carry_out = Caller.carry_out

    def watched(caller: Caller, one: Round) -> None:
        carry_out(caller, one)
        if one.phase is Phase.LOSS:
            summed.append(caller.stores["answers"].copy())

    monkeypatch.setattr(Caller, "carry_out", watched)
    plainly, batch = first_step(federation, centralized_of(split, config))
    sent = {
        client: np.frombuffer(reply.answers, dtype="<i8").reshape(batch.answered, config.dim)
        for client, reply in in_phase(federation.replies, Phase.LOSS).items()
    }
    assert sorted(Counter(batch.group.tolist()).values()) == [3, 3, 4]
    by_place = np.zeros((N_ITEMS, config.dim), dtype=np.int64)
    for group in range(len(batch.pools)):
        members = np.flatnonzero(batch.group == group).tolist()
        plain = np.sum([plainly.answers[client] for client in members], axis=0)
        assert np.count_nonzero(plain) > batch.answered
        assert np.array_equal(np.sum([sent[client] for client in members], axis=0), plain)
        assert summed[0][group].tobytes() == plain.astype("<i8").tobytes()
        by_place[batch.pools[group][: batch.answered]] += plain
        for client in members:
            assert (sent[client] != plainly.answers[client]).all()
            without = [one for one in members if one != client]
            partly = np.sum([sent[one] for one in without], axis=0)
            hidden = np.sum([plainly.answers[one] for one in without], axis=0)
            assert (partly != hidden).all()
    asked = set(batch.answers.values.tolist())
    told = 0
    for owner, rows in in_phase(federation.requests, Phase.GRADIENT).items():
        owned = federation.server.topology.owned[owner]
        answered = owned[reading.bits(rows.answered, "answered", len(owned))]
        assert set(answered.tolist()) == asked & set(owned.tolist())
        assert rows.answers == by_place[answered].astype("<i8").tobytes()
        told += len(answered)
    assert told == len(asked) > batch.answered


def test_one_client_alone_has_nobody_to_hide_among(
    federation_of: Make, split_of: Make, centralized_of: Make
) -> None:
    """The sum is then its own answer, and is not masked; so a mask would be noticed above."""
    split = split_of([(0, 1), (0, 4)], 1, N_ITEMS, [(0, 7)])
    federation = federation_of(split, POOLED)
    plainly, _ = first_step(federation, centralized_of(split, POOLED))
    (reply,) = in_phase(federation.replies, Phase.LOSS).values()
    assert reply.answers == plainly.answers[0].astype("<i8").tobytes()


def test_the_peers_of_a_group_are_a_circle_within_it(federation_of: Make, split_of: Make) -> None:
    """Whoever had a peer in another group would leave a mask in both sums; and a group that is not
    connected would be several sums."""
    n_users = 40
    config = POOLED.changed(groups=3, dim=1, layers=1)
    federation = federation_of(split_of([(u, u % 7) for u in range(n_users)], n_users, 9), config)
    federation.initialise()
    publics = [client.party._keys.private.public_bytes for client in federation.clients]
    group = federation.server.batches.draw(0, 0).group
    peers = [
        {publics.index(key) for key in client.party._standing.keys("group_peers")}
        for client in federation.clients
    ]
    for client, some in enumerate(peers):
        assert {int(group[one]) for one in some} == {int(group[client])}
        assert len(some) == 2 * MASK_REACH
        assert all(client in peers[other] for other in some)
        reached = {client}
        while grown := set().union(*(peers[one] for one in reached)) - reached:
            reached |= grown
        assert reached == set(np.flatnonzero(group == group[client]).tolist())


# Who can read what.

KINDS = ("<i8", ">i8", "<i4", ">i4", "<i2", ">i2", "<f4", ">f4", "<f8", ">f8")


def traces(values: npt.NDArray[Any], scale: float = 1.0) -> set[bytes]:
    """Runs of numbers in any encoding that holds them, of eight bytes and more; as they are, and in
    other units."""
    found = set[bytes]()
    for numbers in {1.0: [values], scale: [values, values * scale]}[scale]:
        for kind in map(np.dtype, KINDS):
            if kind.kind == "i" and not holds(kind, numbers):
                continue
            content, width = numbers.astype(kind).tobytes(), kind.itemsize
            run = max(2, 8 // width) * width
            found.update(content[at : at + run] for at in range(0, len(content) - run + 1, width))
    return {trace for trace in found if len(set(trace)) > 4}


def holds(kind: np.dtype[Any], numbers: npt.NDArray[Any]) -> bool:
    limits = np.iinfo(kind)
    whole = bool((np.rint(numbers) == numbers).all())
    return whole and limits.min <= numbers.min() and numbers.max() <= limits.max


class Seen:
    """All that each party could read in a step: what it was sent, and what it opened of it."""

    def __init__(self, federation: Any, witnessed: list[Observation]) -> None:
        opened: dict[int, list[bytes]] = {client: [] for client in range(N_USERS)}
        for one in witnessed:
            if one.party != "server":
                rows = [row for rows in one.opened for row in rows.rows]
                opened[int(one.party.split()[1])] += rows
        self.server = b"|".join(data for _, data in federation.replies)
        self.clients = [
            b"|".join([*(data for to, data in federation.requests if to == client), *rows])
            for client, rows in opened.items()
        ]


def found(traces: set[bytes], content: bytes) -> bool:
    assert len(traces) >= 3, "there must be something to look for"
    return any(trace in content for trace in traces)


def watched_step(
    federation_of: Make, split: Split, centralized_of: Make, config: Config
) -> tuple[Plainly, Seen, Any]:
    witnessed = list[Observation]()
    federation = federation_of(split, config, one_each, witnessed.append)
    plainly, _ = first_step(federation, centralized_of(split, config))
    witnessed = [one for one in witnessed if one.pass_number > 1]
    assert {one.phase for one in witnessed} >= {"FORWARD", "LOSS", "GRADIENT", "UPDATE"}
    return plainly, Seen(federation, witnessed), federation.server.topology


def one_each(graph: TokenGraph) -> Plan:
    """Everybody owns items, most of which it does not list."""
    return Plan(np.arange(graph.n_tokens) % graph.n_clients, "by turns")


def secrets_of(plainly: Plainly, user: int) -> dict[str, set[bytes]]:
    """What nobody but the client itself may read."""
    return {
        "answers": traces(plainly.answers[user]),
        "slopes": traces(plainly.slopes(user), 2.0**-16),
        "final vector": traces(plainly.finals[user]),
    }


def scalars_of(plainly: Plainly, user: int, config: Config) -> list[bytes]:
    """s and n of each of its items, as they travel."""
    pairs = np.ones(len(plainly.coefficients[user]), dtype=Sizes.of(config).pair)
    pairs["coefficient"] = plainly.coefficients[user]
    return [pair.tobytes() for pair in pairs]


@both_dtypes
def test_what_a_client_says_is_read_by_nobody_but_the_owners_of_what_it_lists(
    federation_of: Make, split: Split, centralized_of: Make, dtype: str
) -> None:
    """These get its direction and, of what it really has, the slopes; of its negatives nobody gets
    anything but sums over a group."""
    config = POOLED.changed(dtype=dtype)
    plainly, seen, topology = watched_step(federation_of, split, centralized_of, config)
    place, told, untold = places(catalogue(config.seed, N_ITEMS)), 0, 0
    for user in range(N_USERS):
        direction, scalars = traces(plainly.directions[user]), scalars_of(plainly, user, config)
        secrets = secrets_of(plainly, user)
        for what, some in {**secrets, "direction": direction, "scalars": set(scalars)}.items():
            assert not found(some, seen.server), (user, what)
        owners = set(topology.pair_owner[topology.by_client[user]].tolist())
        real = topology.owner[place[split.train.items_of(user)]].tolist()
        for client in set(range(N_USERS)) - {user}:
            content = seen.clients[client]
            for what, some in secrets.items():
                assert not found(some, content), (user, client, what)
            assert found(direction, content) == (client in owners), (user, client)
            for owner, pair in zip(real, scalars, strict=True):
                assert (pair in content) == (owner == client), (user, client)
            told, untold = told + (client in owners), untold + (client not in owners)
    assert told > N_USERS and untold > N_USERS


def test_what_is_not_masked_or_not_sealed_is_found(
    federation_of: Make, split: Split, centralized_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same search where there is something to find."""
    config = POOLED.changed(suite="paper")
    plainly, seen, _ = watched_step(federation_of, split, centralized_of, config)
    for user in range(N_USERS):
        assert found(traces(plainly.directions[user]), seen.server)
        assert found(set(scalars_of(plainly, user, config)), seen.server)
        assert not found(traces(plainly.answers[user]), seen.server), "masked in every suite"

    def unmasked(keys: Keys, header: encoding.Header, values: npt.NDArray[np.uint64]) -> bytes:
        return values.astype("<u8").tobytes()

    monkeypatch.setattr(Keys, "mask_in_group", unmasked)
    plainly, seen, _ = watched_step(federation_of, split, centralized_of, POOLED)
    for user in range(N_USERS):
        assert found(traces(plainly.answers[user]), seen.server)
        slopes = plainly.slopes(user)
        for told in (slopes.astype("<i4"), (slopes * 2.0**-16).astype("<f4")):
            assert found(secrets_of(plainly, user)["slopes"], told.tobytes())


def test_a_final_vector_is_found_where_it_is_told(
    federation_of: Make, split: Split, centralized_of: Make
) -> None:
    """Samples with a negative each, in the suite of the paper, tell it to the server."""
    config = SAMPLED.changed(suite="paper", batch_size=40)
    reference, federation = centralized_of(split, config), federation_of(split, config)
    reference.measure("valid")
    federation.train(1)
    replies = in_phase(federation.replies, Phase.LOSS)
    assert len(replies) > N_USERS / 2
    for user, reply in replies.items():
        assert found(traces(reference.scorer().users[user]), reply.user)


# Sizes.


def test_clients_with_lists_of_one_length_send_and_get_messages_of_one_size(
    federation_of: Make, split_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many of the five items they really have, in every round of a step; somebody else
    owns all of them. Who lists six would be told apart."""
    lists = [[0], *([(user + way) % 8 for way in range(5)] for user in range(1, 6)), [*range(6)]]
    train = [(user, item) for user, listed in enumerate(lists) for item in listed[: max(1, user)]]

    def virtual(about: Profile, real: Int64) -> Int64:
        return np.setdiff1d(lists[about.index], real)

    def one_owner(graph: TokenGraph) -> Plan:
        return Plan(np.zeros(graph.n_tokens, dtype=np.int64), "one")

    monkeypatch.setattr(newcomer, "draw_virtual_items", virtual)
    split = split_of(train, 7, 12)
    assert [len(split.train.items_of(user)) for user in range(1, 6)] == [1, 2, 3, 4, 5]
    federation = federation_of(split, POOLED, one_owner)
    federation.initialise()
    federation.requests.clear()
    federation.replies.clear()
    federation.server.step(0, 0, 0.05)

    def shapes(client: int) -> list[tuple[encoding.Header, list[int]]]:
        return [
            (encoding.header_of(data), [len(getattr(read(data), name)) for name in fields_of(data)])
            for to, data in federation.requests + federation.replies
            if to == client
        ]

    found = [shapes(client) for client in range(1, 7)]
    assert all(shape == found[0] for shape in found[:5])
    assert found[5] != found[0]
    assert {header.phase for header, _ in found[0]} >= {Phase.FORWARD, Phase.LOSS, Phase.UPDATE}


def fields_of(data: bytes) -> list[str]:
    message: m.Message = read(data)
    return [*encoding.content_fields(type(message))]


def test_what_one_owner_of_everything_grants_is_not_too_long(
    federation_of: Make, split_of: Make
) -> None:
    """Every item to everybody, in directions."""
    train = [(user, item) for user in range(60) for item in range(120)]

    def one_owner(graph: TokenGraph) -> Plan:
        return Plan(np.zeros(graph.n_tokens, dtype=np.int64), "one")

    config = POOLED.changed(dim=64, layers=1, groups=1, virtual_items="0")
    federation = federation_of(split_of(train, 60, 125), config, one_owner)
    federation.train(1)
    granted = in_phase(federation.replies, Phase.FINAL)[0].granted
    assert len(granted) >= 59 * 120 * 64 * 2


# Refusals.


def refusals(
    federation: Any,
    picture_of: Make,
    bad: Callable[[int, Any], Bad],
    error: type[LpgcnError] = MalformedMessageError,
) -> Counter[str]:
    """Before each message bad ones, which are refused and change nothing."""
    deliver, refused = federation.deliver, Counter[str]()

    def disturbed(client: int, request: bytes) -> bytes:
        message, party = read(request), federation.clients[client]
        before = picture_of(party)
        for what, fields in bad(client, message):
            wrong = encoding.encode(msgspec.structs.replace(message, **fields))
            try:
                with pytest.raises(error):
                    party.handle(wrong)
            except BaseException as failure:
                failure.add_note(f"client {client}: {what}")
                raise
            refused[what] += 1
        assert picture_of(party) == before
        reply: bytes = deliver(client, request)
        return reply

    federation.deliver = disturbed
    return refused


def undisturbed(federation_of: Make, split: Split, config: Config, steps: int) -> Tables:
    federation = federation_of(split, config)
    federation.train(steps)
    state: Tables = federation.state()
    return state


def bad_pools(config: Config) -> Callable[[int, Any], Bad]:
    sizes = Sizes.of(config)
    width = sizes.final
    too_long = np.full(config.dim, np.iinfo(sizes.shown).max, dtype=sizes.shown).tobytes()

    def bad(client: int, message: Any) -> Iterator[tuple[str, dict[str, bytes]]]:
        if not isinstance(message, m.Samples):
            return
        pool, rows = message.negative_places, message.negative_rows
        other = np.setdiff1d(np.arange(N_ITEMS), np.frombuffer(pool, dtype="<u4"))
        both = ("negative_places", "negative_rows")
        yield "a place twice", {"negative_places": pool[:-4] + pool[:4]}
        yield "too few", dict(zip(both, (pool[:-4], rows[:-width]), strict=True))
        more = pool + reading.pack_numbers(other[:1]), rows + rows[:width]
        yield "too many", dict(zip(both, more, strict=True))
        yield "none", dict.fromkeys(both, b"")
        yield "no such place", {"negative_places": pool[:-4] + reading.pack_numbers([N_ITEMS])}
        yield "a row less", {"negative_rows": rows[:-width]}
        yield "a negative too long", {"negative_rows": rows[:-width] + too_long}
        slots = len(message.granted) // width
        if slots:
            yield "positives too long", {"granted": too_long * slots}
            yield "a positive less", {"granted": message.granted[:-width]}
        for name in ("negatives", "contacts", "new_contacts"):
            yield f"with {name}", {name: reading.pack_numbers([0])}

    return bad


@both_dtypes
def test_a_pool_that_is_none_is_refused(
    federation_of: Make, split: Split, picture_of: Make, assert_same: Check, dtype: str
) -> None:
    """In the suite `paper`, in which the server can write what it likes."""
    config = POOLED.changed(suite="paper", dtype=dtype, virtual_items="0")
    federation = federation_of(split, config)
    refused = refusals(federation, picture_of, bad_pools(config))
    federation.train(2)
    assert len(refused) == 12
    # Who owns all that it lists is granted nothing.
    granted = {refused.pop(what) for what in ("positives too long", "a positive less")}
    assert N_USERS < granted.pop() <= 2 * N_USERS and not granted
    assert set(refused.values()) == {2 * N_USERS}
    assert_same(federation.state(), undisturbed(federation_of, split, config, 2))


def bad_answers(config: Config, topology: Callable[[], Any]) -> Callable[[int, Any], Bad]:
    sizes = Sizes.of(config)
    too_long = np.full(config.dim, np.iinfo(sizes.shown).max, dtype=sizes.shown).tobytes()

    def bad(client: int, message: Any) -> Iterator[tuple[str, dict[str, bytes]]]:
        if not isinstance(message, m.LossRows):
            return
        answers, owned = message.answers, len(topology().owned[client])
        yield "a number more", {"answers": answers + bytes(8)}
        yield "a row more", {"answers": answers + bytes(sizes.answer)}
        yield "too many bits", {"answered": bytes((owned + 7) // 8 + 1)}
        for name in ("negatives", "contacts", "introductions"):
            yield f"with {name}", {name: bytes(8)}
        if not owned:
            yield "to nobody's items", {"answered": b"\x80", "answers": bytes(sizes.answer)}
        if answers:
            yield "a number less", {"answers": answers[:-8]}
            yield "bits without rows", {"answers": b""}
            yield "rows without bits", {"answered": bytes((owned + 7) // 8)}
        if message.answered:
            yield "all bits", {"answered": b""}
        if message.users:
            rest = message.users[sizes.final :]
            yield "a user too long", {"users": too_long + rest}
            yield "a user less", {"users": rest}

    return bad


def test_answers_that_are_not_about_what_is_owned_are_refused(
    federation_of: Make, split: Split, picture_of: Make, assert_same: Check
) -> None:
    config = POOLED.changed(suite="paper", groups=1, negatives=6)
    federation = federation_of(split, config)
    topology = lambda: federation.server.topology  # noqa: E731
    refused = refusals(federation, picture_of, bad_answers(config, topology))
    federation.train(2)
    assert len(refused) == 13, refused
    assert_same(federation.state(), undisturbed(federation_of, split, config, 2))


def test_samples_and_wishes_have_no_place_where_there_are_pools(
    federation_of: Make, split: Split, picture_of: Make
) -> None:
    """Nor has an epoch in any exchange but the last one forward, nor one that is no number."""
    federation = federation_of(split, POOLED)

    def bad(client: int, message: Any) -> Iterator[tuple[str, dict[str, bytes]]]:
        if isinstance(message, m.Exchange):
            phase, layer = encoding.header_of(encoding.encode(message)).phase, message.header[26]
            yield "positions", {"positions": reading.pack_numbers([3])}
            if phase != Phase.FORWARD or layer < POOLED.layers - 1:
                yield f"epoch in {Phase(phase).name}", {"epoch": reading.pack_numbers([0])}
            yield "two epochs", {"epoch": reading.pack_numbers([0, 1])}
            yield "an epoch too large", {"epoch": b"\xff" * 4}
        if isinstance(message, m.Finish):
            yield "wishing", {"wishing": b"\x80"}
            yield "slots", {"slots": reading.pack_numbers([1])}
            yield "wishes", {"wishes": bytes(20)}

    refused = refusals(federation, picture_of, bad)
    federation.train(1)
    assert set(refused) == {
        "positions", "epoch in FORWARD", "epoch in BACKWARD", "two epochs", "an epoch too large",
        "wishing", "slots", "wishes",
    }  # fmt: skip


def test_negatives_for_who_was_told_no_epoch_are_refused(
    federation_of: Make, split: Split, picture_of: Make
) -> None:
    """It takes the pass for a prediction, which has no loss."""
    config = POOLED.changed(groups=1)

    def first_owns(graph: TokenGraph) -> Plan:
        return Plan(np.zeros(graph.n_tokens, dtype=np.int64), "one")

    federation = federation_of(split, config, first_owns)
    deliver = federation.deliver

    def disturbed(client: int, request: bytes) -> bytes:
        message = read(request)
        if client == 4 and isinstance(message, m.Exchange) and message.epoch:
            request = encoding.encode(msgspec.structs.replace(message, epoch=b""))
        reply: bytes = deliver(client, request)
        return reply

    federation.deliver = disturbed
    with pytest.raises(UnexpectedMessageError, match="negatives outside of training"):
        federation.train(1)
    client, request = federation.requests[-1]
    before = picture_of(federation.clients[4])
    assert (client, encoding.header_of(request).phase) == (4, Phase.LOSS)
    with pytest.raises(UnexpectedMessageError, match="negatives outside of training"):
        federation.clients[4].handle(request)
    assert picture_of(federation.clients[4]) == before


@pytest.mark.parametrize("config", [POOLED, SAMPLED], ids=["softmax", "bpr"])
def test_peers_of_a_group_are_others_and_only_where_there_are_pools(
    federation_of: Make, split: Split, picture_of: Make, config: Config
) -> None:
    federation, width = federation_of(split, config), entry_bytes(N_USERS)

    def bad(client: int, message: Any) -> Iterator[tuple[str, dict[str, bytes]]]:
        if not isinstance(message, m.Placement):
            return
        peers = message.group_peers
        assert bool(peers) == config.pooled
        if config.pooled:
            yield "none", {"group_peers": b""}
            yield "its own", {"group_peers": message.own + peers[width:]}
            yield "one twice", {"group_peers": peers + peers[:width]}
            yield "cut off", {"group_peers": peers[:-1]}
        else:
            yield "some", {"group_peers": message.peers}

    refused = refusals(federation, picture_of, bad)
    federation.train(1)
    expected = ["none", "its own", "one twice", "cut off"] if config.pooled else ["some"]
    assert refused == dict.fromkeys(expected, N_USERS)


def test_answers_have_no_place_where_there_are_no_pools(
    federation_of: Make, split: Split, picture_of: Make
) -> None:
    federation = federation_of(split, SAMPLED)

    def bad(client: int, message: Any) -> Iterator[tuple[str, dict[str, bytes]]]:
        if isinstance(message, m.LossRows):
            yield "answered", {"answered": b"\0"}
            yield "answers", {"answers": bytes(8 * SAMPLED.dim)}
        if isinstance(message, m.Exchange) and not message.positions:
            yield "epoch", {"epoch": reading.pack_numbers([0])}

    refused = refusals(federation, picture_of, bad)
    federation.train(1)
    assert set(refused) == {"answered", "answers", "epoch"}


@pytest.mark.parametrize("config", [POOLED, SAMPLED], ids=["softmax", "bpr"])
@pytest.mark.parametrize("change", [lambda one: one[:-8], lambda one: one + bytes(8)])
def test_the_server_refuses_answers_of_another_length(
    federation_of: Make, split: Split, config: Config, change: Callable[[bytes], bytes]
) -> None:
    """And any, where nobody is asked for some."""
    federation = federation_of(split, config)
    deliver = federation.deliver

    def disturbed(client: int, request: bytes) -> bytes:
        reply: bytes = deliver(client, request)
        if encoding.header_of(reply).phase != Phase.LOSS:
            return reply
        message = read(reply)
        answers = change(message.answers) or bytes(8)
        return encoding.encode(msgspec.structs.replace(message, answers=answers))

    federation.deliver = disturbed
    with pytest.raises(MalformedMessageError, match=r"from client \d+: field answers has"):
        federation.train(1)


def test_a_loss_that_has_diverged_changes_nothing(
    federation_of: Make,
    split: Split,
    picture_of: Make,
    monkeypatch: pytest.MonkeyPatch,
    assert_same: Check,
) -> None:
    """No nonce is used up, so that the message can be answered if it comes again."""
    federation = federation_of(split, POOLED)
    deliver, failed = federation.deliver, list[int]()

    def fails(*_: object) -> int:
        raise fixed_point.DivergedError("too much today")

    def disturbed(client: int, request: bytes) -> bytes:
        if encoding.header_of(request).phase == Phase.LOSS:
            before = picture_of(federation.clients[client])
            with monkeypatch.context() as patched:
                patched.setattr(fixed_point, "total", fails)
                with pytest.raises(fixed_point.DivergedError, match="today"):
                    federation.clients[client].handle(request)
            assert picture_of(federation.clients[client]) == before
            failed.append(client)
        reply: bytes = deliver(client, request)
        return reply

    federation.deliver = disturbed
    federation.train(1)
    assert sorted(failed) == [*range(N_USERS)]
    assert_same(federation.state(), undisturbed(federation_of, split, POOLED, 1))
