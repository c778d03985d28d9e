"""What a report says about runs is what is in their folders."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner, Result

from lpgcn.cli import main
from lpgcn.evaluation import Vectors
from lpgcn.protocol.suite import SUITES
from lpgcn.report.federation import _SAYS
from lpgcn.report.page import Section, joined
from lpgcn.report.runs import RunRecord, read_runs, verdicts
from lpgcn.report.sections import run_report
from lpgcn.runtime.runs.run_folder import RunFolderError
from lpgcn.runtime.runs.source import Source
from lpgcn.runtime.runs.training import train


@pytest.fixture
def both(runs: dict[str, Path]) -> list[RunRecord]:
    return [RunRecord.read(runs[mode]) for mode in ("federated", "centralized")]


def command(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_the_centralised_run_of_the_same_training_is_found(both: list[RunRecord]) -> None:
    (verdict,) = verdicts(both)
    assert (verdict.run, verdict.centralized) == tuple(both)
    assert verdict.lossless and verdict.with_vectors and verdict.epochs == 4
    assert verdicts(both[:1]) == verdicts(both[1:]) == []
    page = run_report(both).decode()
    assert "Lossless, bit for bit: difference 0" in page


def test_a_run_without_anything_held_out_has_a_report(
    source: Source, both: list[RunRecord], tmp_path: Path
) -> None:
    everything = msgspec.structs.replace(source, ratio=(1.0, 0.0, 0.0))
    records = []
    for one in both:
        train(everything, one.run.config.changed(eval_every=0), out=tmp_path / one.name)
        records.append(RunRecord.read(tmp_path / one.name))
    (verdict,) = verdicts(records)
    assert verdict.lossless and verdict.with_vectors and verdict.epochs == 4
    page = run_report(records).decode()
    assert "Lossless, bit for bit: difference 0" in page
    assert "test Recall@20" not in page and "-1.0" not in page


@pytest.mark.parametrize("key", ["seed", "dim", "virtual_items", "epochs", "lr"])
def test_another_training_is_not_compared(both: list[RunRecord], key: str) -> None:
    config = both[1].run.config
    other = "5" if key == "virtual_items" else getattr(config, key) + 1
    run = msgspec.structs.replace(both[1].run, config=config.changed(**{key: other}))
    assert verdicts([both[0], replace(both[1], run=run)]) == []
    run = msgspec.structs.replace(both[1].run, fingerprint="other")
    assert verdicts([both[0], replace(both[1], run=run)]) == []


def test_one_bit_is_a_difference(both: list[RunRecord]) -> None:
    model = both[0].model
    assert model is not None
    users = model.vectors.users.copy()
    users[3, 1] = np.nextafter(users[3, 1], np.float32(9))
    changed = replace(model, scorer=Vectors(users, model.vectors.items))
    (verdict,) = verdicts([replace(both[0], model=changed), both[1]])
    assert not verdict.lossless
    assert verdict.difference == abs(float(users[3, 1] - model.vectors.users[3, 1]))
    page = run_report([replace(both[0], model=changed), both[1]]).decode()
    assert "NOT lossless" in page and "bit for bit" not in page


def test_a_loss_that_differs_or_is_missing_is_a_difference(both: list[RunRecord]) -> None:
    for loss in (0.5, None):
        lines = [*both[0].metrics[:-1], msgspec.structs.replace(both[0].metrics[-1], loss=loss)]
        assert not verdicts([replace(both[0], metrics=lines), both[1]])[0].lossless


def test_a_report_has_the_figures_of_the_run(both: list[RunRecord]) -> None:
    one, page = both[0], run_report(both[:1], user="u3").decode()
    assert one.summary is not None and one.summary.traffic is not None and one.model is not None
    sent, plan = one.summary.traffic, one.summary.traffic.plan
    assert plan is not None
    for figure in (
        f"{one.summary.test['recall@20']:.4f}",
        one.run.fingerprint[:12],
        f"{plan.planner}, {plan.convolution_clients:,} convolution-clients",
        *(f'<td class="figure">{line.bytes:,}</td>' for line in sent.ledger),
        *(f"{found.score:.4f}" for found in one.model.recommend("u3", 10)),
    ):
        assert figure in page
    assert plan.loads is not None
    assert sum(plan.loads.clients) == plan.convolution_clients
    assert plan.loads.edges[-1] == plan.max_load + 1


def test_a_report_leaves_out_what_a_run_does_not_have(both: list[RunRecord]) -> None:
    began = replace(both[1], summary=None, model=None, metrics=())
    page = run_report([began]).decode()
    titles = [part.partition("</h2>")[0].rpartition(">")[2] for part in page.split("<h2")[1:]]
    assert titles == ["What was trained"]
    assert "not finished" in page


def test_others_add_sections(both: list[RunRecord]) -> None:
    page = run_report(both, more=[Section("Audit", joined("what an attacker gets"))]).decode()
    assert "what an attacker gets" in page and page.count(">Audit</a>") == 1


def test_every_row_of_the_suites_has_words() -> None:
    for suite in SUITES.values():
        assert suite.keys.keys() <= _SAYS.keys()


def test_what_the_server_reads_is_what_the_suite_leaves_clear(both: list[RunRecord]) -> None:
    for name, suite in SUITES.items():
        run = msgspec.structs.replace(both[0].run, config=both[0].run.config.changed(suite=name))
        page = run_report([replace(both[0], run=run)]).decode()
        clear = sum(not suite.protects(kind) for kind in suite.keys)
        assert page.count("<td>reads it</td>") == clear


def test_the_command_writes_into_the_folder_of_the_run(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs["federated"], folder)
    done = command("report", folder, runs["centralized"], "--json")
    assert done.exit_code == 0, done.output
    page = Path(json.loads(done.stdout)["report"])
    assert page == folder / "report.html"
    assert "difference 0" in page.read_text()
    again = command("report", folder, "--user", "u5")
    assert again.exit_code == 0 and "u5" in page.read_text()


def test_the_command_says_what_is_wrong(runs: dict[str, Path], tmp_path: Path) -> None:
    assert "has no run" in command("report", tmp_path).stderr
    place = tmp_path / "page.html"
    assert (
        "nobody" in command("report", runs["federated"], "--user", "nobody", "--out", place).stderr
    )
    assert not place.exists()
    place.write_text("mine")
    assert "already there" in command("report", runs["federated"], "--out", place).stderr
    with pytest.raises(RunFolderError):
        RunRecord.read(tmp_path)


def test_training_writes_a_report(tmp_path: Path) -> None:
    asked = ["train", "demo", "--out", tmp_path / "run", "--layers", "1", "--dim", "4"]
    asked += ["--batch-size", "50000", "--epochs", "1", "--report"]
    refused = command(*asked, tmp_path / "report.pdf")
    assert refused.exit_code == 2 and not (tmp_path / "run").exists()
    done = command(*asked, tmp_path / "report.html")
    assert done.exit_code == 0, done.output
    assert "1,000" in (tmp_path / "report.html").read_text()


def test_verify_and_a_sweep_write_reports(
    source: object, pages: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = ["mine", "--train", source.train, "--dim", "4", "--layers", "2"]  # type: ignore[attr-defined]
    done = command("verify", *data, "--batch-size", "64", "--report", "v.html", "--plot", "v.png")
    assert done.exit_code == 0, done.output
    page = Path("v.html").read_text()
    assert "Lossless, bit for bit" in page and page.count('aria-label="Recall@5. ') == 1
    done = command("plan", *data, "--sweep", "--planner", "cover", "--report", "s.html")
    assert done.exit_code == 0, done.output
    assert "Traffic against load" in Path("s.html").read_text()
    refused = command("plan", *data, "--report", "p.html")
    assert refused.exit_code == 2 and "--sweep" in refused.stderr


def test_runs_of_one_name_are_told_apart(runs: dict[str, Path], tmp_path: Path) -> None:
    folders = [tmp_path / model / "seed-0" for model in ("a", "b")]
    for folder in folders:
        shutil.copytree(runs["centralized"], folder)
    assert [one.name for one in read_runs(folders)] == ["a", "b"]
    assert [one.name for one in read_runs([*runs.values()])] == list(runs)


def test_figures_of_different_data_are_not_ranked(both: list[RunRecord]) -> None:
    other = replace(both[1], run=msgspec.structs.replace(both[1].run, fingerprint="0" * 64))
    alike, unlike = (run_report(runs).decode() for runs in (both, [both[0], other]))
    assert "<dt>test Recall@20</dt>" in alike
    assert "<dt>test Recall@20</dt>" not in unlike and "<dt>highest" not in unlike


def test_many_runs_are_lines_and_not_columns(both: list[RunRecord]) -> None:
    many = [replace(both[0], name=f"run-{number}") for number in range(7)]
    page = run_report(many).decode()
    assert page.count("<h2") == 7 and page.count(">Traffic</a>") == 1
    assert all(f"run-{number}" in page for number in range(7))


def test_a_comparison_writes_a_report(tmp_path: Path) -> None:
    asked = ["compare", "demo", "--models", "popular,item-knn", "--out", tmp_path / "all"]
    done = command(*asked, "--report", tmp_path / "all.html")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "all.html").read_text()
    assert ">popular</th>" in page and ">item-knn</th>" in page
    # Both are computed in one go: they have no loss to draw, and no traffic to list.
    assert "Training loss" not in page and "Validation Recall@20" in page
    assert "KB up a step" not in page
    picture = (tmp_path / "all" / "convergence.png").read_bytes()
    assert int.from_bytes(picture[16:20], "big") == 600, "one panel of three: there is no traffic"
