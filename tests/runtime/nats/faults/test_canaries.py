"""After a run over a network nothing of the clients is on the server's disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from lpgcn.checkpoints import InFolder
from lpgcn.protocol.client.standing import ClientSnapshot
from lpgcn.runtime.runs.passengers import ClientSeeds
from lpgcn.runtime.runs.saved_model import Recommender

WINDOW = 16


def windows(content: bytes, step: int = 4) -> set[bytes]:
    """Pieces that cannot be there by chance: not zeros, nor anything else that is all alike."""
    pieces = {content[at : at + WINDOW] for at in range(0, len(content) - WINDOW + 1, step)}
    return {piece for piece in pieces if len(set(piece)) > WINDOW // 2}


def secrets_of(folder: Path) -> dict[str, set[bytes]]:
    """What only this client may know, or it and other clients."""
    found: dict[str, set[bytes]] = {"keys": set(), "vectors": set(), "seeds": set()}
    saved = InFolder(folder)
    for number in saved.numbers():
        snapshot = msgspec.msgpack.decode(saved.read(number), type=ClientSnapshot)
        standing = snapshot.standing
        for key in (standing.private, standing.shared, standing.sender_key):
            found["keys"] |= windows(key)
        for keys in (standing.owner_keys, standing.pair_keys):
            for key in keys if isinstance(keys, list) else [keys]:
                found["keys"] |= windows(key)
        found["vectors"] |= windows(snapshot.user) | windows(snapshot.items)
    model = Recommender.load(folder).vectors
    for rows in (model.users, model.items):
        found["vectors"] |= windows(np.ascontiguousarray(rows).tobytes())
    seeds = msgspec.json.decode((folder / "seeds.json").read_bytes(), type=ClientSeeds)
    for seed in (seeds.shared, seeds.private):
        found["seeds"] |= {str(seed).encode(), b"%x" % seed}
        found["seeds"] |= {seed.to_bytes(8, "big"), seed.to_bytes(8, "little")}
    return found


def hits(paths: Iterable[Path], canaries: set[bytes]) -> list[str]:
    """Files that have one of them, at whatever place."""
    fixed = {one for one in canaries if len(one) == WINDOW}
    others = canaries - fixed
    found = []
    for path in paths:
        content = path.read_bytes()
        pieces = {content[at : at + WINDOW] for at in range(len(content) - WINDOW + 1)}
        found += [f"{path}: {one!r}" for one in fixed & pieces]
        found += [f"{path}: {one!r}" for one in others if one in content]
    return found


def files(*roots: Path) -> list[Path]:
    found = [path for root in roots for path in (root.rglob("*") if root.is_dir() else [root])]
    return [path for path in found if path.is_file()]


def test_the_server_keeps_nothing_of_its_clients(field_of: Callable[..., Any]) -> None:
    """Without a common seed, as in earnest."""
    field = field_of(seed=None)
    field.start()
    field.finish()
    servers = files(field.server_folder, field.folder / "server.log", field.folder / "broker.log")
    names = {path.name for path in servers}
    assert {"metrics.jsonl", "summary.json", "terms.jsonl", "roster.json", "server.log"} <= names
    assert any(name.startswith("checkpoint-") for name in names)
    canaries: dict[str, set[bytes]] = {"items": {item.encode() for item in field.data.items}}
    for user in range(16):
        for kind, found in secrets_of(field.clients / str(user)).items():
            canaries.setdefault(kind, set()).update(found)
    for kind, some in canaries.items():
        assert len(some) >= 30, kind
        # The search finds them where they belong.
        assert hits(files(field.clients), some), kind
        assert not hits(servers, some), kind
