"""The server together with some clients: what these open for it, and what they know themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from lpgcn.privacy.attacks import final_vectors, means_of_finals, token_graph
from lpgcn.privacy.deployment import Deployment
from lpgcn.privacy.logistic import fitted
from lpgcn.privacy.measures import Guess
from lpgcn.privacy.server_audit import BITS, is_real
from lpgcn.privacy.table import Line, line_of
from lpgcn.privacy.views import Adversary, View, view_of
from lpgcn.ragged import Bits, Int64, Ragged

Float64 = npt.NDArray[np.float64]

FEWEST_LABELS: Final = 100
"""Entries whose bit is known, for a combination of scores to be trained."""
_CERTAIN: Final = 1e6


def lines(
    deployment: Deployment,
    adversary: Adversary,
    lists: Ragged,
    scores: dict[str, Float64],
) -> Iterator[Line]:
    """Before any step, after the steps, after the validation; over users that do not collude."""
    view = view_of(deployment, adversary)
    truth = is_real(lists, deployment.real, view.n_items)
    if truth.all():
        return
    bits = known_bits(view, lists)
    others = np.setdiff1d(np.arange(len(lists)), adversary.clients)
    moments = {
        "names and bits": view.before(0),
        "a step's negatives": view.before(deployment.validated),
        "a validation's final vectors": view,
    }
    for moment, at in moments.items():
        found = dict(scores)
        finals = final_vectors.latest(at)
        if finals is None and moment != "names and bits":
            continue
        if finals is not None:
            found["likeness"] = final_vectors.likeness(lists, finals)
            last = max(block.sent.pass_number for block, _ in at.blocks)
            pushed = means_of_finals.summed_pushes(at, min(last, deployment.validated))
            if pushed:
                found["means"] = means_of_finals.solved(
                    pushed, finals, lists, np.arange(len(lists))
                )
        score = weighed(lists, found, bits)
        guess = Guess(lists, score, truth).only(others)
        yield line_of(adversary.name, moment, BITS, guess, deployment.popularity)


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
    """A combination trained on the known bits, or, where these are too few, the score that needs
    none and is best suited; what is known is certain."""
    labelled: Bits = bits >= 0
    if np.count_nonzero(labelled) >= FEWEST_LABELS and 0 < bits[labelled].mean() < 1:
        table = token_graph.expanded(lists, scores)
        score = fitted(table[labelled], bits[labelled])(table)
    else:
        score = scores.get("likeness", scores["svd"])
    return np.where(labelled, np.where(bits == 1, _CERTAIN, -_CERTAIN), score)
