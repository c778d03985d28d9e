"""`lpgcn verify`, `lpgcn plan` and a federated `lpgcn train`, on a handful of users."""

from __future__ import annotations

import json
from pathlib import Path

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
    done = lpgcn("verify", "ml-100k", "--epochs", "2", *SMALL, "--json", "--plot", str(picture))
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["difference"] == 0
    runs = {(line["model"], line["virtual_items"], line["run"]) for line in found["epochs"]}
    assert len(runs) == 2 * 2 * 4
    assert len(found["epochs"]) == 2 * len(runs)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_verify_fails_when_something_differs(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One bit of one client's parameters is turned after a step."""
    from lpgcn.runtime.federated import Federated

    step = Federated.step

    def disturbed(self: Federated, *arguments: float) -> None:
        step(self, *arguments)  # type: ignore[arg-type]
        parameters = self.parameters()
        parameters["items"][0, 0] += 1e-7
        self.set_parameters(parameters)

    monkeypatch.setattr(Federated, "step", disturbed)
    done = lpgcn("verify", "ml-100k", "--epochs", "1", *SMALL, "--combinations", "given")
    assert done.exit_code == 1, done.output
    assert "NOT lossless" in done.stdout


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
    assert traffic["planner"] == "cover"
    assert traffic["up_per_step"] > 0 and traffic["paper_up_per_step"] > 0
    parties = {json.loads(line)["party"] for line in transcript.read_text().splitlines()}
    assert "server" in parties and len(parties) == 11
    refused = lpgcn("train", "ml-100k", "--out", str(data / "no"), "--transcript", "x", *SMALL)
    assert refused.exit_code == 2
