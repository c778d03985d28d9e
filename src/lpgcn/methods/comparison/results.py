"""What came out of a comparison: read from the folders of its runs, all or some."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from lpgcn.array_types import Float64
from lpgcn.methods.comparison.entries import Entry
from lpgcn.methods.comparison.running import failure
from lpgcn.methods.registry import described
from lpgcn.runtime.runs.run_folder import EpochMetrics, Run, RunFolder, Summary
from lpgcn.runtime.runs.source import Source

LEAST_TESTED: Final = 30
"""Users whose differences have a mean that is distributed normally, as is usually taken."""
NORMAL_95: Final = 1.959964
"""So many deviations to either side hold 95 % of a normal distribution."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Of one run."""

    entry: Entry
    epochs: list[EpochMetrics]
    summary: Summary | None = None
    failure: str | None = None

    @property
    def steps_an_epoch(self) -> float:
        return self.summary.steps / self.summary.epochs if self.summary else 0.0

    def rounds(self, epoch: int) -> float | None:
        """Until the end of an epoch; a data centre has none."""
        if self.summary is None or self.summary.traffic is None:
            return None
        return epoch * self.steps_an_epoch * self.summary.traffic.rounds_per_step

    def bytes(self, epoch: int) -> float | None:
        """What a client has sent and received by the end of an epoch, in the mean."""
        if self.summary is None or (traffic := self.summary.traffic) is None:
            return None
        return epoch * self.steps_an_epoch * (traffic.up_per_step + traffic.down_per_step)


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A metric over the seeds."""

    mean: float
    deviation: float | None
    """Of the sample; one seed has none."""

    @classmethod
    def of(cls, values: Sequence[float]) -> Figure:
        several = len(values) > 1
        deviation = float(np.std(values, ddof=1)) if several else None
        return cls(mean=float(np.mean(values)), deviation=deviation)


class ModelRow(msgspec.Struct, frozen=True, kw_only=True):
    """A model, with all of its seeds that are finished."""

    label: str
    seeds: int
    metrics: dict[str, Figure]
    best_epoch: float | None = None
    rounds: float | None = None
    """To the best epoch, in the mean, as all that follows."""
    bytes: float | None = None
    at_least: bool = False
    """Whether the bytes are those of the numbers alone, without framing, keys and tags."""
    seconds: float | None = None
    """Of the whole run."""
    failures: list[str] = []
    unfinished: int = 0

    @property
    def planned(self) -> int:
        """Runs, whatever became of them."""
        return self.seeds + len(self.failures) + self.unfinished


class PairedTest(msgspec.Struct, frozen=True, kw_only=True):
    """Whether two models differ: the mean over these seeds of every user's metric, user by user.

    z = mean(d) / (s_d / √n) of the differences d of n users, and p its two-sided tail of the normal
    distribution. That says too much about few users: below LEAST_TESTED there is no test.
    """

    metric: str
    better: str
    other: str
    users: int
    difference: float
    interval: tuple[float, float]
    """In which the difference is with a probability of 95 %."""
    p: float


def finished(entry: Entry, out: Path, fingerprint: str) -> Summary | None:
    """What came out of a run, if it is done, with these settings, on these data."""
    summary = RunFolder(entry.folder(out)).summary()
    if summary is None or (summary.config, summary.fingerprint) != (entry.config, fingerprint):
        return None
    return summary


def check_kept(entries: Sequence[Entry], out: Path, source: Source, fingerprint: str) -> None:
    """No finished run would be refused, or begun anew, with what is asked for."""
    for entry in entries:
        folder = RunFolder(entry.folder(out))
        if folder.summary() is not None and finished(entry, out, fingerprint) is None:
            run = Run(source=source, config=entry.config, fingerprint=fingerprint)
            folder.check_continued_by(run)


def read_outcomes(entries: Sequence[Entry], out: Path, fingerprint: str) -> list[Outcome]:
    """Of all that are planned, whether they have begun or not."""
    found = []
    for entry in entries:
        summary = finished(entry, out, fingerprint)
        why = None if summary else failure(entry, out)
        epochs = RunFolder(entry.folder(out)).metrics()
        found.append(Outcome(entry=entry, epochs=epochs, summary=summary, failure=why))
    return found


def rows(outcomes: Sequence[Outcome]) -> list[ModelRow]:
    """A row for each label, in the order of their first appearance."""
    labels = list(dict.fromkeys(one.entry.label for one in outcomes))
    return [_row(label, [one for one in outcomes if one.entry.label == label]) for label in labels]


def _row(label: str, outcomes: Sequence[Outcome]) -> ModelRow:
    done = [(one, one.summary) for one in outcomes if one.summary is not None]
    failures = [one.failure for one in outcomes if one.failure]
    unfinished = len(outcomes) - len(done) - len(failures)
    if not done:
        return ModelRow(label=label, seeds=0, metrics={}, failures=failures, unfinished=unfinished)
    measured = [{**summary.test, **summary.lists} for _, summary in done]
    names = [name for name in measured[0] if all(name in one for one in measured)]
    return ModelRow(
        label=label,
        seeds=len(done),
        metrics={name: Figure.of([one[name] for one in measured]) for name in names},
        best_epoch=_mean([summary.best_epoch for _, summary in done]),
        rounds=_mean([one.rounds(summary.best_epoch) for one, summary in done]),
        bytes=_mean([one.bytes(summary.best_epoch) for one, summary in done]),
        at_least=any(its.traffic is not None and its.traffic.plan is None for _, its in done),
        seconds=_mean([summary.seconds for _, summary in done]),
        failures=failures,
        unfinished=unfinished,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def paired_test(outcomes: Sequence[Outcome], out: Path, metric: str) -> PairedTest | None:
    """Between the best model by this metric and the best other one that is not its equal (LP-GCN
    and its backbone are), on the seeds that both have finished."""
    runs: dict[str, dict[int, Entry]] = {}
    for one in outcomes:
        if one.summary is not None and metric in one.summary.test:
            runs.setdefault(one.entry.label, {})[one.entry.config.seed] = one.entry
    means = {row.label: row.metrics[metric].mean for row in rows(outcomes) if row.label in runs}
    ranked = sorted(means, key=lambda label: -means[label])
    for other in ranked[1:]:
        pair = _on_equal_seeds(runs[ranked[0]], runs[other])
        if pair and pair[0][0].model != pair[1][0].model:
            means_of_users = [_user_means(entries, out, metric) for entries in pair]
            difference = means_of_users[0] - means_of_users[1]
            if len(difference) < LEAST_TESTED:
                return None
            if difference.any():
                # On the seeds that both have, the other one may be ahead.
                ahead = difference.mean() >= 0
                better, worse = (ranked[0], other) if ahead else (other, ranked[0])
                return _tested(metric, better, worse, difference if ahead else -difference)
    return None


def _on_equal_seeds(
    one: Mapping[int, Entry], other: Mapping[int, Entry]
) -> tuple[list[Entry], list[Entry]] | None:
    """The runs of two models seed by seed; what is computed has one run, which stands for all."""
    computed = [bool(described(next(iter(runs.values())).model).fixed) for runs in (one, other)]
    seeds = sorted(one.keys() & other.keys())
    if computed[0] != computed[1]:
        seeds = sorted(other if computed[0] else one)
    if not seeds:
        return None
    first, second = (
        [runs.get(seed) or next(iter(runs.values())) for seed in seeds] for runs in (one, other)
    )
    return first, second


def _tested(metric: str, better: str, other: str, difference: Float64) -> PairedTest:
    mean, spread = float(difference.mean()), float(difference.std(ddof=1)) / len(difference) ** 0.5
    z = mean / spread if spread else math.inf
    return PairedTest(
        metric=metric,
        better=better,
        other=other,
        users=len(difference),
        difference=mean,
        interval=(mean - NORMAL_95 * spread, mean + NORMAL_95 * spread),
        p=math.erfc(abs(z) / math.sqrt(2)),
    )


def _user_means(entries: Sequence[Entry], out: Path, metric: str) -> Float64:
    """A user's metric, in the mean of some runs of a model."""
    found = [RunFolder(entry.folder(out)).user_metrics()[metric] for entry in entries]
    mean: Float64 = np.mean(found, axis=0)
    return mean


def curves(outcomes: Sequence[Outcome], metric: str) -> Mapping[str, list[Outcome]]:
    """Runs with validations of the metric, by label."""
    found: dict[str, list[Outcome]] = {}
    for one in outcomes:
        if any(epoch.valid and metric in epoch.valid for epoch in one.epochs):
            found.setdefault(one.entry.label, []).append(one)
    return found
