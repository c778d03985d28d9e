"""What must not be there: plain ids, vectors, gradients or keys among what the server receives.

The clients' own transcripts say what was sealed. All of it is looked for in every reply, in several
encodings. Patterns have eight bytes, so that none is found by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch

from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.protocol import messages as m
from lpgcn.protocol.transcript import Observation, Opened

Make = Callable[..., Any]
PATTERN = 8
TINY = Config(dim=4, layers=2, lr=0.05, batch_size=7, virtual_items="3", seed=5)
N_ITEMS = 1000
TRAIN = [
    (0, 971), (0, 983), (0, 997), (1, 971), (1, 977), (2, 977), (2, 983), (2, 991), (3, 997),
    (3, 991),
]  # fmt: skip
"""No item has only one user: in `paper` its vector, which is in the clear, would be the user's."""
CANARY = 1.2345678
both_models = pytest.mark.parametrize("model", ["lightgcn", "lightgcn+"])
both_suites = pytest.mark.parametrize("suite", ["sealed", "paper"])
both_dtypes = pytest.mark.parametrize("dtype", ["float32", "float64"])


def windows(messages: Iterable[bytes]) -> set[bytes]:
    """All runs of eight bytes."""
    return {data[i : i + PATTERN] for data in messages for i in range(len(data) - PATTERN + 1)}


def telling(pattern: bytes) -> bool:
    """Long enough, and not a zero or another number that is everywhere."""
    return len(pattern) >= PATTERN and len(set(pattern[:PATTERN])) > 4


def float_patterns(values: np.ndarray) -> Iterator[bytes]:
    """Numbers in either precision and either order of bytes, in pairs where one is too short."""
    numbers = np.asarray(values, dtype=np.float64).reshape(-1)
    for kind, step in (("<f8", 1), (">f8", 1), ("<f4", 2), (">f4", 2)):
        data = numbers.astype(kind).tobytes()
        size = np.dtype(kind).itemsize
        for start in range(0, len(data) - size * step + 1, size):
            yield data[start : start + PATTERN]


def id_patterns(items: Iterable[int]) -> Iterator[bytes]:
    """Any two ids behind one another, as numbers or as text; of short numbers, any three."""
    for count, kinds in ((2, ("<u4", ">u4", "<u8", ">u8")), (3, ("<u2", ">u2"))):
        for some in permutations(items, count):
            yield from (np.array(some, dtype=kind).tobytes() for kind in kinds)
            yield from (between.join(map(str, some)).encode() for between in (", ", ",", " ", "\n"))


def decoded(opened: Opened, config: Config) -> np.ndarray:
    """The floating-point numbers of rows that a client opened."""
    size = config.dim * np.dtype(config.dtype).itemsize
    if opened.what in ("items", "users", "negatives"):
        return np.frombuffer(b"".join(row[:size] for row in opened.rows), dtype=config.dtype)
    if opened.what == "pairs":
        kind = np.dtype([("s", np.dtype(config.dtype)), ("n", "<u4")])
        return np.frombuffer(b"".join(opened.rows), dtype=kind)["s"]
    return np.empty(0)


class Watched:
    """A federation with planted parameters, and all that its parties saw."""

    def __init__(self, federation_of: Make, split: Split, config: Config) -> None:
        self.config, self.seen = config, list[Observation]()
        self.federation = federation_of(split, config, witness=self.seen.append)
        self.federation.server.initialise()
        draw = torch.Generator().manual_seed(1)
        for client in self.federation.clients:
            for adam in client.passes.adams().values():
                adam.parameter.copy_(CANARY + torch.rand(adam.parameter.shape, generator=draw))
        self.planted = self.federation.state()
        for step in range(2):
            self.federation.server.step(0, step, config.lr)
        self.found = windows(data for _, data in self.federation.replies)

    def plain(self, *kinds: str) -> set[bytes]:
        """What clients read, as patterns to look for."""
        opened = [one for seen in self.seen for one in seen.opened if one.what in kinds]
        assert opened
        values = [decoded(one, self.config) for one in opened]
        rows = {row for one in opened for row in one.rows if len(row) == PATTERN}
        return rows.union(*map(float_patterns, values))

    def leaked(self, patterns: Iterable[bytes]) -> int:
        return len(self.found.intersection(filter(telling, patterns)))


@both_models
@both_suites
@both_dtypes
def test_the_server_receives_no_vector_and_no_gradient_that_the_suite_seals(
    federation_of: Make, split_of: Make, model: str, suite: str, dtype: str
) -> None:
    """In `paper` item vectors and loss gradients are in the clear, and the search finds them."""
    config = TINY.changed(model=model, suite=suite, dtype=dtype)
    watched = Watched(federation_of, split_of(TRAIN, 4, N_ITEMS), config)
    sealed = suite == "sealed"
    for kind in ("items", "pairs", "negatives"):
        assert (watched.leaked(watched.plain(kind)) == 0) == sealed, kind
    forward = {
        pattern
        for seen in watched.seen
        if seen.phase in ("FORWARD", "FINAL")
        for one in seen.opened
        if one.what == "users"
        for pattern in float_patterns(decoded(one, config))
    }
    assert forward
    assert watched.leaked(forward) == 0, "user vectors on the way forward are sealed in both suites"
    if model == "lightgcn+":
        # W_i itself goes out at the start of a step.
        planted = float_patterns(watched.planted["item_users.parameter"].numpy())
        assert (watched.leaked(planted) == 0) == sealed
    state = watched.federation.state()
    assert sealed <= (watched.leaked(p for v in state.values() for p in float_patterns(v)) == 0)


@both_suites
def test_the_server_receives_no_item_id(federation_of: Make, split_of: Make, suite: str) -> None:
    split = split_of(TRAIN, 4, N_ITEMS)
    watched = Watched(federation_of, split, TINY.changed(suite=suite))
    received = b"".join(data for _, data in watched.federation.replies)
    for user, client in enumerate(watched.federation.clients):
        uploaded = client.passes.user.uploaded.tolist()
        for items in (uploaded, sorted(uploaded), split.train.items_of(user).tolist()):
            assert not any(pattern in received for pattern in id_patterns(items))
            plain = np.array(items, dtype="<u4").tobytes()
            assert any(pattern in plain for pattern in id_patterns(items)), "it would be found"


@both_suites
def test_the_server_receives_no_key(federation_of: Make, split_of: Make, suite: str) -> None:
    watched = Watched(federation_of, split_of(TRAIN, 4, N_ITEMS), TINY.changed(suite=suite))
    for client in watched.federation.clients:
        keys = client._keys
        for secret in (
            keys._sender_key.reveal(),
            keys._token_key.reveal(),
            keys._private._key.private_bytes_raw(),
        ):
            assert not watched.found & windows([secret])
        assert watched.found & windows([keys.public])


@both_models
@both_suites
def test_real_and_virtual_items_have_messages_of_the_same_sizes(
    federation_of: Make,
    split_of: Make,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    suite: str,
) -> None:
    """The same lists, with other real items in them, look the same to the server."""
    lists = {0: {0, 1, 2, 3}, 1: {0, 2, 4, 5}, 2: {1, 3, 5, 6}, 3: {2, 4, 6, 7}}
    real = {0: {0, 1}, 1: {0, 2}, 2: {1, 3, 5}, 3: {7}}
    swapped = {0: {2, 3}, 1: {4}, 2: {6}, 3: {2, 4, 6, 7}}

    def virtual(index: int, real: np.ndarray, *rest: object) -> np.ndarray:
        return np.array(sorted(lists[index] - set(real.tolist())), dtype=np.int64)

    monkeypatch.setattr("lpgcn.protocol.client.draw_virtual_items", virtual)

    def visible(items: dict[int, set[int]]) -> list[tuple[int, str, int]]:
        train = [(user, item) for user, own in items.items() for item in own]
        split = split_of(train, 4, 10, [(0, 9), (2, 8)])
        federation = federation_of(split, TINY.changed(model=model, suite=suite))
        federation.train(3)
        federation.server.measure("valid")
        both = federation.requests + federation.replies
        return [(client, place(data), len(data)) for client, data in both]

    assert sum(map(len, real.values())) == sum(map(len, swapped.values()))
    assert visible(real) == visible(swapped)


def place(data: bytes) -> str:
    message = m.decode(data, m.REQUESTS | m.REPLIES, limit=1 << 20)
    step, phase, layer = m._HEADER.unpack(message.header)[2:5]
    return f"{type(message).__name__} of {m.Header(step, phase, layer)}"


def test_a_client_never_hears_the_index_of_another(federation_of: Make, split_of: Make) -> None:
    """Only an index could be above 255; positions of samples are above it too, and public."""
    train = [(user, (user + way) % 200) for user in range(300) for way in (0, 1, 7)]
    seen: list[Observation] = []
    config = TINY.changed(dim=1, layers=1, batch_size=200)
    federation = federation_of(split_of(train, 300, 200), config, witness=seen.append)
    federation.train(1)
    inboxes = [one for one in seen if one.party != "server"]
    assert all(one.sender == "server" for one in inboxes)
    numbers = [
        number
        for one in inboxes
        for name, field in one.fields.items()
        if isinstance(field, list) and (one.kind, name) != ("Samples", "positions")
        for number in field
    ]
    assert len(numbers) > 10_000
    assert max(numbers) < 256
    assert max(sender for one in inboxes for row in one.opened for sender in row.senders) < 256
    assert federation.server.routes.is_owner[256:].any()
