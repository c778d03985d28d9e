"""Parties are built from bytes, share no object and no memory, and can be destroyed one by one."""

from __future__ import annotations

import gc
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.data.features import sized

CACHE = type(cache(len))
CODE = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type, CACHE)
"""What a function remembers is not public: parties that both hold it share it."""
UNCHANGEABLE = (int, float, str, bytes, type(None), Enum, np.dtype)


def reachable(*roots: object, without: tuple[object, ...] = ()) -> dict[int, object]:
    """Every object that can be got at from these, except through code."""
    seen: dict[int, object] = {}
    known = {id(one) for one in without}
    waiting = list(roots)
    while waiting:
        one = waiting.pop()
        if id(one) in seen or id(one) in known or isinstance(one, CODE):
            continue
        seen[id(one)] = one
        waiting.extend(gc.get_referents(one))
    return seen


def memory(objects: dict[int, object]) -> Iterator[tuple[int, int]]:
    """Where the numbers of arrays lie: first and last byte."""
    for one in objects.values():
        if isinstance(one, np.ndarray) and one.size:
            first, end = np.lib.array_utils.byte_bounds(one)
            yield first, end - 1


def constants() -> dict[int, object]:
    """What the modules of lpgcn themselves hold: nothing there is ever written to."""
    modules = [vars(module) for name, module in sys.modules.items() if name.startswith("lpgcn")]
    return reachable(*modules)


BASE = Config(dim=4, layers=2, batch_size=8, virtual_items="2")
POOLED = BASE.changed(loss="softmax", batch_size="full", negatives=7, answers=3, groups=2)


@pytest.fixture(
    params=[
        *product(("lightgcn", "lightgcn+"), ("sealed", "paper"), [BASE]),
        ("ngcf", "sealed", BASE),
        ("lightgcn", "paper", POOLED),
        ("lightgcn+", "sealed", POOLED),
    ],
    ids=lambda one: f"{one[0]}-{one[1]}-{one[2].loss}",
)
def federation(
    request: pytest.FixtureRequest,
    federation_of: Callable[..., Any],
    split_of: Callable[..., Split],
    described: Callable[..., Split],
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    monkeypatch.setattr("lpgcn.model.batches.smallest_group", lambda _: 3)
    model, suite, base = request.param
    config = base.changed(model=model, suite=suite)
    pairs = [(user, item) for user in range(6) for item in range(9) if (user + item) % 3]
    split = split_of(pairs, 6, 9, [(0, 0), (3, 3)])
    if base.loss == "bpr":
        split = described(split, 2, 3)
    made = federation_of(split, sized(config, split))
    made.train(2)
    made.server.measure("valid")
    made.server.predict(range(6))
    return made


def parties_of(federation: Any) -> list[dict[int, object]]:
    """What each party has, but for what is public; the last one is the server."""
    public = constants()
    # The transport is what lies between the parties; all that goes through it is bytes.
    roots = [reachable(client) for client in federation.clients]
    roots.append(reachable(federation.server, without=(federation,)))
    assert all(len(party) > 100 for party in roots), "a party must have been walked through"
    return [{key: one for key, one in party.items() if key not in public} for party in roots]


def unchangeable(one: object) -> bool:
    """Also a tuple of what is: the default of a field is one object for all."""
    if isinstance(one, tuple):
        return all(map(unchangeable, one))
    return isinstance(one, UNCHANGEABLE)


def shared(parties: list[dict[int, object]]) -> Iterator[str]:
    """Objects of two parties, and places in memory."""
    owner_of: dict[int, int] = {}
    for number, party in enumerate(parties):
        for key, one in party.items():
            if not unchangeable(one) and owner_of.setdefault(key, number) != number:
                yield f"parties {owner_of[key]} and {number} share {type(one)}"
    furthest, holder = -1, -1
    for first, last, number in sorted(
        (*place, number) for number, party in enumerate(parties) for place in set(memory(party))
    ):
        if first <= furthest and holder != number:
            yield f"parties {holder} and {number} share memory"
        if last > furthest:
            furthest, holder = last, number


def test_parties_share_neither_objects_nor_memory(federation: Any) -> None:
    parties = parties_of(federation)
    assert all(any(memory(party)) for party in parties)
    assert list(shared(parties)) == []


def test_what_is_shared_would_be_found(federation: Any) -> None:
    """A part of the first client's parameters, and a list, handed to others."""
    first, second, third, *_ = federation.clients
    mine, yours = first.party.tables()["items"], second.party.tables()["items"]
    yours._mean = mine.parameter[:1, 1:]
    assert "parties 0 and 1 share memory" in shared(parties_of(federation))
    yours._mean = np.zeros_like(yours.parameter)
    third.party._user._asked, federation.server.topology.listed = [first], [first]
    assert any("share <class" in one for one in shared(parties_of(federation)))


def test_a_client_that_is_let_go_is_gone(federation: Any) -> None:
    clients = [weakref.ref(client) for client in federation.clients]
    for number, client in enumerate(clients):
        federation.clients.pop(0)
        gc.collect()
        assert client() is None
        assert all(other() is not None for other in clients[number + 1 :])
