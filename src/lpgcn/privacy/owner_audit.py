"""One convolution-client alone: what its neighbours' vectors tell it beyond its own items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from lpgcn.array_types import Int64
from lpgcn.model.backbones import BUILDING, backbone_of
from lpgcn.privacy.attacks import (
    after_validation,
    final_vectors,
    first_push,
    means_of_finals,
    membership,
    rows_over_steps,
)
from lpgcn.privacy.deployment import Deployment
from lpgcn.privacy.measures import Measured
from lpgcn.privacy.table import Finding, guess_of, line_of
from lpgcn.privacy.trained import of_people
from lpgcn.privacy.views import Adversary, View, view_of
from lpgcn.protocol.suite import SUITES, OwnerPush
from lpgcn.ragged import Ragged
from lpgcn.random import Purpose, permutation

MOST_USERS: Final = 40
"""Neighbours that a linear programme over all items is solved for."""
ELSEWHERE: Final = "items of others"


def lines(
    deployment: Deployment, adversary: Adversary, people: Mapping[str, Mapping[str, str]]
) -> Iterator[Finding]:
    """`people` has the attributes of users, by their ids."""
    view = view_of(deployment, adversary)
    (owner,) = adversary.clients
    topology = deployment.record.topology
    neighbours = topology.neighbours[owner]
    about = _About(deployment, view, owner, neighbours, topology.owned[owner])
    if deployment.linear:
        yield from about.first_pushes()
        yield from about.lists_after_validation()
        yield from about.step_after_validation()
        yield from about.over_steps()
    else:
        yield Finding(
            adversary=adversary.name, attack="linear systems", about=ELSEWHERE, users=0,
            note=f"not tried: layers of {deployment.config.model} map what they pass on",
        )  # fmt: skip
    yield from about.by_score(people)


class _About:
    """The auditor's side: handles become users only to be held against the truth."""

    def __init__(
        self, deployment: Deployment, view: View, owner: int, neighbours: Int64, owned: Int64
    ) -> None:
        self._deployment, self._view, self._owner = deployment, view, owner
        self._users, self._owned, self._name = neighbours, owned, view.adversary.name
        shuffled = permutation(0, Purpose.AUDIT, len(neighbours), 1)
        self._some = np.sort(shuffled[:MOST_USERS])
        unknown = ~np.isin(deployment.real.values, owned)
        lengths = deployment.real.count(unknown)[neighbours]
        self._short = np.sort(np.argsort(lengths, kind="stable")[:MOST_USERS])
        """Those with fewest items elsewhere, for whom there are most equations an unknown."""

    @property
    def _elsewhere(self) -> Int64:
        return np.setdiff1d(np.arange(self._view.n_items), self._owned)

    def first_pushes(self) -> Iterator[Finding]:
        """With what the owner drew itself, and as if it had been told everything."""
        deployment, config = self._deployment, self._deployment.config
        builds = backbone_of(config).builds_users
        initial = deployment.initial[BUILDING if builds else "items"]
        own = np.isin(np.arange(self._view.n_items), self._owned)
        for note, known in (("", own), ("if told all initial vectors", np.ones_like(own))):
            solved = first_push.solved(self._view, initial, known, self._short, builds_users=builds)
            candidates, scores = [], []
            for one in solved:
                full = np.zeros(self._view.n_items)
                full[one.candidates] = one.scores
                candidates.append(self._elsewhere)
                scores.append(full[self._elsewhere])
            if solved:
                guess = guess_of(candidates, scores, deployment.real, self._named(solved))
                yield line_of(
                    self._name, "first push", ELSEWHERE, guess, deployment.popularity, note=note
                )

    def _named(self, solved: list[first_push.Solved]) -> list[int]:
        return [int(self._users[one.handle]) for one in solved]

    def lists_after_validation(self) -> Iterator[Finding]:
        """From the validation's own pass and its final vectors."""
        deployment, view = self._deployment, self._view
        finals = final_vectors.latest(view.before(deployment.validated + 1))
        pushed = means_of_finals.summed_pushes(view, deployment.validated)
        if finals is None or not pushed:
            return
        candidates = Ragged.from_arrays([self._elsewhere] * len(self._some))
        found = means_of_finals.solved(pushed, finals, candidates, self._some)
        scores = [found[candidates.offsets[row] : candidates.offsets[row + 1]]
                  for row in range(len(candidates))]  # fmt: skip
        guess = guess_of(
            [self._elsewhere] * len(self._some), scores, deployment.real,
            self._users[self._some].tolist(),
        )  # fmt: skip
        yield line_of(self._name, "means of final vectors", ELSEWHERE, guess, deployment.popularity)

    def step_after_validation(self) -> Iterator[Finding]:
        deployment, view = self._deployment, self._view
        finals = final_vectors.latest(view.before(deployment.validated + 1))
        pushed = after_validation.gradients(view, deployment.validated + 1)
        if finals is None or pushed is None or np.isnan(finals).any():
            return
        found = after_validation.positives(finals, *pushed, MOST_USERS)
        called = right = solved = 0
        share = np.full(len(found), np.nan)
        for number, one in enumerate(found):
            real = deployment.real[int(self._users[one.whose])]
            names = np.setdiff1d(one.called, self._owned)
            good = int(np.isin(names, real).sum())
            called, right = called + len(names), right + good
            solved += len(one.called) > 0
            others = len(np.setdiff1d(real, self._owned))
            share[number] = good / others if others else np.nan
        yield Finding(
            adversary=self._name, attack="step after a validation", about=ELSEWHERE,
            users=len(found), named=Measured.of(share),
            note=f"{right} of {called} called are right, for {solved} people",
        )  # fmt: skip

    def over_steps(self) -> Iterator[Finding]:
        """Which neighbours have the items that the owner itself lists, or has, elsewhere."""
        found = rows_over_steps.regressed(self._view)
        if found is None:
            return
        candidates, scores, users = [], [], []
        by_item = self._deployment.real.transposed(self._view.n_items)
        items_of = self._items_behind(found.senders)
        for row, items in enumerate(items_of):
            for item in items.tolist():
                candidates.append(self._users[found.handles])
                scores.append(found.scores[row])
                users.append(item)
        if users:
            guess = guess_of(candidates, scores, by_item, users)
            yield line_of(
                self._name, "rows over the steps", "who has its own items elsewhere", guess,
                note=f"{found.equations:,} equations, {len(found.handles):,} neighbours",
            )  # fmt: skip

    def _items_behind(self, senders: Int64) -> list[Int64]:
        """The adversary's own real items that each arriving row is about."""
        deployment, topology = self._deployment, self._deployment.record.topology
        own = deployment.real[self._owner]
        if SUITES[deployment.config.suite].owner_push is OwnerPush.ROW_PER_ITEM:
            listed = topology.listed_elsewhere[self._owner][senders]
            return [np.intersect1d([place], own) for place in listed.tolist()]
        pairs = topology.by_client[self._owner][senders]
        return [np.intersect1d(topology.entries[pair], own) for pair in pairs.tolist()]

    def by_score(self, people: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
        """With e_u of neighbours that were in a batch, and final vectors."""
        deployment, view = self._deployment, self._view
        finals, (handles, vectors) = final_vectors.latest(view), membership.latest_users(view)
        if not len(handles) or finals is None:
            return
        users = self._users[handles]
        guess = membership.against_alike(
            users, vectors, np.nan_to_num(finals), deployment.real, deployment.popularity
        )
        yield line_of(
            self._name, "membership by score", "training pairs", guess, deployment.popularity
        )
        ids = [str(deployment.split.user_ids[user]) for user in users.tolist()]
        yield from of_people(self._name, "vector e_u", vectors, ids, people)
