"""A trained model: load it, ask it for recommendations, measure it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from lpgcn.config import Config
from lpgcn.data import Ids, Interactions, Split
from lpgcn.errors import LpgcnError
from lpgcn.evaluation import Evaluation, Scorer, UserMetrics, Vectors, best_items, user_metrics
from lpgcn.evaluation.scorers import restored
from lpgcn.files import write_atomically
from lpgcn.runtime.arrays import pieces
from lpgcn.runtime.engines.engine import Part, masked_items
from lpgcn.runtime.machine import Machine

FORMAT: Final = 2
_SCORER: Final = "scorer.safetensors"


class ModelError(LpgcnError):
    """A model folder that cannot be used."""


class ModelCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`config.json` of a model folder."""

    format: int
    dataset: str
    fingerprint: str
    config: Config
    scorer: str = Vectors.kind
    """The kind of its scores."""
    n_users: int
    n_items: int


class _Format(msgspec.Struct):
    """Any version's `config.json`."""

    format: int


class _ModelIds(msgspec.Struct, frozen=True):
    """`ids.json` of a model folder."""

    users: list[int | str]
    items: list[int | str]


@dataclass(frozen=True)
class Recommendation:
    """An item and its score y_ui."""

    item: int | str
    score: float


@dataclass(frozen=True)
class Recommender:
    """Scores of all items, external ids, and what each user already has."""

    card: ModelCard
    scorer: Scorer
    user_ids: Ids
    item_ids: Ids
    seen: Interactions

    @property
    def vectors(self) -> Vectors:
        """The final embeddings, where scores are their products."""
        if isinstance(self.scorer, Vectors):
            return self.scorer
        raise ModelError(
            f"a model of {self.card.config.model} has no vectors: its scores are of the kind "
            f"{self.card.scorer}; ask it for recommendations, or train one that has vectors"
        )

    def recommend(self, user: int | str, k: int = 20) -> list[Recommendation]:
        """The k items with the highest score y_ui among those that the user does not have."""
        row = np.array([self.user_ids.index_of(user)])
        top, scores = best_items(self.scorer, row, self.seen.by_user.only(row), k)
        return [
            Recommendation(self.item_ids[item], score)
            for item, score in zip(top[0].tolist(), scores[0].tolist(), strict=True)
            if item >= 0
        ]

    def evaluate(self, split: Split, at: Sequence[int], part: Part = "test") -> Evaluation:
        """The metrics of a part of the data set that the model was trained on, at any K."""
        return self.user_metrics(split, at, part).mean()

    def user_metrics(self, split: Split, at: Sequence[int], part: Part = "test") -> UserMetrics:
        """What `evaluate` measures, user by user."""
        if split.fingerprint != self.card.fingerprint:
            raise ModelError(
                f"the data has changed: the model was trained on {self.card.dataset} with "
                f"fingerprint {self.card.fingerprint[:12]}, found {split.fingerprint[:12]}; "
                "bring the old data back, or train a new model"
            )
        masked = masked_items(split, self.card.config, part).by_user
        heldout = split.parts[part].by_user
        return user_metrics(self.scorer, masked, heldout, at, Machine.with_threads().ranker)

    def save(self, folder: Path, *, mode: int = 0o666) -> None:
        """`config.json` is written last: a folder that has one is complete."""
        arrays = {
            **self.scorer.arrays(),
            "seen_offsets": self.seen.by_user.offsets,
            "seen_items": self.seen.by_user.values,
        }
        write_atomically(folder / _SCORER, pieces(arrays), mode=mode)
        ids = _ModelIds(list(self.user_ids), list(self.item_ids))
        write_atomically(folder / "ids.json", msgspec.json.encode(ids), mode=mode)
        card = msgspec.json.format(msgspec.json.encode(self.card), indent=2)
        write_atomically(folder / "config.json", card, mode=mode)

    @classmethod
    def load(cls, folder: Path | str) -> Recommender:
        """From a model folder, or from a run folder that has one."""
        folder = Path(folder)
        if (folder / "model").is_dir():
            folder = folder / "model"
        try:
            return cls._read(folder)
        except FileNotFoundError as error:
            raise ModelError(
                f"{folder} has no finished model ({error}); "
                "train one with `lpgcn train`, or finish a run with `--resume`"
            ) from error
        except (msgspec.DecodeError, SafetensorError, KeyError, ValueError) as error:
            raise ModelError(f"{folder} is damaged: {error}; train the model anew") from error

    @classmethod
    def _read(cls, folder: Path) -> Recommender:
        about = (folder / "config.json").read_bytes()
        if (found := msgspec.json.decode(about, type=_Format).format) != FORMAT:
            raise ModelError(
                f"{folder} has format {found}, expected {FORMAT}; "
                "use the version of lpgcn that wrote it, or train the model anew"
            )
        card = msgspec.json.decode(about, type=ModelCard)
        arrays = load_file(folder / _SCORER)
        ids = msgspec.json.decode((folder / "ids.json").read_bytes(), type=_ModelIds)
        seen = Interactions.from_pairs(
            np.repeat(np.arange(card.n_users), np.diff(arrays["seen_offsets"])),
            arrays["seen_items"],
            card.n_users,
            card.n_items,
        )
        scorer = restored(card.scorer, arrays, seen.by_user)
        return cls(card, scorer, Ids(np.array(ids.users)), Ids(np.array(ids.items)), seen)
