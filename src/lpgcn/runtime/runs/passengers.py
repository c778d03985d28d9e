"""Who is carried: users with nothing but their own, and how a client of each is started."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from lpgcn.array_types import Int64
from lpgcn.data import DataError, Ids, Split
from lpgcn.errors import LpgcnError
from lpgcn.files import write_atomically
from lpgcn.model.features import count_of, packed
from lpgcn.protocol.client.profile import Profile
from lpgcn.protocol.wire.reading import pack_numbers
from lpgcn.runtime.runs.catalogue import Prospectus


class CarryingError(LpgcnError):
    """Data that do not go with the federation."""


class ClientSeeds(msgspec.Struct, frozen=True, kw_only=True):
    """`seeds.json`: drawn once; whoever knows them can repeat this client's draws."""

    shared: int
    """Proposed to all clients, should this one be u_c."""
    private: int
    owner: str
    """Whose folder this is: another one would go on from its checkpoints, with its keys."""

    def __repr__(self) -> str:
        return "ClientSeeds(hidden)"

    @classmethod
    def kept_in(cls, folder: Path, owner: str) -> ClientSeeds:
        """Those of the folder; new ones, at random, if it has none."""
        path = folder / "seeds.json"
        if not path.exists():
            seeds = cls(shared=secrets.randbits(63), private=secrets.randbits(63), owner=owner)
            write_atomically(path, msgspec.json.encode(seeds), mode=0o600)
            return seeds
        try:
            seeds = msgspec.json.decode(path.read_bytes(), type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CarryingError(f"{path} is damaged: {error}") from error
        if seeds.owner != owner:
            raise CarryingError(
                f"{folder} is the folder of {seeds.owner}, not of {owner}; choose another --state"
            )
        return seeds


@dataclass(frozen=True)
class Passenger:
    """One client of a carrier: its user's interactions, by the ids of the items."""

    number: int
    user: int | str
    folder: Path
    parts: Mapping[str, list[int | str]]
    """train, valid, test."""
    wish: int | None = None
    """The number in the federation that an experiment wants for it."""
    seed: int | None = None
    """Of an experiment, which shares one seed among all parties; else it is drawn at random."""
    features: bytes = b""
    """The user's own, as `model.features` packs them."""


def passengers(
    split: Split, users: Iterable[int], folder: Path, seed: int | None = None
) -> list[Passenger]:
    """Users of a data set, each with nothing but its own."""
    ids, features = np.array(list(split.item_ids), dtype=object), split.user_features
    return [
        Passenger(
            number=user,
            user=split.user_ids[user],
            folder=folder / str(user),
            parts={name: ids[part.items_of(user)].tolist() for name, part in split.parts.items()},
            wish=user,
            seed=seed,
            features=b"" if features is None else packed(features[user]),
        )
        for user in users
    ]


def profile_of(
    one: Passenger, index: int, about: Prospectus, ids: Ids, seeds: ClientSeeds
) -> Profile:
    shares = about.catalogue.shares if about.config.virtual_draw == "popularity" else None
    parts = {name: _indices(items, ids) for name, items in one.parts.items()}
    if not len(parts["train"]):
        raise CarryingError(
            f"user {one.user!r} has no items to train on; a client needs at least one"
        )
    check_features("user", count_of(one.features), about.config.user_feature_dim)
    return Profile(
        index=index,
        n_users=about.clients,
        n_items=len(ids),
        config=about.config,
        seed=seeds.shared,
        private_seed=seeds.private,
        popularity=b"" if shares is None else shares.tobytes(),
        features=one.features,
        **{name: pack_numbers(items) for name, items in parts.items()},
    )


def check_features(kind: str, found: int, expected: int) -> None:
    if found != expected:
        raise CarryingError(
            f"the federation's {kind}s have {expected} features, found {found}; "
            + (f"give --{kind}-features FILE with them" if expected else "leave them out")
        )


def _indices(items: Iterable[int | str], ids: Ids) -> Int64:
    """By rank in the catalogue; every item must be in it."""
    try:
        return np.array(sorted({ids.index_of(item) for item in items}), dtype=np.int64)
    except DataError as error:
        raise CarryingError(
            f"an item that is not in the federation's catalogue: {error}"
        ) from error
