"""The training loop: epochs, validation, early stopping, checkpoints; the test set once, last."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

import msgspec

from lpgcn import __version__
from lpgcn.config import Config
from lpgcn.data import Split, load, read_split
from lpgcn.evaluation import EarlyStopping
from lpgcn.runtime.centralized import Centralized
from lpgcn.runtime.engine import Engine
from lpgcn.runtime.memory import keep_freed_memory
from lpgcn.runtime.recommender import FORMAT, ModelCard, Recommender
from lpgcn.runtime.run_folder import (
    Checkpoint,
    EpochMetrics,
    RunFolder,
    RunFolderError,
    Source,
)


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """`summary.json`: what came out of a run."""

    version: str
    dataset: str
    fingerprint: str
    mode: str
    model: str
    epochs: int
    best_epoch: int
    steps: int
    seconds: float
    loss: float
    valid: dict[str, float]
    test: dict[str, float]
    test_users: int


class Observer(Protocol):
    """Told about progress while a run goes on."""

    def run_began(self, split: Split, config: Config, steps: int, done: int) -> None: ...
    def step_done(self) -> None: ...
    def epoch_done(self, metrics: EpochMetrics) -> None: ...


class Silent:
    """An observer that tells nobody."""

    def run_began(self, split: Split, config: Config, steps: int, done: int) -> None: ...
    def step_done(self) -> None: ...
    def epoch_done(self, metrics: EpochMetrics) -> None: ...


def open_source(source: Source, seed: int) -> Split:
    if source.train is None:
        return load(source.dataset)
    options = {} if source.ratio is None else {"ratio": source.ratio}
    return read_split(
        Path(source.train),
        None if source.valid is None else Path(source.valid),
        None if source.test is None else Path(source.test),
        seed=seed,
        **options,
    )


def engine_for(split: Split, config: Config) -> Engine:
    """The way to run that the configuration asks for."""
    return Centralized(split, config)


def train(
    dataset: str | Source,
    config: Config | None = None,
    *,
    out: Path | str,
    resume: bool = False,
    overwrite: bool = False,
    observer: Observer | None = None,
) -> Summary:
    """Train, validate, test once, and save everything in the folder `out`.

    With `resume` the run in `out` goes on from its last checkpoint, with its own configuration,
    and ends in the same bits as if it had never been interrupted.
    """
    folder = RunFolder(Path(out))
    source = Source(dataset=dataset) if isinstance(dataset, str) else dataset
    if resume:
        source, config = _same_run(folder, source, config)
    else:
        config = Config() if config is None else config
    split = open_source(source, config.seed)
    if not resume:
        folder.begin(source, config, overwrite=overwrite)
    keep_freed_memory()
    return _Run(folder, split, config, observer or Silent()).finish(resume=resume)


def _same_run(folder: RunFolder, source: Source, config: Config | None) -> tuple[Source, Config]:
    saved_source, saved = folder.describe()
    if (source, config or saved) != (saved_source, saved):
        raise RunFolderError(
            f"{folder.path} has a run with another configuration or data set; --resume continues "
            "it exactly as it was: leave the other options out, or choose another --out"
        )
    return saved_source, saved


class _Run:
    """One run from its (new or saved) beginning to its summary."""

    def __init__(
        self, folder: RunFolder, split: Split, config: Config, observer: Observer
    ) -> None:
        self._folder, self._split, self._config = folder, split, config
        self._observer = observer
        self._engine = engine_for(split, config)
        self._stopping = EarlyStopping(config.patience)
        self._best = self._engine.parameters()
        self._epoch = 0
        self._seconds_before = 0.0

    def finish(self, *, resume: bool) -> Summary:
        if resume:
            self._go_back()
        config, engine = self._config, self._engine
        steps = engine.steps_per_epoch
        total = steps * config.epochs
        self._observer.run_began(self._split, config, total, self._epoch * steps)
        self._began = time.monotonic()
        while self._epoch < config.epochs and not self._stopping.exhausted:
            for step in range(steps):
                rate = config.learning_rate(self._epoch * steps + step, total)
                engine.step(self._epoch, step, rate)
                self._observer.step_done()
            self._epoch += 1
            self._after_epoch()
        return self._conclude()

    def _go_back(self) -> None:
        checkpoint = self._folder.load_checkpoint()
        self._folder.keep_metrics_until(0 if checkpoint is None else checkpoint.epoch)
        if checkpoint is None:
            return
        if checkpoint.fingerprint != self._split.fingerprint:
            raise RunFolderError(
                f"the data has changed: the run in {self._folder.path} began with fingerprint "
                f"{checkpoint.fingerprint[:12]}, found {self._split.fingerprint[:12]}; "
                "bring the old data back, or begin a new run"
            )
        self._engine.restore(checkpoint.state)
        self._best = checkpoint.best
        self._stopping = checkpoint.stopping
        self._epoch = checkpoint.epoch
        self._seconds_before = checkpoint.seconds

    def _seconds(self) -> float:
        return self._seconds_before + time.monotonic() - self._began

    def _after_epoch(self) -> None:
        loss = self._engine.take_loss()
        valid = None
        last = self._epoch == self._config.epochs
        if self._epoch % self._config.eval_every == 0 or last:
            valid = self._engine.measure("valid").values
            self._stopping = self._stopping.after(self._epoch, valid["recall@20"])
            if self._stopping.improved:
                self._best = {k: v.clone() for k, v in self._engine.parameters().items()}
        metrics = EpochMetrics(
            epoch=self._epoch, loss=loss, seconds=round(self._seconds(), 3), valid=valid
        )
        self._folder.append_metrics(metrics)
        if valid is not None:
            self._folder.save_checkpoint(
                Checkpoint(
                    self._stopping,
                    self._epoch,
                    self._seconds(),
                    self._split.fingerprint,
                    self._engine.state(),
                    self._best,
                )
            )
        self._observer.epoch_done(metrics)

    def _conclude(self) -> Summary:
        """The test set is looked at here, once, with the best parameters of the validation."""
        split, config, engine = self._split, self._config, self._engine
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
        recommender = Recommender(
            card, engine.forward(), split.user_ids, split.item_ids, split.train
        )
        recommender.save(self._folder.path / "model")
        lines = self._folder.metrics()
        best = next(line for line in lines if line.epoch == self._stopping.best_epoch)
        summary = Summary(
            version=__version__,
            dataset=split.name,
            fingerprint=split.fingerprint,
            mode=config.mode,
            model=config.model,
            epochs=self._epoch,
            best_epoch=self._stopping.best_epoch,
            steps=self._epoch * engine.steps_per_epoch,
            seconds=round(self._seconds(), 3),
            loss=best.loss,
            valid=best.valid or {},
            test=test.values,
            test_users=test.n_users,
        )
        self._folder.write_summary(summary)
        return summary
