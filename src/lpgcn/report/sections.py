"""The sections of a report about runs. A section about what a run does not have is left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from lpgcn.config import Config
from lpgcn.model.backbones import trains_backbone
from lpgcn.report.charts import Series, line_chart
from lpgcn.report.federation import SIDE_BY_SIDE, loads, readers, traffic
from lpgcn.report.page import (
    Fact,
    Html,
    Section,
    element,
    folded,
    joined,
    losslessness,
    page,
    paragraph,
    side_by_side,
    table,
)
from lpgcn.report.runs import RunRecord, Verdict, verdicts
from lpgcn.report.units import duration, metric_name, size

_IF_THEY_DIFFER: Final = ("data set", "way to run", "α", "KB up a step", "KB down a step")
"""Columns that say nothing where all runs have the same."""


def run_report(
    runs: Sequence[RunRecord], *, user: str | None = None, more: Sequence[Section] = ()
) -> bytes:
    """The page about one run or several; `more` is what others know about them."""
    first, judged = runs[0], verdicts(runs)
    names = " and ".join(dict.fromkeys(one.dataset for one in runs))
    title = f"{names}: {first.run.config.model}" if len(runs) == 1 else f"{names}: {len(runs)} runs"
    ways = ", ".join(dict.fromkeys(one.way for one in runs))
    lead = f"What was trained on what, how well it does, and what it cost. {ways.capitalize()}."
    sections = [
        about(runs),
        *([compared(runs)] if len(runs) > 1 else []),
        *curves(runs, judged),
        *traffic(runs),
        *loads(runs),
        *readers(runs),
        *more,
        *recommendations(runs, user),
    ]
    return page(title, lead, list(_facts(runs, judged)), sections)


def _facts(runs: Sequence[RunRecord], judged: Sequence[Verdict]) -> Iterator[Fact]:
    finished = [one for one in runs if one.summary is not None]
    if not finished:
        yield Fact("not finished", f"{len(runs[0].metrics)} epochs", "so far")
    # Figures of different data have no highest one.
    comparable = len({one.run.fingerprint for one in finished}) == 1
    for metric in ("recall@20", "ndcg@20") if comparable else ():
        tested = [
            (one.summary.test[metric], one.name) for one in runs if one.summary and one.summary.test
        ]
        highest = "highest " if len(finished) > 1 and not judged else ""
        if tested:
            best, name = max(tested)
            yield Fact(f"{highest}test {metric_name(metric)}", f"{best:.4f}", name)
    if judged:
        worst = max(verdict.difference for verdict in judged)
        label = f"{judged[0].run.run.config.mode} − centralised"
        yield Fact(
            label, f"{worst:g}", *(("lossless", "good") if worst == 0 else ("NOT lossless", "bad"))
        )
    sent = next((one.summary.traffic for one in runs if one.summary and one.summary.traffic), None)
    if sent is not None and (share := sent.share_of_paper) is not None:
        yield Fact("traffic, of the paper's formulation", f"{share:.0%}", "a client and step")
    if len(runs) == 1 and (summary := runs[0].summary) is not None:
        yield Fact("trained in", duration(summary.seconds), f"{summary.steps:,} steps")


def _tested(one: RunRecord, metric: str) -> float:
    return one.summary.test[metric] if one.summary is not None and one.summary.test else 0.0


def about(runs: Sequence[RunRecord]) -> Section:
    """What was trained on what: a column for each run."""
    described = [_about(one) for one in runs]
    names = [one.name for one in runs]
    rows = [
        [key, *(column.get(key, "–") for column in described)]
        for key in dict.fromkeys(key for column in described for key in column)
    ]
    settings = [msgspec.to_builtins(one.run.config) for one in runs]
    every = [
        [key.replace("_", "-"), _shown(default), *(_shown(values[key]) for values in settings)]
        for key, default in msgspec.to_builtins(Config()).items()
    ]
    described_runs = table("The runs" if len(runs) > 1 else "The run", ["what", *names], rows)
    body = joined(
        described_runs if len(runs) <= SIDE_BY_SIDE else folded("Run by run", described_runs),
        folded("All settings", table("Settings", ["setting", "default", *names], every)),
    )
    return Section("What was trained", body)


def _about(one: RunRecord) -> dict[str, str]:
    config, model = one.run.config, one.model
    said = {"data set": one.dataset, "fingerprint": one.run.fingerprint[:12]}
    if model is not None:
        said["users"], said["items"] = f"{model.card.n_users:,}", f"{model.card.n_items:,}"
        said["interactions to train on"] = f"{len(model.seen):,}"
    said |= {
        "model": config.model,
        **_settings(config),
        "way to run": one.way,
        "virtual items α": config.virtual_items,
        "seed": str(config.seed),
    }
    if (summary := one.summary) is not None:
        said["best epoch"] = f"{summary.best_epoch} of {summary.epochs}"
        said["trained in"] = f"{duration(summary.seconds)}, {summary.steps:,} steps"
        said["version of lpgcn"] = summary.version
        if summary.traffic is not None and (plan := summary.traffic.plan) is not None:
            said["plan"] = f"{plan.planner}, {plan.convolution_clients:,} convolution-clients"
            said["the paper's C of the plan"] = f"{size(plan.cost_per_client)} a client and step"
    return said


def _settings(config: Config) -> dict[str, str]:
    """What the graph convolution depends on, or a compared method's own settings."""
    own = ", ".join(f"{name} = {value}" for name, value in config.option.items())
    said = {"settings of its own": own} if own else {}
    if not trains_backbone(config.model):
        return said
    return said | {
        "convolution": f"{config.layers} layers, {config.dim} numbers a vector",
        "loss": f"{config.loss}, {_batches(config)}",
    }


def _batches(config: Config) -> str:
    if config.batch_size == "full":
        return "one batch an epoch"
    return f"batches of {config.batch_size:,}"


def _shown(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "none" if value is None else str(value)


def compared(runs: Sequence[RunRecord]) -> Section:
    """One line a run; the units are in the headings, so that a column can be sorted."""
    finished = [one.summary for one in runs if one.summary is not None]
    metrics = list(dict.fromkeys(name for summary in finished for name in summary.test))
    headers = ["run", "data set", "model", "way to run", "α", "best epoch"]
    headers += [metric_name(name) for name in metrics]
    headers += ["seconds", "KB up a step", "KB down a step"]
    rows = []
    for one in runs:
        config, summary = one.run.config, one.summary
        row = [one.name, one.dataset, config.model, one.way, config.virtual_items]
        row.append(f"{summary.best_epoch}" if summary else "–")
        row += [f"{summary.test[m]:.4f}" if summary and m in summary.test else "–" for m in metrics]
        row.append(f"{summary.seconds:.1f}" if summary else "–")
        sent = summary.traffic if summary else None
        row += (
            [f"{count / 1000:.1f}" for count in (sent.up_per_step, sent.down_per_step)]
            if sent
            else ["–", "–"]
        )
        rows.append(row)
    kept = [
        place
        for place, header in enumerate(headers)
        if header not in _IF_THEY_DIFFER or len({row[place] for row in rows}) > 1
    ]
    headers, *rows = ([row[place] for place in kept] for row in (headers, *rows))
    caption = "A line a run; metrics of the test part"
    return Section("Runs side by side", table(caption, headers, rows, sortable=True))


def curves(runs: Sequence[RunRecord], judged: Sequence[Verdict]) -> Iterator[Section]:
    """Loss and validation, the centralised run under the others."""
    central = [verdict.centralized for verdict in judged]
    charts = []
    for name in ("loss", "recall@20", "ndcg@20"):
        series = [
            Series(one.name, points, at, under=one in central)
            for at, one in enumerate(runs)
            if (points := _points(one, name))
        ]
        if series:
            title = "Training loss" if name == "loss" else f"Validation {metric_name(name)}"
            charts.append(line_chart(title, series, "epoch"))
    said = [_said(verdict) for verdict in judged]
    if not judged and any(one.run.config.mode != "centralized" for one in runs):
        said = [_how_to_compare(next(o for o in runs if o.run.config.mode != "centralized"))]
    if charts or said:
        title = "Curves, and whether anything is lost" if said else "Curves"
        yield Section(title, joined(*said, side_by_side(*charts)))


def _points(one: RunRecord, name: str) -> list[tuple[float, float]]:
    found = (
        (line.epoch, line.loss if name == "loss" else (line.valid or {}).get(name))
        for line in one.metrics
    )
    points = [(float(epoch), value) for epoch, value in found if value is not None]
    # What is computed in one go has no loss, and says 0.
    return points if name != "loss" or any(value for _, value in points) else []


def _said(verdict: Verdict) -> Html:
    figures = "every loss and every metric"
    if verdict.with_vectors:
        figures = "every loss, every metric and every final vector"
    said = (
        f"{verdict.run.name} ({verdict.run.way}) beside {verdict.centralized.name}; "
        f"{verdict.epochs} epochs compared: {figures}."
    )
    if verdict.run.run.config.mode == "simulated":
        said += " A simulated run shares the centralised arithmetic: alone it shows nothing."
    return losslessness(verdict.difference, said)


def _how_to_compare(one: RunRecord) -> Html:
    out = f"{one.name}-centralized"
    config = f"{one.name}/config.toml"
    command = f"lpgcn train {one.dataset} --config {config} --mode centralized --out {out}"
    return joined(
        paragraph(
            "The centralised run of the same training is not here, so that nothing is said about "
            "losslessness. To compare, train it and give both folders to lpgcn report:"
        ),
        element("pre", element("code", command), tabindex="0"),
    )


def recommendations(runs: Sequence[RunRecord], user: str | None) -> Iterator[Section]:
    """Ten items of the best model for one user: who was asked for, or the first."""
    able = [one for one in runs if one.model is not None]
    one = max(able, key=lambda one: _tested(one, "recall@20"), default=None)
    if one is None or one.model is None:
        return
    model = one.model
    chosen = model.user_ids[0] if user is None else user
    has = model.seen.by_user[model.user_ids.index_of(chosen)].tolist()
    some = ", ".join(str(model.item_ids[item]) for item in has[:12])
    rows = [
        [str(rank), str(found.item), f"{found.score:.4f}"]
        for rank, found in enumerate(model.recommend(chosen, 10), 1)
    ]
    yield Section(
        "Recommendations",
        joined(
            paragraph(
                f"User {chosen} has {len(has):,} items in training, the first of which are {some}. "
                f"What {one.name} recommends beside them:"
            ),
            table(f"For {chosen}", ["rank", "item", "score"], rows),
        ),
    )
