"""What a report says about runs: read from their folders, compared with one another."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from lpgcn.runtime.runs.run_folder import EpochMetrics, Run, RunFolder, Summary
from lpgcn.runtime.runs.saved_model import Recommender
from lpgcn.runtime.verification import table_differences
from lpgcn.terms import Term, read_terms

_CHANGES_NO_BIT: Final = (
    "mode", "suite", "planner", "max_load", "max_items_per_client", "convolution_clients",
    "never_convolve",
)  # fmt: skip
"""Settings that say who computes what, and under which key: no result may depend on them."""


@dataclass(frozen=True)
class RunRecord:
    """What is in a run folder; what a run does not have, as one that is not finished, is None."""

    name: str
    run: Run
    metrics: Sequence[EpochMetrics]
    terms: Sequence[Term] = ()
    summary: Summary | None = None
    model: Recommender | None = None

    @classmethod
    def read(cls, path: Path, name: str | None = None) -> RunRecord:
        """From a run folder, by whose name the run is called if by no other."""
        folder = RunFolder(path)
        return cls(
            name=name or path.resolve().name,
            run=folder.describe(),
            metrics=folder.metrics(),
            terms=read_terms(folder.terms) if folder.terms.exists() else (),
            summary=folder.summary(),
            model=Recommender.load(folder.model) if folder.model.is_dir() else None,
        )

    @property
    def dataset(self) -> str:
        return self.run.source.dataset

    @property
    def way(self) -> str:
        """The way to run, with the suite where there is one."""
        config = self.run.config
        return config.mode + (f", suite {config.suite}" if config.mode == "federated" else "")


def read_runs(paths: Sequence[Path]) -> list[RunRecord]:
    """Runs called by their folders, or, if two of these have one name, by what differs in their
    paths."""
    names = [path.resolve().name for path in paths]
    if len(set(names)) < len(names):
        common = os.path.commonpath([path.resolve().parent for path in paths])
        parts = [path.resolve().relative_to(common).parts for path in paths]
        same_end = 0
        while len({part[-1 - same_end :] for part in parts}) == 1:
            same_end += 1
        kept = [part[: len(part) - same_end] for part in parts]
        names = ["/".join(part) for part in (kept if all(kept) else parts)]
    return [RunRecord.read(path, name) for path, name in zip(paths, names, strict=True)]


@dataclass(frozen=True)
class Verdict:
    """A run beside the centralised run of the same training."""

    run: RunRecord
    centralized: RunRecord
    epochs: int
    """So many were compared: those that both have."""
    difference: float
    """The largest of any loss, any metric or, if both runs have a model, any final vector."""

    @property
    def lossless(self) -> bool:
        return self.difference == 0

    @property
    def with_vectors(self) -> bool:
        return self.run.model is not None and self.centralized.model is not None


def verdicts(runs: Sequence[RunRecord]) -> list[Verdict]:
    """Every run that is not centralised, if the centralised run of the same training is there."""
    central = [one for one in runs if one.run.config.mode == "centralized"]
    found = []
    for run in runs:
        twin = next((one for one in central if one is not run and _same_training(one, run)), None)
        if twin is not None and run not in central:
            found.append(_verdict(run, twin))
    return found


def _same_training(one: RunRecord, other: RunRecord) -> bool:
    return (
        one.run.fingerprint == other.run.fingerprint
        and one.terms == other.terms
        and _training(one.run) == _training(other.run)
    )


def _training(run: Run) -> dict[str, object]:
    values = msgspec.to_builtins(run.config)
    return {key: value for key, value in values.items() if key not in _CHANGES_NO_BIT}


def _verdict(run: RunRecord, central: RunRecord) -> Verdict:
    pairs = list(zip(run.metrics, central.metrics, strict=False))
    differences = [0.0 if pairs else math.inf]
    for ours, theirs in pairs:
        differences += _differences(ours, theirs)
    if run.summary is not None and central.summary is not None:
        differences += [
            _difference(run.summary.test.get(name), value)
            for name, value in central.summary.test.items()
        ]
    if run.model is not None and central.model is not None:
        found, expected = run.model.scorer.arrays(), central.model.scorer.arrays()
        differences += table_differences(found, expected)
    worst = math.inf if any(map(math.isnan, differences)) else max(differences)
    return Verdict(run, central, len(pairs), worst)


def _differences(ours: EpochMetrics, theirs: EpochMetrics) -> Iterator[float]:
    yield math.inf if ours.epoch != theirs.epoch else 0.0
    yield _difference(ours.loss, theirs.loss)
    mine, other = ours.valid or {}, theirs.valid or {}
    for name in {**mine, **other}:
        yield _difference(mine.get(name), other.get(name))


def _difference(ours: float | None, theirs: float | None) -> float:
    if ours is None or theirs is None:
        return 0.0 if ours is theirs else math.inf
    return abs(ours - theirs)
