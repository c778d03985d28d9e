"""Writes vectors.json, the test vectors of every format: `python tests/protocol/write_vectors.py`.

A format is what two parties, or two versions of this program, must agree on to the byte. A vector
of the file is never changed without a new VERSION, and this script refuses to: who changes how
messages are laid out raises `lpgcn.protocol.wire.encoding.VERSION`, who changes how they are sealed
`lpgcn.crypto.context.VERSION`. Vectors may be added. A version that nobody has ever spoken may be
changed: delete the file first.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from lpgcn import crypto, fixed_point
from lpgcn.checkpoints import InMemory
from lpgcn.config import Config
from lpgcn.crypto import Channels, Context, Directory, Label, Masks, PrivateKey, SecretKey
from lpgcn.crypto.context import VERSION as CRYPTO_VERSION
from lpgcn.errors import LpgcnError
from lpgcn.model.batches import PooledBatch, batches_of
from lpgcn.model.losses.softmax import Softmax
from lpgcn.model.sampling import catalogue, places
from lpgcn.protocol.client import estate
from lpgcn.protocol.client.newcomer import KeyHolder
from lpgcn.protocol.client.party import Party
from lpgcn.protocol.client.profile import Device, Profile
from lpgcn.protocol.client.sealing import Keys, info
from lpgcn.protocol.client.standing import FORMAT, ClientSnapshot, FormerIdentity, Nodes, Standing
from lpgcn.protocol.client.user import Listing
from lpgcn.protocol.client.verification import Answered, Expectant, _bound
from lpgcn.protocol.phases import PHASES, Phase, PhaseOrder, restarted
from lpgcn.protocol.suite import SUITES, Kind
from lpgcn.protocol.wire import encoding, reading, sizes
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire.encoding import VERSION as WIRE_VERSION
from lpgcn.protocol.wire.encoding import Header
from lpgcn.protocol.wire.fields import Present, Selection, Stores, Summed, SummedRows
from lpgcn.protocol.wire.sizes import Sizes
from lpgcn.ragged import Ragged
from lpgcn.random import Purpose, words

FILE: Final = Path(__file__).with_name("vectors.json")
VERSIONS: Final = {"crypto": CRYPTO_VERSION, "wire": WIRE_VERSION}
Vector = str | int | list[Any] | dict[str, Any]
Sealed = Mapping[str, str]
"""Messages that somebody sealed with HPKE, which is at random: they must still open."""

RUN: Final = bytes(range(16))
PARTY: Final = 0x01020304
HEADER: Final = Header(0x0102030405, Phase.FORWARD, 2)
CONTEXT: Final = Context(RUN, step=0x0102030405, phase=6, layer=7, kind=8)
SECRET: Final = bytes(range(32, 64))
SEED: Final = 0x1122334455667788
OWN, PEER = PrivateKey(b"\1" * 32), PrivateKey(b"\2" * 32)
SENDER_KEY, PAIR_KEY, MET_KEY = b"\3" * 32, b"\4" * 32, b"\5" * 32
ESTATE_KEY, OWNER_KEY = b"\6" * 32, b"\x08" * 32
DIRECTORY: Final = Directory([OWN.public_bytes, PEER.public_bytes])
CHECKPOINT: Final = 5
"""The number of the checkpoint that estates are of."""
ASKED: Final = np.array([0, 1])
"""The places that a neighbour is asked about; the first of them is real."""


def at(phase: Phase, layer: int = 0) -> bytes:
    return encoding.encode_header(RUN, Header(7, phase, layer), 3)


def numbers(*values: int) -> bytes:
    return reading.pack_numbers(values)


MESSAGES: Final[list[m.Message]] = [
    m.Ask(header=at(Phase.COUNT)),
    m.Resume(header=at(Phase.RESUME), number=numbers(6)),
    m.Begin(header=at(Phase.KEYS), term=numbers(1), members=numbers(2)),
    m.PublicKeys(header=at(Phase.SHARE_KEY), keys=OWN.public_bytes + PEER.public_bytes),
    m.SealedKey(header=at(Phase.LIST), sealed=b"sealed"),
    m.Placement(
        header=at(Phase.PLAN),
        places=numbers(4, 2, 9),
        owned=numbers(2, 7),
        offsets=numbers(0, 2, 3),
        listed=numbers(0, 1, 1),
        root=DIRECTORY.root,
        own=DIRECTORY.entry(OWN.public_bytes),
        peers=DIRECTORY.entry(PEER.public_bytes),
        group_peers=DIRECTORY.entry(PEER.public_bytes) * 2,
    ),
    m.Questions(
        header=at(Phase.VERIFY),
        askers=DIRECTORY.entry(PEER.public_bytes),
        offsets=numbers(0, 2),
        positions=numbers(3, 1),
    ),
    m.SealedAnswers(header=at(Phase.ANSWERS), answers=b"answers"),
    m.Exchange(
        header=at(Phase.FORWARD, 1),
        pushes=b"pushes",
        pushes_present=b"\xa0",
        users=b"users",
        users_present=b"\x40",
        wanted=b"\xc0",
        wants_user=b"\1",
        positions=numbers(11, 12),
        epoch=numbers(5),
    ),
    m.Finish(
        header=at(Phase.FINAL),
        pushes=b"pushes",
        pushes_present=b"\xa0",
        users=b"users",
        users_present=b"\x40",
        wishing=b"\x80",
        slots=numbers(3),
        wishes=b"wishes",
        wanted=b"\x20",
    ),
    m.Samples(
        header=at(Phase.LOSS),
        granted=b"granted",
        negatives=numbers(1, 0),
        negative_places=numbers(3, 8),
        negative_rows=b"negative rows",
        contacts=numbers(0, 1),
        new_contacts=DIRECTORY.entry(PEER.public_bytes),
    ),
    m.LossRows(
        header=at(Phase.GRADIENT),
        users=b"users",
        scalars=b"scalars",
        negatives=b"negatives",
        contacts=numbers(2, 0),
        introductions=b"introductions",
        wanted=b"\xc0",
        wants_user=b"\0",
        answered=b"\x60",
        answers=b"answers",
    ),
    m.Update(
        header=at(Phase.UPDATE),
        pushes=b"pushes",
        pushes_present=b"\xa0",
        users=b"users",
        users_present=b"\x40",
        learning_rate=reading.RATE.pack(0.001),
        batch_size=numbers(2048),
    ),
    m.Shared(
        header=at(Phase.UPDATE_SHARED),
        sums=b"sums",
        learning_rate=reading.RATE.pack(0.001),
        batch_size=numbers(2048),
    ),
    m.Copied(header=at(Phase.TAKE_OVER), content=b"content"),
    # Long enough for a length of two bytes.
    m.Catalogue(header=at(Phase.RANK_VALID), items=b"items" * 52),
    m.Mark(
        header=at(Phase.CHECKPOINT), number=numbers(6), heirs=DIRECTORY.entry(PEER.public_bytes)
    ),
    m.Estates(
        header=at(Phase.INHERIT),
        number=numbers(6),
        keys=b"keys",
        estates=b"estates",
        counts=numbers(2),
        bundles=numbers(0, 0),
        receivers=DIRECTORY.entry(PEER.public_bytes),
        offsets=numbers(0, 1, 2),
        rows=numbers(1, 0),
    ),
    m.Bequests(header=at(Phase.ENDOW), packages=b"packages", counts=numbers(2), rows=numbers(3, 1)),
    m.Reply(header=at(Phase.PLAN)),
    m.PublicKey(header=at(Phase.KEYS), key=OWN.public_bytes),
    m.SealedKeys(header=at(Phase.SHARE_KEY), sealed=b"sealed"),
    m.Tokens(header=at(Phase.LIST), tokens=bytes(range(16))),
    m.Answers(header=at(Phase.VERIFY), answers=b"answers"),
    m.Push(header=at(Phase.FORWARD, 1), user=b"user", pushes=b"pushes", wishes=b"wishes"),
    m.Finals(header=at(Phase.FINAL), items=b"items", granted=b"granted"),
    m.Gradients(
        header=at(Phase.LOSS),
        user=b"user",
        scalars=b"scalars",
        negatives=b"negatives",
        introductions=b"introductions",
        answers=b"answers",
    ),
    m.Numbers(header=at(Phase.COUNT), masked=bytes(range(8))),
    m.Estate(header=at(Phase.CHECKPOINT), content=b"content", keys=b"keys"),
    m.Copy(header=at(Phase.HAND_ON), content=b"content"),
    m.Bundles(header=at(Phase.INHERIT), packages=b"packages"),
]


CONFIG: Final = Config(model="lightgcn", dim=2, layers=1, virtual_items="1")
POOLED: Final = CONFIG.changed(
    loss="softmax", batch_size="full", negatives=3, answers=2, temperature=0.5, negative_weight=2.0
)


def node_states(count: int) -> Nodes:
    """Of so many items, all of whose numbers are different."""
    rows = np.zeros(count, dtype=Sizes.of(CONFIG).node(["items"]))
    values = np.arange(1, 1 + 8 * count, dtype=np.float32).reshape(count, 4, 2) / 16
    for number, name in enumerate(("parameter", "mean", "square", "kept")):
        rows["items"][name] = values[:, number]
    rows["items"]["steps"] = 100 + np.arange(count)
    return rows


def seal_anew() -> dict[str, str]:
    """What the key client, a neighbour, a stranger and an owner seal to the client `OWN`."""
    public = OWN.public_bytes
    contents = {
        "anything": (b"content", b"info"),
        "shared key": (SECRET + SEED.to_bytes(8, "big"), info("shared key", RUN, public)),
        "verification": (SENDER_KEY + PAIR_KEY + b"\x80", _bound(RUN, public, ASKED)),
        "introduction": (MET_KEY, info("introduction", RUN, public)),
        "estate": (ESTATE_KEY, info("estate", RUN, public)),
        "bequest": (node_states(1).tobytes(), info("bequest", RUN, public)),
    }
    return {
        name: crypto.seal(public, content, bound).hex()
        for name, (content, bound) in contents.items()
    }


def profile(config: Config) -> Profile:
    return Profile(
        index=0, n_users=2, n_items=4, config=config, seed=1, private_seed=2,
        train=numbers(0, 2), valid=b"", test=b"",
    )  # fmt: skip


class Life:
    """A client's initialisation, with fixed keys, up to its first masked number."""

    def __init__(self, sealed: Sealed, term: int = 0) -> None:
        self._opened: list[Any] = []
        self.disk = InMemory()
        self._device = Device(profile(CONFIG), self.disk, self._opened)
        self._sealed = {name: bytes.fromhex(one) for name, one in sealed.items()}
        holder = KeyHolder(self._device, None, RUN, term, 2, OWN, b"")
        key = m.SealedKey(sealed=self._sealed["shared key"])
        self._tokens, self._lister = holder.list_items(key, Header(0, Phase.LIST))

    def tokens(self) -> Vector:
        return self._tokens.tokens.hex()

    def catalogue(self) -> Vector:
        reply, _ = self._lister.list_catalogue(m.Ask(), Header(0, Phase.CATALOGUE))
        return reply.tokens.hex()

    def _answered(self) -> Answered:
        listed = places(catalogue(SEED, 4))[self._lister.standing.numbers("uploaded")]
        peer = DIRECTORY.entry(PEER.public_bytes)
        placement = m.Placement(
            places=numbers(*listed), owned=numbers(*ASKED), offsets=numbers(0, len(ASKED)),
            listed=numbers(*range(len(ASKED))), root=DIRECTORY.root,
            own=DIRECTORY.entry(OWN.public_bytes), peers=peer,
        )  # fmt: skip
        _, placed = self._lister.take_place(placement, Header(0, Phase.PLAN))
        positions = Listing.from_standing(self._device.about, placed.standing).elsewhere
        questions = m.Questions(
            askers=peer, offsets=numbers(0, len(positions)), positions=numbers(*positions)
        )
        _, answered = placed.answer(questions, Header(0, Phase.VERIFY))
        assert isinstance(answered, Answered)
        return answered

    def _verified(self) -> Party | Expectant:
        answers = m.SealedAnswers(answers=self._sealed["verification"])
        _, life = self._answered().verify(answers, Header(0, Phase.ANSWERS))
        assert isinstance(life, Party | Expectant)
        return life

    def verified(self) -> Vector:
        """K_u, the pairwise key and the bits that the neighbour sealed, the key that the stranger
        sealed, and the masked number of items."""
        party = self._verified()
        assert isinstance(party, Party)
        keys = party._keys
        (met,) = keys.meet([self._sealed["introduction"]])
        reply, _ = party.count(m.Ask(), Header(1, Phase.COUNT))
        return {
            "sender key": keys.neighbours._keys[0].hex(),
            "pairwise key": keys.pairs._keys[0].hex(),
            "bits": self._opened[-1].rows[0].hex(),
            "met": met.reveal().hex(),
            "masked": reply.masked.hex(),
        }

    def inherited(self) -> Vector:
        """The states that an owner has who joined, from what another sealed to it."""
        expectant, sealed = self._verified(), self._sealed["bequest"]
        assert isinstance(expectant, Expectant)
        bequests = m.Bequests(packages=sealed * 2, counts=numbers(1, 1), rows=numbers(1, 0))
        _, party = expectant.inherit(bequests, Header(0, Phase.ENDOW))
        return {name: adam.state()["mean"].tolist() for name, adam in party.tables().items()}

    def resumed(self) -> Vector:
        """What a client reads from a checkpoint, and what it would write as the next one; but for
        what is drawn anew, a checkpoint is written as it was read."""
        self.disk.write(CHECKPOINT, msgspec.msgpack.encode(snapshot()))
        party = Party.resumed(self._device, CHECKPOINT)
        heirs = DIRECTORY.entry(OWN.public_bytes) + DIRECTORY.entry(PEER.public_bytes)
        mark = m.Mark(number=numbers(CHECKPOINT + 1), heirs=heirs)
        party.checkpoint(mark, Header(1, Phase.CHECKPOINT))
        return self.disk.read(CHECKPOINT + 1).hex()


def standing() -> Standing:
    """Of a client that owns two places, both listed by its one neighbour."""
    order = catalogue(SEED, 4)
    uploaded = np.array([2, 0, 1])
    return Standing(
        term=3, members=2, run=RUN, private=b"\1" * 32, shared=SECRET, seed=SEED,
        data=profile(CONFIG).digest, uploaded=numbers(*uploaded), root=DIRECTORY.root,
        places=numbers(*places(order)[uploaded]),
        peers=PEER.public_bytes, group_peers=PEER.public_bytes,
        owned=numbers(*np.sort(places(order)[[0, 3]])),
        neighbour_offsets=numbers(0, 2), neighbour_rows=numbers(0, 1),
        neighbour_is_real=b"\1\0", asked_offsets=numbers(0, 2), asked_positions=numbers(0, 2),
        sender_key=b"\7" * 32, owner_keys=OWNER_KEY, neighbour_keys=SENDER_KEY,
        pair_keys=PAIR_KEY,
    )  # fmt: skip


def snapshot() -> ClientSnapshot:
    user = np.zeros(1, dtype=Sizes.of(CONFIG).node(["users"]))
    user["users"]["parameter"], user["users"]["steps"] = (0.5, -0.25), 9
    return ClientSnapshot(
        format=FORMAT, standing=standing(), user=user.tobytes(), items=node_states(2).tobytes(),
        loss_total=str(2**70 + 1),
    )  # fmt: skip


def estate_content() -> bytes:
    """What an owner leaves, under its fresh key."""
    (content,) = Channels([SecretKey(ESTATE_KEY)]).seal(
        estate._context(RUN, CHECKPOINT), [0], [node_states(2).tobytes()]
    )
    return content


def opened_estate(sealed: Sealed) -> Vector:
    """As an heir opens it."""
    former = FormerIdentity(RUN, OWN)
    key = bytes.fromhex(sealed["estate"])
    return estate._opened(former, CHECKPOINT, key, estate_content()).hex()


def keys_of(suite: str) -> Keys:
    many = [SecretKey(bytes((number,)) * 32) for number in (6, 7)]
    return Keys(
        run=RUN, suite=SUITES[suite], private=OWN, own=Channels(many), items=Channels([many[1]]),
        owners=Channels(many), neighbours=Channels(many), pairs=Channels(many), masks=None,
        group_masks=Masks([(many[0], 1), (many[1], -1)]), veils=Masks([(many[1], 1)]),
        copies=Channels([many[0]]),
    )  # fmt: skip


def sealed_row(suite: str, kind: Kind) -> Vector:
    """Under the second of two keys; a negative has an index besides, and there are two of them."""
    keys = keys_of(suite)
    if kind is Kind.NEGATIVE:
        return keys.seal(HEADER, kind, keys.owners, [1, 1], [b"one", b"two"], [0, 1]).hex()
    return keys.seal(HEADER, kind, keys.pairs, [1], [b"content"]).hex()


def sizes_of(suite: str, dtype: str, config: Config = CONFIG) -> Vector:
    of = Sizes.of(config.changed(suite=suite, dtype=dtype, dim=64))
    row = (Kind.WISH, Kind.GRANT, Kind.SCALARS)
    vectors = [kind for kind in of.suite.keys if kind not in row]
    pair = np.array([(0.5, 3)], dtype=of.pair)
    about, three = of.negative_content, np.dtype(("u1", (3,)))
    # Three bytes stand for the vector.
    small = [(name, three if name == "vector" else about[name]) for name in about.names or ()]
    negative = np.array([(1, 2, pair[0])], dtype=small)
    return {
        "rows": {kind.name: of.row(kind) for kind in vectors},
        "three slots": {kind.name: 3 * of.slots(kind)[0] + of.slots(kind)[1] for kind in row},
        "introduction": of.introduction,
        "pair": pair.tobytes().hex(),
        "negative": negative.tobytes().hex(),
        "answer": of.answer,
        "pool": list(of.pool),
    }


class PooledStep:
    """A client's training step against a pool, from its checkpoint on: what it is sent, and what it
    says. The content of what others seal to it is small whole numbers."""

    def __init__(self) -> None:
        disk = InMemory()
        disk.write(CHECKPOINT, msgspec.msgpack.encode(snapshot()))
        self._party = Party.resumed(Device(profile(POOLED), disk, None), CHECKPOINT)
        self._said: list[Vector] = []

    def _from_others(
        self, phase: Phase, kind: Kind, key: SecretKey, *contents: bytes, at: tuple[int, ...] = (0,)
    ) -> bytes:
        context = Context(RUN, 1, phase, 0, kind)
        return b"".join(Channels([key]).seal(context, [0] * len(at), list(contents), list(at)))

    def _tell(self, phase: Phase, message: m.Message, method: str) -> None:
        header = Header(1, phase)
        placed = msgspec.structs.replace(message, header=encoding.encode_header(RUN, header, 0))
        reply, _ = getattr(self._party, method)(placed, header)
        self._said.append([encoding.encode(placed).hex(), encoding.encode(reply).hex()])

    def said(self) -> Vector:
        owner, neighbour, pair = map(SecretKey, (OWNER_KEY, SENDER_KEY, PAIR_KEY))
        items, (first, second) = SecretKey(SECRET).derive(Label.ITEM_VECTORS), directions()
        self._tell(Phase.FORWARD, m.Exchange(epoch=numbers(5), wants_user=b"\1"), "forward")
        pushed = np.array([1 << 20, -1 << 19], dtype="<i4").tobytes()
        finish = m.Finish(
            pushes=self._from_others(Phase.FORWARD, Kind.PUSH, owner, pushed),
            users=self._from_others(Phase.FORWARD, Kind.USER_FORWARD, neighbour, pushed[::-1]),
        )
        self._tell(Phase.FINAL, finish, "finish_forward")
        samples = m.Samples(
            granted=self._from_others(Phase.FINAL, Kind.GRANT, owner, first + second),
            negative_places=numbers(3, 0, 1),
            negative_rows=self._from_others(
                Phase.FINAL, Kind.POOL, items, first, second, first, at=(3, 0, 1)
            ),
        )
        self._tell(Phase.LOSS, samples, "loss")
        pairs = np.array([(-0.25, 1), (0.0, 0)], dtype=Sizes.of(POOLED).pair).tobytes()
        rows = m.LossRows(
            users=self._from_others(Phase.LOSS, Kind.USER_FINAL, neighbour, second),
            scalars=self._from_others(Phase.LOSS, Kind.SCALARS, pair, pairs),
            wanted=b"",
            wants_user=b"\1",
            answered=b"\x40",
            answers=np.array([1 << 30, -1 << 29], dtype="<i8").tobytes(),
        )
        self._tell(Phase.GRADIENT, rows, "begin_backward")
        return self._said


def directions() -> tuple[bytes, bytes]:
    """Two directions as they travel."""
    number = Softmax.of(POOLED).number
    return np.array([3000, -400], number).tobytes(), np.array([-1200, 2500], number).tobytes()


def pools() -> Vector:
    """The groups of some clients, and their pools in an epoch, from how many list each place."""
    config = POOLED.changed(groups=2, negatives=5, seed=SEED)
    listed = Ragged.from_lengths(np.full(70, 2), np.arange(140) % 11)
    batch = batches_of(config, 99, listed, 12).draw(3, 0)
    assert isinstance(batch, PooledBatch)
    return [batch.group.tolist(), batch.pools.values.tolist(), batch.answered]


def answers_of_groups() -> Vector:
    """What the server makes of the answers of three clients in two groups, for two owners."""
    stores: Stores = {}
    up = Summed("answers", np.array([0, 1, 0]), 4)
    up.prepare(stores)
    for client in range(3):
        sent = np.array([1 << 62, -client, client, 1], dtype="<i8")
        up.read(stores, client, sent.tobytes(), "answers")
    owned = Selection(Ragged(np.array([0, 2, 3]), np.array([0, 2, 1])), np.array([True] * 3))
    down = SummedRows("answers", np.array([2, 0, 2, 1]), 3, owned, 2)
    return [down.fill(stores, client).hex() for client in range(2)]


def present() -> Vector:
    """Which of ten, of none and of two rows are there: the first and the last; all of both."""
    possible = Ragged.from_lengths([10, 0, 2], np.zeros(12, dtype=np.int64))
    flags = np.array([True] + 8 * [False] + 3 * [True])
    return [Present(Selection(possible, flags)).fill({}, client).hex() for client in range(3)]


def directory(*counts: int) -> Vector:
    """Roots of directories of so many keys, and the entries of the first and the last."""
    found = []
    for count in counts:
        publics = [bytes((37 * (number + 1) % 256,)) * 32 for number in range(count)]
        made = Directory(publics)
        entries = [made.entry(publics[0]).hex(), made.entry(publics[-1]).hex()]
        found.append({"root": made.root.hex(), "entries": entries})
    return found


def crypto_vectors(sealed: Sealed) -> dict[str, Callable[[], Vector]]:
    secret, other = SecretKey(SECRET), SecretKey(PAIR_KEY)
    return {
        "context": lambda: CONTEXT.encode().hex(),
        "place": lambda: CONTEXT.place.hex(),
        **{
            f"key for {label.value}": partial(
                lambda one: [secret.derive(one, part).reveal().hex() for part in (b"", b"x")], label
            )
            for label in Label
        },
        "public key": lambda: OWN.public_bytes.hex(),
        "agreement": lambda: OWN.agree(PEER.public_bytes, b"context").reveal().hex(),
        "agreement, the other side": lambda: (
            PEER.agree(OWN.public_bytes, b"context").reveal().hex()
        ),
        "tokens": lambda: crypto.tokens(secret, np.array([0, 1, 41_000])).tobytes().hex(),
        "channel": lambda: [
            one.hex()
            for one in Channels([secret]).seal(CONTEXT, [0, 0], [b"one", b""], [0, 0x01020304])
        ],
        "channels": lambda: [
            one.hex() for one in Channels([secret, other]).seal(CONTEXT, [1, 0], [b"one", b""])
        ],
        "channels, indices": lambda: [
            one.hex()
            for one in Channels([secret, other]).seal(CONTEXT, [1, 1], [b"one", b""], [1, 2])
        ],
        "mask": lambda: (
            Masks([(secret, 1), (other, -1)]).mask(CONTEXT, 3).astype("<u8").tobytes().hex()
        ),
        "directory": lambda: directory(1, 2, 3, 5, 8),
        "fingerprint": lambda: crypto.fingerprint(DIRECTORY.root, 5),
        "opened": lambda: OWN.open(bytes.fromhex(sealed["anything"]), b"info").hex(),
    }


def wire_vectors(sealed: Sealed) -> dict[str, Callable[[], Vector]]:
    everything: dict[str, Callable[[], Vector]] = {
        "header": lambda: encoding.encode_header(RUN, HEADER, PARTY).hex(),
        "run of a message": lambda: encoding.run_of(
            m.Ask(header=encoding.encode_header(RUN, HEADER, 1))
        ).hex(),
        "no wish": lambda: sizes.NO_WISH,
        "numbers": lambda: numbers(0, 1, 0x01020304, 2**32 - 1).hex(),
        "learning rate": lambda: reading.RATE.pack(0.001).hex(),
        "present": present,
        "masked numbers": lambda: (
            keys_of("sealed").mask(HEADER, fixed_point.encode(np.array([1.0, -0.5, 20.0]))).hex()
        ),
        "a veil": lambda: keys_of("sealed").veil(HEADER, 3).astype("<u8").tobytes().hex(),
        "a copy of weights": lambda: keys_of("sealed").seal_copy(HEADER, b"content").hex(),
        "masked answers": lambda: (
            keys_of("sealed").mask_in_group(HEADER, np.array([1, 2, 2**64 - 3], np.uint64)).hex()
        ),
        "a step against a pool": lambda: PooledStep().said(),
        "pools": pools,
        "answers of groups": answers_of_groups,
        "verification answers": lambda: sizes.verification_answer(np.array([0, 1, 8, 9])).tolist(),
        "sealed shared key": lambda: sizes.SEALED_SHARED_BYTES,
        "info of the shared key": lambda: info("shared key", RUN, OWN.public_bytes).hex(),
        "info of an introduction": lambda: info("introduction", RUN, OWN.public_bytes).hex(),
        "info of a mask": lambda: info("mask", RUN).hex(),
        "info of a verification": lambda: _bound(RUN, OWN.public_bytes, ASKED).hex(),
        "a client's tokens": lambda: Life(sealed).tokens(),
        "a client's catalogue": lambda: Life(sealed).catalogue(),
        "a client after verification": lambda: Life(sealed).verified(),
        "a client that inherits": lambda: Life(sealed, term=1).inherited(),
        "a client's checkpoint": lambda: msgspec.msgpack.encode(snapshot()).hex(),
        "a client's next checkpoint": lambda: Life(sealed).resumed(),
        "node states, lightgcn": lambda: node_states(1).tobytes().hex(),
        "node states, layout": lambda: [
            f"{names} {dtype}: {Sizes.of(CONFIG.changed(dtype=dtype)).node(names).descr}"
            for names in (["items"], ["items", "item_users"], ["users"], [])
            for dtype in ("float32", "float64")
        ],
        "estate": lambda: estate_content().hex(),
        "estate, opened": lambda: opened_estate(sealed),
        "info of an estate": lambda: info("estate", RUN, OWN.public_bytes).hex(),
        "info of a bequest": lambda: info("bequest", RUN, OWN.public_bytes).hex(),
        "sealed key": lambda: sizes.SEALED_KEY_BYTES,
        "heirs": lambda: sizes.HEIRS,
        "passes of a stretch": lambda: encoding.STRETCH_PASSES,
        "after a restart": lambda: [
            [one.pass_number, one.phase, one.layer] for one in map(restarted, (-1, 0, 3))
        ],
    }
    for message in MESSAGES:
        name = f"message {type(message).__name__}"
        everything[name] = partial(lambda one: encoding.encode(one).hex(), message)
    for phase in Phase:
        everything[f"phase {phase.name}"] = partial(int, phase)
    everything["layers"] = lambda: {
        phase.name: [
            list(PhaseOrder(3, builds_users).layers_of(phase)) for builds_users in (False, True)
        ]
        for phase in Phase
        if not PHASES[phase].shared
    }
    shared = PhaseOrder(2, builds_users=False, shares_weights=True)
    for phase in Phase:
        if PHASES[phase].shared:
            everything[f"layers of {phase.name}"] = lambda one=phase: list(shared.layers_of(one))
    for kind in Kind:
        everything[f"kind {kind.name}"] = partial(int, kind)
    for purpose in Purpose:
        everything[f"purpose {purpose.name}"] = partial(
            lambda one: [int(one), f"{words(SEED, one, [3], 5)[0, 0]:016x}"], purpose
        )
    for suite, table in SUITES.items():
        for kind in table.keys:
            everything[f"row {kind.name}, {suite}"] = partial(sealed_row, suite, kind)
        for dtype in ("float32", "float64"):
            everything[f"sizes, {suite}, {dtype}"] = partial(sizes_of, suite, dtype)
            everything[f"sizes, softmax, {suite}, {dtype}"] = partial(
                sizes_of, suite, dtype, POOLED
            )
    return everything


def all_vectors(sealed: Sealed) -> dict[str, dict[str, Callable[[], Vector]]]:
    """By the version that they belong to, and by name."""
    return {"crypto": crypto_vectors(sealed), "wire": wire_vectors(sealed)}


def made(make: Callable[[], Vector]) -> Vector:
    """What does not open any more is no vector, but has a name."""
    try:
        return make()
    except LpgcnError as error:
        return f"{type(error).__name__}: {error}"


def changed(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Vectors that are not what they were, or gone, without a new version. What travels is sealed,
    so that a new version of `crypto` is reason enough for all of them."""
    same = [part for part in VERSIONS if old["versions"][part] == VERSIONS[part]]
    fixed = same if "crypto" in same else []
    return [
        f"{part}: {name}"
        for part in fixed
        for name, value in old[part].items()
        if new[part].get(name) != value
    ]


def write(path: Path = FILE) -> None:
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    # What was sealed by a version must be opened by it for ever.
    sealed = old["sealed"] if old and old["versions"] == VERSIONS else seal_anew()
    parts = {
        part: {name: made(make) for name, make in vectors.items()}
        for part, vectors in all_vectors(sealed).items()
    }
    new = {"versions": VERSIONS, "sealed": sealed, **parts}
    if old and (names := changed(old, new)):
        sys.exit(
            f"these vectors would change, and VERSION is what it was: {', '.join(names)}; raise "
            "VERSION in lpgcn.protocol.wire.encoding (wire) or lpgcn.crypto.context (crypto), or, "
            f"if nobody has ever spoken this version, delete {path} first"
        )
    path.write_text(json.dumps(new, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
