"""Train on this machine, in any way to run, and save everything in a run folder."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from lpgcn.checkpoints import InFolder
from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.evaluation import Scorer
from lpgcn.files import check_output
from lpgcn.plan import Plan, TokenGraph
from lpgcn.protocol.transcript import Transcript, Witness
from lpgcn.runtime.engines.centralized import Centralized
from lpgcn.runtime.engines.engine import Engine
from lpgcn.runtime.engines.federated import Federated
from lpgcn.runtime.engines.simulated import Simulated
from lpgcn.runtime.local_cost import local_cost
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.memory import keep_freed_memory
from lpgcn.runtime.planning import planner_for
from lpgcn.runtime.runs.loop import Loop, Observer
from lpgcn.runtime.runs.run_folder import Run, RunFolder, RunFolderError, Summary
from lpgcn.runtime.runs.saved_model import FORMAT, ModelCard, Recommender
from lpgcn.runtime.runs.source import Source, SourceError
from lpgcn.terms import Term, TermError, read_terms

__all__ = ["Observer", "Summary", "engine_for", "train"]


class EngineFor(Protocol):
    """What makes the engine of a run; `engine_for` does for backbones."""

    def __call__(
        self,
        split: Split,
        config: Config,
        workers: int = 1,
        threads: int | None = None,
        observer: Observer | None = None,
        witness: Witness | None = None,
        *,
        folder: Path | None = None,
        terms: Sequence[Term] = (),
    ) -> Engine: ...


def engine_for(
    split: Split,
    config: Config,
    workers: int = 1,
    threads: int | None = None,
    observer: Observer | None = None,
    witness: Witness | None = None,
    *,
    folder: Path | None = None,
    terms: Sequence[Term] = (),
) -> Engine:
    """The way to run that the configuration asks for; its parties' checkpoints are in `folder`."""
    saved = None if folder is None else InFolder(folder)
    if config.mode == "centralized":
        machine = Machine.with_threads(threads)
        return Centralized(split, config, machine, checkpoints=saved, terms=terms)
    if terms:
        raise TermError(f"a log of terms is followed by --mode centralized, not {config.mode}")
    observer = observer or Observer()
    planner = planner_for(split, config, observer.planning)
    if config.mode == "simulated":
        return Simulated(split, config, planner, Machine.with_threads(threads), checkpoints=saved)

    def plan(graph: TokenGraph) -> Plan:
        made = planner(graph)
        observer.estimated(local_cost(split, config, graph, made, min(workers, split.n_users)))
        return made

    return Federated(split, config, plan, workers, observer.stage_began, witness, folder=folder)


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
    terms: Path | str | None = None,
    checkpoint_every: int | None = None,
    observer: Observer | None = None,
    engine_for: EngineFor = engine_for,
) -> Summary:
    """Train, validate, test once, and save everything in the folder `out`.

    With `resume` the run in `out` goes on from its last checkpoint, with its own configuration,
    and ends in the same bits as if it had never been interrupted. A finished run is left as it is,
    unless the configuration has more epochs: then it ends in the bits of a longer run.
    `workers` is the number of processes over which a federation's clients are spread, `threads`
    that of the threads of any other run; neither changes a bit. With
    `transcript` everything that each of its parties receives is written to that file. With `terms`,
    the log of a federation whose members changed, a centralised run follows it. A checkpoint is
    written at every validation, about once a minute, and after `checkpoint_every` steps.
    `engine_for` decides what is trained.
    """
    folder = RunFolder(Path(out))
    source = (Source(dataset=dataset) if isinstance(dataset, str) else dataset).resolved()
    config = config or (folder.describe().config if resume else Config())
    if transcript and (config.mode != "federated" or workers > 1):
        raise SourceError(
            f"a transcript needs --mode federated and one worker, which holds all parties; this is "
            f"{config.mode} with {workers}"
        )
    if transcript:
        check_output(Path(transcript), overwrite=overwrite)
    if not resume:
        folder.check_free(overwrite=overwrite)
    split = source.open()
    _check_heldout(split)
    run = Run(source=source, config=config, fingerprint=split.fingerprint)
    log = read_terms(Path(terms)) if terms else []
    if resume:
        _check_same(folder, run)
        log = _same_terms(folder, log)
        if config.epochs > folder.describe().config.epochs:
            folder.extend(config)
        if summary := folder.summary():
            return summary
    keep_freed_memory()
    observer = observer or Observer()
    with ExitStack() as stack:
        witness = stack.enter_context(Transcript(Path(transcript))) if transcript else None
        engine = engine_for(
            split, config, workers, threads, observer, witness, folder=folder.state,
            terms=log,
        )  # fmt: skip
        stack.callback(engine.close)

        def save() -> None:
            if inspector := engine.inspector():
                _model(split, config, inspector.scorer()).save(folder.model)

        observer.data_read(split)
        beginning = None if resume else folder.beginning(run, overwrite=overwrite, terms=log)
        return Loop(folder, run, engine, observer, save, checkpoint_every, beginning).finish()


def _model(split: Split, config: Config, scorer: Scorer) -> Recommender:
    card = ModelCard(
        format=FORMAT,
        dataset=split.name,
        fingerprint=split.fingerprint,
        config=config,
        scorer=scorer.kind,
        n_users=split.n_users,
        n_items=split.n_items,
    )
    return Recommender(card, scorer, split.user_ids, split.item_ids, split.train)


def _check_heldout(split: Split) -> None:
    for part in ("valid", "test"):
        if not len(split.parts[part]):
            raise SourceError(
                f"the {part} part of {split.name} has no interactions; training needs it to choose "
                "the best epoch and to report it: give --valid and --test, or a --ratio that "
                "leaves some for both"
            )


def _same_terms(folder: RunFolder, log: list[Term]) -> list[Term]:
    """The log that the run in a folder follows; another one may not be given."""
    saved = read_terms(folder.terms) if folder.terms.exists() else []
    if log and log != saved:
        raise RunFolderError(
            f"the run in {folder.path} follows another log of terms, or none; --resume continues "
            "it exactly as it was: leave --terms out, or begin another run with another --out"
        )
    return saved


def _check_same(folder: RunFolder, run: Run) -> None:
    """That a run is what it was; but it may be longer, where its beginning is the same then."""
    saved = folder.describe()
    if run.config.epochs > saved.config.epochs:
        if saved.config.schedule != "constant":
            raise RunFolderError(
                f"the run in {folder.path} has {saved.config.epochs} epochs, and the learning rate "
                f"of each depends on that number (schedule {saved.config.schedule}): a longer run "
                "would have begun otherwise; begin another one with another --out"
            )
        saved = replace(saved, config=replace(saved.config, epochs=run.config.epochs))
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
