"""A client: one user, only its own interactions, and the items that the server made it own.

It knows no transport: bytes come in through `handle`, bytes go out. The stages are named methods,
in the order of the protocol. Each first opens and checks everything it was given, and only then
changes anything, so a bad message leaves the client as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load, save
from torch import Tensor

from lpgcn import fixed_point
from lpgcn.config import Config
from lpgcn.crypto import KEY_BYTES, SEAL_OVERHEAD
from lpgcn.evaluation import per_user, top_items
from lpgcn.model.sampling import catalogue, places
from lpgcn.protocol import messages as m
from lpgcn.protocol.doors import Doors
from lpgcn.protocol.errors import MalformedMessageError, UnexpectedMessageError
from lpgcn.protocol.keyring import ANSWER_KEYS, Keyring
from lpgcn.protocol.messages import Header, Phase
from lpgcn.protocol.order import KEEP, PARTS, START, Order
from lpgcn.protocol.owner import Neighbourhood, Owner
from lpgcn.protocol.passes import Passes
from lpgcn.protocol.sizes import Sizes
from lpgcn.protocol.transcript import Opened, Witness, observe
from lpgcn.protocol.user import User, draw_virtual_items

Int64 = npt.NDArray[np.int64]
Stage = Callable[[Any, Header], m.Message]


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What a client is started with: its own data, and what is public."""

    index: int
    n_users: int
    n_items: int
    config: Config
    """With seed 0: the seed of the batches is the server's, and says whose handle is whose."""
    seed: int
    """What this client would propose as the seed of all clients, if it were u_c: it decides the
    order of the catalogue and the initial vectors of items."""
    private_seed: int
    """Nobody else's: it decides this client's virtual items, positives and initial vector. In an
    experiment both are the configuration's, so that every way to run draws the same."""
    train: bytes
    valid: bytes
    test: bytes
    popularity: bytes = b""
    """Public shares of the items, if virtual items are drawn by them."""


class Client:
    """One party of the federation."""

    def __init__(self, profile: bytes, witness: Witness | None = None) -> None:
        about = msgspec.msgpack.decode(profile, type=Profile)
        self._about, self._config = about, about.config
        self._real, self._valid, self._test = (
            np.frombuffer(part, dtype="<u4").astype(np.int64)
            for part in (about.train, about.valid, about.test)
        )
        self._keys = Keyring(about.config.suite)
        self._limit = Sizes.of(about.config).largest(
            about.n_users, about.n_items, about.config.batch_size
        )
        self._order, self._last = Order.of(about.config), START
        self._witness = witness
        self._opened: list[Opened] | None = None if witness is None else []
        self._kept: tuple[Tensor, Tensor] | None = None
        """e_u and all e_i of the last prediction."""
        self._stages = self._initialisation()

    def handle(self, request: bytes) -> bytes:
        """One message in, one message out; or a typed error, and nothing has changed."""
        message = m.decode(request, m.REQUESTS, limit=self._limit)
        run = self._keys.run or message.header[1 : 1 + m.RUN_BYTES]
        header = m.read_header(message, run, self._about.index)
        self._order.check(header, self._last, owns=self._owns)
        stage = self._stages.get((type(message), header.phase))
        if stage is None:
            raise UnexpectedMessageError(f"a message {type(message).__name__} for {header}")
        if self._opened is not None:
            self._opened.clear()
        reply = stage(message, header)
        self._last = header
        self._report(message, header, len(request))
        return m.encode(
            msgspec.structs.replace(
                reply, header=m.encode_header(self._keys.run, header, self._about.index)
            )
        )

    @property
    def _owns(self) -> bool:
        return self._last.phase >= Phase.PLAN and self.passes.owner is not None

    def _report(self, message: m.Message, header: Header, size: int) -> None:
        if self._witness is not None and self._opened is not None:
            name = f"client {self._about.index}"
            self._witness(observe(name, "server", message, header, size, list(self._opened)))

    # Initialisation (Algorithms 2, 3 and 8).

    def _initialisation(self) -> dict[tuple[type[m.Message], int], Stage]:
        return {
            (m.Ask, Phase.KEYS): self.make_keys,
            (m.PublicKeys, Phase.SHARE_KEY): self.share_key,
            (m.SealedKey, Phase.LIST): self.list_items,
        }

    def make_keys(self, message: m.Ask, header: Header) -> m.PublicKey:
        """Algorithm 2, lines 1–4."""
        self._keys.run = message.header[1 : 1 + m.RUN_BYTES]
        return m.PublicKey(header=b"", key=self._keys.public)

    def share_key(self, message: m.PublicKeys, header: Header) -> m.SealedKeys:
        """Line 6, as u_c."""
        publics = m.split(message.keys, KEY_BYTES, "keys")
        if len(publics) != self._about.n_users:
            raise MalformedMessageError(
                f"{len(publics)} public keys of {self._about.n_users} clients"
            )
        sealed = self._keys.share(publics, self._about.seed)
        return m.SealedKeys(header=b"", sealed=b"".join(sealed))

    def list_items(self, message: m.SealedKey, header: Header) -> m.Tokens:
        """Lines 8–14. Tokens go up in the order of their bytes, which tells nothing."""
        about, config = self._about, self._config
        self._seed, seed = self._keys.accept(message.sealed), about.private_seed
        shares = np.frombuffer(about.popularity) if about.popularity else None
        virtual = draw_virtual_items(about.index, self._real, about.n_items, config, seed, shares)
        listed = np.concatenate((self._real, virtual))
        listed_tokens = self._keys.tokens(listed)
        order = np.lexsort(listed_tokens.T[::-1])
        user = User(about.index, about.n_users, self._real, listed[order], config, seed)
        self._doors = Doors(config, self._keys, self._opened)
        self.passes = Passes(config, self._doors, user)
        self._stages = {**self._later_initialisation(), **self._training()}
        return m.Tokens(header=b"", tokens=listed_tokens[order].tobytes())

    def _later_initialisation(self) -> dict[tuple[type[m.Message], int], Stage]:
        return {
            (m.Ask, Phase.CATALOGUE): self.list_catalogue,
            (m.Placement, Phase.PLAN): self.take_place,
            (m.Questions, Phase.VERIFY): self.answer,
            (m.Sealed, Phase.ANSWERS): self.verify,
        }

    def list_catalogue(self, message: m.Ask, header: Header) -> m.Tokens:
        """As u_c: every item's token, so that an item that nobody lists has an owner too."""
        return m.Tokens(header=b"", tokens=self._keys.tokens(self._catalogue()).tobytes())

    def _catalogue(self) -> Int64:
        return catalogue(self._seed, self._about.n_items)

    def take_place(self, message: m.Placement, header: Header) -> m.Reply:
        """Algorithm 3, line 8: what this client owns, and who else listed that."""
        about, user = self._about, self.passes.user
        catalogue = self._catalogue()
        listed_places = m.numbers(message.places, "places", below=about.n_items)
        if not np.array_equal(listed_places, places(catalogue)[user.uploaded]):
            raise MalformedMessageError("the places are not those of the items that were listed")
        owned = m.rising(message.owned, "owned", below=about.n_items)
        near = _neighbourhood(message, len(owned))
        peers = m.split(message.peers, KEY_BYTES, "peers")
        if not peers and about.n_users > 1:
            raise MalformedMessageError("no peers: this client's numbers would not be masked")
        self._keys.peer_up(peers)
        user.place(listed_places, owned)
        if len(owned):
            items = catalogue[owned]
            self.passes.owner = Owner(items, owned, near, about.n_items, self._config, self._seed)
        return m.Reply(header=b"")

    def answer(self, message: m.Questions, header: Header) -> m.Answers:
        """Lines 16–18: which listed items are real, sealed to the one who asks."""
        user = self.passes.user
        askers = m.split(message.askers, KEY_BYTES, "askers")
        positions = m.numbers(message.positions, "positions", below=len(user.uploaded))
        if not np.array_equal(np.sort(positions), user.arriving):
            raise MalformedMessageError("the questions are not about all items that others own")
        offsets = _offsets(message.offsets, len(askers), len(positions))
        asked = [positions[offsets[i] : offsets[i + 1]] for i in range(len(askers))]
        sealed = self._keys.answer(
            askers,
            [m.pack_numbers(user.places[part]) for part in asked],
            [np.packbits(user.is_real(part)).tobytes() for part in asked],
        )
        self.passes.loss_stage.asked = asked
        return m.Answers(header=b"", sealed=b"".join(sealed))

    def verify(self, message: m.Sealed, header: Header) -> m.Reply:
        """As owner: learn which neighbours are real. Lengths follow from what was asked."""
        owner, user = self.passes.as_owner(), self.passes.user
        near = owner.neighbourhood
        counts = np.diff(near.offsets)
        lengths = SEAL_OVERHEAD + ANSWER_KEYS + (counts + 7) // 8
        bits = self._keys.verify(
            m.cut(message.answers, lengths, "answers"),
            [m.pack_numbers(owner.places[near.of(h)]) for h in range(near.size)],
        )
        real = [m.bits(flags, "bits", count) for flags, count in zip(bits, counts, strict=True)]
        self._doors.note("bits", range(near.size), bits)
        own = user.own_rows
        really_own = own[(own >= 0) & user.is_real(np.arange(len(own)))]
        owner.verified(np.concatenate((np.empty(0, dtype=np.bool_), *real)), really_own)
        return m.Reply(header=b"")

    # Training, prediction, measurement.

    def _training(self) -> dict[tuple[type[m.Message], int], Stage]:
        passes = self.passes
        return {
            (m.Exchange, Phase.BUILD): passes.build,
            (m.Exchange, Phase.FORWARD): passes.forward,
            (m.Exchange, Phase.FINAL): passes.finish_forward,
            (m.Samples, Phase.LOSS): passes.loss,
            (m.LossRows, Phase.BACKWARD): passes.begin_backward,
            (m.Exchange, Phase.BACKWARD): passes.backward,
            (m.Exchange, Phase.UPDATE): passes.update,
            (m.Exchange, Phase.UPDATE_BUILT): passes.update_built,
            (m.Exchange, Phase.RANK): self.rank,
            (m.Ask, Phase.SUM): self.report,
        }

    def rank(self, message: m.Exchange, header: Header) -> m.Message:
        """Rank all items locally; only masked numbers about the held-out ones leave the client."""
        by_place = self.passes.open_catalogue(message.item_rows, header.step, self._about.n_items)
        vectors = by_place[places(self._catalogue())]
        final = self.passes.user.nodes.final()
        if header.layer == KEEP:
            self._kept = final, vectors
            return m.Reply(header=b"")
        heldout = (self._valid, self._test)[header.layer]
        cutoffs = self._config.cutoffs
        top, _ = _top(final, vectors, self._masked(header.layer), max(cutoffs))
        measured = per_user(top.numpy(), np.array([0, len(heldout)]), heldout, cutoffs)
        values = np.array([float(values[0]) for values in measured.values()] + [1.0])
        return self._masked_numbers(header, values * (len(heldout) > 0))

    def _masked(self, part: int) -> Int64:
        if PARTS[part] == "valid" or self._config.mask == "train":
            return self._real
        return np.union1d(self._real, self._valid)

    def report(self, message: m.Ask, header: Header) -> m.Numbers:
        """Layer 0: |I_u|. Layer 1: the loss since the last report."""
        if header.layer == 0:
            return self._masked_numbers(header, np.array([float(len(self._real))]))
        values = np.array([self.passes.loss_total % 2**64], dtype=np.uint64)
        reply = self._numbers(header, values)
        self.passes.loss_total = 0
        return reply

    def _masked_numbers(self, header: Header, values: npt.NDArray[np.float64]) -> m.Numbers:
        return self._numbers(header, fixed_point.encode(values))

    def _numbers(self, header: Header, values: npt.NDArray[np.uint64]) -> m.Numbers:
        context = self._keys.context(header.step, header.phase, header.layer)
        masked = self._keys.mask(context, values)
        return m.Numbers(header=b"", masked=masked.astype("<u8").tobytes())

    # What the client's own device asks of it; nothing here travels.

    def recommend(self, request: bytes) -> bytes:
        """From the vectors of the last prediction: the best k items and their scores."""
        if self._kept is None:
            raise UnexpectedMessageError("no item vectors yet: ask the server for a prediction")
        k = msgspec.msgpack.decode(request, type=int)
        top, scores = _top(*self._kept, self._real, k)
        found = zip(top[0].tolist(), scores[0].tolist(), strict=True)
        return msgspec.msgpack.encode([(item, score) for item, score in found if item >= 0])

    def export(self, request: bytes = b"") -> bytes:
        """Its parameters and their Adam state: what a checkpoint of this client holds."""
        return save(
            self._with_rows(
                {
                    f"{name}.{key}": value
                    for name, adam in self.passes.adams().items()
                    for key, value in adam.state().items()
                }
            )
        )

    def restore(self, state: bytes) -> bytes:
        """Go on from a checkpoint, this client's own export."""
        tables = load(bytes(state))
        for name, adam in self.passes.adams().items():
            adam.restore({key: tables[f"{name}.{key}"] for key in adam.state()})
        return b""

    def vectors(self, request: bytes = b"") -> bytes:
        """Its final vectors, after a forward pass."""
        tables = {"users": self.passes.user.nodes.final()}
        if (owner := self.passes.owner) is not None:
            tables["items"] = owner.nodes.final()
        return save(self._with_rows(tables))

    def _with_rows(self, tables: dict[str, Tensor]) -> dict[str, Tensor]:
        owner = self.passes.owner
        items = np.empty(0, dtype=np.int64) if owner is None else owner.items
        return {**tables, "rows": torch.from_numpy(items)}


def _top(user: Tensor, items: Tensor, seen: Int64, k: int) -> tuple[Tensor, Tensor]:
    return top_items(user, items, np.array([0, len(seen)]), seen, k)


def _offsets(field: bytes, rows: int, entries: int) -> Int64:
    offsets = m.numbers(field, "offsets", below=entries + 1, count=rows + 1)
    if offsets[0] != 0 or offsets[-1] != entries or bool((np.diff(offsets) < 0).any()):
        raise MalformedMessageError(f"offsets do not rise from 0 to {entries}")
    return offsets


def _neighbourhood(message: m.Placement, n_owned: int) -> Neighbourhood:
    listed = m.numbers(message.listed, "listed", below=n_owned)
    size = max(len(message.offsets) // 4 - 1, 0)
    offsets = _offsets(message.offsets, size, len(listed))
    own_rank = m.numbers(message.own_rank, "own_rank", below=size + 1, count=1)
    near = Neighbourhood(offsets, listed, int(own_rank[0]))
    if bool((np.diff(near.handles * n_owned + listed) <= 0).any()):
        raise MalformedMessageError("field listed holds items of a neighbour that do not rise")
    return near
