"""Which data a run is about: a named data set, or files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from lpgcn.config import SplitName, check_fields
from lpgcn.errors import LpgcnError

if TYPE_CHECKING:
    from lpgcn.data import Split
    from lpgcn.data.features import FeatureRows

FEATURES: Final = ("user_features", "item_features")
"""Fields that only somebody who trains has a use for."""
_FILES: Final = ("train", "valid", "test", *FEATURES)
_ABOUT_FILES: Final = (
    "train", "valid", "test", "format", "user_column", "item_column", "rating_column",
    "time_column", "columns", "minimum_rating", "valid_ratio",
)  # fmt: skip


class SourceError(LpgcnError):
    """Options about data that do not go together, or data that a run cannot use."""


class Source(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """A named data set, or files with a name that is only shown. The fields are flags."""

    dataset: str
    train: Annotated[
        str | None, Meta(description="Your own file of interactions, in place of a named data set.")
    ] = None
    valid: Annotated[str | None, Meta(description="A file with the validation part.")] = None
    test: Annotated[str | None, Meta(description="A file with the test part.")] = None
    format: Annotated[
        str | None,
        Meta(
            description="Of the files: lightgcn, movielens, recbole, csv, tsv, text or parquet. "
            "The end of their name tells it if it is not given."
        ),
    ] = None
    user_column: Annotated[str, Meta(description="The column with the user.")] = "user_id"
    item_column: Annotated[str, Meta(description="The column with the item.")] = "item_id"
    rating_column: Annotated[str, Meta(description="The column with the rating.")] = "rating"
    time_column: Annotated[
        str | None, Meta(description="The column with the time, a number or a date.")
    ] = None
    columns: Annotated[
        str | None,
        Meta(
            description="For files without a header: the positions of user, item and, if there "
            "are any, rating and time, such as 1,2 or 1,2,3 or 1,2,0,4."
        ),
    ] = None
    minimum_rating: Annotated[
        float | None, Meta(description="Ratings below it are no interactions.")
    ] = None
    k_core: Annotated[
        int,
        Meta(
            description="Only users and items with so many interactions, counted again until all "
            "have them; for data without ready-made parts."
        ),
    ] = 1
    split: Annotated[
        SplitName,
        Meta(
            description="How data without ready-made parts is split: by ratio per user, the last "
            "item of every user (by time where it is known, else drawn), or all that is after a "
            "date for everybody."
        ),
    ] = "ratio"
    ratio: Annotated[
        tuple[float, float, float],
        Meta(description="The shares of a split: train, validation, test."),
    ] = (0.8, 0.1, 0.1)
    valid_ratio: Annotated[
        float,
        Meta(description="The share of --train for validation if there is --test but no --valid."),
    ] = 0.1
    split_seed: Annotated[
        int,
        Meta(description="Decides what is drawn to split data that has no ready-made parts."),
    ] = 0
    user_features: Annotated[
        str | None,
        Meta(
            description="A Parquet or npz file with features of users, by id; a federation's "
            "clients keep their own."
        ),
    ] = None
    item_features: Annotated[
        str | None,
        Meta(description="A Parquet or npz file with features of items, by id; they are public."),
    ] = None

    def __post_init__(self) -> None:
        for name in _FILES:
            if isinstance(path := getattr(self, name), Path):
                # The fields are those of data.toml, which has strings only.
                msgspec.structs.force_setattr(self, name, str(path))
        check_fields(self)
        if not 0 <= self.split_seed < 2**63:
            raise SourceError(
                f"split_seed is {self.split_seed}; expected a whole number from 0 to 2^63 - 1"
            )
        if self.train is None and self._given(*_ABOUT_FILES):
            raise SourceError(
                f"found options about files for the named data set {self.dataset!r}; "
                "give the file of interactions with --train, or leave these options out"
            )
        if self.valid or self.test:
            self._refuse("ready-made parts, which are not split", "split", "ratio", "k_core")
        if self.valid:
            self._refuse("a ready-made validation part", "valid_ratio", "split_seed")
        elif not self.test:
            self._refuse("no --test", "valid_ratio")
        if self.split == "leave-one-out":
            self._refuse("--split leave-one-out", "ratio")
        if self.split == "temporal":
            self._refuse("--split temporal, which draws nothing,", "split_seed")

    def _given(self, *names: str) -> list[str]:
        """Those of the fields that are not at their defaults."""
        defaults = dict(zip(self.__struct_fields__[1:], self.__struct_defaults__, strict=True))
        return [name for name in names if getattr(self, name) != defaults[name]]

    def _refuse(self, other: str, *names: str) -> None:
        for name in self._given(*names):
            option = f"--{name.replace('_', '-')}"
            raise SourceError(f"found {option} and {other}; leave one or the other out")

    def flags(self) -> list[str]:
        """The words that name this data on a command line."""
        words = [self.dataset]
        for name in self._given(*self.__struct_fields__[1:]):
            value = getattr(self, name)
            each = value if isinstance(value, tuple) else (value,)
            words += [f"--{name.replace('_', '-')}", *map(str, each)]
        return words

    def resolved(self) -> Source:
        """With absolute paths, so that a saved run finds its files from anywhere."""
        paths = {part: getattr(self, part) for part in _FILES}
        return msgspec.structs.replace(
            self, **{part: str(Path(path).resolve()) for part, path in paths.items() if path}
        )

    def open(self) -> Split:
        """Read it, split a single file, and add features."""
        from lpgcn.data.features import with_features

        return with_features(self.open_users(), items=self.features_of_items())

    def open_users(self) -> Split:
        """Without features of items: over a network those are of a catalogue that is not here."""
        from lpgcn.data.features import with_features

        users = _features(self.user_features, self.user_column)
        return with_features(self._interactions(), users=users)

    def features_of_items(self) -> FeatureRows | None:
        return _features(self.item_features, self.item_column)

    def _interactions(self) -> Split:
        from lpgcn.data import Columns, Splitting, load, read_split

        splitting = Splitting(
            self.split, self.ratio, self.valid_ratio, self.k_core, self.split_seed
        )
        if self.train is None:
            return load(self.dataset, splitting=splitting)
        return read_split(
            Path(self.train),
            Path(self.valid) if self.valid else None,
            Path(self.test) if self.test else None,
            name=self.dataset,
            format=self.format,
            columns=Columns(
                self.user_column,
                self.item_column,
                self.rating_column,
                self.minimum_rating,
                self.time_column,
                self._positions(),
            ),
            splitting=splitting,
        )

    def _positions(self) -> tuple[int, ...]:
        try:
            return tuple(map(int, self.columns.split(","))) if self.columns else ()
        except ValueError as error:
            raise SourceError(
                f"columns is {self.columns!r}; expected positions from 1 with commas between them, "
                "such as 1,2 or 1,2,3"
            ) from error


def _features(path: str | None, id_column: str) -> FeatureRows | None:
    from lpgcn.data.features import read_features

    return read_features(Path(path), id_column) if path else None
