"""Fields of the right length that say what cannot be are named, and change nothing.

A tiny federation is trained while every real message comes after some of its kind that a client has
to refuse for what they mean. Lengths, headers and changed bits are in `test_faults`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest

from lpgcn.config import Config
from lpgcn.crypto import KEY_BYTES, AuthenticationError, FormatError, PrivateKey, entry_bytes, seal
from lpgcn.errors import LpgcnError
from lpgcn.protocol.client.client import Client
from lpgcn.protocol.client.sealing import info
from lpgcn.protocol.errors import MalformedMessageError, UnexpectedMessageError
from lpgcn.protocol.phases import REQUESTS, Phase
from lpgcn.protocol.suite import Kind
from lpgcn.protocol.wire import encoding, reading
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire.sizes import SHARED_BYTES, Sizes, verification_answer

Make = Callable[..., Any]
Check = Callable[..., None]
Wrong = Iterator[tuple[str, dict[str, bytes], type[LpgcnError], str]]
"""What is wrong, the fields that say so, and how they are refused."""
TINY = Config(dim=3, layers=2, lr=0.05, batch_size=4, virtual_items="2", seed=5)
N_USERS, N_ITEMS = 6, 9
TRAIN = [
    (0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 3), (3, 2), (3, 3), (3, 4), (4, 1), (5, 4),
    (5, 5),
]  # fmt: skip


def read(data: bytes) -> Any:
    return encoding.decode(data, REQUESTS, limit=1 << 20)


def numbers(field: bytes) -> list[int]:
    return np.frombuffer(field, dtype="<u4").tolist()


def exchanged(field: bytes, one: int = 0, other: int = 1) -> bytes:
    """With two of its numbers in each other's place."""
    values = numbers(field)
    values[one], values[other] = values[other], values[one]
    return reading.pack_numbers(values)


def wrong_keys(client: Any, message: m.PublicKeys) -> Wrong:
    own = client._life.private.public_bytes
    publics = reading.split(message.keys, KEY_BYTES, "keys")
    others = [one for one in publics if one != own]
    strangers = [PrivateKey.generate().public_bytes, *others]
    absent = "do not have this client's own among them"
    yield "keys without its own", {"keys": b"".join(strangers)}, AuthenticationError, absent
    twice = b"".join((own, others[0], *others[:-1]))
    yield "a key twice", {"keys": twice}, FormatError, "expected different ones"


def wrong_shared_key(client: Any, message: m.SealedKey) -> Wrong:
    life = client._life
    public = life.private.public_bytes
    for length in (0, SHARED_BYTES - 1, SHARED_BYTES + 1):
        sealed = seal(public, bytes(length), info("shared key", life.run, public))
        text = f"a shared key of {length} bytes, not {SHARED_BYTES}"
        yield f"S of {length} bytes", {"sealed": sealed}, AuthenticationError, text


def wrong_placement(client: Any, message: m.Placement) -> Wrong:
    entry = message.peers[: entry_bytes(N_USERS)]
    absent = "directory does not have this client's own key"
    yield "another's entry", {"own": entry}, AuthenticationError, absent
    elsewhere = "places are not those of the items that were listed"
    yield "other places", {"places": exchanged(message.places)}, MalformedMessageError, elsewhere
    if len(numbers(message.owned)) > 1:
        falling, text = exchanged(message.owned), "owned holds numbers that do not rise"
        yield "owned falls", {"owned": falling}, MalformedMessageError, text
        twice = message.owned[4:8] + message.owned[4:]
        yield "owned twice", {"owned": twice}, MalformedMessageError, text
    cuts = numbers(message.offsets)
    for first, end in pairwise(cuts):
        if end - first > 1:
            falling = exchanged(message.listed, first, first + 1)
            text = "listed holds items of a neighbour that do not rise"
            yield "listed falls", {"listed": falling}, MalformedMessageError, text
            listed = message.listed
            twice = listed[: 4 * first + 4] + listed[4 * first : 4 * first + 4]
            twice += listed[4 * first + 8 :]
            yield "listed twice", {"listed": twice}, MalformedMessageError, text
    if len(cuts) > 1:
        text = f"offsets do not rise from 0 to {cuts[-1]}"
        late, early = [1, *cuts[1:]], [*cuts[:-1], cuts[-1] - 1]
        yield "offsets late", {"offsets": reading.pack_numbers(late)}, MalformedMessageError, text
        yield "offsets early", {"offsets": reading.pack_numbers(early)}, MalformedMessageError, text
        if len(cuts) > 3:
            falling = exchanged(message.offsets, 1, 2)
            yield "offsets fall", {"offsets": falling}, MalformedMessageError, text


def wrong_questions(client: Any, message: m.Questions) -> Wrong:
    if len(numbers(message.positions)) > 1:
        twice, text = message.positions[4:8] + message.positions[4:], "not about all items"
        yield "a question twice", {"positions": twice}, MalformedMessageError, text


def wrong_answers(client: Any, message: m.SealedAnswers) -> Wrong:
    """The second neighbour's K_u, or its pairwise key, is that of the first."""
    standing = client._life.standing
    private, near = PrivateKey(standing.private), standing.neighbours
    public, sizes = private.public_bytes, verification_answer(near.lengths).tolist()
    if len(near) < 2:
        return
    first, second, *others = reading.cut(message.answers, sizes, "answers")
    bounds = [
        info("verification", standing.run, public, reading.pack_numbers(places))
        for places in (standing.numbers("owned")[near[neighbour]] for neighbour in (0, 1))
    ]
    one, two = private.open(first, bounds[0]), private.open(second, bounds[1])
    for what, keys in (("K_u", slice(KEY_BYTES)), ("pair", slice(KEY_BYTES, 2 * KEY_BYTES))):
        forged = bytearray(two)
        forged[keys] = one[keys]
        again = seal(public, bytes(forged), bounds[1])
        answers = {"answers": b"".join((first, again, *others))}
        yield f"{what} twice", answers, AuthenticationError, "two neighbours have the same key"


def wrong_wishes(client: Any, message: m.Finish) -> Wrong:
    """Where wishes are not sealed."""
    owner = client.party._owner
    if message.wishes and client.party._config.suite == "paper":
        beyond = reading.pack_numbers([owner.neighbours.lengths.max()]) + message.wishes[4:]
        text = "a wish for an item that the neighbour did not list here"
        yield "an unlisted wish", {"wishes": beyond}, MalformedMessageError, text


def wrong_samples(client: Any, message: m.Samples) -> Wrong:
    places = message.negative_places
    if len(numbers(places)) > 1:
        text = "negative_places holds numbers that do not rise"
        falling = {"negative_places": exchanged(places)}
        yield "negatives fall", falling, MalformedMessageError, text
    none = reading.pack_numbers([len(numbers(places)), *numbers(message.negatives)[1:]])
    text = "negatives holds .*, expected numbers below"
    yield "no such negative", {"negatives": none}, MalformedMessageError, text


def wrong_losses(client: Any, message: m.LossRows) -> Wrong:
    """What is told about items can be forged where it is not sealed."""
    party = client.party
    sizes, wishes = Sizes.of(party._config), party._pass.wishes
    if message.negatives:
        again = {
            "negatives": message.negatives + message.negatives[: sizes.row(Kind.NEGATIVE)],
            "contacts": message.contacts + message.contacts[:8],
        }
        text = "contacts holds a negative twice"
        yield "a negative twice", again, MalformedMessageError, text
    if party._config.suite == "sealed" or wishes is None:
        return
    if message.negatives:
        rows = np.frombuffer(message.negatives, dtype=sizes.negative_content).copy()
        others = np.setdiff1d(np.arange(N_ITEMS + 1), party._owner.places)
        for place in {others[0], others[-1]}:
            rows["place"][-1] = place
            text = "a negative is about an item that is not owned here"
            yield "another's item", {"negatives": rows.tobytes()}, MalformedMessageError, text
    empty = np.flatnonzero(wishes.items < 0)
    if len(empty):
        pairs = np.frombuffer(message.scalars, dtype=sizes.pair).copy()
        assert not pairs["count"][empty].any()
        pairs["count"][empty[-1]] = 1
        text = "scalars that no client has about what was wished for"
        yield "no wish, a scalar", {"scalars": pairs.tobytes()}, MalformedMessageError, text


def wrong_update(client: Any, message: m.Update | m.Shared) -> Wrong:
    what = type(message).__name__
    for rate in (float("nan"), float("inf"), -1.0):
        text = f"a learning rate of {rate}, expected a number from 0 on"
        field = {"learning_rate": reading.RATE.pack(rate)}
        yield f"{what} by {rate}", field, MalformedMessageError, text
    nobody = {"batch_size": reading.pack_numbers([0])}
    text = "batch_size holds 0, expected at least 1"
    yield f"{what} of nobody", nobody, MalformedMessageError, text


WRONG: Mapping[type[m.Message], Callable[[Any, Any], Wrong]] = {
    m.PublicKeys: wrong_keys,
    m.SealedKey: wrong_shared_key,
    m.Placement: wrong_placement,
    m.Questions: wrong_questions,
    m.SealedAnswers: wrong_answers,
    m.Finish: wrong_wishes,
    m.Samples: wrong_samples,
    m.LossRows: wrong_losses,
    m.Update: wrong_update,
    m.Shared: wrong_update,
}
IN_BOTH = {
    "keys without its own", "a key twice", "S of 0 bytes", "S of 39 bytes", "S of 41 bytes",
    "another's entry", "other places", "owned falls", "owned twice", "listed falls",
    "listed twice", "offsets late", "offsets early", "offsets fall", "a question twice",
    "negatives fall", "no such negative", "a negative twice", "Update by nan", "Update by inf",
    "Update by -1.0", "Update of nobody", "K_u twice", "pair twice",
}  # fmt: skip
OF_SHARED = {"Shared by nan", "Shared by inf", "Shared by -1.0", "Shared of nobody"}
FORGED = {"an unlisted wish", "another's item", "no wish, a scalar"}


def refused_by(
    client: Client, request: bytes, picture: Make, text: str, error: type[LpgcnError]
) -> None:
    before = picture(client)
    with pytest.raises(error, match=text):
        client.handle(request)
    assert picture(client) == before


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (TINY.changed(model="ngcf"), IN_BOTH | OF_SHARED),
        (TINY.changed(model="lightgcn+", suite="paper"), IN_BOTH | FORGED),
    ],
    ids=["sealed", "paper"],
)
def test_what_cannot_be_meant_is_refused_and_changes_nothing(
    federation_of: Make,
    split_of: Make,
    picture_of: Make,
    assert_same: Check,
    config: Config,
    expected: set[str],
) -> None:
    split = split_of(TRAIN, N_USERS, N_ITEMS)
    quiet, federation = federation_of(split, config), federation_of(split, config)
    deliver, refused = federation.deliver, Counter[tuple[str, Phase]]()

    def disturbed(client: int, request: bytes) -> bytes:
        message, party = read(request), federation.clients[client]
        wrong = WRONG.get(type(message), lambda *_: iter(()))
        for what, fields, error, text in wrong(party, message):
            bad = encoding.encode(msgspec.structs.replace(message, **fields))
            try:
                refused_by(party, bad, picture_of, text, error)
            except BaseException as failure:
                failure.add_note(f"client {client}: {what}")
                raise
            refused[what, Phase(encoding.header_of(request).phase)] += 1
        reply: bytes = deliver(client, request)
        return reply

    federation.deliver = disturbed
    federation.train(4)
    quiet.train(4)
    assert {what for what, _ in refused} == expected
    built = config.model == "lightgcn+"
    assert (("Update by nan", Phase.UPDATE_BUILT) in refused) == built
    assert_same(federation.state(), quiet.state())


def sent_to_others(
    federation: Any, kind: type[m.Message], whom: Callable[[Any], bool], picture: Make, text: str
) -> set[int]:
    """Every message of a kind goes to some other clients first; those who have refused it, as the
    federation goes on."""
    deliver, refused = federation.deliver, set[int]()

    def disturbed(client: int, request: bytes) -> bytes:
        message, place = read(request), encoding.header_of(request)
        others = enumerate(federation.clients) if isinstance(message, kind) else ()
        for other, one in others:
            if whom(one):
                header = encoding.encode_header(one.party.run, place, other)
                bad = encoding.encode(msgspec.structs.replace(message, header=header))
                refused_by(one, bad, picture, text, UnexpectedMessageError)
                refused.add(other)
        reply: bytes = deliver(client, request)
        return reply

    federation.deliver = disturbed
    return refused


def test_vectors_of_samples_are_for_the_batch_only(
    federation_of: Make, split_of: Make, picture_of: Make
) -> None:
    """An owner that the batch touches is as far as those of the batch are, but drew nothing."""
    federation = federation_of(split_of(TRAIN, N_USERS, N_ITEMS), TINY.changed(batch_size=2))

    def outside(one: Any) -> bool:
        return one._last.phase == Phase.FINAL and one.party._pass.drawn is None

    text = "samples for a client outside the batch"
    refused = sent_to_others(federation, m.Samples, outside, picture_of, text)
    federation.train(3)
    assert refused


def test_nobody_takes_weights_over_its_own(
    federation_of: Make, split_of: Make, picture_of: Make
) -> None:
    """The copy is for who joins; whoever was there before could be set back by an old one."""
    split, config = split_of(TRAIN, N_USERS, N_ITEMS), TINY.changed(model="ngcf")
    federation = federation_of(split, config, members=range(N_USERS - 1))
    federation.train(1)
    federation.server.checkpoint(1)
    newcomer = federation.clients[-1]

    def was_there(one: Any) -> bool:
        # After HAND_ON nothing of this pass may come.
        return one is not newcomer and one._last.phase != Phase.HAND_ON

    text = "weights that this client has already"
    refused = sent_to_others(federation, m.Copied, was_there, picture_of, text)
    everybody = np.arange(N_USERS)
    federation.server = federation.server.changed(everybody, federation.plan, federation.line, 1)
    assert len(refused) == N_USERS - 2


def test_who_has_just_joined_hands_nothing_on(
    federation_of: Make, split_of: Make, picture_of: Make
) -> None:
    """Other weights under the key and nonce of u_c's copy would tell both."""
    split, config = split_of(TRAIN, N_USERS, N_ITEMS), TINY.changed(model="ngcf")
    federation = federation_of(split, config, members=range(N_USERS - 1))
    federation.train(1)
    federation.server.checkpoint(1)
    deliver, newcomer, asked = federation.deliver, N_USERS - 1, list[int]()

    def disturbed(client: int, request: bytes) -> bytes:
        place = encoding.header_of(request)
        if place.phase == Phase.HAND_ON:
            one = federation.clients[newcomer]
            header = encoding.encode_header(one.party.run, place, newcomer)
            request_of_newcomer = encoding.encode(m.Ask(header=header))
            refused_by(one, request_of_newcomer, picture_of, "just joined", UnexpectedMessageError)
            asked.append(client)
        reply: bytes = deliver(client, request)
        return reply

    federation.deliver = disturbed
    everybody = np.arange(N_USERS)
    federation.server = federation.server.changed(everybody, federation.plan, federation.line, 1)
    assert len(asked) == 1
