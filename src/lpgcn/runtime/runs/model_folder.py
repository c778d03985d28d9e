"""The folder of a trained model: whole, or an error.

config.json          what was trained on what, and digests of the other files; written last
scorer.safetensors   what scores are computed from, and what each user has
ids.json             what users and items are called outside
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file

from lpgcn.config import Config
from lpgcn.data import Ids
from lpgcn.errors import LpgcnError
from lpgcn.evaluation import Vectors
from lpgcn.files import write_atomically
from lpgcn.runtime.arrays import pieces

FORMAT: Final = 3
_CARD: Final = "config.json"
_SCORER: Final = "scorer.safetensors"
_IDS: Final = "ids.json"

Arrays = dict[str, npt.NDArray[Any]]


class ModelError(LpgcnError):
    """A model that cannot be used as it was asked to be."""


class ModelCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a model is."""

    format: int
    dataset: str
    fingerprint: str
    config: Config
    scorer: str = Vectors.kind
    """The kind of its scores."""
    n_users: int
    n_items: int


class _SavedCard(ModelCard, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`config.json`."""

    digests: dict[str, str]
    """SHA-256 of the other files: a bit that a disk lost must not change a recommendation."""


class _Format(msgspec.Struct):
    """Any version's `config.json`."""

    format: int


class _ModelIds(msgspec.Struct, frozen=True):
    """`ids.json`."""

    users: list[int | str]
    items: list[int | str]


def check_model_folder(folder: Path, *, overwrite: bool) -> None:
    """Nothing is written over unasked, nor beside a run's model, which would be found first."""
    found = sorted(one.name for one in folder.iterdir()) if folder.exists() else []
    if "model" in found:
        raise ModelError(f"{folder} is the folder of a run; give a folder of its own to the model")
    if found and not overwrite:
        raise ModelError(
            f"{folder} has files already, such as {found[0]}; choose another folder, or give "
            "overwrite=True to replace an older model"
        )


def write_model(
    folder: Path, card: ModelCard, arrays: Arrays, user_ids: Ids, item_ids: Ids, *, mode: int
) -> None:
    write_atomically(folder / _SCORER, pieces(arrays), mode=mode)
    ids = msgspec.json.encode(_ModelIds(list(user_ids), list(item_ids)))
    write_atomically(folder / _IDS, ids, mode=mode)
    digests = {_SCORER: _digest(pieces(arrays)), _IDS: _digest([ids])}
    saved = _SavedCard(**msgspec.structs.asdict(card), digests=digests)
    about = msgspec.json.format(msgspec.json.encode(saved), indent=2)
    write_atomically(folder / _CARD, about, mode=mode)


def read_model(folder: Path) -> tuple[ModelCard, Arrays, Ids, Ids]:
    """What `write_model` wrote."""
    try:
        card = _read_card(folder)
        ids = msgspec.json.decode((folder / _IDS).read_bytes(), type=_ModelIds)
        user_ids, item_ids = Ids(np.array(ids.users)), Ids(np.array(ids.items))
        return card, load_file(folder / _SCORER), user_ids, item_ids
    except FileNotFoundError as error:
        if not folder.is_dir():
            raise ModelError(
                f"there is no folder {folder}; expected that of a finished run: check the path, or "
                "train a model with `lpgcn train`"
            ) from error
        missing = [name for name in (_CARD, _IDS, _SCORER) if not (folder / name).is_file()]
        raise ModelError(
            f"{folder} has no finished model: {', '.join(missing)} missing; "
            "train one with `lpgcn train`, or finish a run with `--resume`"
        ) from error
    except (msgspec.DecodeError, SafetensorError, KeyError, ValueError) as error:
        raise ModelError(f"{folder} is damaged: {error}; train the model anew") from error


def _read_card(folder: Path) -> ModelCard:
    """Where all files are as they were written."""
    about = (folder / _CARD).read_bytes()
    if (version := msgspec.json.decode(about, type=_Format).format) != FORMAT:
        raise ModelError(
            f"{folder} has format {version}, expected {FORMAT}; "
            "use the version of lpgcn that wrote it, or train the model anew"
        )
    saved = msgspec.json.decode(about, type=_SavedCard)
    for name in (_SCORER, _IDS):
        with (folder / name).open("rb") as file:
            found = file_digest(file, "sha256").hexdigest()
        if found != saved.digests[name]:
            raise ValueError(f"{name} was changed since it was written")
    values = msgspec.structs.asdict(saved)
    del values["digests"]
    return ModelCard(**values)


def _digest(content: Iterable[bytes | memoryview]) -> str:
    """Of what was meant to be written, not of what a disk made of it."""
    digest = sha256()
    for piece in content:
        digest.update(piece)
    return digest.hexdigest()
