"""Runs in processes of their own: what one of them does to itself costs the others nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from lpgcn.config import read_config, write_toml
from lpgcn.files import write_atomically
from lpgcn.methods.comparison.entries import Entry
from lpgcn.runtime.runs.source import Source

SECONDS_BETWEEN_LOOKS: Final = 0.5
_CONFIG: Final = ".toml"
_LOG: Final = ".log"
_FAILURE: Final = ".failure"


@dataclass(frozen=True)
class _Job:
    entry: Entry
    folder: Path
    process: subprocess.Popen[bytes]


def run_all(
    source: Source,
    pending: Iterable[Entry],
    out: Path,
    *,
    jobs: int,
    threads: int | None,
    look: Callable[[Sequence[Entry]], None],
) -> Iterator[Entry]:
    """Run them, so many at a time; each is given back when it has ended, well or badly. `look` is
    called again and again with those under way. Whoever stops listening ends them all."""
    waiting, running = list(pending), list[_Job]()
    threads = threads or max(1, (os.cpu_count() or 1) // jobs)
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_start(source, waiting.pop(0), out, threads))
            look([job.entry for job in running])
            ended = _first_ended(running)
            if ended is not None:
                running.remove(ended)
                _note_failure(ended)
                yield ended.entry
    finally:
        for job in running:
            _end(job.process)


def failure(entry: Entry, out: Path) -> str | None:
    """Why a run failed, if it did."""
    path = _beside(entry.folder(out), _FAILURE)
    return path.read_text(encoding="utf-8") if path.exists() else None


def _start(source: Source, entry: Entry, out: Path, threads: int) -> _Job:
    folder = entry.folder(out)
    folder.parent.mkdir(parents=True, exist_ok=True)
    had_failed = failure(entry, out) is not None and not (folder / "summary.json").exists()
    _beside(folder, _FAILURE).unlink(missing_ok=True)
    config = _beside(folder, _CONFIG)
    asked_before = read_config(config) if config.exists() else None
    write_toml(config, msgspec.to_builtins(entry.config))
    words = [*source.flags(), "--config", str(config), "--out", str(folder), "--json"]
    if (saved := folder / "config.toml").exists():
        # What failed with other settings begins anew. What is done with others is not touched, nor
        # what was refused because it has others: that is no failure of its own.
        failed_otherwise = had_failed and asked_before == read_config(saved) != entry.config
        words.append("--overwrite" if failed_otherwise else "--resume")
    words += ["--threads", str(threads)]
    # Those of BLAS and torch, which no flag reaches.
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    with _beside(folder, _LOG).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "lpgcn", "train", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **limits},
            # Ctrl-C goes to the comparison alone, which ends its runs itself.
            start_new_session=True,
        )
    return _Job(entry, folder, process)


def _first_ended(running: Sequence[_Job]) -> _Job | None:
    with suppress(subprocess.TimeoutExpired):
        running[0].process.wait(SECONDS_BETWEEN_LOOKS)
    return next((job for job in running if job.process.poll() is not None), None)


def _note_failure(job: _Job) -> None:
    code = job.process.returncode
    if code == 0:
        return
    lines = _beside(job.folder, _LOG).read_text(encoding="utf-8", errors="replace").splitlines()
    said = next((line for line in reversed(lines) if line.startswith("error:")), "")
    if code < 0:
        memory = "; is there memory enough?" if -code == signal.SIGKILL else ""
        said = f"ended by {signal.Signals(-code).name}{memory}"
    why = said.removeprefix("error:").strip() or f"exit code {code}"
    write_atomically(_beside(job.folder, _FAILURE), why.encode())


def _end(process: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does, with all that it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _beside(folder: Path, ending: str) -> Path:
    return folder.with_name(folder.name + ending)
