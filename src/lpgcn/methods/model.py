"""`lpgcn.Model`: fit, recommend, save, load."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from lpgcn.config import Config
from lpgcn.data import Columns, Splitting
from lpgcn.evaluation import Vectors
from lpgcn.methods.method import MethodError
from lpgcn.methods.registry import configured
from lpgcn.methods.training import train
from lpgcn.runtime.runs.recommendations import Neighbour, Recommendation, Recommendations
from lpgcn.runtime.runs.run_folder import Summary
from lpgcn.runtime.runs.saved_model import Recommender
from lpgcn.runtime.runs.source import Source

Id = int | str


class Model:
    """A model with its settings, which is then fitted to data.

    A part of the data is held out, to choose the best epoch and to test it once: `summary` has what
    came out. All of it is trained on with `eval_every=0` and `Splitting(ratio=(1, 0, 0))`. With the
    same data, settings and seed the bits are those of `lpgcn train`.
    """

    def __init__(self, model: str = "lightgcn+", **settings: Any) -> None:
        """`settings` are fields of `Config`; others are errors."""
        self._config = configured({"model": model, **settings})
        self._summary: Summary | None = None
        self._recommender: Recommender | None = None

    def fit(
        self,
        data: str | Path | Source | Any,
        *,
        columns: Columns | None = None,
        splitting: Splitting | None = None,
        out: Path | str | None = None,
        **options: Any,
    ) -> Self:
        """Train on data as `lpgcn.train` takes it, with its options.

        The run is kept in the folder `out`, if one is given.
        """
        with TemporaryDirectory(prefix="lpgcn-") as temporary:
            folder = Path(temporary) / "run" if out is None else Path(out)
            self._summary = train(
                data, self._config, out=folder, columns=columns, splitting=splitting, **options
            )
            self._recommender = Recommender.load(folder)
        return self

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """From a folder that `save` wrote, or from that of a run."""
        found = Recommender.load(folder)
        model = cls()
        model._config, model._recommender = found.card.config, found
        return model

    def save(self, folder: Path | str, *, overwrite: bool = False) -> None:
        """To a folder of its own; a model that is there already only if it may be overwritten."""
        self.recommender.save(folder, overwrite=overwrite)

    @property
    def config(self) -> Config:
        return self._config

    @property
    def recommender(self) -> Recommender:
        """What was fitted."""
        if self._recommender is None:
            raise MethodError("this model has not been fitted; call fit with data, or load one")
        return self._recommender

    @property
    def summary(self) -> Summary:
        """What came out of the training."""
        if self._summary is None:
            raise MethodError("this model was not fitted here, so there is no summary; call fit")
        return self._summary

    @property
    def vectors(self) -> Vectors:
        """The final embeddings; row r is about recommender.user_ids[r] or item_ids[r]."""
        return self.recommender.vectors

    def recommend(
        self,
        user: Id | None = None,
        k: int = 20,
        *,
        history: Iterable[Id] | None = None,
        items: Iterable[Id] | None = None,
        exclude: Iterable[Id] = (),
        keep_seen: bool = False,
    ) -> list[Recommendation]:
        """See `Recommender.recommend`."""
        return self.recommender.recommend(
            user, k, history=history, items=items, exclude=exclude, keep_seen=keep_seen
        )

    def recommend_batch(
        self,
        users: Iterable[Id] | None = None,
        k: int = 20,
        *,
        items: Iterable[Id] | None = None,
        exclude: Iterable[Id] = (),
        keep_seen: bool = False,
    ) -> Recommendations:
        """See `Recommender.recommend_batch`."""
        return self.recommender.recommend_batch(
            users, k, items=items, exclude=exclude, keep_seen=keep_seen
        )

    def score(self, user: Id, items: Iterable[Id]) -> list[Recommendation]:
        """See `Recommender.score`."""
        return self.recommender.score(user, items)

    def similar_items(self, item: Id, k: int = 10) -> list[Neighbour]:
        """See `Recommender.similar_items`."""
        return self.recommender.similar_items(item, k)

    def similar_users(self, user: Id, k: int = 10) -> list[Neighbour]:
        """See `Recommender.similar_users`."""
        return self.recommender.similar_users(user, k)
