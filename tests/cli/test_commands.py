"""What the commands print, where, and how they end."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np
import pyarrow.parquet
import pytest
from click.testing import CliRunner, Result

import lpgcn
from lpgcn.cli import main
from lpgcn.config import parse, read_toml
from lpgcn.data import Ids, Interactions
from lpgcn.evaluation import METRICS, Vectors
from lpgcn.model.cooccurrence import read_cooccurrence
from lpgcn.runtime.runs.source import Source

QUICK = ["--layers", "1", "--dim", "8", "--batch-size", "20000", "--epochs", "3"]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in arguments])


def report(*arguments: object, exit_code: int = 0) -> Any:
    """The one JSON object on standard output."""
    result = run(*arguments, "--json")
    assert result.exit_code == exit_code, result.output
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "demo"
    summary = report("train", "demo", "--out", out, "--eval-every", "2", "--at", "5", *QUICK)
    assert summary["out"] == str(out)
    assert summary["epochs"] == 3
    assert parse(summary["config"]) == parse(read_toml(out / "config.toml"))
    assert summary == {"out": str(out), **json.loads((out / "summary.json").read_text())}
    return out


def test_evaluate_finds_what_the_training_found(demo: Path) -> None:
    test = json.loads((demo / "summary.json").read_text())["test"]
    found = report("evaluate", demo)
    assert found["test"] == test
    assert (found["config"]["seed"], found["config"]["dim"]) == (0, 8)
    only = report("evaluate", demo, "--at", "5", "--at", "5")["test"]
    assert only == {name: value for name, value in test.items() if name.endswith("@5")}
    assert set(report("evaluate", demo, "--at", "7")["test"]) == {f"{name}@7" for name in METRICS}


def test_validation_items_can_be_left_out_of_the_ranking(demo: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    given = ("--eval-every", "2", "--at", "5", "--mask", "train+valid", *QUICK)
    ranked = report("train", "demo", "--out", other, *given)
    found = report("evaluate", demo, "--mask", "train+valid")
    assert found["config"]["mask"] == "train+valid"
    assert found["test"] == ranked["test"] != report("evaluate", demo)["test"]
    assert report("evaluate", other, "--mask", "train") == report("evaluate", demo)


def test_one_run_tells_what_every_length_exponent_would_give(demo: Path, tmp_path: Path) -> None:
    found = report("evaluate", demo, "--length-exponents", "--at", "5")["valid"]
    assert list(found) == ["0", "0.25", "0.5", "0.75", "1"]
    trained = json.loads((demo / "summary.json").read_text())
    assert found["1"] == {name: of for name, of in trained["valid"].items() if "@5" in name}
    assert found["0.5"] != found["1"]
    assert "p = 0.25" in run("evaluate", demo, "--length-exponents").stdout
    # Another training, which ranks by p itself, to the same epoch.
    other, epoch = tmp_path / "other", str(trained["best_epoch"])
    given = ("--length-exponent", "0.5", *QUICK, "--epochs", epoch, "--eval-every", epoch)
    ranked = report("train", "demo", "--out", other, "--at", "5", *given)
    assert {name: of for name, of in ranked["valid"].items() if "@5" in name} == found["0.5"]
    assert report("evaluate", other)["test"] == ranked["test"]
    assert report("evaluate", other, "--length-exponents", "--at", "5")["valid"] == found


def test_methods_without_propagation_have_no_length_exponent(tmp_path: Path) -> None:
    report("train", "demo", "--model", "popular", "--out", tmp_path / "run")
    refused = report("evaluate", tmp_path / "run", "--length-exponents", exit_code=2)
    assert "popular has no length-exponent" in refused["error"]["message"]


def test_recommend_gives_what_the_library_gives(demo: Path) -> None:
    found = report("recommend", demo, "--user", "user-7", "-k", "4")
    wanted = lpgcn.Recommender.load(demo).recommend("user-7", 4)
    assert [(one["item"], one["score"]) for one in found["items"]] == [
        (one.item, one.score) for one in wanted
    ]
    text = run("recommend", demo, "--user", "user-7", "-k", "4").stdout
    assert all(str(one.item) in text for one in wanted)


def test_lists_are_measured_beside_their_hits(demo: Path) -> None:
    found = report("evaluate", demo, "--at", "5")["lists"]
    split, model = lpgcn.load("demo"), lpgcn.Recommender.load(demo)
    # A measurement leaves training items out only.
    ranked = replace(model, heldout=None)
    batch = ranked.recommend_batch([split.user_ids[u] for u in np.unique(split.test.users)], 5)
    items, counts = np.unique(split.item_ids.indices_of(batch.items.tolist()), return_counts=True)
    assert found["coverage@5"] == len(items) / split.n_items
    mean = (split.train.item_degrees[items] * counts).sum() / counts.sum()
    assert found["popularity@5"] == pytest.approx(mean)
    assert "Coverage@5" in run("evaluate", demo, "--at", "5").stdout


def test_recommend_to_a_new_user_and_with_filters(demo: Path) -> None:
    model = lpgcn.Recommender.load(demo)
    mine = ["item-3", "item-14", "item-15"]
    found = report("recommend", demo, "--items", ", ".join(mine), "-k", 3)
    assert found["history"] == mine
    wanted = model.recommend(history=mine, k=3)
    assert [(one["item"], one["score"]) for one in found["items"]] == [
        (one.item, one.score) for one in wanted
    ]
    filters = ["--only", ",".join(mine), "--exclude", "item-14", "--keep-seen"]
    found = report("recommend", demo, "--user", "user-7", *filters)
    assert {one["item"] for one in found["items"]} == {"item-3", "item-15"}
    assert "a user with these items" in run("recommend", demo, "--items", "item-3").stdout


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_recommend_to_everybody(
    demo: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["lpgcn.cli.recommend"], "USERS_AT_ONCE", 300)
    out = tmp_path / f"all.{kind}"
    words = ["recommend", demo, "--all", "-k", 4, "--format", kind]
    found = report(*words, "--out", out)
    assert found == {"out": str(out), "users": 1000, "recommendations": 4000}
    batch = lpgcn.Recommender.load(demo).recommend_batch(k=4)
    columns = (batch.users, batch.ranks, batch.items, batch.scores)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    if kind == "csv":
        lines = out.read_text().splitlines()
        assert lines[0] == "user,rank,item,score"
        read = [line.split(",") for line in lines[1:]]
        assert [(u, int(r), i, float(s)) for u, r, i, s in read] == rows
    elif kind == "jsonl":
        read = [json.loads(line) for line in out.read_text().splitlines()]
        assert [
            (one["user"], rank, item["item"], item["score"])
            for one in read
            for rank, item in enumerate(one["items"], 1)
        ] == rows
    else:
        table = pyarrow.parquet.read_table(out).to_pydict()
        assert list(zip(*table.values(), strict=True)) == rows
    assert "already there" in report(*words, "--out", out, exit_code=2)["error"]["message"]
    assert report(*words, "--out", out, "--overwrite") == found
    assert os.listdir(tmp_path) == [out.name]
    if kind != "parquet":
        assert run(*words).stdout_bytes == out.read_bytes()
    else:
        assert "need --out" in report(*words, exit_code=2)["error"]["message"]


@pytest.mark.parametrize(
    ("name", "kind"), [("all.jsonl", "jsonl"), ("all.PQ", "parquet"), ("all", "csv")]
)
def test_the_name_of_a_file_tells_its_format(
    demo: Path, tmp_path: Path, name: str, kind: str
) -> None:
    words = ["recommend", demo, "--all", "-k", 2]
    report(*words, "--out", tmp_path / name)
    report(*words, "--format", kind, "--out", tmp_path / "asked")
    assert (tmp_path / name).read_bytes() == (tmp_path / "asked").read_bytes()


def test_a_name_and_a_format_that_contradict_each_other_are_refused(
    demo: Path, tmp_path: Path
) -> None:
    words = ["recommend", demo, "--all", "--format", "csv", "--out", tmp_path / "all.parquet"]
    message = report(*words, exit_code=2)["error"]["message"]
    assert "all.parquet says parquet and --format says csv" in message
    assert os.listdir(tmp_path) == []


def test_the_folder_of_one_user_needs_no_name(demo: Path, tmp_path: Path) -> None:
    """A client's own folder has vectors of its user and of all items."""
    whole = lpgcn.Recommender.load(demo)
    assert whole.heldout is not None
    trained, heldout = (
        Interactions.from_pairs([0] * len(own), own, 1, whole.card.n_items)
        for own in (whole.seen.items_of(6), whole.heldout.items_of(6))
    )
    alone = replace(
        whole,
        card=msgspec.structs.replace(whole.card, n_users=1),
        scorer=Vectors(whole.vectors.users[6:7], whole.vectors.items),
        user_ids=Ids.of([whole.user_ids[6]]),
        seen=trained,
        heldout=heldout,
    )
    alone.save(tmp_path / "client" / "model")
    found = report("recommend", tmp_path / "client", "-k", "4")
    assert found == report("recommend", demo, "--user", whole.user_ids[6], "-k", "4")
    assert found == report("recommend", tmp_path / "client", "--user", found["user"], "-k", "4")
    assert str(found["user"]) in run("recommend", tmp_path / "client").stdout
    error = report("recommend", demo, exit_code=2)["error"]
    assert error["type"] == "UsageError"
    assert f"--user is needed: {demo} has 1,000 users" in error["message"]


def test_checkpoints_after_so_many_steps_and_what_is_said_about_damaged_ones(
    tmp_path: Path,
) -> None:
    asked = ["--epochs", "3", "--eval-every", "3", "--dim", "8", "--layers", "1"]
    asked += ["--batch-size", "20000", "--checkpoint-every", "2"]
    wanted = report("train", "demo", "--out", tmp_path / "one", *asked)
    # 3 steps an epoch: a checkpoint after the 2nd, 4th and 6th, and at the validation.
    kept = {path.name for path in (tmp_path / "one" / "state").iterdir()}
    assert kept == {"checkpoint-4", "checkpoint-5"}
    (tmp_path / "one" / "summary.json").unlink()
    newest = tmp_path / "one" / "state" / "checkpoint-5"
    newest.write_bytes(newest.read_bytes()[:-1])
    result = run("train", "--out", tmp_path / "one", "--resume", "--json")
    assert f"warning: {newest} was changed or damaged" in result.stderr
    found = json.loads(result.stdout)
    assert {**found, "seconds": 0} == {**wanted, "seconds": 0}
    for path in (tmp_path / "one" / "state").iterdir():
        path.write_bytes(b"")
    (tmp_path / "one" / "summary.json").unlink()
    error = report("train", "--out", tmp_path / "one", "--resume", exit_code=2)["error"]
    assert error["type"] == "CheckpointError"
    assert "--overwrite" in error["message"]


def test_people_get_a_table_and_the_place_of_the_results(tmp_path: Path) -> None:
    result = run("train", "demo", "--out", tmp_path / "run", "--eval-every", "1", *QUICK)
    assert "Recall@20" in result.stdout
    assert f"results are in {tmp_path / 'run'}" in result.stdout.replace("\n", "")
    lines = [line for line in result.stderr.splitlines() if line.startswith("epoch")]
    assert [line.split()[1] for line in lines] == ["1/3", "2/3", "3/3"]
    assert "\x1b" not in result.output


def test_a_run_without_a_folder_gets_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        found = report("train", "demo", "--model", "lightgcn", *QUICK)["out"]
        assert found == f"runs/demo-lightgcn-{number}"
        assert (tmp_path / found / "summary.json").exists()


def test_data_list_and_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LPGCN_DATA", str(tmp_path))
    listed = report("data", "list")
    assert listed["folder"] == str(tmp_path)
    missing = {one["name"]: one["missing"] for one in listed["datasets"]}
    assert missing["demo"] == []
    assert missing["gowalla"] == ["train.txt", "valid.txt", "test.txt"]
    assert "missing" in run("data", "list").stdout

    split = lpgcn.load("demo")
    shown = report("data", "show", "demo")
    assert shown["fingerprint"] == split.fingerprint
    assert shown["parts"]["train"]["interactions"] == len(split.train)
    assert split.fingerprint in run("data", "show", "demo").stdout


def test_a_narrow_screen_has_all_of_a_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "mine.csv").write_text("user_id,item_id\n1,2\n")
    shown = run("data", "show", "mine", "--train", tmp_path / "mine.csv").stdout.splitlines()
    [heading] = [line for line in shown if "interactions" in line and "part" in line]
    assert heading.split()[-6:] == ["users", "items", "most", "items", "most", "users"]
    assert any(line.startswith("1 user and 1 item; 100.00%") for line in shown)


def test_models_are_one_object() -> None:
    names = {one["name"] for one in report("models")["models"]}
    assert {"popular", "lightgcn"} <= names
    assert report("models", "popular")["name"] == "popular"


def test_own_files_and_warnings_about_them(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    rows = [f"u{user},i{(user + item) % 9}" for user in range(12) for item in range(6)]
    path.write_text("\n".join(["who,what", *rows, rows[0]]) + "\n")
    options = ["--train", path, "--user-column", "who", "--item-column", "what"]
    result = run("data", "show", "mine", *options, "--json")
    assert json.loads(result.stdout)["users"] == 12
    assert result.stderr.startswith("warning: ") and "duplicates" in result.stderr
    out = tmp_path / "run"
    report("train", "mine", *options, "--out", out, "--ratio", "0.6", "0.2", "0.2", *QUICK)
    assert report("evaluate", out)["test_users"] == 12
    path.write_text(path.read_text() + "u1,i8\n")
    assert "data has changed" in report("evaluate", out, exit_code=2)["error"]["message"]


def test_files_without_a_header_and_without_a_validation_part(tmp_path: Path) -> None:
    triples = [(user, (user + item) % 14, 1 + item % 5) for user in range(12) for item in range(10)]
    lines = ["::".join(map(str, triple)) + "\n" for triple in triples]
    (tmp_path / "ratings.dat.gz").write_bytes(gzip.compress("".join(lines).encode()))
    asked = ["--train", tmp_path / "ratings.dat.gz", "--columns", "1,2,3", "--min-rating", "2"]
    shown = report("data", "show", "mine", *asked)
    assert (shown["users"], shown["items"]) == (12, 14)
    assert sum(part["interactions"] for part in shown["parts"].values()) == 96
    words = ["train", *asked, "--out", tmp_path / "named", *QUICK]
    assert report(*words)["dataset"] == "ratings"
    (tmp_path / "train.txt").write_text("".join(f"{u} {i}\n" for u, i, _ in triples))
    (tmp_path / "test.txt").write_text("".join(f"{u} 99\n" for u in range(15)))
    parts = ["--train", tmp_path / "train.txt", "--test", tmp_path / "test.txt"]
    result = run("train", *parts, "--valid-ratio", "0.2", "--out", tmp_path / "run", *QUICK)
    assert result.exit_code == 0, result.output
    assert "3 users have no training items and are left out, the first is user 12" in result.stderr
    assert "96 interactions to train on, 24 to validate, 12 to test" in result.stderr


def test_ratings_and_times_are_in_the_columns_that_are_named(tmp_path: Path) -> None:
    """The last item of everybody is another one by time than by chance."""
    rows = [
        f"{user},{(user + item) % 14},{1 + item % 5},{(7 * item) % 10}\n"
        for user in range(12)
        for item in range(10)
    ]
    usual, own = tmp_path / "usual.csv", tmp_path / "own.csv"
    usual.write_text("user_id,item_id,rating,time\n" + "".join(rows))
    own.write_text("user_id,item_id,stars,when\n" + "".join(rows))

    def shown(path: Path, *more: str) -> str:
        asked = ["--train", path, "--minimum-rating", "2", "--split", "leave-one-out", *more]
        found = report("data", "show", "mine", *asked)
        assert sum(part["interactions"] for part in found["parts"].values()) == 96
        fingerprint: str = found["fingerprint"]
        return fingerprint

    by_time = shown(usual, "--time-column", "time")
    assert shown(own, "--rating-column", "stars", "--time-column", "when") == by_time
    assert shown(own, "--rating-column", "stars") == shown(usual) != by_time
    missing = ["--train", own, "--minimum-rating", "2", "--time-column", "time"]
    assert "rating" in report("data", "show", "mine", *missing, exit_code=2)["error"]["message"]


def test_what_goes_together_is_counted_and_virtual_items_are_drawn_by_it(tmp_path: Path) -> None:
    """And a federation that lists them learns the same as one that lists none."""
    path, file = tmp_path / "mine.csv", tmp_path / "together.npz"
    rows = [f"{user},{(user * user + 3 * item) % 40}" for user in range(24) for item in range(12)]
    path.write_text("user_id,item_id\n" + "\n".join(dict.fromkeys(rows)) + "\n")
    count = ["data", "cooccurrence", "mine", "--train", path]
    all_ = report(*count, "--out", file)
    split = Source(dataset="mine", train=str(path)).open()
    lists = [set(split.train.items_of(user).tolist()) for user in range(24)]
    together = {(one, other) for items in lists for one in items for other in items}
    # An item that nobody has is still drawn after itself.
    together |= {(item, item) for item in range(split.n_items)}
    expected = {"users": 24, "items": split.n_items, "pairs": len(together), "out": str(file)}
    assert all_ == expected | {"fingerprint": split.fingerprint}
    found = read_cooccurrence(str(file), split.n_items).companions
    pairs = set(zip(found.rows.tolist(), found.values.tolist(), strict=True))
    assert pairs == together

    half = report(*count, "--out", tmp_path / "half.npz", "--sample", "0.5")
    assert half["users"] == 12 and half["pairs"] < all_["pairs"]
    assert "already" in report(*count, "--out", file, exit_code=2)["error"]["message"]
    few = run(*count, "--out", tmp_path / "half.npz", "--overwrite", "--sample", 0.1)
    assert "counted among 2 users" in few.stdout

    words = ["train", "mine", "--train", path, "--mode", "simulated", *QUICK]
    coherent = ["--virtual-items", "5", "--virtual-draw", "coherent", "--cooccurrence", file]
    plain = report(*words, "--virtual-items", "0", "--out", tmp_path / "plain")
    drawn = report(*words, *coherent, "--out", tmp_path / "drawn")
    assert drawn["config"]["virtual_draw"] == "coherent" and drawn["test"] == plain["test"]
    assert "cooccurrence" in report(*words, *coherent[:-2], exit_code=2)["error"]["message"]


@pytest.mark.parametrize("there", [True, False])
def test_a_report_is_shown_in_the_browser_if_there_is_one(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    opened, page = list[str](), tmp_path / "page.html"
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or there)
    asked = ["report", demo, "--out", page]
    assert run(*asked).exit_code == 0 and not opened
    done = run(*asked, "--open")
    assert done.exit_code == 0 and opened == [page.as_uri()]
    assert ("no browser could be started" in done.stderr) != there


@pytest.mark.slow
def test_the_demo_shows_that_nothing_is_lost(tmp_path: Path) -> None:
    out, central, small = (tmp_path / name for name in ("demo", "demo-centralized", "small.toml"))
    small.write_text(
        'mode = "federated"\nvirtual_items = "1"\nmodel = "lightgcn"\nlayers = 1\ndim = 4\n'
        "batch_size = 16384\nepochs = 1\neval_every = 1\n"
    )
    asked = ["demo", "--out", out, "--config", small, "--workers", 1, "--user", "user-3"]
    done = run(*asked)
    assert done.exit_code == 0, done.output
    assert "Largest difference of any final vector: 0: lossless, bit for bit." in done.stdout
    shown = report("recommend", out, "--user", "user-3", "-k", 10)["items"]
    told = done.stdout[done.stdout.index("For user-3, ranked on its own client") :]
    assert all(one["item"] in told for one in shown) and len(shown) == 10
    assert "<html" in (out / "report.html").read_text()
    modes = [json.loads((one / "summary.json").read_text())["mode"] for one in (out, central)]
    assert modes == ["federated", "centralized"]
    again = run(*asked)
    assert again.exit_code == 2 and "--overwrite" in again.stderr


def test_the_split_has_a_seed_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ml-100k").mkdir()
    rows = [f"{user}\t{(user + item) % 15}\t5\t0\n" for user in range(12) for item in range(10)]
    (tmp_path / "ml-100k" / "u.data").write_text("".join(rows))
    (tmp_path / "mine.tsv").write_text("user_id\titem_id\trating\ttime\n" + "".join(rows))
    monkeypatch.setenv("LPGCN_DATA", str(tmp_path))
    for data in (["ml-100k"], ["mine", "--train", tmp_path / "mine.tsv"]):
        shown = [
            report("data", "show", *data, "--split-seed", seed)["fingerprint"] for seed in (0, 1)
        ]
        assert shown[0] != shown[1]
        for seed, split_seed in ((0, 0), (5, 0), (5, 1)):
            seeds = ["--seed", seed, "--split-seed", split_seed]
            out = tmp_path / f"{data[0]}-{seed}-{split_seed}"
            found = report("train", *data, "--out", out, *seeds, *QUICK)
            assert found["fingerprint"] == shown[split_seed]
            assert report("evaluate", out)["test"] == found["test"]


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (["train", "demo", "--lairs", "2"], "NoSuchOption", "--layers"),
        (["train", "demo", "--layers", "0"], "ConfigError", "layers is 0"),
        (["train", "demo", "--model", "lightgnc"], "ConfigError", "lightgcn"),
        (["train", "dmo"], "DataError", "Did you mean 'demo'"),
        (["train"], "UsageError", "DATASET"),
        (["train", "demo", "--format", "csv"], "SourceError", "--train"),
        (["train", "demo", "--split-seed", "1"], "DataError", "of a split for 'demo'"),
        (["train", "demo", "--split-seed", "-1"], "SourceError", "split_seed is -1"),
        (["train", "demo", "--resume"], "UsageError", "--resume needs --out"),
        (["train", "demo", "--workers", "2"], "UsageError", "add --mode federated"),
        (["train", "demo", "--resume", "--out", "nowhere"], "RunFolderError", "has no run"),
        (["train", "demo", "--config", "nowhere.toml"], "ConfigError", "there is no file"),
        (["train", "mine", "--train", "nowhere.csv"], "DataError", "nowhere.csv"),
        (["train", "demo", "--terms", "nowhere.jsonl"], "TermError", "no log of terms"),
        (["train", "demo", "--checkpoint-every", "0"], "BadParameter", "--checkpoint-every"),
        (["compare", "demo", "--out", "x", "--models", ""], "CompareError", "--models names none"),
        (["compare", "demo", "--out", "x", "--metrics", ","], "CompareError", "--metrics names"),
        (["evaluate", "nowhere"], "RunFolderError", "has no run"),
        (["recommend", "nowhere", "--user", "1"], "ModelError", "there is no folder nowhere"),
        (["recommend", "."], "ModelError", "no finished model"),
        (["recommend", "nowhere", "--user", "1", "--all"], "UsageError", "exclude one another"),
        (["recommend", "nowhere", "--out", "x"], "UsageError", "about --all"),
        (["data", "show", "dmo"], "DataError", "Did you mean 'demo'"),
        (["recomend"], "UsageError", "recommend"),
    ],
)
def test_a_mistake_is_one_clear_message(
    arguments: list[str], kind: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = report(*arguments, exit_code=2)["error"]
    assert kind in [cls.__name__ for cls in _classes(error["type"])]
    assert message in error["message"]
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ") and message in result.stderr
    assert not list(tmp_path.iterdir())


def _classes(name: str) -> tuple[type, ...]:
    """Click has subclasses of its errors for some mistakes."""
    found = getattr(click, name, None) or getattr(click.exceptions, name, None)
    return found.__mro__ if found else (type(name, (), {}),)


def test_an_existing_folder_is_an_error(demo: Path) -> None:
    error = report("train", "demo", "--out", demo, exit_code=2)["error"]
    assert error["type"] == "RunFolderError"
    assert "already has a run" in error["message"]


def test_resume_with_another_option_is_an_error(demo: Path) -> None:
    error = report("train", "--out", demo, "--resume", "--lr", "0.5", exit_code=2)["error"]
    assert "has lr 0.001, not 0.5" in error["message"]
    assert report("train", "--out", demo, "--resume", "--dim", "8")["epochs"] == 3


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        error = report("train", "demo", "--out", out, *QUICK, exit_code=2)["error"]
        assert error["type"] == "StorageError"
        assert f"{tmp_path / 'file'} is a file and not a folder" in error["message"]


def test_a_full_disk_is_told_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    """No file of the run may have more than 30 KB; its first checkpoint has more."""
    script = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, resource.RLIM_INFINITY))\n"
        "from lpgcn.cli import main\n"
        "main()\n"
    )
    out = tmp_path / "run"
    words = ["train", "demo", "--out", str(out), "--json", *QUICK]
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    error = json.loads(done.stdout)["error"]
    assert error["type"] == "StorageError"
    assert f"cannot write {out / 'state'}" in error["message"] and "make room" in error["message"]
    assert not list(tmp_path.rglob("*.tmp"))


def test_results_that_are_there_are_not_replaced_unasked(tmp_path: Path) -> None:
    (tmp_path / "mine.png").write_text("mine")
    federated = ["train", "demo", "--mode", "federated", "--out", tmp_path / "run"]
    for command in (
        [*federated, "--transcript", tmp_path / "mine.png"],
        ["verify", "demo", "--plot", tmp_path / "mine.png"],
        ["plan", "demo", "--plot", tmp_path / "mine.png"],
    ):
        error = report(*command, exit_code=2)["error"]
        assert error["type"] == "StorageError"
        assert "mine.png is already there; replace it with --overwrite" in error["message"]
    assert (tmp_path / "mine.png").read_text() == "mine"
    os.mkfifo(tmp_path / "pipe")
    for overwrite in ([], ["--overwrite"]):
        words = [*federated, "--transcript", tmp_path / "pipe", *overwrite]
        assert "not a regular file" in report(*words, exit_code=2)["error"]["message"]
    assert sorted(os.listdir(tmp_path)) == ["mine.png", "pipe"]
    asked = ["--planner", "cover", "--plot", tmp_path / "mine.png", "--overwrite"]
    found = report("plan", "demo", *asked, "--seed", "3")
    assert (found["planner"], found["config"]["seed"]) == ("cover", 3)
    assert (tmp_path / "mine.png").read_bytes().startswith(b"\x89PNG")


def test_an_unknown_key_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("epoch = 2\n")
    error = report("train", "demo", "--config", tmp_path / "mine.toml", exit_code=2)["error"]
    assert "unknown key 'epoch' (did you mean 'epochs'?)" in error["message"]


def every_command(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(command, click.Group):
        return [path]
    inside = [every_command(one, (*path, name)) for name, one in command.commands.items()]
    return [path, *(found for some in inside for found in some)]


@pytest.mark.parametrize("path", every_command(main), ids=" ".join)
def test_every_help_has_an_example(path: tuple[str, ...]) -> None:
    result = run(*path, "--help")
    assert result.exit_code == 0
    assert " ".join(("lpgcn", *path)) in result.stdout.partition(":\n")[2]


@pytest.mark.parametrize(
    ("path", "untrue"),
    [
        (("verify",), "or a method"),
        (("plan",), "or a method"),
        (("plan",), "--user-features"),
        (("serve",), "or a method"),
        (("serve",), "--item-features"),
        (("federation", "up"), "or a method"),
        (("audit",), "--virtual-draw"),
    ],
)
def test_no_help_speaks_of_what_the_command_has_not(path: tuple[str, ...], untrue: str) -> None:
    assert untrue not in " ".join(run(*path, "--help").stdout.split())


def test_version_and_no_arguments() -> None:
    assert run("--version").stdout == f"lpgcn {lpgcn.__version__}\n"
    result = run()
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Commands:" in result.stderr


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from lpgcn.cli import main\n"
        "try: main(['train', '--help'])\n"
        "finally: print(sorted({'torch', 'numpy', 'numba', 'rich.progress'} & sys.modules.keys()))"
    )
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def test_what_does_not_fit_into_memory_is_an_error_with_advice(tmp_path: Path) -> None:
    done = run("train", "demo", "--dim", 10**12, "--out", tmp_path / "run")
    assert done.exit_code == 2
    assert "not enough memory" in done.stderr and "lower --dim" in done.stderr


def test_an_error_is_told_where_standard_output_takes_nothing(demo: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "lpgcn", "recommend", demo, "--user", "nobody", "--json"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and "Traceback" not in done.stderr
