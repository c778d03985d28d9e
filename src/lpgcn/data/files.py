"""From files of interactions to a split."""

from __future__ import annotations

from pathlib import Path

from lpgcn.data.assembly import assembled
from lpgcn.data.readers import dataset_name, read
from lpgcn.data.rows import Columns
from lpgcn.data.split import Split
from lpgcn.data.splitting import Splitting


def read_split(
    train: Path | str,
    valid: Path | str | None = None,
    test: Path | str | None = None,
    *,
    name: str | None = None,
    format: str | None = None,
    columns: Columns | None = None,
    splitting: Splitting | None = None,
) -> Split:
    """A split from files: ready-made parts, or one file that is split here.

    Users and items are those that occur in any file, indexed in the order of their ids: numerical
    if all are whole numbers, else alphabetical.
    """
    splitting, columns = splitting or Splitting(), columns or Columns()
    given = {"train": train, "valid": valid, "test": test}
    paths = {part: Path(path) for part, path in given.items() if path is not None}
    rows = {part: read(path, columns, format) for part, path in paths.items()}
    return assembled(name or dataset_name(paths["train"]), rows, splitting)
