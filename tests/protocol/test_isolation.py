"""Parties are built from bytes, share no object and no memory, and can be destroyed one by one."""

from __future__ import annotations

import gc
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import numpy as np
import pytest
import torch

from lpgcn.config import Config
from lpgcn.data import Split

CODE = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)
UNCHANGEABLE = (int, float, str, bytes, type(None), Enum, np.dtype, torch.dtype)


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
    """Where the numbers of arrays and tensors lie: first and last byte."""
    for one in objects.values():
        if isinstance(one, torch.Tensor) and one.numel():
            yield one.data_ptr(), one.data_ptr() + one.numel() * one.element_size() - 1
        elif isinstance(one, np.ndarray) and one.size:
            yield np.lib.array_utils.byte_bounds(one)[0], np.lib.array_utils.byte_bounds(one)[1] - 1


def constants() -> dict[int, object]:
    """What the modules of lpgcn themselves hold: nothing there is ever written to."""
    modules = [vars(module) for name, module in sys.modules.items() if name.startswith("lpgcn")]
    return reachable(*modules)


@pytest.fixture
def federation(federation_of: Callable[..., Any], split_of: Callable[..., Split]) -> Any:
    config = Config(mode="federated", dim=4, layers=2, batch_size=8, virtual_items="2")
    pairs = [(user, item) for user in range(6) for item in range(9) if (user + item) % 3]
    made = federation_of(split_of(pairs, 6, 9, [(0, 0), (3, 3)]), config)
    made.train(2)
    made.server.measure("valid")
    return made


def test_parties_share_neither_objects_nor_memory(federation: Any) -> None:
    public = constants()
    parties = [reachable(client) for client in federation.clients]
    # The transport is what lies between the parties; all that goes through it is bytes.
    parties.append(reachable(federation.server, without=(federation,)))
    owner_of: dict[int, int] = {}
    for number, party in enumerate(parties):
        assert len(party) > 100, "a party must have been walked through"
        own = {key: one for key, one in party.items() if key not in public}
        for key, one in own.items():
            if not isinstance(one, UNCHANGEABLE):
                other = owner_of.setdefault(key, number)
                assert other == number, f"parties {other} and {number} share {type(one)}"
        parties[number] = own
    places = sorted(
        (*place, number) for number, party in enumerate(parties) for place in set(memory(party))
    )
    assert {number for _, _, number in places} == set(range(len(parties)))
    furthest, holder = -1, -1
    for first, last, number in places:
        assert first > furthest or holder == number, f"parties {holder} and {number} share memory"
        if last > furthest:
            furthest, holder = last, number


def test_a_client_that_is_let_go_is_gone(federation: Any) -> None:
    clients = [weakref.ref(client) for client in federation.clients]
    for number, client in enumerate(clients):
        federation.clients.pop(0)
        gc.collect()
        assert client() is None
        assert all(other() is not None for other in clients[number + 1 :])
