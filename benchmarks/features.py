"""Features of MovieLens 100K as files, and how many people an owner can describe from e_u^(0).

In the first step an owner reads e_u^(0)·|I_u|^-½ of its neighbours, where e_u^(0) = table +
features·Θ, and has Θ. It solves for the features by least squares; the factor changes nothing about
which occupation is the largest. Printed beside it: the share of the most frequent one.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

from lpgcn.array_types import Float64
from lpgcn.config import Config
from lpgcn.model.initial import embedding_rows
from lpgcn.model.kernels.plain import Plain
from lpgcn.model.weights import MAPS, initial_weights
from lpgcn.random import Purpose


def lines(name: str) -> list[list[str]]:
    text = (Path(os.environ["LPGCN_DATA"]) / "ml-100k" / name).read_text("latin-1")
    return [line.split("|") for line in text.splitlines()]


def people() -> tuple[list[int], Float64]:
    """Age, sex and 21 occupations."""
    rows = lines("u.user")
    age = np.array([float(row[1]) for row in rows])
    kinds = sorted({row[3] for row in rows})
    occupation = [[float(row[3] == kind) for kind in kinds] for row in rows]
    sex = [float(row[2] == "F") for row in rows]
    features = np.column_stack(((age - age.mean()) / age.std(), sex, occupation))
    return [int(row[0]) for row in rows], features


def films() -> tuple[list[int], Float64]:
    """19 genres."""
    rows = lines("u.item")
    return [int(row[0]) for row in rows], np.array([row[5:] for row in rows], dtype=np.float64)


def occupations_named(features: Float64, dim: int) -> float:
    """The share of people whose occupation is the largest of what least squares says."""
    config, n = Config(dim=dim), len(features)
    table = embedding_rows(
        1, Purpose.USER_EMBEDDING, np.arange(n), table_rows=n, config=config
    ).astype(np.float64)
    shapes = {MAPS["users"]: (features.shape[1], dim)}
    theta = initial_weights(shapes, 2, config, Plain())[MAPS["users"]].parameter.astype(np.float64)
    seen = table + features @ theta
    found = np.linalg.lstsq(theta.T, seen.T, rcond=None)[0].T
    return float(np.mean(found[:, 2:].argmax(1) == features[:, 2:].argmax(1)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="A folder for users.npz and items.npz.")
    options = parser.parse_args()
    described = {"users": people(), "items": films()}
    if options.write:
        options.write.mkdir(parents=True, exist_ok=True)
        for kind, (ids, features) in described.items():
            np.savez(options.write / f"{kind}.npz", ids=np.array(ids), features=features)
    features = described["users"][1]
    most = np.bincount(features[:, 2:].argmax(1)).max() / len(features)
    for dim in (8, 16, 32, 64):
        share = occupations_named(features, dim)
        print(f"d = {dim}: an owner names {share:.1%} of its neighbours' occupations ({most:.1%})")


if __name__ == "__main__":
    main()
