"""Writes vectors.json, the test vectors of every format: `python tests/protocol/write_vectors.py`.

A format is what two parties, or two versions of this program, must agree on to the byte. A vector
of the file is never changed without a new VERSION, and this script refuses to: who changes how
messages are laid out raises `lpgcn.protocol.wire.messages.VERSION`, who changes how they are sealed
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

import numpy as np

from lpgcn import crypto, fixed_point
from lpgcn.config import Config
from lpgcn.crypto import Channels, Context, Label, Masks, PrivateKey, SecretKey
from lpgcn.crypto.context import VERSION as CRYPTO_VERSION
from lpgcn.errors import LpgcnError
from lpgcn.model.sampling import catalogue, places
from lpgcn.protocol.client.newcomer import Answered, KeyHolder, _bound
from lpgcn.protocol.client.profile import Profile
from lpgcn.protocol.client.sealing import Keys, info
from lpgcn.protocol.phases import Phase, PhaseOrder
from lpgcn.protocol.suite import SUITES, Kind
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire import reading, sizes
from lpgcn.protocol.wire.fields import Present, Selection
from lpgcn.protocol.wire.messages import VERSION as WIRE_VERSION
from lpgcn.protocol.wire.messages import Header
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
ASKED: Final = np.array([0, 1])
"""The places that a neighbour is asked about; the first of them is real."""


def at(phase: Phase, layer: int = 0) -> bytes:
    return m.encode_header(RUN, Header(7, phase, layer), 3)


def numbers(*values: int) -> bytes:
    return reading.pack_numbers(values)


MESSAGES: Final[list[m.Message]] = [
    m.Ask(header=at(Phase.KEYS)),
    m.PublicKeys(header=at(Phase.SHARE_KEY), keys=OWN.public_bytes + PEER.public_bytes),
    m.SealedKey(header=at(Phase.LIST), sealed=b"sealed"),
    m.Placement(
        header=at(Phase.PLAN),
        places=numbers(4, 2, 9),
        owned=numbers(2, 7),
        offsets=numbers(0, 2, 3),
        listed=numbers(0, 1, 1),
        peers=PEER.public_bytes,
    ),
    m.Questions(
        header=at(Phase.VERIFY),
        askers=PEER.public_bytes,
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
        new_contacts=PEER.public_bytes,
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
    # Long enough for a length of two bytes.
    m.Catalogue(header=at(Phase.RANK_VALID), items=b"items" * 52),
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
    ),
    m.Numbers(header=at(Phase.COUNT), masked=bytes(range(8))),
]


def seal_anew() -> dict[str, str]:
    """What the key client, a neighbour and a stranger seal to the client `OWN`."""
    public = OWN.public_bytes
    contents = {
        "anything": (b"content", b"info"),
        "shared key": (SECRET + SEED.to_bytes(8, "big"), info("shared key", RUN, public)),
        "verification": (SENDER_KEY + PAIR_KEY + b"\x80", _bound(RUN, public, ASKED)),
        "introduction": (MET_KEY, info("introduction", RUN, public)),
    }
    return {
        name: crypto.seal(public, content, bound).hex()
        for name, (content, bound) in contents.items()
    }


class Life:
    """A client's initialisation, with fixed keys, up to its first masked number."""

    def __init__(self, sealed: Sealed) -> None:
        config = Config(model="lightgcn", dim=2, layers=1, virtual_items="1")
        about = Profile(
            index=0, n_users=2, n_items=4, config=config, seed=1, private_seed=2,
            train=numbers(0, 2), valid=b"", test=b"",
        )  # fmt: skip
        self._opened: list[Any] = []
        self._sealed = {name: bytes.fromhex(one) for name, one in sealed.items()}
        holder = KeyHolder(about, self._opened, RUN, OWN)
        key = m.SealedKey(sealed=self._sealed["shared key"])
        self._tokens, self._lister = holder.list_items(key, Header(0, Phase.LIST))

    def tokens(self) -> Vector:
        return self._tokens.tokens.hex()

    def catalogue(self) -> Vector:
        reply, _ = self._lister.list_catalogue(m.Ask(), Header(0, Phase.CATALOGUE))
        return reply.tokens.hex()

    def _answered(self) -> Answered:
        listed = places(catalogue(SEED, 4))[self._lister.uploaded]
        placement = m.Placement(
            places=numbers(*listed), owned=numbers(*ASKED), offsets=numbers(0, len(ASKED)),
            listed=numbers(*range(len(ASKED))), peers=PEER.public_bytes,
        )  # fmt: skip
        _, placed = self._lister.take_place(placement, Header(0, Phase.PLAN))
        positions = placed.listing.elsewhere
        questions = m.Questions(
            askers=PEER.public_bytes, offsets=numbers(0, len(positions)),
            positions=numbers(*positions),
        )  # fmt: skip
        _, answered = placed.answer(questions, Header(0, Phase.VERIFY))
        assert isinstance(answered, Answered)
        return answered

    def verified(self) -> Vector:
        """K_u, the pairwise key and the bits that the neighbour sealed, the key that the stranger
        sealed, and the masked number of items."""
        answers = m.SealedAnswers(answers=self._sealed["verification"])
        _, party = self._answered().verify(answers, Header(0, Phase.ANSWERS))
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


def keys_of(suite: str) -> Keys:
    many = [SecretKey(bytes((number,)) * 32) for number in (6, 7)]
    return Keys(
        run=RUN, suite=SUITES[suite], private=OWN, own=Channels(many), items=Channels([many[1]]),
        owners=Channels(many), neighbours=Channels(many), pairs=Channels(many), masks=None,
    )  # fmt: skip


def sealed_row(suite: str, kind: Kind) -> Vector:
    """Under the second of two keys; a negative has an index besides, and there are two of them."""
    keys = keys_of(suite)
    if kind is Kind.NEGATIVE:
        return keys.seal(HEADER, kind, keys.owners, [1, 1], [b"one", b"two"], [0, 1]).hex()
    return keys.seal(HEADER, kind, keys.pairs, [1], [b"content"]).hex()


def sizes_of(suite: str, dtype: str) -> Vector:
    of = Sizes.of(Config(suite=suite, dtype=dtype, dim=64))  # type: ignore[arg-type]
    row = (Kind.WISH, Kind.GRANT, Kind.SCALARS)
    vectors = [kind for kind in Kind if kind not in (*row, Kind.NUMBERS)]
    pair = np.array([(0.5, 3)], dtype=of.pair)
    negative = np.array([(1, 2, pair[0])], dtype=Sizes(of.suite, 3, of.pair).negative_content)
    return {
        "rows": {kind.name: of.row(kind) for kind in vectors},
        "three slots": {kind.name: 3 * of.slots(kind)[0] + of.slots(kind)[1] for kind in row},
        "introduction": of.introduction,
        "pair": pair.tobytes().hex(),
        "negative": negative.tobytes().hex(),
    }


def present() -> Vector:
    """Which of ten, of none and of two rows are there: the first and the last; all of both."""
    possible = Ragged.from_lengths([10, 0, 2], np.zeros(12, dtype=np.int64))
    flags = np.array([True] + 8 * [False] + 3 * [True])
    return [Present(Selection(possible, flags)).fill({}, client).hex() for client in range(3)]


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
        "opened": lambda: OWN.open(bytes.fromhex(sealed["anything"]), b"info").hex(),
    }


def wire_vectors(sealed: Sealed) -> dict[str, Callable[[], Vector]]:
    everything: dict[str, Callable[[], Vector]] = {
        "header": lambda: m.encode_header(RUN, HEADER, PARTY).hex(),
        "run of a message": lambda: m.run_of(m.Ask(header=m.encode_header(RUN, HEADER, 1))).hex(),
        "no wish": lambda: sizes.NO_WISH,
        "numbers": lambda: numbers(0, 1, 0x01020304, 2**32 - 1).hex(),
        "learning rate": lambda: reading.RATE.pack(0.001).hex(),
        "present": present,
        "masked numbers": lambda: (
            keys_of("sealed").mask(HEADER, fixed_point.encode(np.array([1.0, -0.5, 20.0]))).hex()
        ),
        "verification answers": lambda: sizes.verification_answer(np.array([0, 1, 8, 9])).tolist(),
        "sealed shared key": lambda: sizes.SEALED_SHARED_BYTES,
        "info of the shared key": lambda: info("shared key", RUN, OWN.public_bytes).hex(),
        "info of an introduction": lambda: info("introduction", RUN, OWN.public_bytes).hex(),
        "info of a mask": lambda: info("mask", RUN).hex(),
        "info of a verification": lambda: _bound(RUN, OWN.public_bytes, ASKED).hex(),
        "a client's tokens": lambda: Life(sealed).tokens(),
        "a client's catalogue": lambda: Life(sealed).catalogue(),
        "a client after verification": lambda: Life(sealed).verified(),
    }
    for message in MESSAGES:
        name = f"message {type(message).__name__}"
        everything[name] = partial(lambda one: m.encode(one).hex(), message)
    for phase in Phase:
        everything[f"phase {phase.name}"] = partial(int, phase)
    everything["layers"] = lambda: {
        phase.name: [
            list(PhaseOrder(3, builds_users).layers_of(phase)) for builds_users in (False, True)
        ]
        for phase in Phase
    }
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
            "VERSION in lpgcn.protocol.wire.messages (wire) or lpgcn.crypto.context (crypto), or, "
            f"if nobody has ever spoken this version, delete {path} first"
        )
    path.write_text(json.dumps(new, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
