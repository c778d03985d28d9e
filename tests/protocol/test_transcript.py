"""A transcript holds everything each party received, and what it could read of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lpgcn.config import Config
from lpgcn.model.sampling import catalogue
from lpgcn.protocol.phases import PHASES, REQUESTS, Phase
from lpgcn.protocol.server.caller import Caller
from lpgcn.protocol.suite import SUITES, Kind
from lpgcn.protocol.transcript import NUMBERS, Observation, Transcript, read
from lpgcn.protocol.wire import encoding
from lpgcn.protocol.wire.fields import Packed, Round, Stored

Make = Callable[..., Any]
TINY = Config(dim=3, layers=2, batch_size=7, virtual_items="2", seed=5)
POOLED = TINY.changed(loss="softmax", batch_size="full", negatives=5, answers=3)
UNUSED = {"bpr": {"POOL"}, "softmax": {"WISH", "NEGATIVE"}}
"""Kinds of rows that a loss has none of."""
TRAIN = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 3), (3, 2), (3, 3), (3, 4)]
both_models = pytest.mark.parametrize("model", ["lightgcn", "lightgcn+"])
both_suites = pytest.mark.parametrize("suite", ["sealed", "paper"])
both_losses = pytest.mark.parametrize("base", [TINY, POOLED], ids=["bpr", "softmax"])


@both_losses
@both_models
@both_suites
def test_everything_that_was_received_is_there(
    federation_of: Make, split_of: Make, tmp_path: Path, base: Config, model: str, suite: str
) -> None:
    path, config = tmp_path / "seen" / "run.jsonl", base.changed(model=model, suite=suite)
    with Transcript(path) as transcript:
        federation = federation_of(split_of(TRAIN, 4, 9, [(0, 3)]), config, witness=transcript)
        second_term(federation)
        assert not path.exists(), "it has its name when it is complete"
    assert [file.name for file in path.parent.iterdir()] == ["run.jsonl"]
    seen = read(path)
    assert {one.phase for one in seen} >= {"RESUME", "CHECKPOINT", "INHERIT", "ENDOW"}
    received = Counter(map(in_short, (one for one in seen if one.party != "server")))
    assert received == Counter(
        sent(client, REQUESTS, f"client {client}", "server", data)
        for client, data in federation.requests
    )
    replies = tuple({row.reply for row in PHASES.values()})
    at_server = Counter(map(in_short, (one for one in seen if one.party == "server")))
    assert at_server == Counter(
        sent(client, union(replies), "server", f"client {client}", data)
        for client, data in federation.replies
    )
    assert not any(one.opened for one in seen if one.party == "server")


def union(kinds: tuple[type, ...]) -> Any:
    found: Any = kinds[0]
    for kind in kinds[1:]:
        found |= kind
    return found


def in_short(one: Observation) -> tuple[Any, ...]:
    fields = tuple(
        (name, tuple(value) if isinstance(value, list) else value)
        for name, value in sorted(one.fields.items())
    )
    place = one.pass_number, Phase[one.phase], one.layer
    return one.party, one.sender, one.kind, place, one.size, fields


def sent(client: int, kinds: Any, party: str, sender: str, data: bytes) -> tuple[Any, ...]:
    """What an observation of these bytes says, in short."""
    message = encoding.decode(data, kinds, limit=len(data))
    header = encoding.read_header(message, encoding.run_of(message), client)
    fields = {name: getattr(message, name) for name in encoding.content_fields(type(message))}
    for name in NUMBERS.get(type(message), ()):
        fields[name] = tuple(np.frombuffer(fields[name], dtype="<u4").tolist())
    place = header.pass_number, Phase(header.phase), header.layer
    return party, sender, type(message).__name__, place, len(data), tuple(sorted(fields.items()))


def second_term(federation: Any) -> None:
    """A training with a checkpoint, and a term in which an owner is gone."""
    federation.train(2)
    server = federation.server
    server.measure("valid")
    server.checkpoint(1)
    left = np.setdiff1d(server.term.members, server.plan.convolution_clients[:1])
    federation.server = server.changed(left, federation.plan, federation.line, 1)
    federation.server.step(1, 0, 0.05)


def test_numbers_are_decoded_wherever_a_server_packs_some(
    federation_of: Make, split_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = list[Round]()
    carry_out = Caller.carry_out

    def recorded(caller: Caller, one: Round) -> None:
        rounds.append(one)
        carry_out(caller, one)

    monkeypatch.setattr(Caller, "carry_out", recorded)
    for model in ("lightgcn+", "gcn"):
        config = TINY.changed(model=model)
        second_term(federation_of(split_of(TRAIN, 4, 9, [(0, 3), (3, 3)]), config))
    packed = {
        (one.kinds[0], name)
        for one in rounds
        for name, field in one.down.items()
        # A whole number that is the same for everybody is in store as four bytes.
        if isinstance(field, Packed) or (isinstance(field, Stored) and field.length == 4)
    }
    assert packed == {(kind, name) for kind, names in NUMBERS.items() for name in names}


@both_suites
def test_a_client_reads_what_others_pushed(federation_of: Make, split_of: Make, suite: str) -> None:
    """Final item vectors, as a client opened them, are those that their owners have."""
    seen: list[Observation] = []
    config = TINY.changed(suite=suite)
    federation = federation_of(split_of(TRAIN, 4, 9, [(0, 3)]), config, witness=seen.append)
    federation.train(1)
    federation.server.predict([2])
    (catalogue_of_2,) = [one for one in seen if one.phase == "PREDICT" and one.party != "server"]
    (opened,) = catalogue_of_2.opened
    assert (opened.what, opened.senders) == ("ITEM_FINAL", list(range(9)))
    by_place = np.stack([np.frombuffer(row, dtype=np.float32) for row in opened.rows])
    found, checked = by_place[np.argsort(catalogue(config.seed, 9))], 0
    for client in federation.clients:
        owned = client.party.owned_items()
        if len(owned):
            assert np.array_equal(found[owned], client.party.finals()["items"])
            checked += len(owned)
    assert checked == 9


@both_losses
@both_models
@both_suites
def test_what_was_opened_is_what_the_phase_is_about(
    federation_of: Make, split_of: Make, base: Config, model: str, suite: str
) -> None:
    """Each row that a client could read has the sender by whom it knows it, and its plain size."""
    seen: list[Observation] = []
    config = base.changed(model=model, suite=suite)
    federation = federation_of(split_of(TRAIN, 4, 9, [(0, 3)]), config, witness=seen.append)
    federation.train(2)
    federation.server.measure("valid")
    topology, vector = federation.server.topology, config.dim * config.number_bytes
    sums = suite == "sealed"
    kinds = set()
    for one in (one for one in seen if one.opened):
        client = int(one.party.split()[1])
        for opened in one.opened:
            assert len(opened.senders) == len(opened.rows)
            kinds.add(opened.what)
            if opened.what in ("USER_FORWARD", "USER_BACKWARD", "USER_FINAL"):
                assert set(opened.senders) <= set(range(len(topology.neighbours[client])))
            elif opened.what == "PUSH":
                known = topology.by_client if sums else topology.listed_elsewhere
                assert set(opened.senders) <= set(range(len(known[client])))
            elif opened.what in ("POOL", "ITEM_FINAL"):
                assert set(opened.senders) <= set(range(9)), "places"
            if opened.what in ("USER_FORWARD", "USER_BACKWARD", "PUSH", "ITEM_FINAL"):
                assert {len(row) for row in opened.rows} <= {vector}
            if opened.what in ("USER_FINAL", "POOL"):
                # Directions are told in numbers of half the size.
                assert {len(row) for row in opened.rows} <= {vector // (1 + config.pooled)}
    rows = {kind.name for kind in SUITES[suite].keys} - UNUSED[config.loss]
    assert kinds == {"BITS", *rows}, "every kind of row is opened by somebody"
    assert not kinds & {Kind.NUMBERS.name, Kind.ANSWERS.name}


def test_bits_of_verification_say_which_listed_items_are_real(
    federation_of: Make, split_of: Make
) -> None:
    seen: list[Observation] = []
    federation = federation_of(split_of(TRAIN, 4, 9), TINY, witness=seen.append)
    federation.initialise()
    topology, split = federation.server.topology, federation.split
    order, checked = catalogue(TINY.seed, 9), 0
    for one in (one for one in seen if one.phase == "ANSWERS" and one.opened):
        owner = int(one.party.split()[1])
        (opened,) = one.opened
        assert opened.what == "BITS"
        for handle, row in zip(opened.senders, opened.rows, strict=True):
            pair = topology.by_owner[owner][handle]
            listed = order[topology.entries[pair]]
            bits = np.unpackbits(np.frombuffer(row, np.uint8), count=len(listed))
            assert np.array_equal(
                bits, np.isin(listed, split.train.items_of(topology.pair_client[pair]))
            )
            checked += 1
    assert checked == topology.n_pairs > 0


def test_what_was_written_before_an_error_is_kept(
    federation_of: Make, split_of: Make, tmp_path: Path
) -> None:
    def broken() -> None:
        with Transcript(tmp_path / "run.jsonl") as transcript:
            federation = federation_of(split_of(TRAIN, 4, 9), TINY, witness=transcript)
            federation.train(1)
            federation.clients[0].handle(b"")

    with pytest.raises(Exception, match="decoded"):
        broken()
    assert len(read(tmp_path / "run.jsonl")) > 50
