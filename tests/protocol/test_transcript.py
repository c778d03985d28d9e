"""A transcript holds everything each party received, and what it could read of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lpgcn.config import Config
from lpgcn.protocol.transcript import Transcript, read

Make = Callable[..., Any]
TINY = Config(dim=3, layers=2, batch_size=7, virtual_items="2", seed=5)
TRAIN = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 3), (3, 2), (3, 3), (3, 4)]
both_models = pytest.mark.parametrize("model", ["lightgcn", "lightgcn+"])
both_suites = pytest.mark.parametrize("suite", ["sealed", "paper"])


@both_models
@both_suites
def test_everything_that_was_received_is_there(
    federation_of: Make, split_of: Make, tmp_path: Path, model: str, suite: str
) -> None:
    path, config = tmp_path / "seen" / "run.jsonl", TINY.changed(model=model, suite=suite)
    with Transcript(path) as transcript:
        federation = federation_of(split_of(TRAIN, 4, 9, [(0, 3)]), config, witness=transcript)
        federation.train(2)
        federation.server.measure("valid")
        assert not path.exists(), "it has its name when it is complete"
    assert [file.name for file in path.parent.iterdir()] == ["run.jsonl"]
    seen = read(path)
    sizes = Counter((one.party, one.size) for one in seen if one.party != "server")
    assert sizes == Counter((f"client {user}", len(data)) for user, data in federation.requests)
    at_server = Counter((one.sender, one.size) for one in seen if one.party == "server")
    assert at_server == Counter((f"client {user}", len(data)) for user, data in federation.replies)
    assert not any(one.opened for one in seen if one.party == "server")


def test_a_client_reads_what_others_pushed(federation_of: Make, split_of: Make) -> None:
    """Final item vectors, as a client opened them, are those that their owners have."""
    seen: list[Any] = []
    federation = federation_of(split_of(TRAIN, 4, 9, [(0, 3)]), TINY, witness=seen.append)
    federation.train(1)
    federation.server.predict([2])
    (opened,) = seen[-1 if seen[-1].party == "client 2" else -2].opened
    assert (opened.what, opened.senders) == ("items", list(range(9)))
    found = np.stack([np.frombuffer(row, dtype=np.float32) for row in opened.rows])
    for client in federation.clients:
        if (owner := client.passes.owner) is not None:
            assert torch.equal(torch.from_numpy(found[owner.places]), owner.nodes.final())


def test_bits_of_verification_say_which_listed_items_are_real(
    federation_of: Make, split_of: Make
) -> None:
    seen: list[Any] = []
    federation = federation_of(split_of(TRAIN, 4, 9), TINY, witness=seen.append)
    federation.server.initialise()
    server, split = federation.server, federation.split
    for one in (one for one in seen if one.phase == "ANSWERS" and one.opened):
        owner = int(one.party.split()[1])
        near = federation.clients[owner].passes.owner.neighbourhood
        items = federation.clients[owner].passes.owner.items
        for handle, row in enumerate(one.opened[0].rows):
            listed = items[near.of(handle)]
            bits = np.unpackbits(np.frombuffer(row, np.uint8), count=len(listed))
            user = server.routes.neighbours[owner][handle]
            assert np.array_equal(bits, np.isin(listed, split.train.items_of(user)))


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
