"""Train on this machine, in any way to run, and save everything in a run folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from lpgcn.checkpoints import InFolder
from lpgcn.config import Config
from lpgcn.data import Columns, Split, Splitting, make_split
from lpgcn.data.features import features_of, sized, with_features
from lpgcn.data.readers import dataset_name
from lpgcn.evaluation import Scorer
from lpgcn.evaluation.beyond_accuracy import beyond_accuracy
from lpgcn.files import check_output
from lpgcn.model.kernels import Floats
from lpgcn.plan import Plan, TokenGraph
from lpgcn.protocol.transcript import Transcript, Witness
from lpgcn.runtime.engines.centralized import Centralized
from lpgcn.runtime.engines.engine import Engine
from lpgcn.runtime.engines.federated import Federated
from lpgcn.runtime.engines.simulated import Simulated
from lpgcn.runtime.local_cost import local_cost
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.planning import planner_for
from lpgcn.runtime.runs.loop import Loop, Observer
from lpgcn.runtime.runs.run_folder import Run, RunFolder, RunFolderError, Summary
from lpgcn.runtime.runs.saved_model import FORMAT, ModelCard, Recommender
from lpgcn.runtime.runs.source import Source, SourceError
from lpgcn.terms import Term, TermError, read_terms

__all__ = ["Execution", "Observer", "Summary", "engine_for", "train"]


@dataclass(frozen=True)
class Execution:
    """How a run is computed. Of all this only `terms`, the log of a federation whose members
    changed, has an influence on its bits; but for methods that need torch, whose products may have
    others in the last place with another number of `threads`."""

    workers: int = 1
    threads: int | None = None
    observer: Observer = field(default_factory=Observer)
    witness: Witness | None = None
    folder: Path | None = None
    """Where the parties have their checkpoints."""
    terms: Sequence[Term] = ()

    @cached_property
    def machine(self) -> Machine:
        """One for all that is computed: it has threads of its own."""
        return Machine.with_threads(self.threads)

    @property
    def checkpoints(self) -> InFolder | None:
        return None if self.folder is None else InFolder(self.folder)


EngineFor = Callable[[Split, Config, Execution], Engine]


def engine_for(split: Split, config: Config, how: Execution) -> Engine:
    """The way to run that the configuration of a backbone asks for."""
    if config.mode == "centralized":
        return Centralized(split, config, how.machine, checkpoints=how.checkpoints, terms=how.terms)
    if how.terms:
        raise TermError(f"a log of terms is followed by --mode centralized, not {config.mode}")
    planner = planner_for(split, config, how.observer.planning)
    if config.mode == "simulated":
        return Simulated(split, config, planner, how.machine, checkpoints=how.checkpoints)

    def plan(graph: TokenGraph) -> Plan:
        made = planner(graph)
        workers = min(how.workers, split.n_users)
        how.observer.estimated(local_cost(split, config, graph, made, workers))
        return made

    return Federated(
        split, config, plan, how.workers, how.observer.stage_began, how.witness, folder=how.folder
    )


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
    engine_for: EngineFor = engine_for,
) -> Summary:
    """Train, validate, test once, and save everything in the folder `out`.

    `methods.training.train`, which is the public one, says what each of these is; `engine_for`
    decides what is trained.
    """
    folder = RunFolder(Path(out))
    features = {"user_features": user_features, "item_features": item_features}
    source, in_memory = _described(data, folder, columns, splitting, features)
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
    split = in_memory or source.open()
    check_heldout(split, config)
    config = sized(config, split)
    run = Run(source=source, config=config, fingerprint=split.fingerprint)
    log = read_terms(Path(terms)) if terms else []
    if resume:
        folder.check_continued_by(run)
        log = _same_terms(folder, log)
        if config.epochs > folder.describe().config.epochs:
            folder.extend(config)
        if summary := folder.summary():
            return summary
    observer = observer or Observer()
    with ExitStack() as stack:
        witness = stack.enter_context(Transcript(Path(transcript))) if transcript else None
        how = Execution(workers, threads, observer, witness, folder.state, log)
        engine = engine_for(split, config, how)
        stack.callback(engine.close)

        def save() -> dict[str, float]:
            lists: dict[str, float] = {}
            if inspector := engine.inspector():
                rows = _folding(split, engine, how.machine)
                model = _model(split, config, inspector.scorer(), rows)
                model.save(folder.model, overwrite=True)
                if not log:
                    ranker = how.machine.ranker
                    found = model.user_metrics(split, config.cutoffs, ranker=ranker)
                    folder.write_user_metrics(split.user_ids, found)
                    popularity, at = split.train.item_degrees, config.cutoffs
                    if (found.top >= 0).any():
                        lists = beyond_accuracy(found.top, popularity, split.n_users, at)
            return lists

        observer.data_read(split)
        beginning = (
            None
            if resume
            else folder.beginning(run, overwrite=overwrite, terms=log, in_memory=in_memory)
        )
        return Loop(folder, run, engine, observer, save, checkpoint_every, beginning).finish()


def _described(
    data: Any,
    folder: RunFolder,
    columns: Columns | None,
    splitting: Splitting | None,
    features: dict[str, Any],
) -> tuple[Source, Split | None]:
    """Where the data of a run is, and data in memory itself, which is going to be in its folder."""
    features = {name: one for name, one in features.items() if one is not None}
    if isinstance(data, Path):
        data = Source(dataset=dataset_name(data), train=str(data))
    if not isinstance(data, str | Source):
        split = make_split(data, columns=columns, splitting=splitting)
        if features:
            names = columns or Columns()
            users, items = (
                features_of(features[name], column) if name in features else None
                for name, column in (("user_features", names.user), ("item_features", names.item))
            )
            split = with_features(split, users, items)
        return folder.source_of(split).resolved(), split
    if columns is not None or splitting is not None:
        raise SourceError(
            "found columns or a splitting for data that is not in memory; give a Source with them"
        )
    for name, one in features.items():
        if not isinstance(one, str | Path):
            raise SourceError(
                f"found {type(one).__name__} as {name} of data that is not in memory; give the "
                "path of a Parquet or npz file"
            )
    source = Source(dataset=data) if isinstance(data, str) else data
    return replace(source, **{name: str(one) for name, one in features.items()}).resolved(), None


def _folding(split: Split, engine: Engine, machine: Machine) -> Floats | None:
    """F of a backbone. Parties on this machine have the parameters of a data centre, in parts."""
    if isinstance(engine, Federated):
        last = replace(engine.terms[-1], epoch=0, step=0)
        central = Centralized(split, engine.config, machine, terms=[last])
        central.restore(engine.inspector().state())
        return central.folding()
    return engine.folding() if isinstance(engine, Centralized) else None


def _model(split: Split, config: Config, scorer: Scorer, folding: Floats | None) -> Recommender:
    card = ModelCard(
        format=FORMAT,
        dataset=split.name,
        fingerprint=split.fingerprint,
        config=config,
        scorer=scorer.kind,
        n_users=split.n_users,
        n_items=split.n_items,
    )
    heldout = split.valid.merged(split.test)
    return Recommender(card, scorer, split.user_ids, split.item_ids, split.train, folding, heldout)


def check_heldout(split: Split, config: Config) -> None:
    """A run that is validated has something to validate by, and to test in the end."""
    for part in ("valid", "test") if config.eval_every else ():
        if not len(split.parts[part]):
            raise SourceError(
                f"the {part} part of {split.name} has no interactions; training needs it to choose "
                "the best epoch and to report it: give --valid and --test, or a --ratio that "
                "leaves some for both; or train on everything, for as many epochs as you choose, "
                "with --ratio 1 0 0 --eval-every 0 (in Python Splitting(ratio=(1, 0, 0)) and "
                "eval_every=0)"
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
