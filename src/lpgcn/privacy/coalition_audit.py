"""The server together with some clients: what these open for it, and what they know themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from lpgcn.array_types import Bits, Float64, Int64
from lpgcn.privacy.attacks import final_vectors, means_of_finals, token_graph
from lpgcn.privacy.deployment import Deployment
from lpgcn.privacy.logistic import fitted
from lpgcn.privacy.measures import Guess, user_auc
from lpgcn.privacy.server_audit import BITS, is_real
from lpgcn.privacy.table import Finding, line_of
from lpgcn.privacy.views import Adversary, View, view_of
from lpgcn.ragged import Ragged

FEWEST_LABELS: Final = 100
"""Entries whose bit is known, for a combination of scores to be trained."""


def lines(
    deployment: Deployment,
    adversary: Adversary,
    lists: Ragged,
    scores: dict[str, Float64],
    solved: Float64 | None,
) -> Iterator[Finding]:
    """Before any step, after the steps, after the validation; over users that do not collude. Of
    all scores and their combination the strongest is told, chosen with hindsight: no coalition
    looks weaker than a part of it for a bad choice of its own; so `solved`, the bits that the
    server alone solved for, is among them in the end. The note has what the token graph
    alone gives about the same users, without a label: the rest is what the clients bring."""
    view = view_of(deployment, adversary)
    truth = is_real(lists, deployment.real, view.n_items)
    if truth.all():
        return
    bits = known_bits(view, lists)
    others = np.setdiff1d(np.arange(len(lists)), adversary.clients)
    alone = max(_mean_auc(Guess(lists, score, truth).only(others)) for score in scores.values())
    moments = {
        "names and bits": view.before(0),
        "a step's negatives": view.before(deployment.validated),
        "a validation's final vectors": view,
    }
    guesses: dict[str, Guess] = {}
    for moment, at in moments.items():
        finals = final_vectors.latest(at)
        if finals is None and moment != "names and bits":
            continue
        found = {**scores, **_from_vectors(at, finals, lists, deployment)}
        if at is view and solved is not None:
            found["linear"] = solved
        # What was guessed before can be guessed still, where more to combine is no better.
        found_out = {**found, f"combination with {moment}": weighed(lists, found, bits)}
        guesses |= {
            name: Guess(lists, certain(score, bits), truth).only(others)
            for name, score in found_out.items()
        }
        strongest = max(guesses, key=lambda name: _mean_auc(guesses[name]))
        yield line_of(
            adversary.name, moment, BITS, guesses[strongest], deployment.popularity,
            note=f"strongest: {strongest}; the token graph alone {alone:.3f}",
        )  # fmt: skip


def _from_vectors(
    view: View, finals: Float64 | None, lists: Ragged, deployment: Deployment
) -> dict[str, Float64]:
    """What final vectors say, alone and together with what users pushed."""
    if finals is None:
        return {}
    found = {"likeness": final_vectors.likeness(lists, finals)}
    last = max(block.sent.pass_number for block, _ in view.blocks)
    pushed = means_of_finals.summed_pushes(view, min(last, deployment.validated))
    if pushed and deployment.linear:
        everybody = np.arange(len(lists))
        found["means"] = means_of_finals.solved(pushed, finals, lists, everybody)
    return found


def _mean_auc(guess: Guess) -> float:
    return float(np.nanmean(user_auc(guess)))


def known_bits(view: View, lists: Ragged) -> Int64:
    """1 for what is known to be real, 0 for virtual, -1 for unknown, for every entry: colluding
    clients know their own lists and, as owners, those of their neighbours about their items."""
    bits = np.full(len(lists.values), -1, dtype=np.int64)
    for client, own in view.own.items():
        part = slice(lists.offsets[client], lists.offsets[client + 1])
        bits[part] = np.isin(lists.values[part], own)
    for client, asked, real in view.known:
        part = slice(lists.offsets[client], lists.offsets[client + 1])
        where = lists.offsets[client] + np.searchsorted(lists.values[part], asked)
        bits[where] = real
    return bits


def weighed(lists: Ragged, scores: dict[str, Float64], bits: Int64) -> Float64:
    """A combination trained on the known bits or, where these are too few, the score that needs
    none and is best suited."""
    labelled: Bits = bits >= 0
    if np.count_nonzero(labelled) < FEWEST_LABELS or not 0 < bits[labelled].mean() < 1:
        return scores.get("likeness", scores["svd"])
    table = token_graph.expanded(lists, scores)
    return fitted(table[labelled], bits[labelled])(table)


def certain(score: Float64, bits: Int64) -> Float64:
    """What is known is beyond all scores."""
    least, most = float(score.min()) - 1, float(score.max()) + 1
    return np.where(bits == 1, most, np.where(bits == 0, least, score))
