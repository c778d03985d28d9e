"""A term as the server has it: members, lists, plan, public keys; made by initialisation, and kept.

A new term goes through initialisation again, with fresh keys; items whose owner changed get their
state from the copies that their owners left.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lpgcn.array_types import Int64
from lpgcn.config import Config
from lpgcn.crypto import Directory
from lpgcn.plan import Plan, TokenGraph
from lpgcn.protocol.errors import MalformedMessageError
from lpgcn.protocol.server.caller import Caller, Line
from lpgcn.protocol.server.estates import FormerTerm, Inheritance
from lpgcn.protocol.server.script import Script, opening, resuming
from lpgcn.protocol.server.topology import Topology
from lpgcn.protocol.wire.fields import Stores
from lpgcn.protocol.wire.reading import pack_numbers
from lpgcn.ragged import Ragged
from lpgcn.random import Purpose, integers, permutation

Planner = Callable[[TokenGraph], Plan]


@dataclass(frozen=True, eq=False)
class CurrentTerm:
    """What does not change until the next one."""

    number: int
    members: Int64
    """Their numbers in the federation, rising; anywhere else a client is its rank among them."""
    plan: Plan
    topology: Topology
    publics: list[bytes]

    @property
    def directory(self) -> Stores:
        """Whatever the server hands out of public keys."""
        directory = Directory(self.publics)
        entries = [directory.entry(public) for public in self.publics]
        return {"publics": self.publics, "directory": entries, "root": directory.root}


def begin_term(
    config: Config,
    members: Int64,
    n_items: int,
    planner: Planner,
    line: Line,
    stretch: int,
    former: FormerTerm | None = None,
) -> tuple[Caller, CurrentTerm, Script]:
    """keys → tokens → plan → verification (Algorithms 2, 3 and 8), in a stretch of its own."""
    if former is not None:
        former.openers(members)
    before = _resumed(config, members, n_items, line, stretch, former)
    caller = Caller(config, members, n_items, line)
    caller.continue_pass(before)
    caller.ledger = before.ledger
    number = 0 if former is None else former.term + 1
    caller.stores |= {"term": pack_numbers([number]), "members": pack_numbers([len(members)])}
    # Only who was in the term before knows the clients' seed.
    eligible = np.arange(len(members))
    if former is not None:
        eligible = eligible[np.isin(members, former.members)]
    u_c = int(eligible[key_client(config.seed, len(eligible), number)])
    for one in opening(len(members), n_items, u_c, None):
        caller.carry_out(one)
    listed = _places(caller.stores, members, n_items)
    n = len(members)
    plan = planner(TokenGraph.from_pairs(listed.rows, listed.values, n_clients=n, n_tokens=n_items))
    # Handles, mask peers and heirs are the server's secret, and different in every term.
    topology = Topology(listed, plan.owner, secrets.randbits(63))
    term = CurrentTerm(number, members, plan, topology, caller.stores["publics"])
    caller.stores |= term.directory
    caller.take_ledger(topology.is_owner, caller.ledger)
    script = Script(topology, config)
    circle = permutation(topology.seed, Purpose.MASK_CIRCLE, len(members))
    for one in script.verification(circle, number):
        caller.carry_out(one)
    if former is not None:
        _inherit(caller, Inheritance(former, members, topology, script), former.number)
        joined = np.flatnonzero(~np.isin(members, former.members))
        for one in script.joining(u_c, joined):
            caller.carry_out(one)
    return caller, term, script


def _resumed(
    config: Config, members: Int64, n_items: int, line: Line, stretch: int,
    former: FormerTerm | None,
) -> Caller:  # fmt: skip
    """Who was there goes back to the last checkpoint, who joins begins."""
    caller = Caller(config, members, n_items, line, None if former is None else former.run)
    caller.begin_stretch(stretch)
    numbers = np.zeros(len(members), dtype=np.int64)
    if former is not None:
        numbers = np.where(np.isin(members, former.members), former.number, 0)
        caller.take_ledger(np.zeros(len(members), dtype=np.bool_), former.ledger)
    caller.carry_out(resuming(numbers))
    return caller


def _inherit(caller: Caller, inheritance: Inheritance, number: int) -> None:
    if inheritance.needed:
        caller.stores |= {**inheritance.stores(), "number": pack_numbers([number])}
        for one in inheritance.rounds():
            caller.carry_out(one)
        for name in ("packages", "former estates", "former keys"):
            del caller.stores[name]


def key_client(seed: int, n_clients: int, term: int = 0) -> int:
    """u_c, drawn at random (Algorithm 2, line 5)."""
    return int(integers(seed, Purpose.KEY_CLIENT, [term], n_clients)[0])


def _places(stores: Stores, members: Int64, n_items: int) -> Ragged:
    """Algorithm 3, line 1: what was listed, from now on known by its place in the catalogue."""
    (catalogue,) = stores["catalogue"].values()
    place_of = {token: place for place, token in enumerate(catalogue)}
    if len(place_of) != n_items or len(catalogue) != n_items:
        raise MalformedMessageError(
            f"a catalogue of {len(catalogue)} tokens, {len(place_of)} of them different; expected "
            f"{n_items}"
        )
    lists = []
    for rank, number in enumerate(members.tolist()):
        tokens = stores["lists"][rank]
        if len(set(tokens)) != len(tokens) or not place_of.keys() >= set(tokens):
            raise MalformedMessageError(
                f"client {number} listed a token twice, or one that is not in the catalogue"
            )
        lists.append(np.array([place_of[token] for token in tokens], dtype=np.int64))
    return Ragged.from_arrays(lists)
