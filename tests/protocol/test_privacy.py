"""What must not be there: plain ids, vectors, gradients or keys among what the server receives.

The clients' own transcripts say what was sealed. All of it is looked for in every reply, in several
encodings. Patterns have eight bytes, so that none is found by chance.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from itertools import permutations
from operator import or_
from types import FunctionType, ModuleType
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.algorithms import AES256

from lpgcn.config import Config
from lpgcn.crypto import KEY_BYTES, entry_bytes
from lpgcn.data import Split
from lpgcn.model.grid import Grid
from lpgcn.model.sampling import places
from lpgcn.plan import Plan, TokenGraph
from lpgcn.protocol.client import newcomer
from lpgcn.protocol.client.client import Client
from lpgcn.protocol.client.profile import Profile
from lpgcn.protocol.phases import PHASES, REQUESTS
from lpgcn.protocol.server.script import mask_peers
from lpgcn.protocol.server.topology import Topology
from lpgcn.protocol.suite import SUITES, Key, Kind
from lpgcn.protocol.transcript import Observation
from lpgcn.protocol.wire import encoding
from lpgcn.protocol.wire.sizes import MASK_REACH, NO_WISH
from lpgcn.runtime.engines.sampler import Sampler
from lpgcn.runtime.hosts.one_process import profiles

Make = Callable[..., Any]
Items = dict[int, set[int]]
PATTERN = 8
TINY = Config(dim=4, layers=2, lr=0.05, batch_size=7, virtual_items="3", seed=5)
POOLED = TINY.changed(loss="softmax", batch_size="full", negatives=40, answers=30)
UNUSED = {"bpr": {Kind.POOL}, "softmax": {Kind.WISH, Kind.NEGATIVE, Kind.ITEM_FINAL}}
"""Kinds of rows that a step has none of."""
N_ITEMS = 1000
TRAIN = [
    (0, 971), (0, 983), (0, 997), (1, 971), (1, 977), (2, 977), (2, 983), (2, 991), (3, 997),
    (3, 991),
]  # fmt: skip
"""No item has only one user: in `paper` its vector, which is in the clear, would be the user's."""
CANARY = 1.2345678
MESSAGES = REQUESTS | reduce(or_, {row.reply for row in PHASES.values()})
both_models = pytest.mark.parametrize("model", ["lightgcn", "lightgcn+"])
both_suites = pytest.mark.parametrize("suite", ["sealed", "paper"])
both_dtypes = pytest.mark.parametrize("dtype", ["float32", "float64"])
both_losses = pytest.mark.parametrize("base", [TINY, POOLED], ids=["bpr", "softmax"])


def windows(messages: Iterable[bytes]) -> set[bytes]:
    """All runs of eight bytes."""
    return {data[i : i + PATTERN] for data in messages for i in range(len(data) - PATTERN + 1)}


def telling(pattern: bytes) -> bool:
    """Long enough, and not a zero or another number that is everywhere."""
    return len(pattern) >= PATTERN and len(set(pattern[:PATTERN])) > 4


def aligned(row: bytes) -> Iterator[bytes]:
    """Eight bytes from every number of a row on."""
    return (row[i : i + PATTERN] for i in range(0, len(row) - PATTERN + 1, 4))


def number_patterns(values: npt.NDArray[Any]) -> Iterator[bytes]:
    """Numbers in either precision, as they are and on either grid, in either order of bytes."""
    numbers = np.asarray(values, dtype=np.float64).reshape(-1)
    forward = (np.rint(numbers * Grid.forward(kind).steps) for kind in ("float32", "float64"))
    encoded = [numbers, *forward]
    for kind in ("<f8", ">f8", "<f4", ">f4"):
        yield from aligned(encoded[0].astype(kind).tobytes())
    for integers, kinds in zip(encoded[1:], (("<i4", ">i4"), ("<i8", ">i8")), strict=True):
        for kind in kinds:
            yield from aligned(integers.astype(kind).tobytes())


def id_patterns(items: Iterable[int]) -> Iterator[bytes]:
    """Any two ids behind one another, as numbers or as text; of short numbers, any three."""
    for count, kinds in ((2, ("<u4", ">u4", "<u8", ">u8")), (3, ("<u2", ">u2"))):
        for some in permutations(items, count):
            yield from (np.array(some, dtype=kind).tobytes() for kind in kinds)
            yield from (between.join(map(str, some)).encode() for between in (", ", ",", " ", "\n"))


class Watched:
    """A federation with planted parameters, and all that its parties saw."""

    def __init__(self, federation_of: Make, split: Split, config: Config) -> None:
        self.seen = list[Observation]()
        self.federation = federation_of(split, config, witness=self.seen.append)
        self.federation.initialise()
        draw = np.random.default_rng(1)
        for client in self.federation.clients:
            for adam in client.party.tables().values():
                adam.parameter[:] = CANARY + draw.random(adam.parameter.shape)
        self.planted = self.federation.state()
        server = self.federation.server
        for done in range(2):
            server.step(*divmod(done, server.batches.steps), config.lr)
        self.found = windows(data for _, data in self.federation.replies)

    def plain(self, kind: Kind) -> set[bytes]:
        """What clients read of a kind, as patterns to look for."""
        opened = [one for seen in self.seen for one in seen.opened if one.what == kind.name]
        return {pattern for one in opened for row in one.rows for pattern in aligned(row)}

    def leaked(self, patterns: Iterable[bytes]) -> int:
        return len(self.found.intersection(filter(telling, patterns)))


@both_losses
@both_models
@both_suites
@both_dtypes
def test_the_server_can_read_what_the_suite_leaves_in_the_clear_and_nothing_else(
    federation_of: Make, split_of: Make, base: Config, model: str, suite: str, dtype: str
) -> None:
    """Vectors and scalars of every kind, and parameters. In `paper` most of them are found, so the
    search does find."""
    config = base.changed(model=model, suite=suite, dtype=dtype)
    watched = Watched(federation_of, split_of(TRAIN, 4, N_ITEMS), config)
    for kind in SUITES[suite].keys.keys() - {Kind.WISH} - UNUSED[config.loss]:
        patterns = watched.plain(kind)
        assert sum(map(telling, patterns)) >= 3, kind
        assert (watched.leaked(patterns) == 0) == SUITES[suite].protects(kind), kind
    sealed = suite == "sealed"
    if model == "lightgcn+":
        # W_i itself goes out at the start of a step.
        planted = number_patterns(watched.planted["item_users.parameter"])
        assert (watched.leaked(planted) == 0) == sealed
    if sealed:
        for tables in (watched.planted, watched.federation.state()):
            for value in tables.values():
                assert watched.leaked(number_patterns(value)) == 0


@both_suites
def test_the_server_can_read_wishes_only_in_the_clear(
    federation_of: Make, split_of: Make, suite: str
) -> None:
    """Numbers of items are small; but two slots without a wish would be seen at once."""
    config = TINY.changed(suite=suite, batch_size=40)
    train = [(user, item) for user in range(4) for item in range(6)]
    watched = Watched(federation_of, split_of(train, 4, 30), config)
    wishes = [one for seen in watched.seen for one in seen.opened if one.what == "WISH"]
    nothing = NO_WISH.to_bytes(4, "little") * 2
    assert any(nothing in row for one in wishes for row in one.rows)
    said = [seen.fields["wishes"] for seen in watched.seen if seen.kind == "Push"]
    assert any(said)
    assert any(nothing in field for field in said) == (suite == "paper")


@both_losses
@both_suites
def test_the_server_receives_no_item_id(
    federation_of: Make, split_of: Make, base: Config, suite: str
) -> None:
    split, config = split_of(TRAIN, 4, N_ITEMS), base.changed(suite=suite)
    watched, sampler = Watched(federation_of, split, config), Sampler(split.train, config)
    received = b"".join(data for _, data in watched.federation.replies)
    for user in range(4):
        real, virtual = sampler.real[user].tolist(), sampler.virtual[user].tolist()
        assert len(virtual) == 3
        for items in (real, virtual, sorted(real + virtual)):
            assert not any(pattern in received for pattern in id_patterns(items))
            plain = np.array(items, dtype="<u4").tobytes()
            assert any(pattern in plain for pattern in id_patterns(items)), "it would be found"


def secrets_in(client: Client, picture: Make) -> Iterator[bytes]:
    """Whatever in a client has the length of a key, and what is in its ciphers."""
    for path, value in picture(client).items():
        if isinstance(value, bytes) and len(value) == KEY_BYTES and "public" not in path:
            yield value
    for one in reachable(client):
        if isinstance(one, X25519PrivateKey):
            yield one.private_bytes_raw()
        elif isinstance(one, AES256):
            yield bytes(one.key)


def reachable(root: object) -> Iterator[object]:
    waiting, seen = [root], dict[int, object]()
    while waiting:
        one = waiting.pop()
        if id(one) not in seen and not isinstance(one, (type, ModuleType, FunctionType)):
            seen[id(one)] = one
            waiting.extend(gc.get_referents(one))
            yield one


@both_losses
@both_suites
def test_the_server_receives_no_key(
    federation_of: Make, split_of: Make, picture_of: Make, base: Config, suite: str
) -> None:
    """No secret that a client has at any time: S, its private key, K_u, K_item, pairwise keys."""
    federation = federation_of(split_of(TRAIN, 4, N_ITEMS), base.changed(suite=suite))
    deliver, held = federation.deliver, Counter[bytes]()

    def watched(client: int, request: bytes) -> bytes:
        reply: bytes = deliver(client, request)
        held.update(set(secrets_in(federation.clients[client], picture_of)))
        return reply

    federation.deliver = watched
    federation.train(2)
    received = windows(data for _, data in federation.replies)
    publics = {client.party._keys.private.public_bytes for client in federation.clients}
    pairs = federation.server.topology.n_pairs
    assert len(held) > 4 + 4 + 1 + 1 + pairs, "private keys, K_u, S, K_item, one for each pair"
    assert not held.keys() & publics
    assert not received & windows(held)
    assert all(public[:PATTERN] in received for public in publics), "it would be found"


@pytest.mark.any_two
@both_models
@both_suites
@both_dtypes
def test_what_the_server_keeps_holds_no_item_vector_or_key(
    federation_of: Make, split_of: Make, picture_of: Make, model: str, suite: str, dtype: str
) -> None:
    """Its checkpoint with all estates, and all that it was sent for it and for the next term; in
    every suite. A client's own checkpoint has all of that, so the search does find."""
    split = split_of(TRAIN, 4, N_ITEMS)
    config = TINY.changed(model=model, suite=suite, dtype=dtype)
    watched, sampler = Watched(federation_of, split, config), Sampler(split.train, config)
    federation = watched.federation
    federation.server.keep()
    federation.replies.clear()
    saved = federation.server.checkpoint(1)
    keys = {key for one in federation.clients for key in secrets_in(one, picture_of)}
    tables, own = federation.state(), [disk.read(1) for disk in federation.disks]
    left = np.setdiff1d(np.arange(4), federation.server.plan.convolution_clients[:1])
    federation.server = federation.server.changed(left, federation.plan, federation.line, 1)
    saved += federation.server.checkpoint(2)
    keys |= {key for user in left for key in secrets_in(federation.clients[user], picture_of)}
    kept, mine = windows([saved, *(data for _, data in federation.replies)]), windows(own)
    owned = [items for name, items in tables.items() if not name.endswith("steps")]
    for value in (*owned, *watched.planted.values()):
        assert not kept.intersection(filter(telling, number_patterns(value)))
    assert all(mine.intersection(filter(telling, number_patterns(value))) for value in owned)
    assert not kept & windows(keys)
    assert mine & windows(keys)
    for user in range(4):
        for items in (sampler.real[user].tolist(), sampler.virtual[user].tolist()):
            assert not kept.intersection(filter(telling, id_patterns(items)))
            assert not any(pattern in saved for pattern in id_patterns(items))


# Sizes.

LISTS: Items = {0: {0, 1, 2, 3}, 1: {0, 2, 4, 5}, 2: {1, 3, 5, 6}, 3: {2, 4, 6, 7}}
REAL: Items = {0: {0, 1}, 1: {0, 2}, 2: {1, 3, 5}, 3: {7}}
SWAPPED: Items = {0: {2, 3}, 1: {4}, 2: {6}, 3: {2, 4, 6, 7}}


@pytest.fixture
def with_lists(
    federation_of: Make, split_of: Make, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Any, list[Observation]]]:
    """A federation whose clients list what LISTS says, whatever is real of it."""

    def virtual(about: Profile, real: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.array(sorted(LISTS[about.index] - set(real.tolist())), dtype=np.int64)

    monkeypatch.setattr(newcomer, "draw_virtual_items", virtual)

    def make(real: Items, config: Config, own_seed: int = 1) -> tuple[Any, list[Observation]]:
        train = [(user, item) for user, own in real.items() for item in own]
        split, seen = split_of(train, 4, 10, [(0, 9), (2, 8)]), list[Observation]()
        federation = federation_of(split, config)
        federation.clients = [
            Client(with_own_seed(data, own_seed), seen.append)
            for _, data in profiles(split, config)
        ]
        federation.train(3)
        federation.server.measure("valid")
        return federation, seen

    return make


def with_own_seed(profile: bytes, seed: int) -> bytes:
    about = msgspec.msgpack.decode(profile, type=Profile)
    return msgspec.msgpack.encode(msgspec.structs.replace(about, private_seed=seed))


def visible(federation: Any) -> list[tuple[int, str, dict[str, int]]]:
    """All messages, as one who cannot open them sees them: the length of every field."""
    both = federation.requests + federation.replies
    return [(client, *shape(data)) for client, data in both]


def shape(data: bytes) -> tuple[str, dict[str, int]]:
    message = encoding.decode(data, MESSAGES, limit=1 << 20)
    header = encoding.Header(*encoding._HEADER.unpack(message.header)[2:5])
    lengths = {name: len(getattr(message, name)) for name in encoding.content_fields(type(message))}
    return f"{type(message).__name__} of {header}", lengths


@both_losses
@both_models
@both_suites
def test_real_and_virtual_items_have_messages_of_the_same_sizes(
    with_lists: Make, base: Config, model: str, suite: str
) -> None:
    """The same lists, with other real items in them, look the same to the server."""
    config = base.changed(model=model, suite=suite)
    assert sum(map(len, REAL.values())) == sum(map(len, SWAPPED.values()))
    first, second = (with_lists(real, config)[0] for real in (REAL, SWAPPED))
    assert visible(first) == visible(second)
    assert first.state()["items.parameter"].tobytes() != second.state()["items.parameter"].tobytes()


@both_models
@both_suites
def test_wishes_and_scalars_have_the_same_sizes_whatever_was_drawn(
    with_lists: Make, model: str, suite: str
) -> None:
    """Other seeds of their own, so other positives; also none of an owner, or all of one."""
    config = TINY.changed(model=model, suite=suite)
    wished, looks = set[tuple[bytes, ...]](), []
    for seed in range(4):
        federation, seen = with_lists(REAL, config, seed)
        opened = [one for observed in seen for one in observed.opened if one.what == "WISH"]
        wished.add(tuple(sorted(row for one in opened for row in one.rows)))
        looks.append(visible(federation))
    assert len(wished) > 1
    assert all(look == looks[0] for look in looks)
    names = [name for _, _, lengths in looks[0] for name, size in lengths.items() if size]
    assert {"wishes", "scalars", "slots"} <= set(names)


# What parties learn of one another.


def test_neighbours_get_one_sum_from_each_owner_and_nothing_else(
    federation_of: Make, split_of: Make, centralized_of: Make
) -> None:
    """Σ y_i of the items that are really theirs; zero from an owner that has none of these."""
    train = [(user, (user * way) % 12) for user in range(8) for way in (1, 3, 5, 7)]
    split, config = split_of(sorted(set(train)), 8, 14), TINY.changed(model="lightgcn", layers=3)
    seen = list[Observation]()
    federation = federation_of(split, config, witness=seen.append)
    federation.initialise()
    reference = centralized_of(split, config)
    _, items = reference._propagate()
    federation.server.predict([])
    topology, place = federation.server.topology, places(reference.sampler.catalogue)
    checked, empty = 0, 0
    for one in (one for one in seen if one.party != "server"):
        opened = [rows for rows in one.opened if rows.what == "PUSH"]
        if one.phase not in ("FORWARD", "FINAL") or not opened:
            continue
        ((user,), (pushed,)) = [int(one.party.split()[1])], opened
        layer = {"FORWARD": one.layer, "FINAL": 3}[one.phase]
        if layer == 0:
            assert not pushed.rows
            continue
        owners = topology.pair_owner[topology.by_client[user]]
        assert len(pushed.rows) == len(set(owners.tolist())) == len(owners)
        mine = split.train.items_of(user)
        for handle, row in zip(pushed.senders, pushed.rows, strict=True):
            theirs = mine[topology.owner[place[mine]] == owners[handle]]
            expected = items.pushes[layer - 1][theirs].sum(axis=0, dtype=np.int64)
            assert np.array_equal(np.frombuffer(row, dtype=np.int32), expected)
            checked, empty = checked + 1, empty + (not len(theirs))
    assert checked > 40
    assert empty


def test_nobody_opens_what_only_another_can(federation_of: Make, split_of: Make) -> None:
    """In `sealed` every key but K_item belongs to two parties, or to a sender and its owners."""
    train = [(user, (user + way) % 12) for user in range(8) for way in (0, 1, 4)]
    federation = federation_of(split_of(train, 8, 14), TINY)
    federation.train(2)
    keys = [client.party._keys for client in federation.clients]
    shared = Counter(key for one in keys for key in (*one.owners._keys, *one.pairs._keys))
    assert len(shared) > 10
    assert set(shared.values()) == {2}
    assert {SUITES["sealed"].keys[kind] for kind in Kind if kind < Kind.NUMBERS} == {
        Key.SENDER, Key.PAIRWISE, Key.GROUP,
    }  # fmt: skip
    senders = Counter(key for one in keys for key in one.neighbours._keys)
    for user, one in enumerate(keys):
        (own,) = one.own._keys
        assert senders[own] == len(federation.server.topology.by_client[user])


PUBLIC_NUMBERS = {("Exchange", "positions"), ("Begin", "members")}


def test_a_client_never_hears_the_index_of_another(federation_of: Make, split_of: Make) -> None:
    """Only an index could be above 255, also in a later term with a checkpoint before it; the
    positions of samples and the number of members are above it too, and public."""
    train = [(user, (user + way) % 200) for user in range(300) for way in (0, 1, 7)]
    seen: list[Observation] = []
    config = TINY.changed(dim=1, layers=1, batch_size=200)
    federation = federation_of(split_of(train, 300, 200), config, witness=seen.append)
    federation.train(1)
    federation.server.checkpoint(1)
    left = np.setdiff1d(np.arange(300), federation.server.plan.convolution_clients[:3])
    federation.server = federation.server.changed(left, federation.plan, federation.line, 1)
    federation.server.step(0, 1, 0.05)
    assert {one.phase for one in seen} >= {"CHECKPOINT", "INHERIT", "ENDOW"}
    inboxes = [one for one in seen if one.party != "server"]
    assert all(one.sender == "server" for one in inboxes)
    numbers = [
        number
        for one in inboxes
        for name, field in one.fields.items()
        if isinstance(field, list) and (one.kind, name) not in PUBLIC_NUMBERS
        for number in field
    ]
    assert len(numbers) > 10_000
    assert max(numbers) < 256
    assert max(sender for one in inboxes for row in one.opened for sender in row.senders) < 256
    assert federation.server.topology.is_owner[256:].any()


N_MANY = 60


@pytest.fixture(scope="module")
def crowds(federation_of: Make, split_of: Make) -> list[tuple[Any, list[Observation]]]:
    """Two runs of one configuration with 60 clients, of which everybody lists everything."""
    train = [(user, item) for user in range(N_MANY) for item in range(4)]
    split, made = split_of(train, N_MANY, N_MANY), []
    config = TINY.changed(dim=1, layers=1, virtual_items="100")

    def everybody_owns(graph: TokenGraph) -> Plan:
        return Plan(np.arange(graph.n_tokens), "one each")

    for _ in range(2):
        seen = list[Observation]()
        federation = federation_of(split, config, everybody_owns, seen.append)
        federation.initialise()
        made.append((federation, seen))
    return made


def peers_in(federation: Any, seen: list[Observation]) -> list[list[int]]:
    """With whom each client shares masks, from the public keys that it was given."""
    publics = [client.party._keys.private.public_bytes for client in federation.clients]
    given = {one.party: one.fields["peers"] for one in seen if one.kind == "Placement"}
    width = entry_bytes(N_MANY)
    return [
        [publics.index(some[first : first + KEY_BYTES]) for first in range(0, len(some), width)]
        for some in (given[f"client {user}"] for user in range(N_MANY))
    ]


def test_mask_peers_are_a_shuffled_circle(crowds: list[tuple[Any, list[Observation]]]) -> None:
    runs = [list(map(set, peers_in(*one))) for one in crowds]
    assert runs[0] != runs[1], "it is another circle in every run"
    for peers in runs:
        assert {len(some - {user}) for user, some in enumerate(peers)} == {2 * MASK_REACH}
        assert all(user in peers[other] for user, some in enumerate(peers) for other in some)
        near = sum(min((a - b) % N_MANY, (b - a) % N_MANY) <= MASK_REACH
                   for a, some in enumerate(peers) for b in some)  # fmt: skip
        assert near < 3 * N_MANY, "half of what it is where peers are neighbours by index"
        reached = {0}
        while grown := set().union(*(peers[one] for one in reached)) - reached:
            reached |= grown
        assert len(reached) == N_MANY, "less than all would be a sum of its own"


@pytest.mark.parametrize("n_clients", range(1, 12))
def test_everybody_has_mask_peers_in_a_circle_of_any_size(n_clients: int) -> None:
    order = np.random.default_rng(n_clients).permutation(n_clients)
    peers = mask_peers(n_clients, [order])
    around = {int(user): place for place, user in enumerate(order)}
    for user in range(n_clients):
        gaps = [abs(around[user] - around[int(other)]) for other in peers[user]]
        near = {min(gap, n_clients - gap) for gap in gaps}
        assert near == set(range(1, min(MASK_REACH, n_clients // 2) + 1))
        assert len(set(peers[user].tolist())) == len(gaps) == min(2 * MASK_REACH, n_clients - 1)


def test_handles_do_not_follow_client_indices(crowds: list[tuple[Any, list[Observation]]]) -> None:
    """Neither those of an owner's neighbours, nor those of a client's owners, nor public seeds."""
    topology = [federation.server.topology for federation, _ in crowds]
    public = Topology(topology[0].listed, topology[0].owner, TINY.seed)
    orders: dict[str, list[npt.NDArray[np.int64]]] = {"owner": [], "client": []}
    for one in (*topology, public):
        assert (one.by_owner.lengths > N_MANY / 2).all()
        for user in range(N_MANY):
            orders["owner"].append(one.neighbours[user])
            orders["client"].append(one.pair_owner[one.by_client[user]])
    for found in orders.values():
        assert len({order.tobytes() for order in found}) == len(found)
        rises = [np.count_nonzero(np.diff(order) > 0) / (len(order) - 1) for order in found]
        assert 0.45 < np.mean(rises) < 0.55
        assert max(rises) < 0.9


def test_who_meets_through_negatives_is_not_in_the_order_of_client_indices(
    federation_of: Make, split_of: Make
) -> None:
    """Neither in a message nor in the handles that are new in a step; nor are mask peers."""
    train = [(user, (7 * user + item) % 90) for user in range(N_MANY) for item in range(4)]
    split, seen = split_of(train, N_MANY, 90), list[Observation]()
    config = TINY.changed(dim=1, layers=1, batch_size=240, virtual_items="0")
    federation = federation_of(split, config, None, seen.append)
    federation.train(2)
    contacts = federation.server._script.contacts.arrays()
    client, owner = np.divmod(contacts["keys"], N_MANY)
    known = dict(zip(zip(owner, contacts["at_owner"], strict=True), client, strict=True))
    orders = dict[str, list[npt.NDArray[np.int64]]](rows=[], handles=[], peers=[])
    for one in seen:
        party = int(one.party.removeprefix("client ")) if one.party != "server" else -1
        if one.kind == "LossRows" and party >= 0 and one.fields["contacts"]:
            senders = dict.fromkeys(one.fields["contacts"][0::2])
            orders["rows"].append(np.array([known[party, handle] for handle in senders]))
    first_new = federation.server.topology.by_owner.lengths[owner]
    for party in range(N_MANY):
        new = (owner == party) & (contacts["at_owner"] >= first_new)
        orders["handles"].append(client[new][np.argsort(contacts["at_owner"][new])])
    orders["peers"] += list(map(np.array, peers_in(federation, seen)))
    for what, found in orders.items():
        steps = np.concatenate([np.diff(order) > 0 for order in found])
        assert len(steps) > 200, what
        assert 0.4 < np.mean(steps) < 0.6, what
