"""A trained model: load it, ask it for recommendations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from lpgcn.config import Config, write_atomically
from lpgcn.data import Ids, Interactions
from lpgcn.errors import LpgcnError
from lpgcn.evaluation import top_items
from lpgcn.runtime.engine import Vectors

FORMAT = 1


class ModelError(LpgcnError):
    """A model folder that cannot be used."""


class ModelCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`config.json` of a model folder."""

    format: int
    dataset: str
    fingerprint: str
    config: Config
    n_users: int
    n_items: int


@dataclass(frozen=True)
class Recommendation:
    item: int | str
    score: float


@dataclass(frozen=True)
class Recommender:
    """Final embeddings, external ids, and what each user already has."""

    card: ModelCard
    vectors: Vectors
    user_ids: Ids
    item_ids: Ids
    seen: Interactions

    def recommend(self, user: int | str, k: int = 20) -> list[Recommendation]:
        """The k items with the highest e_u·e_i (Eq. 4) among those that the user does not have."""
        row = self.user_ids.index_of(user)
        seen = self.seen.items_of(row)
        offsets = np.array([0, len(seen)])
        top, scores = top_items(
            self.vectors.users[row : row + 1], self.vectors.items, offsets, seen, k
        )
        return [
            Recommendation(self.item_ids[item], score)
            for item, score in zip(top[0].tolist(), scores[0].tolist(), strict=True)
            if item >= 0
        ]

    def save(self, folder: Path) -> None:
        """`config.json` is written last: a folder that has one is complete."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {
            "users": self.vectors.users.contiguous(),
            "items": self.vectors.items.contiguous(),
            "seen_offsets": torch.from_numpy(self.seen.offsets),
            "seen_items": torch.from_numpy(self.seen.items),
        }
        write_atomically(folder / "vectors.safetensors", save(tensors))
        ids = {"users": self.user_ids.values.tolist(), "items": self.item_ids.values.tolist()}
        write_atomically(folder / "ids.json", msgspec.json.encode(ids))
        card = msgspec.json.format(msgspec.json.encode(self.card), indent=2)
        write_atomically(folder / "config.json", card)

    @classmethod
    def load(cls, folder: Path | str) -> Recommender:
        """From a model folder, or from a run folder that has one."""
        folder = Path(folder)
        if (folder / "model" / "config.json").exists():
            folder = folder / "model"
        try:
            card = msgspec.json.decode((folder / "config.json").read_bytes(), type=ModelCard)
            tensors = load_file(folder / "vectors.safetensors")
            ids = msgspec.json.decode((folder / "ids.json").read_bytes())
        except FileNotFoundError as error:
            raise ModelError(
                f"{folder} has no finished model ({error.filename} is missing); "
                "train one with `lpgcn train`, or finish a run with `--resume`"
            ) from error
        except (msgspec.DecodeError, SafetensorError) as error:
            raise ModelError(f"{folder} is damaged: {error}; train the model anew") from error
        if card.format != FORMAT:
            raise ModelError(f"{folder} has format {card.format}; this version reads {FORMAT}")
        return cls(
            card,
            Vectors(tensors["users"], tensors["items"]),
            Ids(np.array(ids["users"])),
            Ids(np.array(ids["items"])),
            _seen(tensors, card),
        )


def _seen(tensors: dict[str, Tensor], card: ModelCard) -> Interactions:
    sizes = tensors["seen_offsets"].diff().numpy()
    users = np.repeat(np.arange(card.n_users), sizes)
    return Interactions.from_pairs(
        users, tensors["seen_items"].numpy(), card.n_users, card.n_items
    )
