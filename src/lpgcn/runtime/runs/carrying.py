"""The clients' side of a federation over a network: one user's client, or many of an experiment's.

What a client has is in its own folder: its seeds, its checkpoints, and at the end a model with its
own vector and the items', from which it recommends offline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from lpgcn.array_types import Int64
from lpgcn.checkpoints import InFolder
from lpgcn.config import Config, SuiteName
from lpgcn.data import Ids, Interactions
from lpgcn.data.features import FeatureRows
from lpgcn.errors import LpgcnError
from lpgcn.evaluation import Vectors
from lpgcn.model.batches import smallest_group
from lpgcn.model.features import packed
from lpgcn.model.kernels import Floats
from lpgcn.protocol.client.client import Client
from lpgcn.protocol.client.party import Party
from lpgcn.protocol.client.profile import Profile
from lpgcn.protocol.errors import ChangedDataError, ReplayedMessageError, TooFewMembersError
from lpgcn.protocol.phases import Phase
from lpgcn.protocol.wire import encoding
from lpgcn.runtime.crowd import warn_of_few
from lpgcn.runtime.hosts.nats.carrier import Carrier, CarrierEvents, Handler
from lpgcn.runtime.hosts.nats.frames import Offer, Welcome
from lpgcn.runtime.runs.catalogue import Prospectus
from lpgcn.runtime.runs.kept_virtual_items import KeptVirtualItems
from lpgcn.runtime.runs.passengers import (
    CarryingError,
    ClientSeeds,
    Passenger,
    check_features,
    profile_of,
)
from lpgcn.runtime.runs.saved_model import FORMAT, ModelCard, Recommender
from lpgcn.terms import LEAST_MEMBERS


class _LeavingError(Exception):
    """Ends a carrier with a goodbye. The server is not told why: it would end everybody's run."""

    def __init__(self, reason: LpgcnError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class CarryingEvents(CarrierEvents):
    """What happens to the clients besides; this one does not listen."""

    def term_began(self, fingerprint: str, members: int) -> None:
        """Clients were given this directory of keys, or go on with it."""

    def step_done(self) -> None: ...


@dataclass(frozen=True)
class Participation:
    """How clients take part: what they insist on, and what they bring besides their users' data."""

    suite: SuiteName = "sealed"
    least_members: int = LEAST_MEMBERS
    item_features: FeatureRows | None = None
    """Public: those of the federation's catalogue."""
    kept: KeptVirtualItems | None = None
    """Without it virtual items are drawn for this run alone, as in an experiment."""
    cooccurrence: Path | None = None
    """A file of this machine: none that the server names is ever opened."""

    def settings(self, config: Config) -> Config:
        """The federation's, as far as these clients agree with them."""
        if config.suite != self.suite:
            raise CarryingError(
                f"the server's suite is {config.suite!r}, expected {self.suite!r}, which "
                "protects other things: see docs/PRIVACY.md, and give --suite if you agree"
            )
        if config.virtual_draw == "coherent" and self.cooccurrence is None:
            raise CarryingError(
                "the federation draws virtual items from what goes together; give --cooccurrence "
                "FILE, the public one that its operator names"
            )
        own = None if self.cooccurrence is None else str(self.cooccurrence)
        return config.changed(cooccurrence=own)


class Vehicle:
    """The clients of one process, made when the server has let them in."""

    def __init__(
        self,
        passengers: Iterable[Passenger],
        name: str,
        participation: Participation,
        events: CarryingEvents | None = None,
    ) -> None:
        self._name, self._participation = name, participation
        self._passengers = {one.number: one for one in passengers}
        self.clients: dict[int, Client] = {}
        self._events, self._run, self._updated = events or CarryingEvents(), b"", -1
        self._saved: dict[int, Floats] = {}
        """The items' vectors of the prediction that each client has in its folder."""
        self._accepted: set[int] = set()
        """Clients that have answered since they were let in."""
        self.about: Prospectus | None = None

    @property
    def offers(self) -> list[Offer]:
        return [Offer(one.number, one.wish) for one in self._passengers.values()]

    def checkpoints(self, number: int) -> list[int]:
        return InFolder(self._passengers[number].folder).numbers()

    def admit(self, welcome: Welcome) -> dict[int, Handler]:
        try:
            about = msgspec.msgpack.decode(welcome.about, type=Prospectus)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CarryingError(f"the server's welcome cannot be read: {error}") from error
        how = self._participation
        about = msgspec.structs.replace(about, config=how.settings(about.config))
        self.about, features = about, self._public_features(about)
        for number, index in welcome.indices.items():
            one = self._passengers[number]
            self.clients[number] = Client(
                msgspec.msgpack.encode(self._profile(one, index, about)),
                checkpoints=InFolder(one.folder),
                item_features=features,
                least_members=how.least_members,
            )
        if how.kept is not None:
            how.kept.save()
        self._accepted.clear()
        return {number: partial(self._handle, number) for number in self.clients}

    def _profile(self, one: Passenger, index: int, about: Prospectus) -> Profile:
        ids, kept = about.catalogue.item_ids, self._participation.kept
        profile = profile_of(one, index, about, ids, self._seeds(one))
        if kept is None:
            return profile
        goes_on = bool(self.checkpoints(one.number))
        return kept.remembered(one.user, profile, ids, goes_on=goes_on)

    def _seeds(self, one: Passenger) -> ClientSeeds:
        owner = f"user {one.user} of {self._name}"
        if one.seed is not None:
            return ClientSeeds(shared=one.seed, private=one.seed, owner=owner)
        return ClientSeeds.kept_in(one.folder, owner)

    def _public_features(self, about: Prospectus) -> bytes:
        rows, width = self._participation.item_features, about.config.item_feature_dim
        check_features("item", 0 if rows is None else rows.values.shape[1], width)
        return b"" if rows is None else packed(rows.of(about.catalogue.item_ids, "items"))

    def _handle(self, number: int, request: bytes) -> bytes:
        """The client itself; what it recommends from is in its folder before it answers, so that
        the server does not end the run before, and a process that is killed then has it."""
        client = self.clients[number]
        answer = self._answered(number, client, request)
        kept = self._participation.kept
        if kept is not None and encoding.header_of(request).phase == Phase.LIST:
            kept.listed(self._passengers[number].user)
            kept.save()
        if client.verified:
            prediction = client.party.prediction()
            if prediction is not None and prediction[1] is not self._saved.get(number):
                self._save_model(number, *prediction)
                self._saved[number] = prediction[1]
            self._tell(client.party, encoding.header_of(request))
        return answer

    def _answered(self, number: int, client: Client, request: bytes) -> bytes:
        """In one run, whoever comes back is always asked to resume in a new stretch first. Whom a
        term has too few members for leaves it to the others."""
        try:
            answer = client.handle(request)
        except ReplayedMessageError:
            if number not in self._accepted and encoding.header_of(request).phase == Phase.RESUME:
                raise _LeavingError(_other_run(self._passengers[number].folder)) from None
            raise
        except (TooFewMembersError, ChangedDataError) as error:
            raise _LeavingError(error) from error
        self._accepted.add(number)
        return answer

    def _tell(self, party: Party, header: encoding.Header) -> None:
        """Once for all clients, which are in the same term and at the same step."""
        if header.phase == Phase.UPDATE and header.pass_number > self._updated:
            self._updated = header.pass_number
            self._events.step_done()
        elif party.run != self._run:
            self._run = party.run
            self._events.term_began(party.fingerprint, party.members)
            self._warn_of_few(party.members)

    def _warn_of_few(self, members: int) -> None:
        """Those whom it is about; that of the server tells its operator only."""
        assert self.about is not None, "clients are made when they are let in"
        config = self.about.config
        advice = (
            "leave with Ctrl-C if that is not what you agreed to, and come back with "
            f"--least-members {smallest_group(config)}"
        )
        warn_of_few(config, members, advice)

    def _save_model(self, number: int, user: Floats, items: Floats, seen: Int64) -> None:
        """What a client needs to recommend without the server."""
        assert self.about is not None, "clients are made when they are let in"
        one = self._passengers[number]
        model = _model(one, self.about, user, items, seen)
        model.save(one.folder / "model", overwrite=True, mode=0o600)

    def fingerprints(self) -> set[str]:
        """Of the key directories that the clients were given."""
        return {client.party.fingerprint for client in self.clients.values() if client.verified}


def _model(
    one: Passenger, about: Prospectus, user: Floats, items: Floats, seen: Int64
) -> Recommender:
    ids = about.catalogue.item_ids
    card = ModelCard(
        format=FORMAT,
        dataset=about.federation,
        fingerprint=about.catalogue.fingerprint,
        config=about.config,
        n_users=1,
        n_items=len(ids),
    )
    own = ids.indices_of([item for items in one.parts.values() for item in items])
    heldout = np.setdiff1d(own, seen)
    trained, besides = (
        Interactions.from_pairs(np.zeros(len(some), dtype=np.int64), some, 1, len(ids))
        for some in (seen, heldout)
    )
    mine = Ids(np.array([one.user]))
    return Recommender(card, Vectors(user, items), mine, ids, trained, heldout=besides)


def carry(
    options: dict[str, Any],
    name: str,
    passengers: Iterable[Passenger],
    participation: Participation,
    *,
    events: CarrierEvents | None = None,
    started: Callable[[Carrier], None] | None = None,
) -> tuple[str, Vehicle]:
    """Answer the server until the run is over; what it said then, and the clients. A server with
    another suite is refused before anything is sent to it, and so is a term of fewer than
    `least_members`."""
    listening = events if isinstance(events, CarryingEvents) else None
    vehicle = Vehicle(passengers, name, participation, listening)
    carrier = Carrier(
        options, name, vehicle.offers, vehicle.admit, vehicle.checkpoints, events=events
    )
    if started is not None:
        started(carrier)
    try:
        return carrier.run(), vehicle
    except _LeavingError as leaving:
        raise leaving.reason from None


def _other_run(folder: Path) -> CarryingError:
    return CarryingError(
        f"{folder} has been further than this server is: it is of another run, or the server's "
        "folder is an old copy; choose another --state for this run"
    )
