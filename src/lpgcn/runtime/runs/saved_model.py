"""A trained model: load it, ask it for recommendations, measure it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final, get_args

import msgspec
import numpy as np

from lpgcn.array_types import Int64
from lpgcn.config import Mask
from lpgcn.data import Ids, Interactions, Split
from lpgcn.evaluation import (
    Evaluation,
    Ranker,
    Scorer,
    UserMetrics,
    Vectors,
    user_metrics,
)
from lpgcn.evaluation.scorers import restored
from lpgcn.model.backbones import trains_backbone
from lpgcn.model.folding import fold_in
from lpgcn.model.kernels import Floats
from lpgcn.model.kernels.plain import Plain
from lpgcn.model.scoring import scoring
from lpgcn.ragged import Ragged
from lpgcn.runtime.engines.engine import Part, masked_items
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.runs.model_folder import (
    FORMAT,
    Arrays,
    ModelCard,
    ModelError,
    check_model_folder,
    read_model,
    write_model,
)
from lpgcn.runtime.runs.recommendations import (
    Neighbour,
    Recommendation,
    Recommendations,
    nearest,
    ranked,
)

__all__ = ["FORMAT", "ModelCard", "ModelError", "Recommender"]

_FOLDING: Final = "folding"
_NOTHING: Final = Ragged.single(np.empty(0, dtype=np.int64))


@dataclass(frozen=True)
class Recommender:
    """Scores of all items, external ids, and what each user already has."""

    card: ModelCard
    scorer: Scorer
    user_ids: Ids
    item_ids: Ids
    seen: Interactions
    folding: Floats | None = None
    """F of `model.folding`, where users who were not there in training can be told from items."""
    heldout: Interactions | None = None
    """What users have besides, held out to validate and test."""

    @cached_property
    def had(self) -> Ragged:
        """What each user has: nobody is recommended that again."""
        return (self.seen if self.heldout is None else self.seen.merged(self.heldout)).by_user

    @property
    def vectors(self) -> Vectors:
        """The final embeddings, where scores are their products."""
        if isinstance(self.scorer, Vectors):
            return self.scorer
        raise ModelError(
            f"a model of {self.card.config.model} has no vectors: its scores are of the kind "
            f"{self.card.scorer}; ask it for recommendations, or train one that has vectors"
        )

    @cached_property
    def ranking(self) -> Scorer:
        """What items are ranked by: the vectors of items at the lengths that `model.scoring` gives
        them."""
        exponent = self.card.config.length_exponent
        if exponent == 1:
            return self.scorer
        return Vectors(self.vectors.users, scoring(self.vectors.items, exponent, Plain()))

    def with_length_exponent(self, exponent: float) -> Recommender:
        """The same vectors, ranked by another p: what a training with it gives, if its validations
        choose the same epoch."""
        if not trains_backbone(self.card.config.model):
            raise ModelError(
                f"a model of {self.card.config.model} has no length-exponent; expected one of a "
                "backbone, such as lightgcn"
            )
        config = self.card.config.changed(length_exponent=exponent)
        return replace(self, card=msgspec.structs.replace(self.card, config=config))

    def with_mask(self, mask: Mask) -> Recommender:
        """The same model, measured on the test set with other items left out of the ranking."""
        config = self.card.config.changed(mask=mask)
        return replace(self, card=msgspec.structs.replace(self.card, config=config))

    def recommend(
        self,
        user: int | str | None = None,
        k: int = 20,
        *,
        history: Iterable[int | str] | None = None,
        items: Iterable[int | str] | None = None,
        exclude: Iterable[int | str] = (),
        keep_seen: bool = False,
    ) -> list[Recommendation]:
        """The k items with the highest score y_ui among those that the user does not have, in
        training or held out.

        Who was not there in training is known by its `history`, the items that it has, instead of
        an id. Only `items` are ranked if they are given, never those in `exclude`; with `keep_seen`
        also those that the user has.
        """
        if history is not None:
            if user is not None:
                raise ModelError(f"found the user {user!r} and a history; give one of both")
            history = _several(history)
            scorer: Scorer = self._folded(history)
            row, seen = np.array([0]), Ragged.single(self._indices(history))
        elif user is not None:
            scorer, row = self.ranking, np.array([self.user_ids.index_of(user, "user")])
            seen = self.had.only(row)
        else:
            raise ModelError("found no user; give the id of one, or the items of a new one")
        masked = _NOTHING if keep_seen else seen
        top, scores = ranked(scorer, row, masked, k, self._among(items, exclude))
        return [
            Recommendation(self.item_ids[item], score)
            for item, score in zip(top[0].tolist(), scores[0].tolist(), strict=True)
            if item >= 0
        ]

    def recommend_batch(
        self,
        users: Iterable[int | str] | None = None,
        k: int = 20,
        *,
        items: Iterable[int | str] | None = None,
        exclude: Iterable[int | str] = (),
        keep_seen: bool = False,
    ) -> Recommendations:
        """What `recommend` says, for many users at once; for all of them if none are given."""
        rows = np.arange(len(self.user_ids))
        if users is not None:
            rows = self.user_ids.indices_of(_several(users), "user")
        seen = self.had.only(rows)
        masked = Ragged.from_lengths(np.zeros(len(rows)), seen.values[:0]) if keep_seen else seen
        among, ranker = self._among(items, exclude), Machine.with_threads().ranker
        top, scores = ranked(self.ranking, rows, masked, k, among, ranker)
        return Recommendations.of(self.user_ids.values[rows], top, scores, self.item_ids)

    def score(self, user: int | str, items: Iterable[int | str]) -> list[Recommendation]:
        """y_ui of these items, in the order asked for, whether the user has them or not."""
        items = _several(items)
        found = self.recommend(user, len(items) or 1, items=items, keep_seen=True) if items else []
        scores = {one.item: one for one in found}
        return [scores[self.item_ids[self.item_ids.index_of(item)]] for item in items]

    def similar_items(self, item: int | str, k: int = 10) -> list[Neighbour]:
        """The k items whose vectors have the largest cosines with this one's."""
        items = self._tastes().items
        return nearest(items, self.item_ids, self.item_ids.index_of(item, "item"), k)

    def similar_users(self, user: int | str, k: int = 10) -> list[Neighbour]:
        """The k users whose vectors have the largest cosines with this one's."""
        users = self._tastes().users
        return nearest(users, self.user_ids, self.user_ids.index_of(user, "user"), k)

    def _tastes(self) -> Vectors:
        """Vectors without what all users have alike: it tells how popular items are, such as the
        bias of Mult-VAE, and not which of them go together."""
        vectors = self.vectors
        differs = (vectors.users != vectors.users[:1]).any(axis=0)
        if len(vectors.users) == 1 or differs.all():
            return vectors
        if not differs.any():
            raise ModelError(
                f"this model of {self.card.config.model} has the same vector for every user, so "
                "that nothing tells what is similar; expected one that tells users apart: train "
                "one, such as lightgcn"
            )
        return Vectors(vectors.users[:, differs], vectors.items[:, differs])

    def fold_in(self, history: Iterable[int | str]) -> Floats:
        """The vector of a user who was not there in training and has these items.

        Of LightGCN+ it is exactly what the trained model says about such a user; of LightGCN, whose
        users have a vector of their own, an approximation without it (see `model.folding`).
        """
        if self.folding is None:
            raise ModelError(
                f"this model of {self.card.config.model} cannot tell a user by its items; train "
                "lightgcn+ or lightgcn on one machine, or ask for a user that it knows"
            )
        history = _several(history)
        if not history:
            raise ModelError("found an empty history; expected one item or more")
        items = self._indices(history)
        if not self.folding[items].any():
            raise ModelError(
                "found a history of items that were not trained, such as "
                f"{self.item_ids[int(items[0])]!r}: nobody had them in training, or fewer users "
                "than min-degree; expected one trained item or more: add one, or train a model on "
                "data where these have users"
            )
        return fold_in(self.folding, items)

    def _folded(self, history: Iterable[int | str]) -> Vectors:
        user, ranking = self.fold_in(history), self.ranking
        assert isinstance(ranking, Vectors), "whoever is folded in has a vector"
        return Vectors(user[None], ranking.items)

    def _indices(self, items: Iterable[int | str]) -> Int64:
        """Rising, each once."""
        return np.unique(self.item_ids.indices_of(_several(items), "item"))

    def _among(
        self, items: Iterable[int | str] | None, exclude: Iterable[int | str]
    ) -> Int64 | None:
        """The items that are ranked; None is all of them."""
        exclude = _several(exclude)
        if items is None and not exclude:
            return None
        wanted = np.arange(len(self.item_ids)) if items is None else self._indices(items)
        left = np.setdiff1d(wanted, self._indices(exclude), assume_unique=True)
        if not left.size:
            raise ModelError("no item is left to recommend; ask for more items, or exclude fewer")
        return left

    def evaluate(self, split: Split, at: Sequence[int], part: Part = "test") -> Evaluation:
        """The metrics of a part of the data set that the model was trained on, at any K."""
        return self.user_metrics(split, at, part).mean()

    def user_metrics(
        self,
        split: Split,
        at: Sequence[int],
        part: Part = "test",
        *,
        ranker: Ranker | None = None,
    ) -> UserMetrics:
        """What `evaluate` measures, user by user."""
        if part not in get_args(Part):
            raise ModelError(
                f"found the part {part!r}; expected one that was held out: "
                f"{' or '.join(get_args(Part))}"
            )
        ranker = ranker or Machine.with_threads().ranker
        masked = self._masked(split, part)
        heldout = split.parts[part].by_user
        return user_metrics(self.ranking, masked, heldout, at, ranker)

    def _masked(self, split: Split, part: Part) -> Ragged:
        """What a ranking leaves out, of the data set that the model was trained on."""
        if split.fingerprint != self.card.fingerprint:
            raise ModelError(
                f"the data has changed: the model was trained on {self.card.dataset} with "
                f"fingerprint {self.card.fingerprint[:12]}, found {split.fingerprint[:12]}; "
                "bring the old data back, or train a new model"
            )
        return masked_items(split, self.card.config, part).by_user

    def save(self, folder: Path | str, *, overwrite: bool = False, mode: int = 0o666) -> None:
        """To a folder of its own, which is whole or an error when it is loaded. One that has files
        already is refused, unless they may be overwritten."""
        check_model_folder(Path(folder), overwrite=overwrite)
        arrays = {**self.scorer.arrays(), **_lists("seen", self.seen)}
        if self.heldout is not None:
            arrays |= _lists("heldout", self.heldout)
        if self.folding is not None:
            arrays[_FOLDING] = self.folding
        write_model(Path(folder), self.card, arrays, self.user_ids, self.item_ids, mode=mode)

    @classmethod
    def load(cls, folder: Path | str) -> Recommender:
        """From a model folder, or from a run folder that has one."""
        folder = Path(folder)
        if (folder / "model").is_dir():
            folder = folder / "model"
        card, arrays, user_ids, item_ids = read_model(folder)
        try:
            seen = _read_lists("seen", arrays, card)
            heldout = _read_lists("heldout", arrays, card) if "heldout_items" in arrays else None
            scorer = restored(card.scorer, arrays, seen.by_user)
        except (KeyError, ValueError) as error:
            raise ModelError(f"{folder} is damaged: {error}; train the model anew") from error
        return cls(card, scorer, user_ids, item_ids, seen, arrays.get(_FOLDING), heldout)


def _several(ids: Iterable[int | str]) -> list[int | str]:
    """Ids that can be looked at twice; neither one alone, nor the letters of a string."""
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        raise ModelError(f"found {ids!r} where several ids are expected; give [{ids!r}]")
    return list(ids)


def _lists(name: str, interactions: Interactions) -> Arrays:
    lists = interactions.by_user
    return {f"{name}_offsets": lists.offsets, f"{name}_items": lists.values}


def _read_lists(name: str, arrays: Arrays, card: ModelCard) -> Interactions:
    """What `_lists` gave."""
    users = np.repeat(np.arange(card.n_users), np.diff(arrays[f"{name}_offsets"]))
    return Interactions.from_pairs(users, arrays[f"{name}_items"], card.n_users, card.n_items)
