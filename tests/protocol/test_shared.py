"""Dense weights: every client's copy, what the server sees of their gradients, checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from lpgcn.config import Config
from lpgcn.model.weights import gradient_grid
from lpgcn.protocol.client.shared import SharedWeights
from lpgcn.protocol.errors import MalformedMessageError
from lpgcn.protocol.phases import PHASES, REQUESTS, Phase
from lpgcn.protocol.server.server import Line, Server
from lpgcn.protocol.wire import encoding
from lpgcn.terms import Term

Make = Callable[..., Any]
Check = Callable[..., None]
CONFIG = Config(
    model="gcn",
    dim=3,
    layers=2,
    lr=0.05,
    reg=0.05,
    batch_size=7,
    at=(2,),
    virtual_items="1",
    seed=5,
)
TRAIN = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 3), (3, 2), (3, 3), (3, 4)]
NUMBERS = 2 * 3 * 3


def messages(federation: Any, phase: Phase) -> tuple[list[Any], list[Any]]:
    """What the clients were sent in a phase, and what they answered."""
    kinds = PHASES[phase]
    asked = [encoding.decode(data, REQUESTS, limit=1 << 20) for _, data in federation.requests]
    which = [encoding.header_of(data).phase == phase for _, data in federation.requests]
    replies = [data for (_, data), one in zip(federation.replies, which, strict=True) if one]
    return (
        [message for message, one in zip(asked, which, strict=True) if one],
        [encoding.decode(data, kinds.reply, limit=1 << 20) for data in replies],
    )


def whole(content: bytes) -> Any:
    return np.frombuffer(content, dtype="<u8")


@pytest.fixture
def trained(federation_of: Make, split_of: Make) -> Any:
    federation = federation_of(split_of(TRAIN, 4, 9, [(0, 3), (1, 1)]), CONFIG)
    federation.train(1)
    return federation


def test_neither_a_part_nor_the_sum_can_be_read_by_the_server(trained: Any) -> None:
    """Gradients of so few samples are below 2^40 steps; whatever is masked is as large as 2^64."""
    parts = [whole(one.masked) for one in messages(trained, Phase.SUM_SHARED)[1]]
    sums = {one.sums for one in messages(trained, Phase.UPDATE_SHARED)[0]}
    assert len(parts) == 4 and all(len(part) == NUMBERS for part in parts)
    (total,) = (whole(one) for one in sums)
    assert np.array_equal(sum(parts), total)
    # Nor its last bits: with four clients, four veils would leave the last two of the sum alone.
    veil = trained.clients[0].party._pass.veil
    last_bits = (total & np.uint64(3)) == ((total - veil) & np.uint64(3))
    # Of 18 numbers 16 by chance in 28 million runs; below, five in 120 million, and one in 50,000.
    assert last_bits.sum() < 16
    for seen in (*parts, total):
        magnitude = np.abs(seen.view(np.int64).astype(np.float64))
        assert (magnitude < 2.0**55).sum() < 5
        assert (magnitude > 2.0**40).all()


def test_the_sum_is_the_gradient_that_a_data_centre_steps_with(
    trained: Any, centralized_of: Make
) -> None:
    reference = centralized_of(trained.split, trained.config)
    reference.step(0, 0, CONFIG.lr)
    state = reference.state()
    party = trained.clients[0].party
    veil = party._pass.veil
    (content,) = {one.sums for one in messages(trained, Phase.UPDATE_SHARED)[0]}
    sums = SharedWeights(trained.config, 0).read(content, veil)
    for name, one in sums.items():
        gradient = one * (gradient_grid(CONFIG).unit / 7)
        assert np.any(one) and state[f"{name}.mean"] == pytest.approx(0.1 * gradient, rel=1e-5)


def test_sums_of_another_length_are_refused_and_change_nothing(
    trained: Any, picture_of: Make
) -> None:
    client = trained.clients[2]
    trained.server.step(0, 1, 0.05)
    message = messages(trained, Phase.UPDATE_SHARED)[0][-1]
    header = encoding.header_of(encoding.encode(message))
    before = picture_of(client)
    for sums in (message.sums[:-8], message.sums + bytes(8), b""):
        wrong = msgspec.structs.replace(message, sums=sums)
        with pytest.raises(MalformedMessageError, match=f"sums has .* expected {NUMBERS} rows of"):
            client.party.update_shared(wrong, header)
        assert picture_of(client) == before
    client.party.update_shared(message, header)
    assert picture_of(client) != before


def test_a_checkpoint_has_the_copy_and_its_adam(trained: Any) -> None:
    saved = trained.server.checkpoint(1)
    trained.server.step(0, 1, 0.05)
    expected = trained.state()
    trained.clients = [trained.started(number) for number in range(4)]
    trained.server = Server.restored(saved, trained.config, Line(trained))
    trained.server.resume(1)
    trained.server.step(0, 1, 0.05)
    found = trained.state()
    assert all(found[name].tobytes() == value.tobytes() for name, value in expected.items())


@pytest.mark.parametrize("model", ["gcn", "ngcf"])
def test_who_joins_later_gets_the_copy_that_all_others_have(
    federation_of: Make, split_of: Make, centralized_of: Make, assert_same: Check, model: str
) -> None:
    """As a data centre that follows the same log of members."""
    split = split_of(TRAIN, 4, 9, [(0, 3), (1, 1)])
    config = CONFIG.changed(model=model)
    federation = federation_of(split, config, members=[0, 1, 2])
    federation.train(1)
    federation.server.checkpoint(1)
    federation.server = federation.server.changed(np.arange(4), federation.plan, federation.line, 1)
    federation.server.step(0, 1, config.lr)
    terms = [Term(epoch=0, step=0, members=(0, 1, 2)), Term(epoch=0, step=1, members=(0, 1, 2, 3))]
    reference = centralized_of(split, config, terms=terms)
    for step in (0, 1):
        reference.step(0, step, config.lr)
    assert_same(federation.state(), reference.state())
    (copied,) = messages(federation, Phase.TAKE_OVER)[0]
    for adam in federation.clients[0].party.tables().values():
        assert adam.parameter[0].tobytes() not in copied.content
