"""What a client is started with: its own data, what is public, and a place for checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import msgspec
import numpy as np

from lpgcn.array_types import Int64
from lpgcn.checkpoints import Checkpoints
from lpgcn.config import Config
from lpgcn.model.features import Features, unpacked
from lpgcn.protocol.errors import ChangedDataError, TooFewMembersError
from lpgcn.protocol.transcript import Opened


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """Item lists are 32-bit numbers, little-endian."""

    index: int
    n_users: int
    """In the first term; it decides how large initial vectors are."""
    n_items: int
    config: Config
    """With seed 0: the seed of the batches is the server's, and says whose handle is whose."""
    seed: int
    """What this client would propose as the seed of all clients, if it were u_c: it decides the
    order of the catalogue and the first dense weights."""
    private_seed: int
    """Nobody else's: it decides this client's virtual items, positives and initial vector, and the
    initial vectors of the items that it owns. In an experiment both are the configuration's, so
    that every way to run draws the same."""
    train: bytes
    valid: bytes
    test: bytes
    popularity: bytes = b""
    """Public shares of the items, if virtual items are drawn by them."""
    virtual: bytes = b""
    """Virtual items that this user has listed in other runs, in their order. Whoever sees two lists
    of one person with different ones knows that what they have in common is real."""
    features: bytes = b""
    """This user's own, 64-bit numbers, little-endian: they stay here."""

    def __repr__(self) -> str:
        return f"Profile({self.name}, hidden)"

    @property
    def name(self) -> str:
        return f"client {self.index}"

    @property
    def digest(self) -> bytes:
        """Of the user's own data: a run that began with them goes on with no others."""
        found = sha256()
        for part in (self.train, self.valid, self.test, self.features):
            found.update(sha256(part).digest())
        return found.digest()

    def items(self, part: str) -> Int64:
        return np.frombuffer(getattr(self, part), dtype="<u4").astype(np.int64)


@dataclass(frozen=True)
class Device:
    """Where a client lives."""

    about: Profile
    checkpoints: Checkpoints
    opened: list[Opened] | None = None
    """What could be read of the present message, if there is a transcript."""
    item_features: bytes = b""
    """Public ones of all items, packed as a user's own."""
    least_members: int = 1
    """Among how many, this one included, its numbers must be hidden."""

    def check_members(self, members: int) -> None:
        """Before anything of this client's is sent in a term of so many."""
        if members < self.least_members:
            raise TooFewMembersError(
                f"a term of {members}, expected {self.least_members} members or more: a sum over "
                "fewer says too much about each of them, and nothing was sent; come back when "
                "there are more, or give --least-members a smaller number if you agree"
            )

    def check_data(self, digest: bytes) -> None:
        """Before it goes on in a term that began with data of this digest: owners know what was
        real then, and a list with other items would tell which they are."""
        if self.about.digest != digest:
            raise ChangedDataError(
                f"the data of {self.about.name} have changed since this run began, and nothing was "
                "sent; bring back those that it began with, or take part in the next run"
            )

    def check_features(self) -> None:
        """That there are as many as the configuration says, before anything begins."""
        self.features_of_user()
        self.features_of_items(np.empty(0, dtype=np.int64))

    def features_of_user(self) -> Features | None:
        about = self.about
        width = about.config.user_feature_dim
        return Features.of("users", unpacked(about.features, 1, width, "a user"))

    def features_of_items(self, items: Int64) -> Features | None:
        about = self.about
        width = about.config.item_feature_dim
        table = unpacked(self.item_features, about.n_items, width, "all items")
        return None if table is None else Features.of("items", table[items])
