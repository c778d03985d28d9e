"""Every format is what it was: a vector that changes without a new VERSION fails here."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import msgspec
import pytest

from lpgcn.crypto import Label
from lpgcn.protocol.errors import UnexpectedMessageError
from lpgcn.protocol.phases import PHASES, Phase
from lpgcn.protocol.suite import SUITES, Kind
from lpgcn.protocol.wire import encoding
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire.encoding import Header
from lpgcn.random import Purpose

WRITER = Path(__file__).with_name("write_vectors.py")
SCRIPT = runpy.run_path(str(WRITER))
FILE = json.loads(WRITER.with_name("vectors.json").read_text(encoding="utf-8"))
FOUND = SCRIPT["all_vectors"](FILE["sealed"])
MESSAGES: list[m.Message] = SCRIPT["MESSAGES"]
HOW = "write new vectors with `python tests/protocol/write_vectors.py`"
WHERE = {"crypto": "lpgcn.crypto.context", "wire": "lpgcn.protocol.wire.encoding"}
NAMES = sorted({(part, name) for part in FOUND for name in (*FOUND[part], *FILE[part])})


def kinds_of_message() -> set[type[m.Message]]:
    """Whatever can travel has a tag."""
    return {
        kind
        for kind in vars(m).values()
        if isinstance(kind, type)
        and issubclass(kind, m.Message)
        and kind.__struct_config__.tag is not None
    }


@pytest.mark.parametrize(("part", "name"), NAMES)
def test_a_format_is_what_it_was(part: str, name: str) -> None:
    version = FILE["versions"][part]
    if name not in FILE[part]:
        pytest.fail(f"{name} has no vector yet: {HOW}")
    if name not in FOUND[part]:
        pytest.fail(f"nothing is called {name} any more: raise VERSION in {WHERE[part]} and {HOW}")
    found = SCRIPT["made"](FOUND[part][name])
    if json.loads(json.dumps(found)) != FILE[part][name]:
        pytest.fail(
            f"{name}: the format changed: raise VERSION (in {WHERE[part]}, {version} has the old "
            f"one) and {HOW}; found {found}, expected {FILE[part][name]}"
        )


def test_the_file_is_of_this_version() -> None:
    assert FILE["versions"] == SCRIPT["VERSIONS"], f"VERSION is another one: {HOW}"
    versions = {
        "wire": bytes.fromhex(FILE["wire"]["header"])[0],
        "crypto": bytes.fromhex(FILE["crypto"]["context"])[0],
    }
    assert versions == FILE["versions"]
    assert {bytes.fromhex(one)[0] for one in FILE["sealed"].values()} == {versions["crypto"]}


def test_nothing_that_has_a_format_is_without_a_vector() -> None:
    expected = {f"message {kind.__name__}" for kind in kinds_of_message()}
    expected |= {f"phase {phase.name}" for phase in Phase}
    expected |= {f"kind {kind.name}" for kind in Kind}
    expected |= {f"purpose {purpose.name}" for purpose in Purpose}
    expected |= {
        f"row {kind.name}, {name}" for name, suite in SUITES.items() for kind in suite.keys
    }
    expected |= {f"sizes, {name}, {dtype}" for name in SUITES for dtype in ("float32", "float64")}
    assert expected <= FILE["wire"].keys(), HOW
    assert {f"key for {label.value}" for label in Label} <= FILE["crypto"].keys(), HOW


def test_every_message_of_the_table_of_phases_can_travel() -> None:
    used = {kind for row in PHASES.values() for kind in (row.request, row.reply)}
    assert used == kinds_of_message()


def test_nothing_has_the_tag_or_the_number_of_another() -> None:
    tags = [kind.__struct_config__.tag for kind in kinds_of_message()]
    assert len(set(tags)) == len(tags)
    numbers: dict[str, list[int]] = {part: [] for part in ("phase", "kind", "purpose")}
    for name, value in FILE["wire"].items():
        if (part := name.partition(" ")[0]) in numbers:
            numbers[part].append(value[0] if part == "purpose" else value)
    assert all(len(set(values)) == len(values) > 5 for values in numbers.values())


@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: type(one).__name__)
def test_a_vector_is_read_as_the_message_that_it_is(message: m.Message) -> None:
    data = bytes.fromhex(FILE["wire"][f"message {type(message).__name__}"])
    assert encoding.decode(data, type(message), limit=len(data)) == message
    phase = encoding.read_header(message, SCRIPT["RUN"], 3).phase
    assert type(message) in (PHASES[Phase(phase)].request, PHASES[Phase(phase)].reply)
    assert encoding.read_header(message, SCRIPT["RUN"], 3) in (
        Header(7, phase),
        Header(7, phase, 1),
    )
    fields = {name: len(getattr(message, name)) for name in encoding.content_fields(type(message))}
    assert encoding.encoded_size(type(message), **fields) == len(data)
    assert all(fields.values()), "an empty field would say nothing about its place in the format"
    values = [getattr(message, name) for name in fields]
    assert len(set(values)) == len(values), "two equal fields could change places unnoticed"


def test_nothing_else_is_read_as_a_message() -> None:
    others = {type(message): encoding.encode(message) for message in MESSAGES}
    for kind, data in others.items():
        for other in others.keys() - {kind}:
            with pytest.raises(UnexpectedMessageError):
                encoding.decode(data, other, limit=len(data))


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    path = tmp_path / "vectors.json"
    path.write_text(json.dumps(FILE))
    return path


def changed_file(path: Path, part: str, name: str, versions: dict[str, int]) -> None:
    """As if another program had written it."""
    content = json.loads(path.read_text())
    content[part][name] = "something else"
    content["versions"] |= versions
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(("part", "name"), [("wire", "message Push"), ("crypto", "context")])
def test_the_script_changes_no_vector_without_a_new_version(
    copied: Path, part: str, name: str
) -> None:
    changed_file(copied, part, name, {})
    before = copied.read_bytes()
    with pytest.raises(SystemExit, match=f"{part}: {name}.*raise VERSION"):
        SCRIPT["write"](copied)
    assert copied.read_bytes() == before
    changed_file(copied, part, name, {part: FILE["versions"][part] - 1})
    SCRIPT["write"](copied)
    written = json.loads(copied.read_text())
    assert (written["versions"], written[part]) == (FILE["versions"], FILE[part])


def test_the_script_adds_what_is_new_and_drops_nothing(copied: Path) -> None:
    content = json.loads(copied.read_text())
    del content["wire"]["message Push"]
    copied.write_text(json.dumps(content))
    SCRIPT["write"](copied)
    assert json.loads(copied.read_text()) == FILE
    changed_file(copied, "wire", "message of old", {})
    with pytest.raises(SystemExit, match="message of old"):
        SCRIPT["write"](copied)


def test_vectors_are_made_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vector that came out of the file, or was made once, could not fail."""
    before = SCRIPT["made"](FOUND["wire"]["message Push"])
    monkeypatch.setattr(encoding, "encode", lambda message: msgspec.json.encode(message))
    assert SCRIPT["made"](FOUND["wire"]["message Push"]) != before


def test_a_checkpoint_is_written_as_it_was_read() -> None:
    assert FILE["wire"]["a client's next checkpoint"] == FILE["wire"]["a client's checkpoint"]
    opened, plain = FILE["wire"]["estate, opened"], SCRIPT["node_states"](2).tobytes().hex()
    assert opened == plain != FILE["wire"]["estate"]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: type(one).__name__)
def test_a_header_can_be_read_without_the_rest(message: m.Message) -> None:
    run, party = encoding.run_of(message), int.from_bytes(message.header[-4:], "big")
    assert encoding.header_of(encoding.encode(message)) == encoding.read_header(message, run, party)
