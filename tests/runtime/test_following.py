"""A federation whose members change, and a data centre that follows its log: the same bits."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from lpgcn.cli import main
from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.runtime.engines.federated import Federated
from lpgcn.runtime.planning import planner_for
from lpgcn.runtime.runs import training
from lpgcn.runtime.runs.run_folder import RunFolder
from lpgcn.runtime.runs.saved_model import Recommender
from lpgcn.runtime.runs.source import Source
from lpgcn.terms import Term, read_terms, write_terms

USERS, EPOCHS = 9, 3
CONFIG = Config(
    mode="federated", layers=2, dim=4, lr=0.05, warmup=3, schedule="cosine", batch_size=16,
    epochs=EPOCHS, eval_every=1, planner="cover", virtual_items="2", at=(5,),
)  # fmt: skip
Changes = Mapping[tuple[int, int], tuple[int, ...]]
"""At a step of an epoch: who is a member from then on."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """9 users with 9 of 25 items each; 7, 1 and 1 after the split."""
    path = tmp_path_factory.mktemp("data") / "few.txt"
    lines = [[user, *{(7 * user + i * i) % 25 for i in range(40)}][:10] for user in range(USERS)]
    path.write_text("".join(" ".join(map(str, line)) + "\n" for line in lines))
    return Source(dataset="few", train=str(path))


class Changing(Federated):
    """Members come and go at checkpoints, as they would over a network."""

    def __init__(self, split: Split, config: Config, folder: Path, changes: Changes) -> None:
        members = np.array(changes[0, 0])
        planner = planner_for(split, config)
        super().__init__(split, config, planner, folder=folder, members=members)
        self._changes = {at: members for at, members in changes.items() if at != (0, 0)}

    def renew(self) -> bool:
        members = self._changes.pop(self._at, None)
        if members is not None:
            self.change_members(np.array(members))
        return members is not None


def federate(source: Source, config: Config, out: Path, changes: Changes) -> tuple[Term, ...]:
    """Its log."""
    engines: list[Changing] = []

    def make(split: Split, config: Config, how: training.Execution) -> Changing:
        assert how.folder is not None
        engines.append(Changing(split, config, how.folder, changes))
        return engines[-1]

    training.train(source, config, out=out, checkpoint_every=1, engine_for=make)
    return engines[0].terms


def follow(source: Source, config: Config, out: Path, log: Path) -> None:
    """`lpgcn train --mode centralized --terms`, with the configuration of the federation."""
    written = out.with_suffix(".toml")
    values = msgspec.to_builtins(config) | {"mode": "centralized"}
    lines = (f"{name} = {json.dumps(value)}" for name, value in values.items() if value is not None)
    written.write_text("\n".join(lines))
    asked = ["train", source.dataset, "--train", source.train, "--config", written]
    asked += ["--terms", log, "--threads", 1, "--out", out]
    done = CliRunner().invoke(main, [str(word) for word in asked])
    assert done.exit_code == 0, done.output


def assert_same(found: Path, expected: Path) -> None:
    """Loss, metrics and final vectors, bit for bit."""
    for one, other in zip(*(RunFolder(out).metrics() for out in (found, expected)), strict=True):
        assert (one.epoch, one.loss, one.valid) == (other.epoch, other.loss, other.valid)
    ours, theirs = (RunFolder(out).summary() for out in (found, expected))
    assert ours and theirs
    for name in ("epochs", "best_epoch", "steps", "loss", "valid", "test", "test_users"):
        assert getattr(ours, name) == getattr(theirs, name), name
    vectors = [Recommender.load(out).vectors for out in (found, expected)]
    for kind in ("users", "items"):
        one, other = (getattr(found, kind) for found in vectors)
        assert one.tobytes() == other.tobytes(), kind


HAND_WRITTEN = """\
{"epoch":0,"step":0,"members":[0,1,2,3,4,5,6]}
{"epoch":0,"step":2,"members":[0,1,2,4,5,6,7]}
{"epoch":0,"step":3,"members":[0,1,2,4]}
{"epoch":1,"step":0,"members":[0,1,2,3,4,5,8]}
{"epoch":2,"step":1,"members":[0,1,2,3,4,5,6,7,8]}
{"epoch":3,"step":0,"members":[0,1,2,3,4,5,6,8]}
"""
"""The third one has not as many steps, so that its epoch is over; in the fourth 3 and 5 come back;
the last begins after the last epoch, so that it is that of the test."""


@pytest.mark.parametrize("virtual_items", ["2", "1.0x"])
@pytest.mark.parametrize("model", ["lightgcn", "lightgcn+"])
def test_a_log_written_by_hand(
    source: Source, tmp_path: Path, model: str, virtual_items: str
) -> None:
    config = CONFIG.changed(model=model, virtual_items=virtual_items)
    log = tmp_path / "terms.jsonl"
    log.write_text(HAND_WRITTEN)
    terms = read_terms(log)
    changes = {(term.epoch, term.step): term.members for term in terms}
    assert [*federate(source, config, tmp_path / "federated", changes)] == terms
    follow(source, config, tmp_path / "centralized", log)
    assert_same(tmp_path / "centralized", tmp_path / "federated")
    summary = RunFolder(tmp_path / "centralized").summary()
    assert summary
    assert summary.test_users == 8
    # 4 steps an epoch with seven or more members, but for the one that was over after three.
    assert summary.steps == 3 + 4 + 4
    users = Recommender.load(tmp_path / "centralized").vectors.users
    assert [user for user in range(USERS) if not users[user].any()] == [7]
    training.train(source, config.changed(mode="centralized"), out=tmp_path / "everybody")
    with pytest.raises(AssertionError):
        assert_same(tmp_path / "everybody", tmp_path / "federated")


@st.composite
def changes(draw: st.DrawFn) -> Changes:
    """Up to two join and up to two leave at a checkpoint; three remain."""
    present = draw(st.sets(st.integers(0, USERS - 1), min_size=4))
    found = {(0, 0): tuple(sorted(present))}
    places = st.tuples(st.integers(0, EPOCHS - 1), st.integers(0, 3)).filter(any)
    for at in sorted(draw(st.sets(places, min_size=1, max_size=4))):
        present = present ^ draw(st.sets(st.integers(0, USERS - 1), min_size=1, max_size=2))
        present |= set(range(3))
        found[at] = tuple(sorted(present))
    return found


@settings(max_examples=8)
@given(model=st.sampled_from(["lightgcn", "lightgcn+"]), changed=changes())
def test_any_log_of_a_federation(source: Source, model: str, changed: Changes) -> None:
    config = CONFIG.changed(model=model)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        terms = federate(source, config, out / "federated", changed)
        write_terms(out / "terms.jsonl", terms)
        follow(source, config, out / "centralized", out / "terms.jsonl")
        assert_same(out / "centralized", out / "federated")
