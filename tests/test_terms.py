"""The log of terms: what is written is read, and what cannot be followed is refused."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.terms import Term, TermError, begun, read_terms, write_terms

members = st.sets(st.integers(0, 30), min_size=1, max_size=6).map(lambda some: tuple(sorted(some)))
places = st.tuples(st.integers(0, 5), st.integers(0, 5))


@st.composite
def logs(draw: st.DrawFn) -> list[Term]:
    later = sorted(draw(st.lists(places, max_size=5)))
    return [Term(epoch=epoch, step=step, members=draw(members)) for epoch, step in [(0, 0), *later]]


@given(logs())
def test_a_log_is_read_as_it_was_written(terms: list[Term]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "terms.jsonl"
        write_terms(path, terms)
        assert read_terms(path) == terms
        assert len(path.read_bytes().splitlines()) == len(terms)


@given(logs(), places)
def test_a_step_is_in_the_last_term_that_has_begun(
    terms: list[Term], place: tuple[int, int]
) -> None:
    """Found by going through all steps; several may begin at one step."""
    found = 0
    for epoch in range(6):
        for step in range(6):
            for term in terms:
                found += (term.epoch, term.step) == (epoch, step) <= place
    assert begun(terms, *place) == found


@given(logs(), st.data())
def test_a_log_in_another_order_is_refused(terms: list[Term], data: st.DataObject) -> None:
    changed = data.draw(st.permutations(terms))
    starts = [(term.epoch, term.step) for term in changed]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "terms.jsonl"
        write_terms(path, changed)
        if starts == sorted(starts):
            assert read_terms(path) == changed
        else:
            with pytest.raises(TermError, match="terms in order"):
                read_terms(path)


@pytest.mark.parametrize(
    ("epoch", "step", "some"),
    [(0, 0, ()), (-1, 0, (1,)), (0, -1, (1,)), (0, 0, (-1, 2)), (0, 0, (2, 1)), (0, 0, (3, 3))],
)
def test_a_term_without_rising_members_is_refused(
    epoch: int, step: int, some: tuple[int, ...], tmp_path: Path
) -> None:
    with pytest.raises(TermError, match=f"epoch {epoch}, step {step} with {len(some)} members"):
        Term(epoch=epoch, step=step, members=some)
    line = msgspec.json.encode({"epoch": epoch, "step": step, "members": some})
    (tmp_path / "terms.jsonl").write_bytes(line)
    with pytest.raises(TermError):
        read_terms(tmp_path / "terms.jsonl")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "terms in order"),
        (b'{"epoch": 0, "step": 1, "members": [1]}\n', "the first from epoch 0, step 0 on"),
        (b'{"epoch": 0, "step": 0}\n', "is not a log of terms"),
        (b'{"epoch": 0, "step": 0, "members": [1], "more": 1}\n', "is not a log of terms"),
        (b'{"epoch": "0", "step": 0, "members": [1]}\n', "is not a log of terms"),
        (b"nonsense\n", "is not a log of terms"),
        (b"\xff\xfe\n", "is not a log of terms"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "terms.jsonl"
    path.write_bytes(content)
    with pytest.raises(TermError, match=message):
        read_terms(path)


def test_a_log_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TermError, match="there is no log of terms"):
        read_terms(tmp_path / "terms.jsonl")


def test_nothing_has_begun_before_the_first_term() -> None:
    assert begun([Term(epoch=0, step=2, members=(1,))], 0, 1) == 0
