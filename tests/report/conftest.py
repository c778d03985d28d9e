"""Two runs of one training, a verification and a sweep, small, and the reports about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.plan import PlanCost, cover
from lpgcn.plan.sweep import LoadPoint, sweep_candidates, sweep_loads
from lpgcn.report.audits import AuditTable, audit_report
from lpgcn.report.curves import verification_report
from lpgcn.report.plans import sweep_report
from lpgcn.report.runs import RunRecord
from lpgcn.report.sections import run_report
from lpgcn.runtime.engines.simulated import token_graph
from lpgcn.runtime.planning import plan_cost
from lpgcn.runtime.runs.source import Source
from lpgcn.runtime.runs.training import train
from lpgcn.runtime.verification import EpochDifference

HOSTILE = "<script>alert('&')</script>"
"""The id of an item that everybody has, and of one that is recommended."""
CONFIG = Config(
    layers=2,
    dim=4,
    lr=0.05,
    batch_size=64,
    epochs=4,
    eval_every=1,
    virtual_items="3",
    at=(5, 20),
    planner="cover",
)


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """24 users with some of 60 items each; ids that are markup if nobody escapes them."""
    path = tmp_path_factory.mktemp("data") / "mine & yours.csv"
    items = [
        sorted({(7 * user + n * n) % (20 + 2 * user) for n in range(20)}) for user in range(24)
    ]
    pairs = [f"u{user},{HOSTILE} {item}" for user, own in enumerate(items) for item in own]
    path.write_text("user_id,item_id\n" + "\n".join(pairs) + "\n")
    return Source(dataset="mine & yours", train=str(path))


@pytest.fixture(scope="session")
def split(source: Source) -> Split:
    return source.open()


@pytest.fixture(scope="session")
def runs(source: Source, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run folder for each way to run."""
    root = tmp_path_factory.mktemp("runs")
    for mode in ("federated", "centralized"):
        train(source, CONFIG.changed(mode=mode), out=root / mode)
    return {path.name: path for path in root.iterdir()}


@pytest.fixture(scope="session")
def sweep(split: Split) -> tuple[list[PlanCost], dict[str, list[LoadPoint]]]:
    graph = token_graph(split, CONFIG)

    def measure(plan: object) -> PlanCost:
        return plan_cost(graph, plan, CONFIG)  # type: ignore[arg-type]

    heaviest = measure(cover(graph, 0)).load_max
    limits = (heaviest, 2 * heaviest)
    curves = {name: sweep_loads(graph, name, limits, 0, measure) for name in ("cover", "greedy")}
    return sweep_candidates(graph, 0, measure, points=4), curves


@pytest.fixture(scope="session")
def pages(
    runs: dict[str, Path],
    split: Split,
    sweep: tuple[list[PlanCost], dict[str, list[LoadPoint]]],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    """Every kind of report, in files."""
    records = [RunRecord.read(runs[mode]) for mode in ("federated", "centralized")]
    lines = [
        EpochDifference(
            model=model, virtual_items="0", run=run, epoch=epoch, loss=1 / epoch,
            recall=0.1 * epoch, ndcg=0.05 * epoch, difference=0.0,
        )
        for model in ("lightgcn+", "lightgcn")
        for run in ("centralized", "simulated", "federated sealed, plan cover")
        for epoch in (1, 2, 3)
    ]  # fmt: skip
    contents = {
        "two": run_report(records),
        "one": run_report(records[:1], user="u3"),
        "verification": verification_report(split, lines),
        "sweep": sweep_report("Plans & costs", *sweep),
    }
    areas = [("server: guesses → items", 0.61), ("owner: sums → items", 0.8)]
    audited = AuditTable("sealed", ("attack", "AUC"), [("guesses", "0.61")], areas, ["A remark."])
    contents["audit"] = audit_report("mine & yours", [audited])
    folder = tmp_path_factory.mktemp("pages")
    for name, content in contents.items():
        (folder / f"{name}.html").write_bytes(content)
    return {name: folder / f"{name}.html" for name in contents}
