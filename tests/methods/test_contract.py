"""What every registered method keeps: the same tests for all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lpgcn import LpgcnError
from lpgcn.config import Config
from lpgcn.methods.method import MethodError
from lpgcn.methods.registry import METHODS, configured, described, engine_for, names
from lpgcn.methods.training import train
from lpgcn.runtime.runs.loop import Observer
from lpgcn.runtime.runs.run_folder import EpochMetrics, Summary
from lpgcn.runtime.runs.saved_model import Recommender
from lpgcn.runtime.runs.source import Source
from lpgcn.runtime.runs.training import Execution

OURS = names()
OTHERS = [method.name for method in METHODS]
TRAINED = [method.name for method in METHODS if not method.in_one_go]

QUICK: dict[str, dict[str, Any]] = {
    "lightgcn": {"lr": 0.01, "epochs": 10},
    "lightgcn+": {"lr": 0.01, "epochs": 10},
    **{
        dense: {"lr": 0.01, "epochs": 10, "dim": 32, "layers": 2}
        for dense in ("gcn", "sage", "lr-gccf", "ngcf")
    },
    "lp-gcn": {"lr": 0.01, "epochs": 10, "planner": "cover"},
    "bpr": {"lr": 0.01, "epochs": 10},
    "fedmf": {"lr": 0.02, "epochs": 15},
    "p-gcn": {"lr": 0.02, "epochs": 10},
    "fedgrec": {"lr": 0.02, "epochs": 10},
    "semidfegl": {"lr": 0.03, "epochs": 10, "layers": 2},
    "ncf": {"lr": 0.01, "epochs": 15},
    "fedncf": {"lr": 0.01, "epochs": 20},
    "fedpergnn": {"lr": 0.01, "epochs": 10},
    "perfedrec": {"lr": 0.01, "epochs": 10},
    "mult-vae": {"lr": 0.003, "epochs": 20},
}
"""Settings under which a method has learned enough after some seconds, where its own have not."""

IN_SECONDS = ("item-knn", "ease", "bpr", "fedmf", "p-gcn", "lightgcn")
"""On the demo data; the others learn for longer, and are for the slow tests."""

every_model = pytest.mark.parametrize("model", OURS)
every_method = pytest.mark.parametrize("model", OTHERS)


def quick(model: str, **changes: Any) -> Config:
    known = described(model)
    wanted = {**QUICK.get(model, {}), **changes}
    return configured(
        {
            "model": model,
            "eval_every": 5,
            **{key: value for key, value in wanted.items() if key not in known.fixed},
            **dict.fromkeys(known.fixed, 1),
        }
    )


@pytest.fixture(scope="module")
def popular(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    return train("demo", quick("popular"), out=tmp_path_factory.mktemp("popular"))


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(model, marks=() if model in IN_SECONDS else pytest.mark.slow)
        for model in OURS
        if model != "popular"
    ],
)
def test_it_is_clearly_better_than_the_most_popular(
    model: str, popular: Summary, tmp_path: Path
) -> None:
    found = train("demo", quick(model), out=tmp_path)
    assert found.test["recall@20"] > 1.3 * popular.test["recall@20"]
    assert found.test["ndcg@20"] > 1.3 * popular.test["ndcg@20"]
    model_of_run = Recommender.load(tmp_path)
    split = Source(dataset="demo").open()
    assert model_of_run.evaluate(split, (20,)).values["recall@20"] == found.test["recall@20"]


def small(model: str, **changes: Any) -> Config:
    """For the matrix of two tastes."""
    known = described(model)
    shape = {"dim": 8, "batch_size": 64, "lr": 0.05, "epochs": 40, "layers": 2, "planner": "cover"}
    wanted = {**shape, "eval_every": 10, **changes}
    rounds = {"users_a_round": 20} if "users_a_round" in known.options else {}
    loop = {"epochs", "eval_every", "seed", "patience"} - set(known.fixed)
    chosen = {key: value for key, value in wanted.items() if key in loop | set(known.settings)}
    return configured({"model": model, "option": rounds, **chosen})


def test_lp_gcn_is_its_backbone_with_parties_as_without(tastes: Path, tmp_path: Path) -> None:
    """Whatever the mode, to the end of the run and into the saved model."""
    source = Source(dataset="tastes", train=str(tastes))
    config = small("lp-gcn", epochs=1, eval_every=1)
    for mode in ("simulated", "federated"):
        train(source, config.changed(mode=mode), out=tmp_path / mode)
    one, other = (Recommender.load(tmp_path / mode) for mode in ("simulated", "federated"))
    assert one.recommend(0, k=5) == other.recommend(0, k=5)
    assert one.recommend(history=[1, 2], k=5) == other.recommend(history=[1, 2], k=5)


@every_model
def test_the_answer_of_a_matrix_of_two_tastes(model: str, tastes: Path, tmp_path: Path) -> None:
    """Who likes one half of the items is recommended the rest of that half."""
    if model == "popular":
        pytest.skip("it knows no taste")
    # With 20 of so few items Recall@20 chooses nothing: the model is that of the last epoch.
    config = small(model, eval_every=40)
    train(Source(dataset="tastes", train=str(tastes)), config, out=tmp_path)
    # Held-out items are most of what is left of a taste.
    found = replace(Recommender.load(tmp_path), heldout=None)
    right = 0
    for user in range(60):
        best = found.recommend(user, k=2)
        right += sum((int(one.item) < 12) == (user % 2 == 0) for one in best)
    assert right > 0.9 * 120


@every_method
def test_the_same_seed_gives_the_same_result_and_another_one_another(
    model: str, tastes: Path
) -> None:
    split = Source(dataset="tastes", train=str(tastes)).open()
    scores = []
    for seed in (0, 0, 1):
        config = small(model, seed=seed)
        engine = engine_for(split, config, Execution())
        for step in range(engine.steps_per_epoch):
            engine.step(0, step, 0.05)
        inspector = engine.inspector()
        assert inspector is not None
        scores.append(inspector.scorer().scores(np.arange(split.n_users)))
    assert np.array_equal(scores[0], scores[1])
    if model in TRAINED:
        assert not np.array_equal(scores[0], scores[2])


class InterruptedRunError(Exception):
    """As a kill would end the run: five epochs after its last checkpoint."""


class Interrupting(Observer):
    def __init__(self, epoch: int) -> None:
        self._epoch = epoch

    def epoch_done(self, metrics: EpochMetrics) -> None:
        if metrics.epoch == self._epoch:
            raise InterruptedRunError


@pytest.mark.parametrize(
    "model",
    [
        # Three runs each, of those that take longest.
        pytest.param(
            model, marks=pytest.mark.slow if model in ("ncf", "fedncf", "perfedrec") else ()
        )
        for model in TRAINED
    ],
)
def test_a_run_that_was_killed_ends_as_if_it_had_not_been(
    model: str, tastes: Path, tmp_path: Path
) -> None:
    source, config = Source(dataset="tastes", train=str(tastes)), small(model)
    whole = train(source, config, out=tmp_path / "whole")
    with pytest.raises(InterruptedRunError):
        train(source, config, out=tmp_path / "cut", observer=Interrupting(15))
    again = train(source, config, out=tmp_path / "cut", resume=True)
    assert (again.test, again.valid, again.loss) == (whole.test, whole.valid, whole.loss)
    users = np.arange(60)
    scorers = [Recommender.load(tmp_path / name).scorer for name in ("whole", "cut")]
    assert np.array_equal(scorers[0].scores(users), scorers[1].scores(users))


@every_method
def test_who_is_unknown_gets_the_typed_error(model: str, tastes: Path, tmp_path: Path) -> None:
    train(Source(dataset="tastes", train=str(tastes)), small(model, epochs=4), out=tmp_path)
    found = Recommender.load(tmp_path)
    with pytest.raises(LpgcnError, match="nobody"):
        found.recommend("nobody")
    with pytest.raises(LpgcnError, match="nothing"):
        found.score(found.user_ids[0], ["nothing"])


@every_method
def test_settings_that_it_does_not_have_are_refused(model: str, tastes: Path) -> None:
    split = Source(dataset="tastes", train=str(tastes)).open()
    with pytest.raises(LpgcnError, match=r"suite is paper, but .* has no such setting"):
        engine_for(split, small(model).changed(suite="paper"), Execution())
    with pytest.raises(LpgcnError, match="unknown key 'colour'"):
        engine_for(split, small(model).changed(option={"colour": "red"}), Execution())
    with pytest.raises(MethodError, match="has no parties of its own"):
        engine_for(split, small(model).changed(mode="federated"), Execution())
    with pytest.raises(MethodError, match="one process"):
        engine_for(split, small(model), Execution(workers=2))


def test_no_torch_before_a_method_is_used() -> None:
    script = (
        "import sys\n"
        "from lpgcn.methods.registry import described, names\n"
        "print([described(name).name for name in names()] and 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_without_torch_the_others_work_and_the_error_says_what_to_install(
    tastes: Path, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def trained(model: str) -> subprocess.CompletedProcess[str]:
        words = ["--train", str(tastes), "--model", model, "--epochs", "1", "--eval-every", "1"]
        command = [sys.executable, "-m", "lpgcn", "train", *words, "--out", str(tmp_path / model)]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    assert trained("bpr").returncode == 0
    refused = trained("ncf")
    assert refused.returncode != 0
    assert "pip install 'lpgcn[compare]'" in refused.stderr
    assert not (tmp_path / "ncf" / "config.toml").exists()


def test_torch_has_the_threads_of_a_run_and_then_those_of_its_host(tmp_path: Path) -> None:
    import torch

    within = set[int]()

    class Looking(Observer):
        def step_done(self) -> None:
            within.add(torch.get_num_threads())

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        config = quick("ncf", epochs=1)
        pairs = [(user, item) for user in range(12) for item in range(user % 3, 30, 2)]
        train(pairs, config, out=tmp_path / "run", threads=2, observer=Looking())
        after = torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
    assert (within, after) == ({2}, 3)
