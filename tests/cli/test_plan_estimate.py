"""`lpgcn plan --estimate`: what it prints, for people and for programs, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lpgcn.cli import main
from lpgcn.cli.estimate_display import long_duration
from lpgcn.config import Config
from lpgcn.data import load
from lpgcn.runtime.engines.simulated import token_graph
from lpgcn.runtime.estimation import estimate, some_users
from lpgcn.runtime.planning import planner_for

ASKED = ("plan", "demo", "--planner", "cover", "--estimate", "--devices", "40", "--dim", "4")
POOL = ("--loss", "softmax", "--batch-size", "full", "--negatives", "20", "--epochs", "7")


def lpgcn(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in arguments])


def report(*arguments: object) -> Any:
    done = lpgcn(*arguments, "--json")
    assert done.exit_code == 0, done.output
    assert done.stdout.count("\n") == 1
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "loss",
    [
        {"batch_size": 300, "epochs": 6},
        {"loss": "softmax", "batch_size": "full", "negatives": 20, "answers": 9, "epochs": 7},
    ],
    ids=["bpr", "softmax"],
)
def test_programs_get_what_the_library_gives(loss: dict[str, Any]) -> None:
    flags = [
        word for name, value in loss.items() for word in (f"--{name.replace('_', '-')}", value)
    ]
    found = report(*ASKED, "--layers", "2", "--seed", "3", *flags)
    config = Config().changed(planner="cover", dim=4, layers=2, seed=3, **loss)
    split = some_users(load("demo"), 40, 3)
    wanted = estimate(split, config, planner_for(split, config)(token_graph(split, config)))
    assert found["clients"] == found["estimate"]["devices"] == 40
    assert found["estimate"]["steps"] == wanted.steps
    for part in ("initialisation", "step", "measurement", "upkeep", "training"):
        cost = getattr(wanted, part)
        assert found["estimate"][part] == {
            name: getattr(cost, name) for name in cost.__struct_fields__
        }
    assert found["estimate"]["share_of_paper_bytes"] == wanted.share_of_paper_bytes
    assert found["estimate"]["share_of_paper_rounds"] == wanted.share_of_paper_rounds
    lines = [(time["latency"], time["bandwidth"]) for time in found["estimate"]["times"]]
    assert lines == [(0.05, 1e6), (0.05, 1e7), (0.5, 1e6), (0.5, 1e7)]
    for time in found["estimate"]["times"]:
        assert time["seconds"] == wanted.wall_time(time["latency"], time["bandwidth"]).seconds


def test_people_get_tables_with_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    done = lpgcn(*ASKED, *POOL, "--latency", "200", "--bandwidth", "2.5", "--bandwidth", "20")
    assert done.exit_code == 0, done.output
    text = " ".join(done.stdout.split())
    assert "convolution-clients k" in text
    assert "40 devices" in text
    assert "7 steps in 7 epochs" in text
    assert "4 of them were drawn and counted" in text
    assert "200 ms 2.5 Mbit/s" in text and "200 ms 20 Mbit/s" in text
    assert "50 ms" not in text and "500 ms" not in text
    assert "model and 3 layers of this configuration" in text
    assert "in 554 steps of its own batch size (our assumption: 277 epochs" in text
    assert "6,094 rounds" in text
    few = lpgcn(*ASKED, *POOL, "--epochs", "3", "--paper-steps", "2000").stdout
    assert "all of them were counted" in " ".join(few.split())
    assert "2,000 steps" in " ".join(few.split())
    assert "assumption" not in few


def test_without_devices_everybody_takes_part() -> None:
    found = report("plan", "demo", "--planner", "cover", "--estimate", "--dim", "4", *POOL)
    assert found["estimate"]["devices"] == found["clients"] == 1000
    assert "estimate" not in report("plan", "demo", "--planner", "cover")
    assert report("plan", "demo", "--planner", "cover", "--devices", "30")["clients"] == 30


def test_flags_override_the_file(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('loss = "softmax"\nbatch_size = "full"\nepochs = 9\nlr = 0.05\nlayers = 1\n')
    found = report(*ASKED, "--config", path, "--negatives", "10", "--eval-every", "4")
    assert (found["estimate"]["steps"], found["estimate"]["measurements"]) == (9, 4)
    assert found["estimate"]["step"]["rounds"] == 7
    assert report(*ASKED, "--config", path, "--epochs", "2")["estimate"]["steps"] == 2
    assert (
        report(*ASKED, "--config", path, "--model", "lightgcn")["estimate"]["step"]["rounds"] == 5
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--latency", "50"), "--latency is about an estimate: add --estimate"),
        (("--bandwidth", "1"), "--bandwidth is about an estimate: add --estimate"),
        (("--paper-steps", "5"), "--paper-steps is about an estimate: add --estimate"),
        (("--epochs", "100"), "--epochs is about an estimate: add --estimate"),
        (("--sweep", "--at", "5"), "--at is about an estimate: add --estimate"),
        (("--estimate", "--sweep"), "leave out --sweep"),
        (("--estimate", "--latency", "-1"), "--latency"),
        (("--estimate", "--latency", "nan"), "expected finite numbers"),
        (("--estimate", "--bandwidth", "0"), "--bandwidth"),
        (("--estimate", "--bandwidth", "inf"), "expected finite numbers"),
        (("--estimate", "--paper-steps", "0"), "--paper-steps"),
        (("--estimate", "--devices", "0"), "--devices"),
        (("--estimate", "--devices", "1001"), "demo has 1,000 users"),
        (("--devices", "9", "--never-convolve", "x"), "leave out one of both"),
        (("--estimate", "--loss", "softmax"), "expected batch-size full"),
        (("--estimate", "--devises", "9"), "No such option"),
        (("--estimate", "--lr", "0.1"), "No such option"),
    ],
)
def test_what_cannot_be_estimated_is_refused(flags: tuple[str, ...], message: str) -> None:
    done = lpgcn("plan", "demo", "--planner", "cover", *flags, "--json")
    assert done.exit_code == 2
    assert message in json.loads(done.stdout)["error"]["message"]
    assert "Traceback" not in done.stderr


def test_help_has_an_example() -> None:
    text = lpgcn("plan", "--help").stdout
    assert "--estimate --devices 1000 --latency 200" in text
    assert "--negatives" in text and "--epochs" in text


def test_long_times_are_days() -> None:
    assert long_duration(59) == "59.0 s"
    assert long_duration(2 * 86_400 - 1) == "47 h 59 min"
    assert long_duration(12.5 * 86_400) == "12.5 days"
