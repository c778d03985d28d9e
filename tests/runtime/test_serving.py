"""What a server over a network says about a run folder that it cannot use."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from lpgcn.checkpoints import CheckpointError
from lpgcn.config import Config
from lpgcn.errors import LpgcnError
from lpgcn.evaluation import EarlyStopping
from lpgcn.runtime.runs import serving
from lpgcn.runtime.runs.catalogue import PublicCatalogue
from lpgcn.runtime.runs.run_folder import Progress, Run, RunFolder, RunFolderError
from lpgcn.runtime.runs.source import Source

CONFIG = Config(mode="federated", dim=4, layers=1)
CATALOGUE = PublicCatalogue(ids=("a", "b"))


@pytest.mark.parametrize(
    ("begun", "kind"), [(False, RunFolderError), (True, CheckpointError)], ids=["taken", "damaged"]
)
def test_a_server_advises_what_it_can_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: bool, kind: type[LpgcnError]
) -> None:
    """There is how far a run was, but no description of it, or no state."""
    run = Run(source=Source(dataset="films"), config=CONFIG, fingerprint=CATALOGUE.fingerprint)
    folder = RunFolder(tmp_path)
    if begun:
        with folder.beginning(run, overwrite=False):
            pass
    folder.save_progress(1, Progress(stopping=EarlyStopping(3)))
    monkeypatch.setattr(serving, "open_board", lambda *_, **__: nullcontext(object()))
    with pytest.raises(kind, match=r"another folder \(--state of serve\)$") as error:
        serving.serve("films", CONFIG, CATALOGUE, {}, tmp_path, serving.Serving(2))
    said = str(error.value)
    assert not [flag for flag in ("--overwrite", "--resume", "--out") if flag in said]
