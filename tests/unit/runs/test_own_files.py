"""Which files of a run's directory are dray's."""

from __future__ import annotations

from pathlib import Path

import pytest

from dray.runs.contents import remove_run
from dray.runs.directory import RunDirectory
from dray.runs.own_files import foreign_in_run, is_own
from dray.storage import DEFAULT


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("run.json", True),
        (".run.json.0af3.tmp", True),
        ("checkpoints/.round-3.model.9c.tmp", True),
        (".notes.txt.0af3.tmp", False),
        ("run.json.bak", False),
        ("sub/run.json", False),
        ("trees.txt", True),
        (".trees.txt.0af3.tmp", True),
    ],
)
def test_a_file_on_its_way_is_that_of_its_final_name(name: str, own: bool) -> None:
    assert is_own(name, {"trees.txt": "digest"}) is own


def test_a_removal_that_ends_half_way_leaves_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    directory = RunDirectory.create(str(run), run="one", config={})
    directory.finish({"rows": 1})
    directory.close()
    assert foreign_in_run(str(run)) == []
    unlink = Path.unlink

    def ended(path: Path, missing_ok: bool = False) -> None:
        unlink(path, missing_ok=missing_ok)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "unlink", ended)
        remove_run(str(run), DEFAULT)
    assert not (run / "run.json").exists()
    assert any(run.iterdir())
