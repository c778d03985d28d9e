"""The virtual items of a carrier's users, kept for good, and which of their own are held out.

Runs end, and the next one begins in new folders, with new seeds. Were virtual items drawn anew
there, whoever sees both lists of one person would know that what they have in common is real. Were
a person's own items split anew, as they are when one more is among them, whoever sees both lists
would know that what is gone was real. So both are remembered, by their ids, in a file that lies
beside the credentials and outlives runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, get_args

import msgspec
import numpy as np

from lpgcn.data import DataError, Ids
from lpgcn.errors import LpgcnError
from lpgcn.files import write_atomically
from lpgcn.protocol.client.profile import Profile
from lpgcn.protocol.client.user import draw_virtual_items
from lpgcn.protocol.wire.reading import pack_numbers

FORMAT: Final = 2


class KeptVirtualItemsError(LpgcnError):
    """A file of virtual items that cannot be read."""


Part = Literal["train", "valid", "test"]


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one user, by ids of items."""

    virtual: list[str] = []
    """In the order in which they were first listed."""
    own: dict[str, Part] = {}
    """The part that each was in when it first came, or "train" once it was on a list."""


class _Format(msgspec.Struct, frozen=True):
    format: int


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    users: dict[str, _Kept]


class KeptVirtualItems:
    """Reads the file once, and writes it where more was drawn."""

    def __init__(self, path: Path) -> None:
        self._path, self._users, self._more = path, _read(path), False
        self._if_listed: dict[str, _Kept] = {}
        """Of users whose list was not sent yet in this process: what is remembered once it is."""

    @classmethod
    def beside(cls, credentials: Path, name: str, elsewhere: Path | None) -> KeptVirtualItems:
        """Those of the carrier with this name, unless they are kept elsewhere."""
        return cls(elsewhere or credentials.with_name(f"{name}.virtual-items"))

    def remembered(
        self, user: int | str, about: Profile, ids: Ids, *, goes_on: bool = False
    ) -> Profile:
        """The profile with this user's virtual items of all runs, those of this one included, and
        its own items in the parts where they were before. One that goes on has listed them
        already: what is otherwise now is not remembered, unless it is `listed`."""
        kept = self._users.get(str(user), _Kept())
        about = _in_their_parts(about, kept.own, ids)
        if not about.train:
            raise KeptVirtualItemsError(
                f"all items of user {user!r} were held out in earlier runs, and what it trained on "
                f"then is gone from its data: see {self._path}; a client needs an item to train on"
            )
        known = _indices(kept.virtual, ids)
        about = msgspec.structs.replace(about, virtual=pack_numbers(known))
        drawn = draw_virtual_items(about, about.items("train"))
        new = drawn[~np.isin(drawn, known)].tolist()
        virtual = [*kept.virtual, *(str(ids[item]) for item in new)]
        own = {str(ids[item]): part for part in get_args(Part) for item in about.items(part)}
        now = _Kept(virtual, {**kept.own, **own})
        self._if_listed[str(user)] = now
        if not goes_on:
            self.listed(user)
        return msgspec.structs.replace(about, virtual=pack_numbers([*known, *new]))

    def listed(self, user: int | str) -> None:
        """The list of this user, as it is now, is about to be sent: also of one who has been in
        the run before, was left behind, and begins anew."""
        now = self._if_listed.pop(str(user), None)
        if now is not None and now != self._users.get(str(user)):
            self._more, self._users[str(user)] = True, now

    def save(self) -> None:
        """Before anybody is sent a list."""
        if self._more:
            content = msgspec.json.encode(_File(FORMAT, self._users))
            write_atomically(self._path, content, mode=0o600)
            self._more = False


def _in_their_parts(about: Profile, before: Mapping[str, Part], ids: Ids) -> Profile:
    """What is new is where the split has it. Who holds nothing out in a run that is not validated
    wants to train on everything, also on what was held out before."""
    if not about.config.eval_every and not about.valid and not about.test:
        return about
    parts: dict[Part, list[int]] = {part: [] for part in get_args(Part)}
    for part in get_args(Part):
        for item in about.items(part).tolist():
            parts[before.get(str(ids[item]), part)].append(item)
    packed = {part: pack_numbers(sorted(items)) for part, items in parts.items()}
    return msgspec.structs.replace(about, **packed)


def _indices(items: list[str], ids: Ids) -> list[int]:
    """Of those that are in the catalogue, which may have changed."""
    found = []
    for item in items:
        with suppress(DataError):
            found.append(ids.index_of(item))
    return found


def _read(path: Path) -> dict[str, _Kept]:
    if not path.exists():
        return {}
    content = path.read_bytes()
    try:
        version = msgspec.json.decode(content, type=_Format).format
        if version != FORMAT:
            raise KeptVirtualItemsError(
                f"{path} has format {version}, expected {FORMAT}; it is of another version of "
                "lpgcn: use that one, or rename the file, and other virtual items are drawn"
            )
        return msgspec.json.decode(content, type=_File).users
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise KeptVirtualItemsError(
            f"{path} is damaged: {error}; bring it back from a copy. Without it, a server that has "
            "seen an earlier list can tell what is real on the next"
        ) from error
