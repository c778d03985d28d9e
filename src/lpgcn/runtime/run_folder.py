"""The folder of a run: nothing in it is ever half-written, and a killed run goes on from it.

    config.toml       what was asked for
    metrics.jsonl     one line an epoch
    summary.json      what came out, written last
    model/            the trained model (see `Recommender`)
    checkpoint.safetensors   everything that the next step depends on
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from lpgcn.config import Config, parse, read_toml, write_atomically, write_toml
from lpgcn.errors import LpgcnError
from lpgcn.evaluation import EarlyStopping

_OURS = ("config.toml", "metrics.jsonl", "summary.json", "checkpoint.safetensors", "model")


class RunFolderError(LpgcnError):
    """A run folder that is in the way, missing, or of another run."""


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which data a run is about: a named data set, or files."""

    dataset: str
    train: str | None = None
    valid: str | None = None
    test: str | None = None
    ratio: tuple[float, float, float] | None = None


class EpochMetrics(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of `metrics.jsonl`."""

    epoch: int
    loss: float
    seconds: float
    """Since the run began, without the time between a crash and its resumption."""
    valid: dict[str, float] | None = None


@dataclass(frozen=True)
class Checkpoint:
    """The end of an epoch."""

    stopping: EarlyStopping
    epoch: int
    seconds: float
    fingerprint: str
    state: dict[str, Tensor]
    best: dict[str, Tensor]
    """The parameters with the best validation so far."""


class RunFolder:
    """Reads and writes the files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def _checkpoint(self) -> Path:
        return self.path / "checkpoint.safetensors"

    def begin(self, source: Source, config: Config, *, overwrite: bool) -> None:
        """Start a run here. A folder with another run is left alone unless `overwrite`."""
        present = [name for name in _OURS if (self.path / name).exists()]
        if present and not overwrite:
            raise RunFolderError(
                f"{self.path} already has a run ({', '.join(present)}); continue it with --resume, "
                "replace it with --overwrite, or choose another --out"
            )
        for name in present:
            if name == "model":
                shutil.rmtree(self.path / name)
            else:
                (self.path / name).unlink()
        write_toml(self.path / "config.toml", {**asdict(source), **asdict(config)})

    def describe(self) -> tuple[Source, Config]:
        """What the run here was asked to do."""
        path = self.path / "config.toml"
        if not path.exists():
            raise RunFolderError(f"{self.path} has no run: {path} is missing; check the folder")
        values = read_toml(path)
        source = {key: values.pop(key) for key in Source.__struct_fields__ if key in values}
        return msgspec.convert(source, Source), parse(values)

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        tensors = {f"state.{name}": value for name, value in checkpoint.state.items()}
        tensors |= {f"best.{name}": value for name, value in checkpoint.best.items()}
        about = msgspec.to_builtins(
            {
                "stopping": checkpoint.stopping,
                "epoch": checkpoint.epoch,
                "seconds": checkpoint.seconds,
                "fingerprint": checkpoint.fingerprint,
            }
        )
        content = save(tensors, metadata={"about": msgspec.json.encode(about).decode()})
        write_atomically(self._checkpoint, content)

    def load_checkpoint(self) -> Checkpoint | None:
        if not self._checkpoint.exists():
            return None
        try:
            with safe_open(self._checkpoint, framework="pt") as file:
                about = msgspec.json.decode(file.metadata()["about"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise RunFolderError(
                f"{self._checkpoint} is damaged: {error}; delete it to begin the run anew"
            ) from error
        return Checkpoint(
            EarlyStopping(**about["stopping"]),
            about["epoch"],
            about["seconds"],
            about["fingerprint"],
            _under("state.", tensors),
            _under("best.", tensors),
        )

    def keep_metrics_until(self, epoch: int) -> None:
        """Forget the epochs after a checkpoint: they are about to be run again."""
        write_atomically(
            self.path / "metrics.jsonl",
            b"".join(
                msgspec.json.encode(line) + b"\n" for line in self.metrics() if line.epoch <= epoch
            ),
        )

    def metrics(self) -> list[EpochMetrics]:
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return []
        # A kill can leave a last line without its end; it belongs to an epoch that is run again.
        complete = path.read_bytes().rpartition(b"\n")[0]
        return [msgspec.json.decode(line, type=EpochMetrics) for line in complete.splitlines()]

    def append_metrics(self, metrics: EpochMetrics) -> None:
        with (self.path / "metrics.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(metrics) + b"\n")

    def write_summary(self, summary: msgspec.Struct) -> None:
        content = msgspec.json.format(msgspec.json.encode(summary), indent=2)
        write_atomically(self.path / "summary.json", content)


def asdict(struct: msgspec.Struct) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(struct)
    return values


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
