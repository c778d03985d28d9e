"""Which data a run is about: a named data set, or files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from lpgcn.errors import LpgcnError

if TYPE_CHECKING:
    from lpgcn.data import Split


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
            description="Of the files: lightgcn, movielens, recbole, csv, tsv or parquet. "
            "The end of their name tells it if it is not given."
        ),
    ] = None
    user_column: Annotated[str, Meta(description="The column with the user.")] = "user_id"
    item_column: Annotated[str, Meta(description="The column with the item.")] = "item_id"
    rating_column: Annotated[str, Meta(description="The column with the rating.")] = "rating"
    minimum_rating: Annotated[
        float | None, Meta(description="Ratings below it are no interactions.")
    ] = None
    ratio: Annotated[
        tuple[float, float, float],
        Meta(description="How a single file is split per user: train, validation, test."),
    ] = (0.8, 0.1, 0.1)
    split_seed: Annotated[
        int,
        Meta(
            description="Decides how a single file is split, or a named data set that has no "
            "ready-made parts."
        ),
    ] = 0

    def __post_init__(self) -> None:
        if not 0 <= self.split_seed < 2**63:
            raise SourceError(
                f"split_seed is {self.split_seed}; expected a whole number from 0 to 2^63 - 1"
            )
        defaults = dict(zip(self.__struct_fields__[1:], self.__struct_defaults__, strict=True))
        about_files = defaults.keys() - {"split_seed"}
        if self.train is None and any(getattr(self, key) != defaults[key] for key in about_files):
            raise SourceError(
                f"found options about files for the named data set {self.dataset!r}; "
                "give the file of interactions with --train, or leave these options out"
            )
        for option, is_given in (
            ("--ratio", self.ratio != (0.8, 0.1, 0.1)),
            ("--split-seed", self.split_seed != 0),
        ):
            if is_given and (self.valid or self.test):
                raise SourceError(
                    f"found {option} and ready-made parts; give {option} with --train alone, "
                    "or --train, --valid and --test without it"
                )

    def resolved(self) -> Source:
        """With absolute paths, so that a saved run finds its files from anywhere."""
        paths = {part: getattr(self, part) for part in ("train", "valid", "test")}
        return msgspec.structs.replace(
            self, **{part: str(Path(path).resolve()) for part, path in paths.items() if path}
        )

    def open(self) -> Split:
        """Read it. A single file is split by `ratio` and `split_seed`."""
        from lpgcn.data import Columns, load, read_split

        if self.train is None:
            return load(self.dataset, seed=self.split_seed)
        return read_split(
            Path(self.train),
            Path(self.valid) if self.valid else None,
            Path(self.test) if self.test else None,
            name=self.dataset,
            format=self.format,
            columns=Columns(
                self.user_column, self.item_column, self.rating_column, self.minimum_rating
            ),
            ratio=self.ratio,
            seed=self.split_seed,
        )
