"""The training loop: epochs, validation, early stopping, checkpoints; the test set once, last."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from lpgcn import __version__
from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.evaluation import EarlyStopping
from lpgcn.protocol.phases import Phase
from lpgcn.protocol.transcript import Transcript, Witness
from lpgcn.runtime.engines.centralized import Centralized
from lpgcn.runtime.engines.engine import Engine, Tables
from lpgcn.runtime.engines.federated import Federated
from lpgcn.runtime.engines.simulated import Simulated
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.memory import keep_freed_memory
from lpgcn.runtime.planning import planner_for
from lpgcn.runtime.runs.saved_model import FORMAT, ModelCard, Recommender
from lpgcn.runtime.runs.run_folder import (
    Checkpoint,
    EpochMetrics,
    Progress,
    Run,
    RunFolder,
    RunFolderError,
    Summary,
)
from lpgcn.runtime.runs.source import Source, SourceError

_SECONDS_TO_LOSE: Final = 60.0
"""Where validations are rare, this is about how much work a kill can cost."""


class Observer:
    """Told about the progress of a run; this one tells nobody."""

    def run_began(self, run: Run, split: Split, steps_per_epoch: int, so_far: Progress) -> None:
        """A run begins, or goes on after what was done so far."""

    def planning(self, stage: str, share: float) -> None:
        """A plan is being made, and this share of the work is done."""

    def stage_began(self, phase: Phase) -> None:
        """A federation's server calls its clients."""

    def step_done(self) -> None: ...

    def epoch_done(self, metrics: EpochMetrics) -> None: ...

    def run_ended(self, engine: Engine) -> None:
        """The engine has the best parameters, and is still there."""


def engine_for(
    split: Split,
    config: Config,
    workers: int = 1,
    threads: int | None = None,
    observer: Observer | None = None,
    witness: Witness | None = None,
) -> Engine:
    """The way to run that the configuration asks for."""
    if config.mode == "centralized":
        return Centralized(split, config, Machine.with_threads(threads))
    observer = observer or Observer()
    planner = planner_for(split, config, observer.planning)
    if config.mode == "simulated":
        return Simulated(split, config, planner, Machine.with_threads(threads))
    return Federated(split, config, planner, workers, observer.stage_began, witness)


def train(
    dataset: str | Source,
    config: Config | None = None,
    *,
    out: Path | str,
    resume: bool = False,
    overwrite: bool = False,
    workers: int = 1,
    threads: int | None = None,
    transcript: Path | str | None = None,
    observer: Observer | None = None,
) -> Summary:
    """Train, validate, test once, and save everything in the folder `out`.

    With `resume` the run in `out` goes on from its last checkpoint, with its own configuration,
    and ends in the same bits as if it had never been interrupted. A finished run is left as it is.
    `workers` is the number of processes over which a federation's clients are spread, `threads`
    that of the threads of any other run; neither changes a bit. With
    `transcript` everything that each of its parties receives is written to that file.
    """
    folder = RunFolder(Path(out))
    source = (Source(dataset=dataset) if isinstance(dataset, str) else dataset).resolved()
    config = config or (folder.describe().config if resume else Config())
    if transcript and (config.mode != "federated" or workers > 1):
        raise SourceError(
            f"a transcript needs --mode federated and one worker, which holds all parties; this is "
            f"{config.mode} with {workers}"
        )
    split = source.open()
    _check_heldout(split)
    run = Run(source=source, config=config, fingerprint=split.fingerprint)
    if not resume:
        folder.check_free(overwrite=overwrite)
    else:
        _check_same(folder, run)
        if summary := folder.summary():
            return summary
    keep_freed_memory()
    observer = observer or Observer()
    with ExitStack() as stack:
        witness = stack.enter_context(Transcript(Path(transcript))) if transcript else None
        engine = engine_for(split, config, workers, threads, observer, witness)
        stack.callback(engine.close)
        if not resume:
            # Not earlier: a plan that cannot be made must not cost the run that was here.
            folder.begin(run, overwrite=overwrite)
        return _Training(folder, run, split, engine, observer).finish()


def _check_heldout(split: Split) -> None:
    for part in ("valid", "test"):
        if not len(split.parts[part]):
            raise SourceError(
                f"the {part} part of {split.name} has no interactions; training needs it to choose "
                "the best epoch and to report it: give --valid and --test, or a --ratio that "
                "leaves some for both"
            )


def _check_same(folder: RunFolder, run: Run) -> None:
    saved = folder.describe()
    for found, wanted in ((saved.source, run.source), (saved.config, run.config)):
        for key in found.__struct_fields__:
            if getattr(found, key) != getattr(wanted, key):
                raise RunFolderError(
                    f"the run in {folder.path} has {key} {getattr(found, key)}, not "
                    f"{getattr(wanted, key)}; --resume continues it exactly as it was: leave the "
                    "option out, or begin another run with another --out"
                )
    if saved.fingerprint != run.fingerprint:
        raise RunFolderError(
            f"the data has changed: the run in {folder.path} began with fingerprint "
            f"{saved.fingerprint[:12]}, found {run.fingerprint[:12]}; bring the old data back, or "
            "begin another run"
        )


class _Training:
    """One run from its (new or saved) beginning to its summary."""

    def __init__(
        self, folder: RunFolder, run: Run, split: Split, engine: Engine, observer: Observer
    ) -> None:
        self._folder, self._run, self._config = folder, run, run.config
        self._split, self._engine, self._observer = split, engine, observer
        self._progress = Progress(stopping=EarlyStopping(run.config.patience))
        self._best: Tables = {}
        self._go_back()

    def _go_back(self) -> None:
        """To the last checkpoint, or to the very beginning."""
        if checkpoint := self._folder.load_checkpoint():
            self._engine.restore(checkpoint.state)
            self._best, self._progress = checkpoint.best, checkpoint.progress
        self._folder.keep_metrics_until(self._progress.epoch)
        self._saved_at = self._progress.seconds
        self._zero = time.monotonic() - self._progress.seconds

    def finish(self) -> Summary:
        config, engine = self._config, self._engine
        steps = engine.steps_per_epoch
        total = steps * config.epochs
        self._observer.run_began(self._run, self._split, steps, self._progress)
        while self._progress.epoch < config.epochs and not self._progress.stopping.exhausted:
            epoch = self._progress.epoch
            for step in range(steps):
                engine.step(epoch, step, config.learning_rate(epoch * steps + step, total))
                self._observer.step_done()
            self._end_epoch(epoch + 1)
        return self._conclude()

    def _end_epoch(self, epoch: int) -> None:
        config, engine, stopping = self._config, self._engine, self._progress.stopping
        best, loss, valid = self._progress.best, engine.take_loss(), None
        if epoch % config.eval_every == 0 or epoch == config.epochs:
            valid = engine.measure("valid").values
            stopping = stopping.after(epoch, valid["recall@20"])
        seconds = round(time.monotonic() - self._zero, 3)
        metrics = EpochMetrics(epoch=epoch, loss=loss, seconds=seconds, valid=valid)
        if valid and stopping.improved:
            best = metrics
            self._best = engine.parameters()
        self._progress = Progress(stopping=stopping, epoch=epoch, seconds=seconds, best=best)
        self._folder.append_metrics(metrics)
        if valid or seconds - self._saved_at > _SECONDS_TO_LOSE:
            self._folder.save_checkpoint(Checkpoint(self._progress, engine.state(), self._best))
            self._saved_at = seconds
        self._observer.epoch_done(metrics)

    def _conclude(self) -> Summary:
        """The test set is looked at here, once, with the best parameters of the validation."""
        split, config, engine, best = self._split, self._config, self._engine, self._progress.best
        assert best is not None and best.valid is not None, "the last epoch is always validated"
        engine.set_parameters(self._best)
        test = engine.measure("test")
        card = ModelCard(
            format=FORMAT,
            dataset=split.name,
            fingerprint=split.fingerprint,
            config=config,
            n_users=split.n_users,
            n_items=split.n_items,
        )
        model = Recommender(card, engine.vectors(), split.user_ids, split.item_ids, split.train)
        model.save(self._folder.model)
        summary = Summary(
            version=__version__,
            dataset=split.name,
            fingerprint=split.fingerprint,
            mode=config.mode,
            model=config.model,
            epochs=self._progress.epoch,
            best_epoch=best.epoch,
            steps=self._progress.epoch * engine.steps_per_epoch,
            seconds=round(time.monotonic() - self._zero, 3),
            loss=best.loss,
            valid=best.valid,
            test=test.values,
            test_users=test.n_users,
            traffic=engine.traffic(),
        )
        self._folder.write_summary(summary)
        self._observer.run_ended(engine)
        return summary
