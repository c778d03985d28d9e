"""`lpgcn.train`, for every model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lpgcn.config import Config
from lpgcn.data import Columns, Splitting
from lpgcn.methods.registry import engine_for
from lpgcn.runtime.runs import training
from lpgcn.runtime.runs.loop import Observer
from lpgcn.runtime.runs.run_folder import Summary
from lpgcn.runtime.runs.source import Source


def train(
    data: str | Path | Source | Any,
    config: Config | None = None,
    *,
    out: Path | str,
    columns: Columns | None = None,
    splitting: Splitting | None = None,
    user_features: Any = None,
    item_features: Any = None,
    resume: bool = False,
    overwrite: bool = False,
    workers: int = 1,
    threads: int | None = None,
    transcript: Path | str | None = None,
    terms: Path | str | None = None,
    checkpoint_every: int | None = None,
    observer: Observer | None = None,
) -> Summary:
    """Train a backbone or any other method that `lpgcn models` lists, validate, test once, and save
    everything in the folder `out`.

    - `data` is the name of a data set, the `Path` of a file with the usual names of columns, a
      `Source`, or data in memory as `make_split` takes it, with its `columns` and `splitting`; such
      data is kept in the run folder, in files.
    - `user_features` and `item_features` are paths of files, or beside data in memory also data
      frames, or tuples of ids and a matrix.
    - With `resume` the run in `out` goes on from its last checkpoint, to the bits of one that was
      never interrupted; a finished one is left as it is, unless `config` has more epochs. With
      `overwrite` it is replaced.
    - `workers` is the number of processes for a federation's clients, `threads` that of the threads
      of any other run; neither changes a bit, but for models that need torch.
    - `transcript` is a file for everything that each party of a federation receives.
    - `terms` is the log of a federation whose members changed, which a centralised run follows.
    - A checkpoint is written at validations, about once a minute, and after `checkpoint_every`
      steps.
    - The process stays as it was. One that does nothing but train may first call
      `lpgcn.runtime.memory.keep_freed_memory`, as `lpgcn train` does: it keeps the memory that it
      has had, and is faster on large data.
    - `observer` is told about the progress; it is not part of what is stable.
    """
    return training.train(
        data,
        config,
        out=out,
        columns=columns,
        splitting=splitting,
        user_features=user_features,
        item_features=item_features,
        resume=resume,
        overwrite=overwrite,
        workers=workers,
        threads=threads,
        transcript=transcript,
        terms=terms,
        checkpoint_every=checkpoint_every,
        observer=observer,
        engine_for=engine_for,
    )
