"""The folder of a run: nothing in it is ever half-written, and a killed run goes on from it.

data.toml         which data, and their fingerprint
config.toml       the configuration; it can be given to --config again
metrics.jsonl     one line an epoch
progress/         how far the run was at its last two checkpoints
state/            these checkpoints, in a folder for each party
terms.jsonl       who was a member when: of a federation over a network, or of the log followed
model/            the trained model (see `Recommender`)
test_users.npz    the test's metrics of every user, where there is somebody who may know them
data/             data that was in memory, as files
summary.json      what came out, written last
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile

import msgspec
import numpy as np

from lpgcn.array_types import Float64
from lpgcn.checkpoints import InFolder
from lpgcn.config import Config, convert, read_config, read_toml, write_toml
from lpgcn.data import Ids, Split
from lpgcn.data.written import check_can_be_written, write_split
from lpgcn.errors import LpgcnError
from lpgcn.evaluation import EarlyStopping, UserMetrics
from lpgcn.files import check_folder, remove_half_written, storing, write_atomically
from lpgcn.runtime.runs.source import Source
from lpgcn.runtime.traffic import TrafficSummary
from lpgcn.terms import Term, write_terms


class RunFolderError(LpgcnError):
    """A run folder that is in the way, missing, damaged, or of another run."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What decides the bits of a run."""

    source: Source
    config: Config
    fingerprint: str


class EpochMetrics(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of `metrics.jsonl`."""

    epoch: int
    seconds: float
    """Since the run began, without the time between a crash and its resumption."""
    loss: float | None = None
    """The mean of a sample since it was last asked for. In a federation that is a round of its own,
    so that where an epoch has one step only it is asked for at validations, or now and then."""
    valid: dict[str, float] | None = None


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run has come."""

    stopping: EarlyStopping
    epoch: int = 0
    step: int = 0
    """Of the next epoch: so many are done."""
    steps: int = 0
    """Of the whole run."""
    seconds: float = 0.0
    best: EpochMetrics | None = None
    """The epoch with the best validation so far; where there are none, the last of all."""


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
    """Of the best epoch; empty, if there was no validation. Then the last epoch is the best."""
    test: dict[str, float]
    """Empty, if nobody had anything held out."""
    test_users: int
    lists: dict[str, float] = {}
    """What the test's lists are like (`beyond_accuracy`), where somebody has them all."""
    traffic: TrafficSummary | None = None
    config: Config | None = None
    """With the seed. Summaries that are older than this field have none."""


class Advice(msgspec.Struct, frozen=True):
    """What to do about a run that is here, in flags of the command that found it."""

    taken: str
    damaged: str


OF_TRAINING: Final = Advice(
    taken="continue it with --resume, replace it with --overwrite, or choose another --out",
    damaged="bring its files back from a copy, or begin it anew with --overwrite",
)


class RunFolder:
    """Reads and writes the files of one run."""

    def __init__(self, path: Path, *, mode: int = 0o666, advice: Advice = OF_TRAINING) -> None:
        """`mode` is that of the files with the configuration, of which the seed may be a secret."""
        self.path, self._mode, self.advice = path, mode, advice
        self._data, self._config = path / "data.toml", path / "config.toml"
        self._metrics, self._summary = path / "metrics.jsonl", path / "summary.json"
        self.terms = path / "terms.jsonl"
        self._progress_folder = path / "progress"
        self._progress = InFolder(self._progress_folder)
        self.state, self.model, self._kept_data = path / "state", path / "model", path / "data"
        self._user_metrics = path / "test_users.npz"
        self._aside = path / ".replaced"

    @property
    def _files(self) -> tuple[Path, ...]:
        return (
            self._config, self._data, self._metrics, self._summary, self.terms, self._user_metrics,
        )  # fmt: skip

    @property
    def _folders(self) -> tuple[Path, ...]:
        return self._progress_folder, self.state, self.model, self._kept_data

    @property
    def has_run(self) -> bool:
        """See `beginning`."""
        return self._config.exists()

    def check_free(self, *, overwrite: bool) -> None:
        """Refuse a folder with another run, unless `overwrite`, and what cannot be one."""
        check_folder(self.path)
        present = [path for path in (*self._files, *self._folders) if path.exists()]
        # A run that did not get as far as its first step has left no more than that it tried.
        if not {*present} <= {self.state, self._data} and not overwrite:
            raise RunFolderError(
                f"{self.path} already has a run ({', '.join(path.name for path in present)}); "
                f"{self.advice.taken}"
            )

    @contextmanager
    def beginning(
        self,
        run: Run,
        *,
        overwrite: bool,
        terms: Sequence[Term] = (),
        in_memory: Split | None = None,
    ) -> Iterator[None]:
        """Start a run here, which may follow a log of terms, on data that may be in memory.

        A folder with another run is left alone unless `overwrite`; and should the new one not get
        as far as its first step, the other is still there. If there was none, the parties' folders
        stay: they have the number of the stretch, and parties elsewhere remember it.

        `config.toml` is written last and deleted first: a folder that has one has a run.
        """
        self.check_free(overwrite=overwrite)
        self._bring_back()
        replaces = self.has_run or self._progress_folder.exists()
        if replaces:
            _move((self._progress_folder, self.state), self._aside)
        try:
            yield
        except BaseException:
            if replaces:
                shutil.rmtree(self.state, ignore_errors=True)
                self._bring_back()
            raise
        for path in self._files:
            path.unlink(missing_ok=True)
        for folder in (self._aside, self.model, self._kept_data):
            shutil.rmtree(folder, ignore_errors=True)
        if in_memory is not None:
            write_split(in_memory, self._kept_data)
        source = {**msgspec.to_builtins(run.source), "fingerprint": run.fingerprint}
        write_toml(self._data, source)
        if terms:
            write_terms(self.terms, terms)
        self._write_config(run.config)

    def _bring_back(self) -> None:
        """What was put aside for a run that did not begin, even if that was killed."""
        for folder in (self._progress_folder, self.state):
            if (self._aside / folder.name).exists():
                shutil.rmtree(folder, ignore_errors=True)
                _move((self._aside / folder.name,), self.path)
        shutil.rmtree(self._aside, ignore_errors=True)

    def source_of(self, split: Split) -> Source:
        """Data in memory is files here, so that a run can be resumed and measured by anybody."""
        check_can_be_written(split)
        # A part without interactions is none: a file with nothing in it would be taken for a slip.
        of_parts: dict[str, Any] = {
            name: str(self._kept_data / f"{name}.csv")
            for name, part in split.parts.items()
            if len(part)
        }
        if len(of_parts) == 1:
            of_parts["ratio"] = (1.0, 0.0, 0.0)
        elif "valid" not in of_parts:
            of_parts["valid_ratio"] = 0.0
        users, items = (
            None if features is None else str(self._kept_data / f"{name}_features.npz")
            for name, features in (("user", split.user_features), ("item", split.item_features))
        )
        return Source(dataset=split.name, user_features=users, item_features=items, **of_parts)

    def describe(self) -> Run:
        """What the run here is about."""
        if not self.has_run:
            raise RunFolderError(
                f"{self.path} has no run: {self._config.name} is missing; check the folder"
            )
        values = read_toml(self._data)
        fingerprint = str(values.pop("fingerprint", ""))
        source = convert(values, Source, str(self._data))
        return Run(source=source, config=read_config(self._config), fingerprint=fingerprint)

    def check_continued_by(self, run: Run) -> None:
        """That a run is the one here; but it may be longer, where its beginning is the same."""
        saved = self.describe()
        if run.config.epochs > saved.config.epochs:
            if saved.config.schedule != "constant":
                raise RunFolderError(
                    f"the run in {self.path} has {saved.config.epochs} epochs, and the learning "
                    f"rate of each depends on that number (schedule {saved.config.schedule}): a "
                    "longer run would have begun otherwise; begin another one with another --out"
                )
            longer = msgspec.structs.replace(saved.config, epochs=run.config.epochs)
            saved = msgspec.structs.replace(saved, config=longer)
        for found, wanted in ((saved.source, run.source), (saved.config, run.config)):
            for key in found.__struct_fields__:
                if getattr(found, key) != getattr(wanted, key):
                    raise RunFolderError(
                        f"the run in {self.path} has {key} {getattr(found, key)}, not "
                        f"{getattr(wanted, key)}; --resume continues it exactly as it was: leave "
                        "the option out, or begin another run with another --out"
                    )
        if saved.fingerprint != run.fingerprint:
            raise RunFolderError(
                f"the data has changed: the run in {self.path} began with fingerprint "
                f"{saved.fingerprint[:12]}, found {run.fingerprint[:12]}; bring the old data back, "
                "or begin another run"
            )

    def extend(self, config: Config) -> None:
        """The run is to be longer. Its summary goes first: without it a run is not finished."""
        self._summary.unlink(missing_ok=True)
        self._write_config(config)

    def _write_config(self, config: Config) -> None:
        write_toml(self._config, msgspec.to_builtins(config), mode=self._mode)

    def save_progress(self, number: int, progress: Progress) -> None:
        """Written last: with it a checkpoint of the run is complete."""
        self._progress.write(number, msgspec.json.encode(progress))

    def checkpoints(self) -> list[int]:
        """Those of the run that are complete. What a kill left half-written is removed."""
        self._bring_back()
        # The folder is held: no other process writes here now.
        remove_half_written(self.path, by_others=0)
        return self._progress.numbers()

    def forget_checkpoints_after(self, number: int) -> None:
        """Without its progress a checkpoint is none, whatever the parties still have of it."""
        self._progress.forget_after(number)

    def progress(self, number: int) -> Progress:
        return msgspec.json.decode(self._progress.read(number), type=Progress)

    def metrics(self) -> list[EpochMetrics]:
        """One entry an epoch."""
        if not self._metrics.exists():
            return []
        # A kill can leave a last line without its end; it belongs to an epoch that is run again.
        complete = self._metrics.read_bytes().rpartition(b"\n")[0]
        try:
            return [msgspec.json.decode(line, type=EpochMetrics) for line in complete.splitlines()]
        except msgspec.DecodeError as error:
            raise RunFolderError(
                f"{self._metrics} is damaged: {error}; mend or delete it"
            ) from error

    def keep_metrics_until(self, epoch: int) -> None:
        """Forget the epochs after a checkpoint: they are about to be run again."""
        kept = [msgspec.json.encode(line) for line in self.metrics() if line.epoch <= epoch]
        write_atomically(self._metrics, b"".join(line + b"\n" for line in kept))

    def append_metrics(self, metrics: EpochMetrics) -> None:
        with storing(self._metrics), self._metrics.open("ab") as file:
            file.write(msgspec.json.encode(metrics) + b"\n")

    def write_summary(self, summary: Summary) -> None:
        content = msgspec.json.format(msgspec.json.encode(summary), indent=2)
        write_atomically(self._summary, content, mode=self._mode)

    def write_user_metrics(self, user_ids: Ids, found: UserMetrics) -> None:
        """For tests of significance: the array `user` of ids, and one array for each metric."""
        content = BytesIO()
        arrays: dict[str, Any] = {"user": user_ids.values[found.users], **found.values}
        np.savez_compressed(content, allow_pickle=False, **arrays)
        write_atomically(self._user_metrics, content.getvalue())

    def user_metrics(self) -> dict[str, Float64]:
        """What `write_user_metrics` wrote, but for the ids: equal in all runs on the same data."""
        try:
            with np.load(self._user_metrics, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files if name != "user"}
        except (OSError, ValueError, BadZipFile) as error:
            raise RunFolderError(
                f"{self._user_metrics} cannot be read: {error}; `lpgcn evaluate` measures the "
                "model again"
            ) from error

    def summary(self) -> Summary | None:
        """What came out, if the run is finished."""
        if not self._summary.exists():
            return None
        try:
            return msgspec.json.decode(self._summary.read_bytes(), type=Summary)
        except msgspec.DecodeError as error:
            raise RunFolderError(
                f"{self._summary} is damaged: {error}; delete it and go on with the run, which "
                "writes it again"
            ) from error


def _move(folders: Iterable[Path], target: Path) -> None:
    """Those that are there."""
    for folder in folders:
        if folder.exists():
            with storing(target):
                target.mkdir(parents=True, exist_ok=True)
                folder.rename(target / folder.name)
