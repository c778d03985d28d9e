"""`lpgcn compare`: runs in their own processes, failures, resumption, and figures."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from lpgcn.cli import main
from lpgcn.config import Config
from lpgcn.methods.comparison.entries import Entry, entries
from lpgcn.methods.comparison.results import (
    Figure,
    Outcome,
    _tested,
    finished,
    paired_test,
    read_outcomes,
    rows,
)
from lpgcn.methods.comparison.search import candidates, chosen
from lpgcn.methods.method import MethodError
from lpgcn.report.comparison_tables import latex, markdown, sentence
from lpgcn.runtime.runs.run_folder import Summary
from lpgcn.runtime.runs.saved_model import Recommender
from lpgcn.runtime.runs.source import Source
from lpgcn.runtime.traffic import TrafficSummary

METRICS = ("recall@20", "ndcg@20")


def compare(*words: str) -> Result:
    return CliRunner().invoke(main, ["compare", *words])


@pytest.fixture(scope="module")
def compared(tastes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of three models, one of which cannot be run."""
    folder = tmp_path_factory.mktemp("compared")
    settings = folder / "settings"
    settings.mkdir()
    (settings / "bpr.toml").write_text("lr = 0.05\n")
    (settings / "p-gcn.toml").write_text("suite = 'paper'\n")
    done = compare(
        "--train", str(tastes), "--models", "popular,bpr,fedmf,p-gcn", "--seeds", "2",
        "--epochs", "3",
        "--dim", "4", "--settings", str(settings), "--out", str(folder / "out"), "--threads", "1",
        "--jobs", "2", "--metrics", "recall@2,recall@20,coverage@2",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return folder


def test_a_failure_is_a_row_and_costs_the_others_nothing(compared: Path) -> None:
    found = json.loads((compared / "out" / "comparison.json").read_text())
    by_label = {row["label"]: row for row in found["rows"]}
    assert [by_label[name]["seeds"] for name in ("popular", "bpr", "p-gcn")] == [1, 2, 0]
    assert all("suite is paper" in why for why in by_label["p-gcn"]["failures"])
    table = (compared / "out" / "table.md").read_text()
    assert "p-gcn failed: suite is paper" in table
    assert "| popular |" in table


def test_the_figures_are_those_of_the_runs(compared: Path) -> None:
    found = json.loads((compared / "out" / "comparison.json").read_text())
    row = next(row for row in found["rows"] if row["label"] == "bpr")
    values = []
    for seed in (0, 1):
        summary = (compared / "out" / "bpr" / f"seed-{seed}" / "summary.json").read_text()
        values.append(json.loads(summary)["test"]["recall@20"])
    assert row["metrics"]["recall@20"]["mean"] == pytest.approx(np.mean(values))
    assert row["metrics"]["recall@20"]["deviation"] == pytest.approx(np.std(values, ddof=1))


def test_what_lists_are_like_is_that_of_the_saved_model(compared: Path) -> None:
    found = json.loads((compared / "out" / "comparison.json").read_text())
    row = next(row for row in found["rows"] if row["label"] == "popular")
    folder = str(compared / "out" / "popular" / "seed-0")
    evaluated = CliRunner().invoke(main, ["evaluate", folder, "-k", "2", "--json"])
    coverage = json.loads(evaluated.stdout)["lists"]["coverage@2"]
    assert row["metrics"]["coverage@2"]["mean"] == coverage
    assert 0 < coverage < 1


def test_models_are_compared_by_their_accuracy(tmp_path: Path) -> None:
    refused = compare("demo", "--metrics", "gini@20,recall@20", "--out", str(tmp_path / "out"))
    assert "the first metric is gini@20" in str(refused.exception) + refused.stderr
    assert not (tmp_path / "out").exists()


def test_models_are_compared_by_what_is_measured(tmp_path: Path) -> None:
    refused = compare("demo", "--eval-every", "0", "--out", str(tmp_path / "out"))
    assert "eval_every is 0 for" in str(refused.exception) + refused.stderr
    assert not (tmp_path / "out").exists()


def test_what_has_no_seed_is_run_once_and_that_is_said(tastes: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    done = compare("--train", str(tastes), "--models", "popular", "--seeds", "2", "--out", out)
    assert done.exit_code == 0, done.output
    assert "one run instead of 2 each, as nothing is drawn: popular" in done.stderr
    assert "1 run, 1 of them to do" in done.stderr


def test_what_is_done_is_not_done_again_and_what_failed_is(compared: Path, tastes: Path) -> None:
    out = compared / "out"
    before = (out / "bpr" / "seed-0" / "summary.json").stat().st_mtime_ns
    refused = compare("--train", str(tastes), "--models", "bpr", "--out", str(out))
    assert refused.exit_code != 0
    assert "is not empty" in str(refused.exception or refused.output) + refused.stderr
    again = compare(
        "--train", str(tastes), "--models", "bpr,p-gcn", "--epochs", "3", "--dim", "4",
        "--settings", str(compared / "settings"), "--out", str(out), "--resume", "--json",
        "--metrics", "recall@2,recall@20",
    )  # fmt: skip
    assert again.exit_code == 0, again.output
    assert (out / "bpr" / "seed-0" / "summary.json").stat().st_mtime_ns == before
    assert "1 of them to do" in again.stderr


def test_the_paired_test_is_that_of_the_users(compared: Path, tastes: Path) -> None:
    out, source = compared / "out", Source(dataset="tastes", train=str(tastes))
    split = source.open()
    wanted = {"epochs": 3, "dim": 4, "at": (2, 20)}
    settings = compared / "settings"
    planned = entries(["bpr", "fedmf"], seeds=2, layers=[], settings=settings, wanted=wanted)
    found = paired_test(read_outcomes(planned, out, split.fingerprint), out, "recall@2")
    assert found is not None
    of_models = {
        model: np.mean(
            [
                Recommender.load(out / model / f"seed-{seed}")
                .user_metrics(split, (2,))
                .values["recall@2"]
                for seed in (0, 1)
            ],
            axis=0,
        )
        for model in ("bpr", "fedmf")
    }
    difference = of_models[found.better] - of_models[found.other]
    z = difference.mean() / (difference.std(ddof=1) / math.sqrt(len(difference)))
    assert found.difference == pytest.approx(difference.mean())
    assert found.p == pytest.approx(math.erfc(abs(z) / math.sqrt(2)))


def test_what_is_computed_is_held_against_every_seed(compared: Path, tastes: Path) -> None:
    out, split = compared / "out", Source(dataset="tastes", train=str(tastes)).open()
    wanted, settings = {"epochs": 3, "dim": 4, "at": (2, 20)}, compared / "settings"
    planned = entries(["popular", "bpr"], seeds=2, layers=[], settings=settings, wanted=wanted)
    found = paired_test(read_outcomes(planned, out, split.fingerprint), out, "recall@2")
    assert found is not None
    means = {
        row.label: row.metrics["recall@2"].mean
        for row in rows(read_outcomes(planned, out, split.fingerprint))
    }
    assert found.difference == pytest.approx(means[found.better] - means[found.other], abs=1e-9)


def test_a_run_with_other_settings_is_not_taken_for_this_one(compared: Path, tastes: Path) -> None:
    out, settings = compared / "out", compared / "settings"
    split = Source(dataset="tastes", train=str(tastes)).open()
    wanted = {"epochs": 3, "dim": 4, "at": (2, 20)}
    [same] = entries(["bpr"], seeds=1, layers=[], settings=settings, wanted=wanted)
    [other] = entries(["bpr"], seeds=1, layers=[], settings=settings, wanted={**wanted, "dim": 5})
    assert finished(same, out, split.fingerprint) is not None
    assert finished(other, out, split.fingerprint) is None
    assert finished(same, out, "of other data") is None


def test_a_run_with_other_settings_is_refused_every_time_and_left_as_it_is(
    compared: Path, tastes: Path, tmp_path: Path
) -> None:
    """The second time it has failed before, with settings that are not those of the run."""
    out = tmp_path / "out"
    shutil.copytree(compared / "out" / "fedmf" / "seed-0", out / "fedmf" / "seed-0")
    (out / "fedmf" / "seed-0" / "summary.json").unlink()
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for _ in range(2):
        done = compare(
            "--train", str(tastes), "--models", "fedmf", "--epochs", "3", "--dim", "5",
            "--out", str(out), "--resume", "--threads", "1", "--metrics", "recall@2",
        )  # fmt: skip
        assert "fedmf failed" in (out / "table.md").read_text(), done.output
        assert all(path.read_bytes() == bytes_ for path, bytes_ in before.items())


@pytest.mark.parametrize(("key", "was", "wanted"), [("dim", 4, 5), ("epochs", 3, 2)])
def test_a_finished_run_in_the_way_is_an_error_and_the_table_stays(
    compared: Path, tastes: Path, tmp_path: Path, key: str, was: int, wanted: int
) -> None:
    out = tmp_path / "out"
    shutil.copytree(compared / "out" / "fedmf" / "seed-0", out / "fedmf" / "seed-0")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    done = compare(
        "--train", str(tastes), "--models", "fedmf", "--epochs", "3", "--dim", "4",
        f"--{key}", str(wanted),
        "--out", str(out), "--resume", "--threads", "1", "--metrics", "recall@2",
    )  # fmt: skip
    assert done.exit_code == 2
    assert f"has {key} {was}, not {wanted}; --resume continues it exactly" in done.stderr
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_settings_of_nobody_are_refused(tmp_path: Path) -> None:
    (tmp_path / "brp.toml").write_text("lr = 0.1\n")
    with pytest.raises(MethodError, match=r"brp.toml has the settings of no model"):
        entries(["bpr"], seeds=1, layers=[], settings=tmp_path, wanted={})


def test_settings_of_all_are_below_those_of_one(tmp_path: Path) -> None:
    (tmp_path / "default.toml").write_text("lr = 0.1\nreg = 0.5\nlayers = 4\nepochs = 7\n")
    (tmp_path / "bpr.toml").write_text("lr = 0.2\n")
    models = ["bpr", "p-gcn", "popular"]
    asked = entries(models, seeds=1, layers=[], settings=tmp_path, wanted={"epochs": 3})
    bpr, p_gcn, popular = (entry.config for entry in asked)
    assert (bpr.lr, bpr.reg, bpr.epochs) == (0.2, 0.5, 3)
    assert (p_gcn.lr, p_gcn.reg, p_gcn.layers, p_gcn.epochs) == (0.1, 0.5, 4, 3)
    none = entries(["popular"], seeds=1, layers=[], settings=None, wanted={})
    assert popular == none[0].config


def test_settings_of_all_that_no_model_has_are_refused(tmp_path: Path) -> None:
    (tmp_path / "default.toml").write_text("lairs = 4\n")
    with pytest.raises(MethodError, match=r"default.toml in .* has lairs, .* setting of no model"):
        entries(["bpr"], seeds=1, layers=[], settings=tmp_path, wanted={})


def test_what_is_computed_has_one_seed_and_nothing_is_run_twice() -> None:
    found = entries(["popular", "bpr", "bpr"], seeds=3, layers=[], settings=None, wanted={})
    assert [one.label for one in found] == ["popular", "bpr", "bpr", "bpr"]
    assert [one.config.seed for one in found] == [0, 0, 1, 2]


def outcome(label: str, recall: float, *, seed: int = 0, steps: int = 10) -> Outcome:
    summary = Summary(
        version="0", dataset="d", fingerprint="f", mode="centralized", model=label, epochs=5,
        best_epoch=3, steps=steps, seconds=1.0, loss=0.0, valid={"recall@20": recall},
        test={"recall@20": recall, "ndcg@20": recall / 2}, test_users=9,
        traffic=TrafficSummary(
            steps=steps, rounds_per_step=4, up_per_step=10.0, down_per_step=5.0, ledger=[]
        ),
    )  # fmt: skip
    entry = Entry(model=label, config=Config(seed=seed))
    return Outcome(entry=entry, epochs=[], summary=summary)


def test_rounds_and_bytes_to_the_best() -> None:
    """2 steps an epoch, 3 epochs to the best: 6 steps of 4 rounds and 15 bytes."""
    [row] = rows([outcome("one", 0.5)])
    assert (row.rounds, row.bytes, row.best_epoch) == (24, 90, 3)
    assert row.metrics["recall@20"] == Figure(mean=0.5, deviation=None)


def test_the_best_is_bold_and_a_missing_run_has_a_dash() -> None:
    unfinished = Outcome(entry=Entry(model="three", config=Config()), epochs=[])
    found = rows([outcome("one", 0.5), outcome("two_b", 0.25), unfinished])
    text = latex(found, METRICS)
    assert r"one & \textbf{0.5000} & \textbf{0.2500} \\" in text
    assert r"two\_b & 0.2500 & 0.1250 \\" in text
    assert r"three & -- & -- \\" in text
    assert "Not finished: three (1 of 1)." in markdown(found, METRICS, None)


@pytest.mark.parametrize(
    ("seeds", "expected"), [((0, 1), ("bpr", "fedmf")), ((1,), ("fedmf", "bpr"))]
)
def test_the_better_one_is_better_on_the_seeds_that_both_have(
    seeds: tuple[int, ...], expected: tuple[str, str], tmp_path: Path
) -> None:
    """With both seeds `bpr` is ahead; where the other has the second alone, that one is on it."""
    recalls = {("bpr", 0): 0.9, ("bpr", 1): 0.2, ("fedmf", 0): 0.3, ("fedmf", 1): 0.4}
    found = [
        outcome(model, recall, seed=seed)
        for (model, seed), recall in recalls.items()
        if model == "bpr" or seed in seeds
    ]
    for users in (29, 30):
        for one in found:
            assert one.summary is not None
            folder = one.entry.folder(tmp_path)
            folder.mkdir(parents=True, exist_ok=True)
            spread = 0.01 * (np.arange(users) % 3) * (1 + one.entry.config.seed)
            noisy = one.summary.test["recall@20"] + spread * (one.entry.model == "bpr")
            np.savez(folder / "test_users.npz", **{"recall@20": noisy})
        test = paired_test(found, tmp_path, "recall@20")
        assert (test is None) == (users == 29), "of so few a normal distribution says too much"
    assert test is not None
    assert (test.better, test.other) == expected
    assert test.interval[0] < test.difference < test.interval[1] and test.difference > 0


@pytest.mark.parametrize(
    ("deviation", "text"),
    [
        (
            0.03,
            "a is better than b by Recall@5 (+0.0100, 95 %: +0.0041 to +0.0159, paired over 100",
        ),
        (0.3, "a and b cannot be told apart by Recall@5 (+0.0100, 95 %: -0.0488 to +0.0688, paire"),
    ],
)
def test_no_difference_is_told_as_none_and_not_as_a_verdict(deviation: float, text: str) -> None:
    noise = np.tile([1.0, -1.0], 50) * deviation * np.sqrt(99 / 100)
    assert sentence(_tested("recall@5", "a", "b", 0.01 + noise)).startswith(text)


def test_settings_for_all_go_to_those_who_have_them() -> None:
    wanted = {"lr": 0.5, "epochs": 7}
    found = entries(
        ["popular", "bpr", "p-gcn"], seeds=1, layers=[1, 2], settings=None, wanted=wanted
    )
    assert [one.label for one in found] == ["popular", "bpr", "p-gcn L=1", "p-gcn L=2"]
    assert [one.config.epochs for one in found] == [1, 7, 7, 7]
    assert [one.config.lr for one in found] == [1e-3, 0.5, 0.5, 0.5]


def test_the_search_is_the_papers_grid_and_looks_at_validation_only() -> None:
    entry = entries(["p-gcn"], seeds=1, layers=[], settings=None, wanted={})[0]
    grid = candidates(entry)
    assert len({(one.config.reg, one.config.layers) for one in grid}) == len(grid) == 5 * 4
    assert len(candidates(Entry(model="popular", config=Config(model="popular")))) == 1
    layered = entries(["p-gcn"], seeds=1, layers=[1, 2], settings=None, wanted={})
    folders = [one.folder(Path()) for entry in layered for one in candidates(entry)]
    assert len(set(folders)) == len(folders) == 2 * 5
    good, better = outcome("a", 0.2), outcome("b", 0.4)
    assert chosen([good, better], "recall@20") == better.entry


@pytest.mark.parametrize("metric", ["recal@20", "recall", "recall@0"])
def test_what_is_no_metric_is_refused(metric: str, tmp_path: Path) -> None:
    refused = compare("demo", "--metrics", metric, "--out", str(tmp_path / "out"))
    assert refused.exit_code != 0
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_search_takes_what_is_best_on_validation(tastes: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = compare(
        "--train", str(tastes), "--models", "bpr", "--search", "--epochs", "3", "--dim", "4",
        "--lr", "0.05", "--metrics", "recall@2", "--out", str(out), "--threads", "1",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    tried = {
        json.loads(path.read_text())["config"]["reg"]: json.loads(path.read_text())["valid"]
        for path in (out / "search").glob("*/seed-0/summary.json")
    }
    assert len(tried) == 5
    best = max(valid["recall@2"] for valid in tried.values())
    taken = json.loads((out / "bpr" / "seed-0" / "summary.json").read_text())
    assert tried[taken["config"]["reg"]]["recall@2"] == best == taken["valid"]["recall@2"]
    assert (out / "settings" / "bpr.toml").exists()
