"""Virtual items over several runs: what two lists of one person have in common tells nothing."""

from __future__ import annotations

import stat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.config import Config
from lpgcn.data import Ids, Interactions
from lpgcn.data.splitting import ratio_split
from lpgcn.protocol.client.profile import Profile
from lpgcn.protocol.client.user import draw_virtual_items
from lpgcn.protocol.wire.reading import pack_numbers
from lpgcn.runtime.runs.kept_virtual_items import KeptVirtualItems, KeptVirtualItemsError
from lpgcn.runtime.runs.passengers import CarryingError, ClientSeeds


def profile(ids: Ids, real: set[int], *, seed: int, index: int, config: Config) -> Profile:
    """Of a user with these items, by their ids."""
    items = np.array(sorted(ids.index_of(item) for item in real), dtype="<u4").tobytes()
    return Profile(
        index=index, n_users=9, n_items=len(ids), config=config, seed=0, private_seed=seed,
        train=items, valid=b"", test=b"", popularity=np.full(len(ids), 0.1).tobytes(),
    )  # fmt: skip


def listed(path: Path, about: Profile, ids: Ids) -> set[int | str]:
    """The virtual items of a run of its own process, as the client itself draws them."""
    kept = KeptVirtualItems(path)
    about = kept.remembered("alice", about, ids)
    kept.save()
    drawn = draw_virtual_items(about, about.items("train"))
    assert len(set(drawn.tolist())) == len(drawn)
    return {ids[item] for item in drawn.tolist()}


runs = st.lists(
    st.fixed_dictionaries(
        {
            "n_items": st.integers(20, 60),
            "real": st.sets(st.integers(0, 19), min_size=1, max_size=6),
            "seed": st.integers(0, 2**63 - 1),
            "index": st.integers(0, 8),
            "virtual_items": st.sampled_from(["0", "3", "1.0x", "2.0x"]),
            "virtual_draw": st.sampled_from(["uniform", "popularity"]),
            "list_sizes": st.sampled_from(["exact", "bucketed"]),
        }
    ),
    min_size=2,
    max_size=4,
)


@given(runs)
def test_who_was_drawn_once_is_listed_as_long_as_there_is_room(
    history: list[dict[str, Any]],
) -> None:
    """Catalogues that change, other seeds, numbers and places in the federation. What is missing in
    a later list was no longer in the catalogue, became real, or has those before it listed."""
    with TemporaryDirectory() as folder:
        path, order = Path(folder) / "alice.virtual-items", list[int]()
        for run in history:
            ids = Ids.of(range(run["n_items"]))
            config = Config(
                virtual_items=run["virtual_items"], virtual_draw=run["virtual_draw"],
                list_sizes=run["list_sizes"],
            )  # fmt: skip
            about = profile(ids, run["real"], seed=run["seed"], index=run["index"], config=config)
            virtual = listed(path, about, ids)
            alone = draw_virtual_items(about, about.items("train"))
            assert len(virtual) == len(alone)
            assert not virtual & run["real"]
            possible = [item for item in order if item not in run["real"] and item < run["n_items"]]
            assert virtual >= set(possible[: len(virtual)])
            if not order:
                assert virtual == {ids[item] for item in alone.tolist()}
            order = [int(item) for item in stored(path)]


def stored(path: Path) -> list[str]:
    users: dict[str, dict[str, list[str]]] = msgspec.json.decode(path.read_bytes())["users"]
    return users["alice"]["virtual"]


def split_anew(ids: Ids, own: set[int], *, seed: int) -> Profile:
    """As `join` does when it starts: the person's items as they are now, split by their number."""
    items = np.array(sorted(ids.index_of(item) for item in own), dtype=np.int64)
    pairs = Interactions.from_pairs(np.zeros_like(items), items, 1, len(ids))
    train, valid, test = ratio_split(pairs, (0.6, 0.2, 0.2), seed)
    return Profile(
        index=0, n_users=9, n_items=len(ids), config=Config(virtual_items="1.0x"), seed=0,
        private_seed=seed, train=pack_numbers(train.items), valid=pack_numbers(valid.items),
        test=pack_numbers(test.items),
    )  # fmt: skip


@given(
    st.lists(st.sets(st.integers(0, 39), min_size=1, max_size=12), min_size=2, max_size=5),
    st.integers(0, 2**32 - 1),
)
def test_nothing_leaves_a_list_but_what_left_the_data(history: list[set[int]], seed: int) -> None:
    """A person's items grow, and are split anew: what was held out stays held out, and what was
    listed stays on the list."""
    ids, own, before = Ids.of(range(90)), set[int](), set[int | str]()
    with TemporaryDirectory() as folder:
        path, parts = Path(folder) / "alice.virtual-items", dict[int, str]()
        for more in history:
            own |= more
            kept = KeptVirtualItems(path)
            about = kept.remembered("alice", split_anew(ids, own, seed=seed), ids)
            kept.save()
            for part in ("train", "valid", "test"):
                for item in about.items(part).tolist():
                    assert parts.setdefault(item, part) == part
            assert parts.keys() == own
            real = about.items("train")
            on_list = {*real.tolist(), *draw_virtual_items(about, real).tolist()}
            assert on_list >= before
            before = on_list


def test_who_has_nothing_left_to_train_on_is_told(tmp_path: Path) -> None:
    path, ids = tmp_path / "alice.virtual-items", Ids.of(range(30))
    kept = KeptVirtualItems(path)
    own = set(range(10))
    about = kept.remembered("alice", split_anew(ids, own, seed=1), ids)
    kept.save()
    heldout = own - set(about.items("train").tolist())
    with pytest.raises(KeptVirtualItemsError, match="'alice' were held out in earlier runs"):
        KeptVirtualItems(path).remembered("alice", split_anew(ids, heldout, seed=1), ids)


@pytest.mark.parametrize("eval_every", [0, 5])
def test_what_was_held_out_is_trained_on_only_if_nothing_is_measured(
    tmp_path: Path, eval_every: int
) -> None:
    path, ids, own = tmp_path / "alice.virtual-items", Ids.of(range(30)), set(range(10))
    kept = KeptVirtualItems(path)
    before = kept.remembered("alice", split_anew(ids, own, seed=1), ids)
    kept.save()
    config = Config(virtual_items="1.0x", eval_every=eval_every)
    everything = profile(ids, own, seed=1, index=0, config=config)
    about = KeptVirtualItems(path).remembered("alice", everything, ids)
    trained = set(range(10)) if eval_every == 0 else set(before.items("train").tolist())
    assert set(about.items("train").tolist()) == trained
    assert len(before.items("train")) < 10


def test_a_run_that_goes_on_has_listed_already(tmp_path: Path) -> None:
    """Who comes back with another ratio is refused later; the right one must still be the same."""
    path, ids, own = tmp_path / "alice.virtual-items", Ids.of(range(30)), set(range(10))
    kept = KeptVirtualItems(path)
    before = kept.remembered("alice", split_anew(ids, own, seed=1), ids)
    kept.save()
    written = path.read_bytes()
    other = profile(ids, own, seed=1, index=0, config=Config(virtual_items="1.0x", eval_every=0))
    kept = KeptVirtualItems(path)
    assert kept.remembered("alice", other, ids, goes_on=True).train != before.train
    kept.save()
    assert path.read_bytes() == written
    again = KeptVirtualItems(path).remembered("alice", split_anew(ids, own, seed=1), ids)
    assert (again.train, again.valid, again.test) == (before.train, before.valid, before.test)


def test_a_file_of_another_version_is_not_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "alice.virtual-items"
    path.write_text('{"format": 1, "users": {"alice": ["a", "b"]}}')
    with pytest.raises(KeptVirtualItemsError, match="has format 1, expected 2"):
        KeptVirtualItems(path)


def test_only_their_owner_reads_them_and_nothing_new_writes_nothing(tmp_path: Path) -> None:
    path, ids = tmp_path / "alice.virtual-items", Ids.of(range(30))
    config = Config(virtual_items="4")
    first = listed(path, profile(ids, {1, 2}, seed=1, index=1, config=config), ids)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.stat().st_ino
    assert listed(path, profile(ids, {1, 2}, seed=2, index=2, config=config), ids) == first
    assert path.stat().st_ino == before
    more = Config(virtual_items="6")
    assert listed(path, profile(ids, {1, 2}, seed=3, index=3, config=more), ids) > first
    assert path.stat().st_ino != before


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"format":3,"users":{}}'])
def test_a_file_that_cannot_be_read_is_not_begun_anew(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "alice.virtual-items"
    path.write_bytes(content)
    with pytest.raises(KeptVirtualItemsError, match=r"alice\.virtual-items"):
        KeptVirtualItems(path)
    assert path.read_bytes() == content


def test_a_folder_with_seeds_is_its_owners(tmp_path: Path) -> None:
    seeds = ClientSeeds.kept_in(tmp_path, "user 7 of alice")
    assert ClientSeeds.kept_in(tmp_path, "user 7 of alice") == seeds
    with pytest.raises(CarryingError, match="the folder of user 7 of alice, not of user 7 of bob"):
        ClientSeeds.kept_in(tmp_path, "user 7 of bob")
