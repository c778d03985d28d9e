"""Features of users stay with their clients; what can be found out of them even so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from lpgcn.config import Config
from lpgcn.data import DataError, Split
from lpgcn.data.features import sized
from lpgcn.model.features import FeatureError, packed
from lpgcn.model.grid import Grid
from lpgcn.protocol.client.client import Client
from lpgcn.protocol.client.profile import Profile
from lpgcn.protocol.phases import Phase
from lpgcn.protocol.transcript import Observation
from lpgcn.protocol.wire import encoding
from lpgcn.runtime.hosts.one_process import profiles, public_features

Make = Callable[..., Any]
TINY = Config(dim=4, layers=2, lr=0.05, batch_size=7, virtual_items="3", seed=5)
TRAIN = [(u, i) for u in range(6) for i in range(9) if (u + i) % 3]
PATTERN = 8


def windows(messages: Iterable[bytes]) -> set[bytes]:
    """All runs of eight bytes."""
    return {data[i : i + PATTERN] for data in messages for i in range(len(data) - PATTERN + 1)}


def patterns(numbers: npt.NDArray[np.float64]) -> Iterator[bytes]:
    """As they are and on the grids of float32 and float64, eight bytes from each number on."""
    on_grid = [np.rint(numbers * Grid.forward(kind).steps) for kind in ("float32", "float64")]
    for values, kinds in (
        (numbers, "<f8 >f8 <f4 >f4"),
        (on_grid[0], "<i4 >i4"),
        (on_grid[1], "<i8 >i8"),
    ):
        for kind in kinds.split():
            row = values.astype(kind).tobytes()
            yield from (row[i : i + PATTERN] for i in range(0, len(row) - PATTERN + 1, 4))


@pytest.fixture
def split(split_of: Make, described: Make) -> Split:
    """Numbers that are not to be found by chance."""
    made: Split = described(split_of(TRAIN, 6, 9, [(0, 0), (3, 3)]), 3, 2)
    return replace(made, user_features=np.random.default_rng(3).uniform(1, 2, (6, 3)))


@pytest.mark.parametrize("model", ["lightgcn", "lightgcn+", "ngcf"])
@pytest.mark.parametrize("suite", ["sealed", "paper"])
def test_features_of_users_are_in_no_message_checkpoint_or_transcript(
    federation_of: Make, split: Split, model: str, suite: str
) -> None:
    """Not even in suite `paper`, nor in what clients open. What a client is started with has them,
    so that the search does find."""
    seen = list[Observation]()
    config = sized(TINY.changed(model=model, suite=suite), split)
    federation = federation_of(split, config, witness=seen.append)
    federation.train(3)
    federation.server.measure("valid")
    federation.server.checkpoint(1)
    opened = [row for one in seen for content in one.opened for row in content.rows]
    sent = [data for _, data in federation.requests + federation.replies]
    found = windows([*sent, *opened, *(disk.read(1) for disk in federation.disks)])
    assert split.user_features is not None
    for user, features in enumerate(split.user_features):
        assert not found.intersection(patterns(features))
        assert windows([federation.profiles[user]]).intersection(patterns(features))
        others = [data for other, data in federation.profiles.items() if other != user]
        assert not windows(others).intersection(patterns(features))


def test_the_server_sees_the_same_whatever_the_features_are(
    federation_of: Make, split: Split
) -> None:
    shapes = []
    for factor in (1.0, -3.0):
        assert split.user_features is not None
        changed = replace(split, user_features=factor * split.user_features)
        federation = federation_of(changed, sized(TINY, changed))
        federation.train(2)
        both = federation.requests + federation.replies
        shapes.append([(client, len(data), encoding.header_of(data)) for client, data in both])
    assert shapes[0] == shapes[1]


def test_an_owner_finds_its_neighbours_features(federation_of: Make, split: Split) -> None:
    """As PRIVACY says: in the first step an owner reads (table + features·Θ)·|I_u|^-½ of whoever
    shares an item with it, and has Θ. With fewer features than d, and a table that is small beside
    what features add, least squares tells them."""
    seen = list[Observation]()
    config = sized(TINY.changed(model="lightgcn", dim=16, init_deviation=0.01), split)
    federation = federation_of(split, config, witness=seen.append)
    federation.initialise()
    theta = federation.clients[0].party.tables()["user_map"].parameter.astype(np.float64)
    federation.server.step(0, 0, config.lr)
    first = [
        np.frombuffer(row, dtype="<i4") * 2.0**-24
        for one in seen
        if (one.phase, one.layer) == (Phase.FORWARD.name, 1)
        for content in one.opened
        if content.what == "USER_FORWARD"
        for row in content.rows
    ]
    assert first and split.user_features is not None
    scale = np.sqrt(split.train.user_degrees)
    for row in first:
        guesses = [np.linalg.lstsq(theta.T, row * one, rcond=None)[0] for one in scale]
        errors = [
            np.abs(guess - features).max()
            for guess, features in zip(guesses, split.user_features, strict=True)
        ]
        assert min(errors) < 0.1


@pytest.mark.parametrize("which", ["user", "item"])
def test_a_client_needs_as_many_features_as_the_configuration_says(
    split: Split, which: str
) -> None:
    (_, profile), *_ = profiles(split, sized(TINY, split))
    public = public_features(split)
    Client(profile, item_features=public)
    about = msgspec.msgpack.decode(profile, type=Profile)
    if which == "user":
        fewer = msgspec.structs.replace(about, features=packed(np.ones(2)))
        profile = msgspec.msgpack.encode(fewer)
    else:
        public = public[:-8]
    with pytest.raises(FeatureError, match="as the configuration says"):
        Client(profile, item_features=public)


def test_data_with_features_needs_a_configuration_with_them(
    federation_of: Make, centralized_of: Make, split: Split
) -> None:
    for make in (federation_of, centralized_of):
        with pytest.raises(DataError, match="has features, but the configuration has none"):
            make(split, TINY)
        with pytest.raises(DataError, match="user-feature-dim is 7, but tiny has 3 of them"):
            make(split, TINY.changed(user_feature_dim=7))
