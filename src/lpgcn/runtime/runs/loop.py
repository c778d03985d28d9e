"""The training loop: epochs, validation, early stopping, checkpoints; the test set once, last.

It drives any engine, and never touches what belongs to the parties: it says when to keep the best
parameters, when to write a checkpoint, and from which one to go on.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import msgspec

from lpgcn import __version__
from lpgcn.checkpoints import CheckpointError
from lpgcn.data import Split
from lpgcn.evaluation import EarlyStopping, Evaluation, EvaluationWarning, NothingHeldOutError
from lpgcn.files import held
from lpgcn.protocol.phases import Phase
from lpgcn.runtime.engines.engine import EPOCHS_A_LOSS, Engine, RunInterruptedError
from lpgcn.runtime.local_cost import LocalCost
from lpgcn.runtime.runs.run_folder import EpochMetrics, Progress, Run, RunFolder, Summary

SECONDS_TO_LOSE: Final = 60.0
"""Where validations are rare, this is about how much work a kill can cost."""


class Observer:
    """Told about the progress of a run; this one tells nobody."""

    def data_read(self, split: Split) -> None: ...

    def driving(self, engine: Engine) -> None:
        """Before anything else is asked of it."""

    def run_began(self, run: Run, steps_per_epoch: int, so_far: Progress) -> None:
        """A run begins, or goes on after what was done so far."""

    def planning(self, stage: str, share: float) -> None:
        """A plan is being made, and this share of the work is done."""

    def estimated(self, cost: LocalCost) -> None:
        """What a federation on this machine is going to take; it has its plan, and no step yet."""

    def stage_began(self, phase: Phase) -> None:
        """A federation's server calls its clients."""

    def step_done(self) -> None: ...

    def epoch_done(self, metrics: EpochMetrics) -> None: ...

    def checkpointed(self, number: int) -> None: ...

    def damaged(self, error: CheckpointError) -> None:
        """The checkpoint before this one is tried."""

    def run_ended(self, engine: Engine) -> None:
        """The engine has the best parameters, and is still there."""


class Loop:
    """One run from its (new or saved) beginning to its summary."""

    def __init__(
        self,
        folder: RunFolder,
        run: Run,
        engine: Engine,
        observer: Observer,
        save: Callable[[], dict[str, float]],
        checkpoint_every: int | None = None,
        beginning: AbstractContextManager[None] | None = None,
    ) -> None:
        """`save` is called when the engine has the best parameters, and says what lists are like
        where anybody has them all; `checkpoint_every` counts steps. A new run begins within
        `beginning`; without it, one that is there goes on."""
        self._folder, self._run, self._config = folder, run, run.config
        self._engine, self._observer, self._save = engine, observer, save
        self._every, self._beginning = checkpoint_every, beginning
        self._progress = Progress(stopping=EarlyStopping(run.config.patience))
        self._number = self._since = self._steps_done = 0
        self._zero = self._saved_at = 0.0

    def finish(self) -> Summary:
        """Whatever interrupts the run and can be mended, is; then it goes on from a checkpoint."""
        with held(self._folder.path):
            return self._finish()

    def _finish(self) -> Summary:
        self._observer.driving(self._engine)
        going_on = self._folder.checkpoints() if self._beginning is None else []
        while True:
            try:
                self._go_on_from(going_on)
                self._observer.run_began(self._run, self._engine.steps_per_epoch, self._progress)
                self._train()
                return self._conclude()
            except RunInterruptedError as interruption:
                possible = self._engine.recover(interruption)
                going_on = [number for number in self._folder.checkpoints() if number in possible]

    def _go_on_from(self, numbers: list[int]) -> None:
        """The last of these checkpoints that is whole, or the very beginning."""
        self._number, self._progress = 0, Progress(stopping=EarlyStopping(self._config.patience))
        renewed = self._resumed(numbers)
        # The number of a checkpoint that was passed over is given again, perhaps at another step.
        # Who is killed then would find some parties with the old one, some with the new.
        self._folder.forget_checkpoints_after(self._number)
        self._folder.keep_metrics_until(self._progress.epoch)
        self._saved_at, self._steps_done = self._progress.seconds, self._progress.steps
        self._since = 0
        self._zero = time.monotonic() - self._progress.seconds
        if renewed:
            self._checkpoint()

    def _resumed(self, numbers: list[int]) -> bool:
        for number in reversed(numbers):
            try:
                progress = self._folder.progress(number)
                if self._was_the_last(progress):
                    continue
                renewed = self._engine.resume(number)
            except CheckpointError as error:
                if number == numbers[0]:
                    raise CheckpointError(
                        f"no checkpoint of the run in {self._folder.path} is whole: {error}; "
                        f"{self._folder.advice.damaged}"
                    ) from error
                self._observer.damaged(error)
                continue
            self._number, self._progress = number, progress
            return renewed
        with self._beginning or nullcontext():
            self._begin()
        self._beginning = None
        return False

    def _was_the_last(self, progress: Progress) -> bool:
        """Whether this is after an epoch that was looked at for being the last one, of a run that
        is longer now: as if it had always been, it goes on from the checkpoint before that."""
        epoch, best = progress.epoch, progress.best
        validated = not progress.step and progress.stopping.epoch == epoch > 0
        looked_at = validated or (best is not None and best.valid is None)
        return looked_at and epoch != self._config.epochs and not self._is_validated(epoch)

    def _is_validated(self, epoch: int) -> bool:
        every = self._config.eval_every
        return bool(every) and (epoch % every == 0 or epoch == self._config.epochs)

    def _is_asked_for_loss(self, epoch: int) -> bool:
        """A sum of losses has a largest, and there may be no validation at which it ends."""
        return not self._config.eval_every and epoch % EPOCHS_A_LOSS == 0

    def _begin(self) -> None:
        """Until it is done: who was interrupted tries again, in the next stretch."""
        while True:
            try:
                return self._engine.begin()
            except RunInterruptedError as interruption:
                self._engine.recover(interruption)

    def _train(self) -> None:
        config = self._config
        while self._progress.epoch < config.epochs and not self._progress.stopping.exhausted:
            epoch = self._progress.epoch
            for step in self._steps():
                steps = self._engine.steps_per_epoch
                rate = config.learning_rate(epoch * steps + step, steps * config.epochs)
                self._engine.step(epoch, step, rate)
                self._since, self._steps_done = self._since + 1, self._steps_done + 1
                self._observer.step_done()
            self._end_epoch(epoch + 1)

    def _steps(self) -> Iterator[int]:
        """Those of the epoch that are to be done; their number may change with the members."""
        step = self._progress.step
        while self._has(step):
            yield step
            step += 1
            seconds = self._seconds()
            due = self._every is not None and self._since >= self._every
            if step < self._engine.steps_per_epoch and (
                due or seconds - self._saved_at > SECONDS_TO_LOSE
            ):
                self._progress = msgspec.structs.replace(
                    self._progress, step=step, steps=self._steps_done, seconds=seconds
                )
                self._checkpoint()

    def _has(self, step: int) -> bool:
        """Whether the epoch is long enough, for who would be a member then."""
        self._engine.approach(self._progress.epoch, step)
        return step < self._engine.steps_per_epoch

    def _seconds(self) -> float:
        return round(time.monotonic() - self._zero, 3)

    def _end_epoch(self, epoch: int) -> None:
        config, engine, stopping = self._config, self._engine, self._progress.stopping
        best, loss, valid = self._progress.best, None, None
        validated, last = self._is_validated(epoch), epoch == config.epochs
        if validated or last or engine.steps_per_epoch > 1 or self._is_asked_for_loss(epoch):
            loss = engine.take_loss()
        if validated:
            valid = engine.measure("valid").values
            stopping = stopping.after(epoch, valid["recall@20"])
            if stopping.improved and valid["recall@20"] == 1 and epoch < config.epochs:
                _warn_of_saturation(epoch, config.epochs)
        seconds = self._seconds()
        metrics = EpochMetrics(epoch=epoch, loss=loss, seconds=seconds, valid=valid)
        if valid and stopping.improved:
            best = metrics
            engine.keep()
        elif last and not config.eval_every:
            best = metrics
        self._progress = Progress(
            stopping=stopping, epoch=epoch, steps=self._steps_done, seconds=seconds, best=best
        )
        self._folder.append_metrics(metrics)
        due = self._every is not None and self._since >= self._every
        if valid or last or due or seconds - self._saved_at > SECONDS_TO_LOSE:
            self._checkpoint()
        self._observer.epoch_done(metrics)

    def _checkpoint(self) -> None:
        """Everybody has the new one before the run counts on it; the one before it stays."""
        renewed = True
        while renewed:
            number = self._number + 1
            self._engine.checkpoint(number, self._progress.epoch, self._progress.step)
            self._folder.save_progress(number, self._progress)
            self._number, self._since, self._saved_at = number, 0, self._progress.seconds
            self._observer.checkpointed(number)
            renewed = self._engine.renew()

    def _conclude(self) -> Summary:
        """The test set is looked at here, once, with the best parameters of the validation; with
        the last, if there was none."""
        run, engine, best = self._run, self._engine, self._progress.best
        assert best is not None and best.loss is not None, "the last epoch is one, if no other is"
        if best.valid is not None:
            engine.go_back()
        test = self._tested()
        lists = self._save()
        summary = Summary(
            version=__version__,
            dataset=run.source.dataset,
            fingerprint=run.fingerprint,
            mode=run.config.mode,
            model=run.config.model,
            epochs=self._progress.epoch,
            best_epoch=best.epoch,
            steps=self._steps_done,
            seconds=self._seconds(),
            loss=best.loss,
            valid=best.valid or {},
            test=test.values,
            test_users=test.n_users,
            lists=lists,
            traffic=engine.traffic(),
            config=run.config,
        )
        self._folder.write_summary(summary)
        self._observer.run_ended(engine)
        return summary

    def _tested(self) -> Evaluation:
        """Of nobody, if nothing is held out from a run that does not look at it on its way."""
        try:
            return self._engine.measure("test")
        except NothingHeldOutError:
            if self._config.eval_every:
                raise
            return Evaluation({}, 0)


def _warn_of_saturation(epoch: int, epochs: int) -> None:
    """As soon as nothing that follows can count."""
    warnings.warn(
        f"validation Recall@20 is 1 at epoch {epoch}, as always where 20 items or fewer are left "
        "to rank: the best epoch and early stopping look at nothing else, so that this epoch is "
        f"kept, whatever else becomes better; for the last of {epochs} give --eval-every {epochs} "
        f"(in Python eval_every={epochs}), and choose --epochs yourself",
        EvaluationWarning,
        stacklevel=2,
    )
