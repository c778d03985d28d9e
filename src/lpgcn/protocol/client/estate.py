"""The state of an owner's items: left with the server, sealed to heirs, and handed on by one.

An owner seals its items' rows under a fresh key, and that key to itself and to a few heirs. When
an item gets another owner, one who can open the copy seals its rows to the new owner. Nobody else
can read any of it, and the server nothing.
"""

from __future__ import annotations

import numpy as np

from lpgcn.crypto import (
    TAG_BYTES,
    Channels,
    Context,
    SecretKey,
    seal,
)
from lpgcn.protocol.client.profile import Device
from lpgcn.protocol.client.sealing import info
from lpgcn.protocol.client.standing import FormerIdentity, Nodes, Standing, item_tables, read_rows
from lpgcn.protocol.errors import MalformedMessageError, UnexpectedMessageError
from lpgcn.protocol.phases import Phase
from lpgcn.protocol.suite import Kind
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire import reading
from lpgcn.protocol.wire.sizes import SEALED_KEY_BYTES, Sizes


def _context(run: bytes, number: int) -> Context:
    return Context(run, number, Phase.CHECKPOINT, 0, Kind.ESTATE)


def estate_of(rows: Nodes, number: int, run: bytes, heirs: list[bytes]) -> m.Estate:
    """What an owner leaves with the server at a checkpoint."""
    key = SecretKey.generate()
    (content,) = Channels([key]).seal(_context(run, number), [0], [rows.tobytes()])
    keys = [seal(heir, key.reveal(), info("estate", run, heir)) for heir in heirs]
    return m.Estate(content=content, keys=b"".join(keys))


def bequeath(
    device: Device, standing: Standing, former: FormerIdentity | None, message: m.Estates
) -> m.Bundles:
    """As heir: open copies with the key of the term before, and seal rows to their new owners."""
    if former is None:
        raise UnexpectedMessageError("copies for an heir, but this client was in no term before")
    sizes, names = Sizes.of(device.about.config), item_tables(device.about.config)
    number = reading.one_number(message.number, "number", least=1)
    counts = reading.numbers(message.counts, "counts", below=1 << 31)
    sealed = reading.split(message.keys, SEALED_KEY_BYTES, "keys", count=len(counts))
    each = sizes.node(names).itemsize
    contents = reading.cut(message.estates, (each * counts + TAG_BYTES).tolist(), "estates")
    estates = [
        read_rows(_opened(former, number, key, content), names, sizes, count)
        for key, content, count in zip(sealed, contents, counts.tolist(), strict=True)
    ]
    bundles = reading.numbers(message.bundles, "bundles", below=len(estates))
    receivers = standing.proved(message.receivers, "receivers", count=len(bundles))
    rows = reading.numbers(message.rows, "rows", below=1 << 31)
    chosen = reading.ragged(message.offsets, rows, rows=len(bundles))
    packages = []
    for bundle, (estate, receiver) in enumerate(zip(bundles.tolist(), receivers, strict=True)):
        which = chosen[bundle]
        if len(which) and int(which.max()) >= len(estates[estate]):
            raise MalformedMessageError("field rows holds a row that the estate does not have")
        content = np.ascontiguousarray(estates[estate][which]).tobytes()
        packages.append(seal(receiver, content, info("bequest", standing.run, receiver)))
    return m.Bundles(packages=b"".join(packages))


def _opened(former: FormerIdentity, number: int, key: bytes, content: bytes) -> bytes:
    bound = info("estate", former.run, former.private.public_bytes)
    secret = SecretKey(former.private.open(key, bound))
    (opened,) = Channels([secret]).open(_context(former.run, number), [0], [content])
    return opened
