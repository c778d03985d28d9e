"""Every message of the protocol: typed, all fields byte strings, of a length that its receiver can
check (see `encoding`). What a field holds for whom is laid out in `server.script`."""

from __future__ import annotations

from lpgcn.protocol.wire.encoding import Message as Message


class Ask(Message, tag=1, frozen=True):
    """Server → client: nothing but the header, which says what is asked."""


class Resume(Message, tag=13, frozen=True):
    """Server → client: go on from a checkpoint of its own; from the beginning, if it is 0."""

    number: bytes


class Begin(Message, tag=14, frozen=True):
    """Server → client: a term begins, the first one if it is 0, with so many members."""

    term: bytes
    members: bytes


class PublicKeys(Message, tag=2, frozen=True):
    """Server → u_c: the public keys of all clients (Algorithm 2, line 5)."""

    keys: bytes


class SealedKey(Message, tag=3, frozen=True):
    """Server → client: the shared key, sealed to this client (line 7)."""

    sealed: bytes


class Placement(Message, tag=4, frozen=True):
    """Server → client: the places of what it listed, and what it owns (Algorithm 3, line 8).

    Its neighbours are known by handles 0, 1, … in a random order; handle h listed the owned items
    `listed[offsets[h]:offsets[h + 1]]`, given as positions in `owned`.
    """

    places: bytes
    owned: bytes
    offsets: bytes
    listed: bytes
    root: bytes
    """Of the directory of all public keys; whatever key the server hands out comes with the proof
    that it is in there (see `crypto.directory`)."""
    own: bytes
    """This client's own entry of it."""
    peers: bytes
    """Entries of the clients that share masks with this one."""
    group_peers: bytes = b""
    """Of those that do within its group, if negatives are in pools."""


class Questions(Message, tag=5, frozen=True):
    """Server → client: who asks about which of its listed items (Algorithm 2, line 17).

    Asker a asks about `positions[offsets[a]:offsets[a + 1]]` of what was uploaded; `askers` are
    entries of the directory.
    """

    askers: bytes
    offsets: bytes
    positions: bytes


class SealedAnswers(Message, tag=6, frozen=True):
    """Server → owner: the sealed answers of its neighbours, in the order of their handles."""

    answers: bytes


class Arrivals(Message, frozen=True):
    """Rows that arrived for a client. `…_present` has a bit for each that could be there; empty
    means all."""

    pushes: bytes = b""
    """What the owners of its items pushed."""
    pushes_present: bytes = b""
    users: bytes = b""
    """As owner: its neighbours' vectors."""
    users_present: bytes = b""


class Exchange(Arrivals, tag=7, frozen=True):
    """Server → client: rows that arrived for it, and which rows it shall push next.

    `wanted` has a bit for each row that an owner could push, and `wants_user` is one byte: whether
    to push x_u. In the last exchange forward a batch client is given its samples.
    """

    wanted: bytes = b""
    wants_user: bytes = b"\0"
    positions: bytes = b""
    epoch: bytes = b""


class Finish(Arrivals, tag=8, frozen=True):
    """Server → client: the last rows forward; as owner, wishes of the batch's neighbours.

    `slots` is for each of the `wishing` neighbours the number of vectors to answer with.
    """

    wishing: bytes = b""
    slots: bytes = b""
    wishes: bytes = b""
    wanted: bytes = b""
    """A bit for each owned item whose final vector is needed."""


class Samples(Message, tag=9, frozen=True):
    """Server → batch client: the vectors it wished for, and its negatives (Algorithm 9, line 1).

    Negatives are in the order of their places; `contacts` are the handles of their owners, and
    `new_contacts` the directory entries of those that this client meets for the first time. Those
    of a pool are in the order of their draw, and nobody is met.
    """

    granted: bytes
    """The vectors it wished for, or those of all its items, one message an owner."""
    negative_places: bytes
    negative_rows: bytes
    negatives: bytes = b""
    """For each sample the number of its negative among `negative_rows`."""
    contacts: bytes = b""
    new_contacts: bytes = b""


class LossRows(Message, tag=10, frozen=True):
    """Server → owner: what the batch says about its items; then g^(L) is pushed.

    `users` and `scalars` are those of the neighbours that wished, in the order of their handles.
    """

    users: bytes
    scalars: bytes
    wanted: bytes
    wants_user: bytes
    negatives: bytes = b""
    """Sealed (e_u, place, s, n), one after the other."""
    contacts: bytes = b""
    """For each negative the handle of its sender, and its number among the sender's."""
    introductions: bytes = b""
    answered: bytes = b""
    """A bit for each owned item: whether it was a negative that a group answered about."""
    answers: bytes = b""
    """For each of these Σ_u s_uj q_u, d numbers of 64 bits."""


class Update(Arrivals, tag=11, frozen=True):
    """Server → client: the last rows backward, and what Adam needs to know."""

    learning_rate: bytes = b""
    batch_size: bytes = b""


class Shared(Message, tag=18, frozen=True):
    """Server → client: the gradients of all dense weights, added up over everybody, and what Adam
    needs to know."""

    sums: bytes
    """64-bit numbers, matrices in the order of their names."""
    learning_rate: bytes
    batch_size: bytes


class Copied(Message, tag=19, frozen=True):
    """Server → who joins: the dense weights as u_c has them, sealed to all clients."""

    content: bytes


class Catalogue(Message, tag=12, frozen=True):
    """Server → client: the final vectors of all items, in the order of the catalogue."""

    items: bytes


class Mark(Message, tag=15, frozen=True):
    """Server → client: write a checkpoint; as owner, leave a copy of its items' state, sealed to
    these heirs (entries of the directory), with the server."""

    number: bytes
    heirs: bytes


class Estates(Message, tag=16, frozen=True):
    """Server → heir: copies that it can open, of checkpoint `number`, for the items' new owners.

    Estate e has `counts[e]` items. Bundle b takes from estate `bundles[b]` the rows
    `rows[offsets[b]:offsets[b + 1]]` for the receiver `receivers[b]`, a directory entry.
    """

    number: bytes
    keys: bytes
    """Of each estate, sealed to this heir."""
    estates: bytes
    counts: bytes
    bundles: bytes
    receivers: bytes
    offsets: bytes
    rows: bytes


class Bequests(Message, tag=17, frozen=True):
    """Server → owner: the state of items that it owns from now on, one package a bundle.

    Package p has `counts[p]` items, which are the next of `rows`, positions in what it owns.
    """

    packages: bytes
    counts: bytes
    rows: bytes


class Reply(Message, tag=32, frozen=True):
    """Client → server: done."""


class PublicKey(Message, tag=33, frozen=True):
    """Client → server: its public key (Algorithm 2, line 3)."""

    key: bytes


class SealedKeys(Message, tag=34, frozen=True):
    """u_c → server: the shared key, sealed to every client (line 6)."""

    sealed: bytes


class Tokens(Message, tag=35, frozen=True):
    """Client → server: tokens, sorted; from u_c also the catalogue in its order."""

    tokens: bytes


class Answers(Message, tag=36, frozen=True):
    """Client → server: one sealed answer for each asker."""

    answers: bytes


class Push(Message, tag=37, frozen=True):
    """Client → server: its vector, and the rows that it pushes as owner."""

    user: bytes = b""
    pushes: bytes = b""
    wishes: bytes = b""
    """Of a batch client, in the last exchange forward: one message an owner."""


class Finals(Message, tag=38, frozen=True):
    """Owner → server: final vectors of the items that were wanted, and of those wished for."""

    items: bytes = b""
    granted: bytes = b""


class Gradients(Message, tag=39, frozen=True):
    """Batch client → server: e_u, scalars for each owner, and what it says about its negatives."""

    user: bytes
    scalars: bytes
    negatives: bytes = b""
    introductions: bytes = b""
    answers: bytes = b""
    """Its part of Σ_u s_uj q_u for the first negatives of its pool, masked."""


class Numbers(Message, tag=40, frozen=True):
    """Client → server: masked 64-bit numbers."""

    masked: bytes


class Estate(Message, tag=41, frozen=True):
    """Client → server: its checkpoint is written; as owner, the state of its items under a fresh
    key, and that key sealed to each heir."""

    content: bytes = b""
    keys: bytes = b""


class Copy(Message, tag=43, frozen=True):
    """u_c → server: its copy of the dense weights with their Adam states, sealed to all clients."""

    content: bytes


class Bundles(Message, tag=42, frozen=True):
    """Heir → server: what it opened, sealed to each receiver."""

    packages: bytes
