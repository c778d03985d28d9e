"""The paper's own traffic, counted by hand on a graph of a few edges, and by loops on any graph."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.config import Config
from lpgcn.model.batches import Batch
from lpgcn.protocol.paper_traffic import PaperTraffic, paper_traffic
from lpgcn.protocol.server.topology import Topology
from lpgcn.ragged import Ragged

LISTED = [[0, 1, 2], [1, 2], [2, 0], [0, 2, 3]]
"""What clients 0 to 3 list; item 4 is listed by nobody. With α > 0 item 0 of client 2 is virtual,
which the server does not know."""
OWNER = [0, 1, 1, 0, 1]
"""Convolution-clients are 0, with items 0 and 3, and 1, with items 1, 2 and 4."""
CONFIG = Config(model="lightgcn", layers=2, dim=3)


def routes_of(listed: list[list[int]], owner: list[int]) -> Topology:
    lists = Ragged.from_arrays([np.array(items, dtype=np.int64) for items in listed])
    return Topology(lists, np.array(owner), seed=0)


def batch_of(*samples: tuple[int, int]) -> Batch:
    """From (user, negative)."""
    users, negatives = (np.array(part, dtype=np.int64) for part in zip(*samples, strict=True))
    return Batch(0, np.arange(len(samples)), users, negatives)


def counted(batch: Batch, config: Config = CONFIG) -> tuple[int, int]:
    found = paper_traffic(routes_of(LISTED, OWNER), config, batch)
    return found.up, found.down


# Vectors, in every step, whatever the batch (two layers):
EVERY_UP = (
    5  # Algorithm 1, line 4: owners send items 0, 3 and 1, 2, 4.
    + 2 * 4  # Algorithm 4, line 4: every client sends e_u.
    + 2 * 5  # Algorithm 4, line 9: owners send all five items.
    # Algorithm 6, line 7: client 0 its ordinary items 1, 2, and its neighbours 2, 3;
    #                      client 1 no ordinary items, and its neighbours 0, 2, 3.
    + 2 * (2 + 2 + 0 + 3)
    # Algorithm 6, line 12: client 2 items 2, 0 (a virtual one too); client 3 items 0, 2, 3.
    + 2 * (2 + 3)
)
EVERY_DOWN = (
    # Algorithm 1, line 6: to client 0 items 1, 2; to client 2 items 2, 0; to client 3 0, 2, 3.
    2 + 2 + 3
    + 2 * (2 + 3)  # Algorithm 4, line 6: to client 0 users 2, 3; to client 1 users 0, 2, 3.
    + 2 * (2 + 2 + 3)  # Algorithm 4, line 11: as line 6 of Algorithm 1.
    + 2 * 5  # Algorithm 6, line 14: each item's gradient to its owner.
    + 2 * 4  # Algorithm 6, line 15: each user's gradient to the user.
)  # fmt: skip


def test_a_batch_of_two_clients_is_counted_as_by_hand() -> None:
    """Client 0 has negatives 3 and 4, one of them twice, and client 2 has 3. Each negative travels
    in three layers: 0, 1 and 2."""
    batch = batch_of((0, 3), (0, 4), (2, 3), (0, 3))
    # Algorithm 9, line 8: client 0 its ordinary items 1, 2; client 2 items 2, 0. Client 3 has three
    # ordinary items, but no loss.
    up = 2 + 2
    # Algorithm 9, line 9: client 0 negatives 3, 4; client 2 negative 3.
    up += 3 * (2 + 1)
    down = (
        3 * (2 + 1)  # Algorithm 9, line 1: to client 0 negatives 3, 4; to client 2 negative 3.
        + 3  # Algorithm 9, line 11: sums for items 0, 1, 2; of item 3 client 3 alone could speak.
        + 3 * 2  # Algorithm 9, line 12: sums for negatives 3, 4.
    )
    assert (EVERY_UP, EVERY_DOWN) == (47, 49)
    assert counted(batch) == (47 + up, 49 + down) == (60, 67)


@pytest.mark.parametrize(
    ("client", "negative", "line_8", "line_11"),
    [
        (0, 4, 2, 2),  # Its items 1 and 2 are client 1's.
        (1, 4, 0, 0),  # It owns all that it lists.
        (2, 4, 2, 2),  # Items 2 and 0.
        (3, 4, 3, 3),  # Items 0, 2 and 3.
    ],
)
def test_only_clients_of_the_batch_are_charged_for_the_loss(
    client: int, negative: int, line_8: int, line_11: int
) -> None:
    once = counted(batch_of((client, negative)))
    assert once == (EVERY_UP + line_8 + 3, EVERY_DOWN + 3 + line_11 + 3)
    assert counted(batch_of(*[(client, negative)] * 5)) == once, "a sample more is no vector more"


def test_what_clients_of_the_batch_have_in_common_is_added_up_by_the_server() -> None:
    """Items 0 and 2 are client 2's and client 3's: line 8 has them twice, line 11 once."""
    assert counted(batch_of((2, 4), (3, 4))) == (
        EVERY_UP + (2 + 3) + 3 * 2,
        EVERY_DOWN + 3 * 2 + 3 + 3,
    )


def test_with_virtual_items_nothing_is_added_up_by_the_server() -> None:
    """What it would not know to leave out it forwards: Eq. 16 for the two items of each of the
    batch's clients, Eqs. 24 and 25 for all that was sent up."""
    batch, config = batch_of((0, 4), (2, 4)), CONFIG.changed(virtual_items="1")
    up, down = counted(batch)
    layers = 2
    sent_up = (2 + 2 + 3) + (2 + 3)  # Algorithm 6, lines 7 and 12: ordinary items, neighbours.
    summed = 5 + 4  # Items and users.
    assert counted(batch, config) == (up, down + (2 + 2) - 3 + layers * (sent_up - summed))


def test_users_that_are_built_cost_a_vector_for_everything_that_is_listed() -> None:
    batch = batch_of((0, 3), (0, 4), (2, 3), (0, 3))
    listed = 3 + 2 + 2 + 3  # Algorithm 7, lines 11 and 16: the owner's own and virtual ones too.
    assert counted(batch, CONFIG.changed(model="lightgcn+")) == (60 + listed, 67 + listed)


def test_a_vector_has_d_numbers() -> None:
    assert PaperTraffic(60, 67).bytes(CONFIG) == (60 * 3 * 4, 67 * 3 * 4)
    assert PaperTraffic(60, 67).bytes(CONFIG.changed(dtype="float64")) == (60 * 3 * 8, 67 * 3 * 8)


def by_loops(
    listed: list[list[int]], owner: list[int], samples: list[tuple[int, int]], config: Config
) -> tuple[int, int]:
    """What the algorithms' lines send, party by party."""
    clients, items, layers = range(len(listed)), range(len(owner)), range(config.layers)
    owned = {client: {item for item in items if owner[item] == client} for client in clients}
    ordinary = {client: set(listed[client]) - owned[client] for client in clients}
    near = {
        client: {
            other for other in clients if other != client and owned[client] & set(listed[other])
        }
        for client in clients
    }
    negatives = {client: {item for user, item in samples if user == client} for client in clients}
    forwarded = config.virtual_items != "0"
    batch = {user for user, _ in samples}
    up = sum(len(owned[client]) for client in clients)
    down = sum(len(ordinary[client]) for client in clients)
    for _ in layers:
        for client in clients:
            up += 1 + len(owned[client])  # Algorithm 4, forward.
            down += len(near[client]) + len(ordinary[client])
            up += len(ordinary[client]) + len(near[client])  # Algorithm 6, backward.
            down += 0 if forwarded else len(owned[client]) + 1
            down += len(ordinary[client]) + len(near[client]) if forwarded else 0
    for client in batch:
        down += len(negatives[client]) * (config.layers + 1)
        up += len(ordinary[client]) + len(negatives[client]) * (config.layers + 1)
    for item in items:
        gradients = [item in ordinary[client] for client in batch]
        down += sum(gradients) if forwarded else any(gradients)
        down += any(item in negatives[client] for client in batch) * (config.layers + 1)
    if config.model == "lightgcn+":
        up += sum(map(len, listed))
        down += sum(map(len, listed))
    return up, down


@given(st.data())
def test_any_graph_is_counted_as_by_loops(data: st.DataObject) -> None:
    n_clients, n_items = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 7))
    item, client = st.integers(0, n_items - 1), st.integers(0, n_clients - 1)
    listed = [data.draw(st.lists(item, unique=True)) for _ in range(n_clients)]
    owner = [data.draw(client) for _ in range(n_items)]
    samples = data.draw(st.lists(st.tuples(client, item), min_size=1, max_size=9))
    model = data.draw(st.sampled_from(["lightgcn", "lightgcn+"]))
    layers, alpha = data.draw(st.integers(1, 4)), data.draw(st.sampled_from(["0", "2", "1.0x"]))
    config = CONFIG.changed(model=model, layers=layers, virtual_items=alpha)
    found = paper_traffic(routes_of(listed, owner), config, batch_of(*samples))
    assert (found.up, found.down) == by_loops(listed, owner, samples, config)
