"""`lpgcn verify`, `lpgcn plan` and a federated `lpgcn train`, on a handful of users."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from lpgcn.cli import main
from lpgcn.random import Purpose, integers

SMALL = ["--dim", "4", "--layers", "2", "--batch-size", "32", "--planner", "cover"]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ratings of 10 users, in the folder and the format of ml-100k."""
    folder = tmp_path / "ml-100k"
    folder.mkdir()
    items = integers(7, Purpose.DEMO_DATA, range(120), 30).tolist()
    lines = {f"{n % 10 + 1}\t{item + 1}\t{4 + n % 2}\t0" for n, item in enumerate(items)}
    by_pair = {tuple(line.split("\t")[:2]): line for line in sorted(lines)}
    (folder / "u.data").write_text("\n".join(by_pair.values()) + "\n")
    monkeypatch.setenv("LPGCN_DATA", str(tmp_path))
    return tmp_path


def lpgcn(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_verify_shows_that_every_combination_is_lossless(data: Path) -> None:
    picture = data / "curves.png"
    done = lpgcn("verify", "ml-100k", "--all", *SMALL, "--json", "--plot", str(picture))
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["difference"] == 0
    runs = {(line["model"], line["virtual_items"], line["run"]) for line in found["epochs"]}
    assert {run for _, _, run in runs} == {
        "centralized",
        "simulated",
        "federated sealed, plan cover",
        "federated paper, plan cover",
    }
    assert len(runs) == 2 * 2 * 4
    assert len(found["epochs"]) == 2 * len(runs)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_verify_and_train_take_features(data: Path) -> None:
    """Of 30 films, of which the data may not have all, and of 10 people."""
    paths = []
    for name, count in (("user", 10), ("item", 30)):
        path, ids = data / f"{name}.npz", np.arange(1, count + 1)
        np.savez(path, ids=ids, features=np.column_stack((ids % 2 == 0, ids / count)))
        paths += [f"--{name}-features", str(path)]
    asked = [*SMALL, "--model", "gcn", "--epochs", "1", *paths]
    done = lpgcn("verify", "ml-100k", *asked, "--json", "--plot", str(data / "curves.png"))
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["difference"] == 0 and found["config"]["item_feature_dim"] == 2
    assert lpgcn("train", "ml-100k", *asked, "--out", str(data / "run")).exit_code == 0
    assert "user_feature_dim = 2" in (data / "run" / "config.toml").read_text()
    short = lpgcn("train", "ml-100k", *SMALL, *paths[:2], "--user-feature-dim", "3")
    assert short.exit_code == 2 and "give --user-features FILE with 3 features" in short.stderr


def test_verify_runs_other_plans_where_none_is_named(data: Path) -> None:
    asked = ("--model", "lightgcn+", "--suite", "sealed", "--virtual-items", "2", "--dim", "4")
    picture = data / "curves.png"
    done = lpgcn(
        "verify", "ml-100k", "--all", "--epochs", "1", *asked, "--json", "--plot", str(picture)
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["lossless"] is True
    runs = {line["run"] for line in found["epochs"]}
    assert runs >= {"federated sealed, plan cover", "federated sealed, plan greedy"}
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_verify_fails_when_something_differs(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One bit of one client's parameters is turned at every update."""
    from lpgcn.protocol.client.party import Party

    update = Party.update

    def disturbed(self: Party, *arguments: Any) -> Any:
        answer = update(self, *arguments)
        if self.owns:
            parameter = self.tables()["items"].parameter
            parameter[0, 0] = np.nextafter(parameter[0, 0], np.float32(1))
        return answer

    monkeypatch.setattr(Party, "update", disturbed)
    done = lpgcn("verify", "ml-100k", "--epochs", "1", *SMALL, "--plot", str(data / "x.png"),
        "--model", "lightgcn", "--suite", "paper", "--virtual-items", "0",
    )  # fmt: skip
    assert done.exit_code == 1, done.output
    assert "NOT lossless" in done.stdout
    assert "lightgcn, α = 0: federated paper, plan cover" in done.stdout
    assert "federated sealed" not in done.stdout
    assert "lightgcn+" not in done.stdout


@pytest.mark.parametrize("planner", ["cover", "greedy"])
def test_plan_prints_the_figures(data: Path, planner: str) -> None:
    asked = ("plan", "ml-100k", "--planner", planner, "--virtual-items", "3")
    figures = json.loads(lpgcn(*asked, "--json").stdout)
    assert figures["planner"] in ("cover", "greedy")
    assert figures["bytes_per_client"] == 64 * 3 * 4 * figures["neighbours"] / figures["clients"]
    assert f"{figures['convolution_clients']:,}" in lpgcn(*asked).stdout


def test_plan_never_convolves_who_must_not(data: Path) -> None:
    excused = data / "metered.txt"
    excused.write_text("1\n2\n")
    done = lpgcn(
        "plan", "ml-100k", "--planner", "cover", "--never-convolve", str(excused), "--json"
    )
    assert done.exit_code == 0, done.output
    everybody = "".join(f" {user} \n" for user in range(1, 10))
    excused.write_text(everybody)
    asked = ("--never-convolve", str(excused), "--max-load", "none", "--json")
    for planner in ("cover", "greedy", "partition"):
        done = lpgcn("plan", "ml-100k", "--planner", planner, *asked)
        assert json.loads(done.stdout)["convolution_clients"] == 1, "the tenth owns everything"
    excused.write_bytes(b"\xff\xfe1")
    assert "UTF-8" in lpgcn("plan", "ml-100k", "--never-convolve", str(excused)).stderr
    missing = lpgcn("plan", "ml-100k", "--never-convolve", str(data / "nowhere"))
    assert missing.exit_code == 2
    assert "nowhere" in missing.stderr


def test_sweep_draws_both_figures(data: Path) -> None:
    picture = data / "sweep.png"
    done = lpgcn("plan", "ml-100k", "--sweep", "--plot", str(picture), "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    shares = [point["convolution_clients"] for point in found["candidates"]]
    assert shares == sorted(shares)
    assert set(found["loads"]) >= {"cover", "greedy"}
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_federated_run_reports_its_traffic_and_a_transcript(data: Path) -> None:
    transcript = data / "seen.jsonl"
    federated = (
        "--mode",
        "federated",
        "--epochs",
        "1",
        "--eval-every",
        "1",
        "--virtual-items",
        "2",
    )
    done = lpgcn(
        "train", "ml-100k", *SMALL, *federated, "--out", str(data / "run"),
        "--transcript", str(transcript), "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    traffic = json.loads(done.stdout)["traffic"]
    assert traffic["plan"]["planner"] == "cover"
    assert traffic["up_per_step"] > 0 and traffic["plan"]["paper_up_per_step"] > 0
    parties = {json.loads(line)["party"] for line in transcript.read_text().splitlines()}
    assert "server" in parties and len(parties) == 11
    refused = lpgcn("train", "ml-100k", "--out", str(data / "no"), "--transcript", "x", *SMALL)
    assert refused.exit_code == 2


def test_a_run_that_cannot_begin_leaves_the_folder_as_it_was(data: Path) -> None:
    out = data / "kept"
    simulated = ("train", "ml-100k", *SMALL, "--mode", "simulated", "--epochs", "1")
    assert lpgcn(*simulated, "--out", str(out)).exit_code == 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    impossible = lpgcn(*simulated, "--out", str(out), "--overwrite", "--max-load", "1")
    assert impossible.exit_code == 2
    assert "is item" in impossible.stderr
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    elsewhere = data / "new"
    assert lpgcn(*simulated, "--out", str(elsewhere), "--max-load", "1").exit_code == 2
    assert lpgcn(*simulated, "--out", str(elsewhere)).exit_code == 0


@pytest.mark.parametrize("mode", ["simulated", "federated"])
def test_only_a_data_centre_follows_a_log(data: Path, mode: str) -> None:
    log = data / "terms.jsonl"
    log.write_text('{"epoch": 0, "step": 0, "members": [0, 1, 2]}\n')
    asked = ("train", "ml-100k", *SMALL, "--epochs", "1", "--out", str(data / "run"))
    refused = lpgcn(*asked, "--mode", mode, "--terms", str(log))
    assert refused.exit_code == 2
    assert f"followed by --mode centralized, not {mode}" in refused.stderr
    assert not (data / "run").exists()
    followed = lpgcn(*asked, "--mode", "centralized", "--terms", str(log), "--json")
    assert followed.exit_code == 0, followed.output
    assert json.loads(followed.stdout)["test_users"] <= 3
    log.write_text('{"epoch": 0, "step": 0, "members": [0, 99]}\n')
    refused = lpgcn(*asked, "--terms", str(log), "--overwrite")
    assert refused.exit_code == 2
    assert "member 99, but the data has users 0 to 9 only" in refused.stderr


def test_plan_takes_the_files_and_the_configuration_of_a_run(data: Path) -> None:
    config, mine = data / "mine.toml", data / "mine.csv"
    config.write_text('planner = "cover"\ndtype = "float64"\nlr = 0.1\n')
    pairs = [f"{user},{item}" for user in range(9) for item in range(12) if (user + item) % 4]
    mine.write_text("user_id,item_id\n" + "\n".join(pairs) + "\n")
    done = lpgcn("plan", "--train", str(mine), "--config", str(config), "--json")
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert figures["planner"] == "cover"
    assert figures["bytes_per_client"] == 64 * 3 * 8 * figures["neighbours"] / 9
    assert lpgcn("plan", "--train", str(mine), "--lr", "0.1").exit_code == 2


def test_pictures_that_cannot_be_drawn_are_refused_before_the_work(data: Path) -> None:
    for command in (("plan", "ml-100k", "--planner", "cover"), ("verify", "ml-100k", *SMALL)):
        done = lpgcn(*command, "--plot", str(data / "picture"))
        assert done.exit_code == 2
        assert "not the name of a picture" in done.stderr
