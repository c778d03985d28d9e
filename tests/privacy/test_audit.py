"""The audit as a whole: its table, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from lpgcn.cli import main
from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.plan import TokenGraph
from lpgcn.privacy.audit import adversaries, audit
from lpgcn.privacy.costs import Made
from lpgcn.privacy.deployment import Seeds, deploy
from lpgcn.privacy.server_audit import BITS
from lpgcn.privacy.trained import HOLDER, RANKER

SMALL = Config(
    model="lightgcn", dim=8, layers=2, batch_size=48, virtual_items="1.0x", planner="greedy"
)


@pytest.mark.parametrize(
    ("suite", "model"), [("sealed", "lightgcn"), ("paper", "lightgcn"), ("paper", "ngcf")]
)
def test_every_adversary_has_lines_and_numbers_are_within_their_bounds(
    split_with_tastes: Split, suite: str, model: str
) -> None:
    config = SMALL.changed(suite=suite, model=model)
    people = {"parity": {str(user): str(user % 2) for user in range(split_with_tastes.n_users)}}
    found = audit(split_with_tastes, config, steps=1, epochs=2, people=people)
    names = {line.adversary for line in found.lines}
    assert {"server", "owner, heaviest", "server + 1 client", HOLDER, RANKER} <= names
    assert any(line.about == "parity" for line in found.lines)
    for line in found.lines:
        for value in (line.auc, line.f1, line.named, line.caught):
            assert value is None or 0 <= value.low <= value.value <= value.high <= 1
    solved = [line for line in found.lines if line.attack == "linear system for the bits"]
    assert len(solved) == (suite == "paper" and model == "lightgcn")
    owners = {line.attack for line in found.lines if line.adversary == "owner, heaviest"}
    assert "membership by score" in owners
    assert ("linear systems" in owners) == (model == "ngcf") != ("first push" in owners)
    areas = [line.auc.value for line in found.lines
             if (line.adversary, line.about) == ("server", BITS) and line.auc]  # fmt: skip
    assert found.strongest()["server"] == max(areas)
    assert found.listed_per_item == 2
    assert found.bytes_per_step is not None
    assert found.recall is not None


def test_without_virtual_items_there_is_nothing_to_tell_apart(split_with_tastes: Split) -> None:
    found = audit(split_with_tastes, SMALL.changed(virtual_items="0"), steps=0)
    assert [line.note for line in found.lines if line.about == BITS] == [
        "no virtual items: every listed token is real"
    ]
    assert found.bytes_per_step is None


def test_parties_of_a_deployment_share_no_seed() -> None:
    seeds = Seeds.drawn(0, 50)
    assert len({seeds.server, seeds.clients, *seeds.private.tolist()}) == 52


def test_adversaries_are_owners_clients_and_coalitions(deployment_of: object) -> None:
    deployment = deployment_of()  # type: ignore[operator]
    topology = deployment.record.topology
    found = {one.name: one for one in adversaries(deployment)}
    loads = topology.by_owner.lengths
    (heaviest,), (lightest,) = found["owner, heaviest"].clients, found["owner, lightest"].clients
    assert loads[heaviest] == loads.max()
    assert loads[lightest] == loads[np.flatnonzero(topology.is_owner)].min()
    assert not topology.is_owner[found["ordinary client"].clients[0]]
    assert len(found["server + 10% of clients"].clients) == 5
    assert all(len(set(one.clients)) == len(one.clients) for one in found.values())


def test_the_command_prints_one_object_and_draws(tmp_path: Path) -> None:
    pairs = [(user, (user * user + 3 * item) % 40) for user in range(24) for item in range(12)]
    path = tmp_path / "mine.csv"
    path.write_text("user_id,item_id\n" + "".join(f"{u},{i}\n" for u, i in sorted(set(pairs))))
    asked = ["audit", "--train", str(path), "--epochs", "1", "--dim", "4", "--layers", "2"]
    asked += ["--batch-size", "24", "--planners", "greedy", "--plot", str(tmp_path / "audit.png")]
    asked += ["--virtual-items", "0", "--virtual-items", "5"]
    done = CliRunner().invoke(main, [*asked, "--steps", "1", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [one["virtual_items"] for one in found["audited"]] == ["0", "5"]
    assert (tmp_path / "audit.png").stat().st_size > 1000
    again = CliRunner().invoke(main, [*asked, "--steps", "1", "--json"])
    assert again.exit_code == 2
    shown = CliRunner().invoke(main, [*asked, "--steps", "0", "--overwrite"])
    assert shown.exit_code == 0, shown.output
    assert "attack" in shown.stdout
    assert "AUC of the strongest attack" in shown.stdout


def test_of_a_run_its_own_settings_are_audited_and_flags_come_first(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    rows = [f"{user},{(user * user + 3 * item) % 40}" for user in range(24) for item in range(12)]
    path.write_text("user_id,item_id\n" + "\n".join(dict.fromkeys(rows)) + "\n")
    run = ["train", "--train", str(path), "--model", "lightgcn+", "--virtual-items", "4"]
    run += ["--virtual-draw", "uniform", "--suite", "paper", "--planner", "cover", "--dim", "4"]
    done = CliRunner().invoke(main, [*run, "--epochs", "1", "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    asked = ["audit", str(tmp_path / "run"), "--steps", "0", "--epochs", "1", "--json"]

    def found(*more: str) -> list[tuple[str, ...]]:
        done = CliRunner().invoke(main, [*asked, *more])
        assert done.exit_code == 0, done.output
        names = ("suite", "model", "virtual_items", "virtual_draw", "planner")
        return [tuple(one[name] for name in names) for one in json.loads(done.stdout)["audited"]]

    assert found() == [("paper", "lightgcn+", "4", "uniform", "cover")]
    page = tmp_path / "page.html"
    both = found("--planners", "greedy", "--planners", "cover", "--report", str(page))
    assert both == [("paper", "lightgcn+", "4", "uniform", one) for one in ("greedy", "cover")]
    assert "Audit: paper" in page.read_text()


def test_adversaries_suites_draws_and_attributes_are_those_asked_for(tmp_path: Path) -> None:
    path, people = tmp_path / "mine.csv", tmp_path / "u.user"
    rows = [f"{user},{(user * user + 3 * item) % 40}" for user in range(24) for item in range(12)]
    path.write_text("user_id,item_id\n" + "\n".join(dict.fromkeys(rows)) + "\n")
    genders, trades = ("M", "F"), ("artist", "writer")
    about = [f"{n}|{20 + n}|{genders[n % 2]}|{trades[n // 2 % 2]}|0\n" for n in range(24)]
    people.write_text("".join(about))
    asked = ["audit", "--train", str(path), "--steps", "0", "--epochs", "1", "--dim", "4"]
    asked += ["--virtual-items", "3", "--planners", "greedy", "--attributes", str(people)]

    def found(*more: str) -> list[dict[str, Any]]:
        done = CliRunner().invoke(main, [*asked, *more, "--json"])
        assert done.exit_code == 0, done.output
        audited: list[dict[str, Any]] = json.loads(done.stdout)["audited"]
        return audited

    both = ["--suites", "sealed", "--suites", "paper", "--draw", "uniform", "--draw", "popularity"]
    of_models = found(*both, "--adversaries", "model")
    assert [(one["suite"], one["virtual_draw"]) for one in of_models] == [
        (suite, draw) for suite in ("sealed", "paper") for draw in ("uniform", "popularity")
    ]
    for one in of_models:
        assert {line["adversary"] for line in one["lines"]} == {HOLDER, RANKER}
        assert {line["about"] for line in one["lines"]} > {"gender", "age group", "occupation"}
    (of_server,) = found("--draw", "uniform", "--adversaries", "server")
    assert (of_server["suite"], of_server["virtual_draw"]) == ("sealed", "uniform")
    assert {line["adversary"] for line in of_server["lines"]} == {"server"}
    people.write_text("0 24 M\n")
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 2 and "cannot read attributes" in done.stderr


def test_settings_share_plans_and_models_and_have_their_own_bytes(split_with_tastes: Split) -> None:
    made = Made(split_with_tastes)
    sealed, paper = SMALL, SMALL.changed(suite="paper", planner="cover")
    assert made.model(sealed, 1) is made.model(paper, 1)
    assert made.model(sealed, 1) is not made.model(sealed, 2)
    graph = TokenGraph(split_with_tastes.train.by_user, split_with_tastes.n_items)
    assert made.planner(sealed)(graph) is made.planner(SMALL.changed(suite="paper"))(graph)
    assert made.planner(sealed)(graph) is not made.planner(paper)(graph)
    assert made.bytes_per_step(sealed) != made.bytes_per_step(sealed.changed(virtual_items="0"))


def test_bytes_without_a_federation_are_those_of_one(split_with_tastes: Split) -> None:
    """Lists and batches are drawn from other seeds there, so they are alike and not the same."""
    config = SMALL.changed(virtual_items="5")
    found = Made(split_with_tastes).bytes_per_step(config)
    assert np.isclose(found, deploy(split_with_tastes, config, 2).bytes_per_step, rtol=0.1)
