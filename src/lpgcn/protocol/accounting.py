"""The ledger of a federation that was not run: the same messages, measured instead of sent.

Sizes follow from the rounds and from the numbers of rows, so an experiment of any size gets the
exact traffic without a cipher. A test holds the result against a real federation's, to the byte.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lpgcn.config import Config
from lpgcn.crypto import KEY_BYTES, SEAL_OVERHEAD, TOKEN_BYTES
from lpgcn.evaluation import METRICS
from lpgcn.model.batches import Batch
from lpgcn.protocol import messages as m
from lpgcn.protocol.keyring import ANSWER_KEYS, SHARED_BYTES
from lpgcn.protocol.ledger import Direction, Ledger
from lpgcn.protocol.messages import Phase, encoded_size
from lpgcn.protocol.passes import RATE
from lpgcn.protocol.rounds import Needs, Pushes, Round, Rounds
from lpgcn.protocol.routes import Routes, Runs
from lpgcn.protocol.server import MASK_REACH
from lpgcn.protocol.sizes import Sizes

Int64 = npt.NDArray[np.int64]
Bits = npt.NDArray[np.bool_]


class Accounting:
    """Adds to a ledger what a server and its clients would have sent."""

    def __init__(self, routes: Routes, config: Config, key_client: int) -> None:
        self._routes, self._config, self._key_client = routes, config, key_client
        self._sizes = Sizes.of(config)
        self._everybody = np.ones(routes.n_clients, dtype=np.bool_)
        near = routes.neighbours
        self._contacts = np.unique(near.values * routes.n_clients + near.rows)
        self.ledger = Ledger()

    def _add(self, phase: Phase, direction: Direction, called: Bits, sizes: Int64) -> None:
        clients = np.flatnonzero(called)
        each = np.broadcast_to(sizes, (self._routes.n_clients,))
        self.ledger.add(phase, direction, clients, each[clients])

    def _both(self, phase: Phase, called: Bits, down: Int64, up: Int64) -> None:
        self._add(phase, "down", called, down)
        self._add(phase, "up", called, up)

    def initialise(self) -> None:
        routes, n = self._routes, self._routes.n_clients
        ask, everybody = encoded_size(m.Ask), self._everybody
        key_client = np.arange(n) == self._key_client
        shared = SHARED_BYTES + SEAL_OVERHEAD
        self._both(Phase.KEYS, everybody, ask, encoded_size(m.PublicKey, key=KEY_BYTES))
        self._both(
            Phase.SHARE_KEY,
            key_client,
            encoded_size(m.PublicKeys, keys=n * KEY_BYTES),
            encoded_size(m.SealedKeys, sealed=n * shared),
        )
        listed = routes.listed.lengths
        tokens = encoded_size(m.Tokens, tokens=listed * TOKEN_BYTES)
        self._both(Phase.LIST, everybody, encoded_size(m.SealedKey, sealed=shared), tokens)
        catalogue = encoded_size(m.Tokens, tokens=routes.n_items * TOKEN_BYTES)
        self._both(Phase.CATALOGUE, key_client, ask, catalogue)
        self.ledger.roles(routes.is_owner)
        self._account_for_plan()
        self._account_for_verification()
        self.report()

    def _account_for_plan(self) -> None:
        routes, n = self._routes, self._routes.n_clients
        placement = encoded_size(
            m.Placement,
            places=4 * routes.listed.lengths,
            owned=4 * routes.owned.lengths,
            offsets=4 * (routes.neighbours.lengths + 1),
            listed=4 * routes.delivered.lengths,
            own_rank=4,
            peers=KEY_BYTES * min(2 * MASK_REACH, n - 1),
        )
        self._both(Phase.PLAN, self._everybody, placement, encoded_size(m.Reply))

    def _account_for_verification(self) -> None:
        routes, n = self._routes, self._routes.n_clients
        handles, client = routes.neighbours.rows, routes.neighbours.values
        asked = np.bincount(routes.neighbour_of_entry, minlength=len(client))
        answer = SEAL_OVERHEAD + ANSWER_KEYS + (asked + 7) // 8
        askers = np.bincount(client, minlength=n)
        questions = encoded_size(
            m.Questions,
            askers=KEY_BYTES * askers,
            offsets=4 * (askers + 1),
            positions=4 * routes.arriving.lengths,
        )
        answers = np.bincount(client, answer, n).astype(np.int64)
        received = np.bincount(handles, answer, n).astype(np.int64)
        self._both(
            Phase.VERIFY, self._everybody, questions, encoded_size(m.Answers, sealed=answers)
        )
        self._both(
            Phase.ANSWERS,
            routes.is_owner,
            encoded_size(m.Sealed, answers=received),
            encoded_size(m.Reply),
        )

    def step(self, batch: Batch) -> None:
        needs = Needs.of_batch(self._routes, batch)
        rounds = Rounds(self._routes, self._config, needs)
        self._account_for_forward(rounds)
        self._account_for_loss(batch, needs, rounds)
        for one in rounds.backward():
            self._exchange(one, Phase.BACKWARD)

    def _account_for_forward(self, rounds: Rounds) -> None:
        for one in rounds.forward():
            self._exchange(one, Phase.FORWARD)

    def _exchange(self, one: Round, pushed_in: Phase) -> None:
        routes, sizes = self._routes, self._sizes
        width = sizes.user_forward if pushed_in == Phase.FORWARD else sizes.user_backward
        updates = one.phase in (Phase.UPDATE, Phase.UPDATE_BUILT)
        down = encoded_size(
            m.Exchange,
            item_rows=sizes.item * _count(routes.arriving, one.item_rows),
            item_present=routes.arriving.flagged(one.item_rows).packed_lengths,
            user_rows=width * _count(routes.neighbours, one.user_rows),
            user_present=routes.neighbours.flagged(one.user_rows).packed_lengths,
            wanted=self._wanted(one.asked),
            learning_rate=RATE.size if updates else 0,
        )
        reply = one.phase == Phase.UPDATE_BUILT
        up = encoded_size(m.Reply) if reply else self._push(one.asked, one.phase)
        self._both(one.phase, one.called, down, up)

    def _wanted(self, asked: Pushes) -> Int64:
        owned = self._routes.owned
        return owned.flagged(asked.items[owned.values]).packed_lengths

    def _push(self, asked: Pushes, phase: Phase) -> Int64:
        sizes, owned = self._sizes, self._routes.owned
        width = sizes.user_forward if phase == Phase.FORWARD else sizes.user_backward
        return encoded_size(
            m.Push,
            user=width * asked.users.astype(np.int64),
            items=sizes.item * _count(owned, asked.items[owned.values]),
        )

    def _account_for_loss(self, batch: Batch, needs: Needs, rounds: Rounds) -> None:
        routes, sizes, n = self._routes, self._sizes, self._routes.n_clients
        pairs = np.unique(batch.users * routes.n_items + batch.negatives)
        client, owner = pairs // routes.n_items, routes.owner[pairs % routes.n_items]
        samples = np.bincount(batch.users, minlength=n)
        negatives = np.bincount(client, minlength=n)
        at_owner = np.bincount(owner, minlength=n)
        new_out, new_in = self._meet(client * n + owner)
        asked = np.bincount(routes.neighbour_of_entry, minlength=len(routes.neighbours.values))
        pair_bytes = sizes.pairs(asked)
        samples_size = encoded_size(
            m.Samples,
            item_rows=sizes.item * routes.arriving.lengths,
            positions=4 * samples,
            negatives=4 * samples,
            negative_places=4 * negatives,
            negative_rows=sizes.item * negatives,
            contacts=4 * negatives,
            new_contacts=KEY_BYTES * new_out,
            batch_size=4,
            epoch=4,
        )
        gradients = encoded_size(
            m.Gradients,
            user=sizes.loss_user,
            pair_rows=np.bincount(routes.neighbours.values, pair_bytes, n).astype(np.int64),
            negatives=sizes.negative * negatives,
            introductions=sizes.introduction * new_out,
        )
        self._both(Phase.LOSS, needs.users, samples_size, gradients)
        pushes = rounds.gradient_pushes()
        present = needs.users[routes.neighbours.values]
        loss_rows = encoded_size(
            m.LossRows,
            user_rows=sizes.loss_user * _count(routes.neighbours, present),
            user_present=routes.neighbours.flagged(present).packed_lengths,
            pair_rows=np.bincount(routes.neighbours.rows, pair_bytes * present, n).astype(np.int64),
            negatives=sizes.negative * at_owner,
            contacts=8 * at_owner,
            order=4 * at_owner,
            introductions=sizes.introduction * new_in,
            wanted=self._wanted(pushes),
            wants_user=1,
            batch_size=4,
        )
        up = self._push(pushes, Phase.BACKWARD)
        self._both(Phase.BACKWARD, rounds.touched, loss_rows, up)

    def _meet(self, contacts: Int64) -> tuple[Int64, Int64]:
        """How many owners each client, and clients each owner, meets for the first time."""
        n = self._routes.n_clients
        if not self._sizes.introduction:
            return np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        new = np.setdiff1d(contacts, self._contacts)
        self._contacts = np.union1d(self._contacts, new)
        return np.bincount(new // n, minlength=n), np.bincount(new % n, minlength=n)

    def measure(self) -> None:
        """A validation: everybody gets all final item vectors."""
        routes = self._routes
        needs = Needs.everything(routes)
        with self.ledger.measuring():
            self._account_for_forward(Rounds(routes, self._config, needs))
        down = encoded_size(m.Exchange, item_rows=self._sizes.item * routes.n_items)
        count = len(METRICS) * len(self._config.cutoffs) + 1
        self._both(Phase.RANK, self._everybody, down, encoded_size(m.Numbers, masked=8 * count))

    def report(self) -> None:
        """A masked number of every client."""
        up = encoded_size(m.Numbers, masked=8)
        self._both(Phase.SUM, self._everybody, encoded_size(m.Ask), up)


def _count(runs: Runs, flags: Bits) -> Int64:
    return np.bincount(runs.rows, flags, len(runs.lengths)).astype(np.int64)
