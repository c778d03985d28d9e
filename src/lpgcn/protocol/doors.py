"""The doors of a client: every row of bytes that becomes a vector, or the other way round.

Rows are opened here, and all of a message's before anything changes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lpgcn.config import Config
from lpgcn.crypto import Indices
from lpgcn.protocol import messages as m
from lpgcn.protocol.keyring import Keyring
from lpgcn.protocol.messages import Header
from lpgcn.protocol.rows import to_rows, to_vectors
from lpgcn.protocol.sizes import Sizes
from lpgcn.protocol.suite import Kind
from lpgcn.protocol.transcript import Opened

Int64 = npt.NDArray[np.int64]
Bits = npt.NDArray[np.bool_]


class Doors:
    """Opens what arrives and seals what leaves, with the keys of one client."""

    def __init__(self, config: Config, keys: Keyring, opened: list[Opened] | None = None) -> None:
        self.keys, self.sizes = keys, Sizes.of(config)
        self.dtype = getattr(torch, config.dtype)
        self._dim, self._opened = config.dim, opened

    def note(self, what: str, senders: Iterable[int], rows: Iterable[bytes]) -> None:
        """For the transcript, if there is one: what could be read, and from whom it is."""
        if self._opened is not None:
            self._opened.append(Opened(what, list(senders), list(rows)))

    def blank(self, count: int) -> Tensor:
        return torch.zeros((count, self._dim), dtype=self.dtype)

    def filled(self, opened: Tensor, present: Bits) -> Tensor:
        """Rows that were not sent are zero."""
        if len(opened) == len(present):
            return opened
        full = self.blank(len(present))
        full[torch.from_numpy(present)] = opened
        return full

    def open_items(self, field: bytes, pushed: Header, places: Indices) -> Tensor:
        rows = m.rows(field, "item_rows", count=len(places.packed), width=self.sizes.item)
        context = self.keys.context(pushed.step, pushed.phase, pushed.layer)
        opened = self.keys.items.open_rows(context, places, rows)
        if self._opened is not None:
            self.note("items", map(int.from_bytes, places.packed), map(bytes, opened))
        return to_vectors(opened, self.dtype)

    def seal_items(self, header: Header, places: Int64, vectors: Tensor) -> bytes:
        context = self.keys.context(header.step, header.phase, header.layer)
        return self.keys.items.seal_rows(context, places, to_rows(vectors)).tobytes()

    def open_users(self, field: bytes, pushed: Header, kind: Kind, present: Bits) -> Tensor:
        """The vectors of the neighbours that are present; zero for the others."""
        handles = np.flatnonzero(present).tolist()
        rows = m.rows(field, "user_rows", count=len(handles), width=self.sizes.user(kind))
        context = self.keys.context(pushed.step, pushed.phase, pushed.layer)
        opened = self.keys.neighbours(kind).open_rows(context, handles, rows)
        if self._opened is not None:
            self.note("users", handles, map(bytes, opened))
        return self.filled(to_vectors(opened, self.dtype), present)

    def seal_user(self, header: Header, kind: Kind, vector: Tensor) -> bytes:
        context = self.keys.context(header.step, header.phase, header.layer)
        return self.keys.own(kind).seal(context, [to_rows(vector).tobytes()])[0]
