"""Files of ours that were damaged: an error of ours, or made anew and told; never other rows than the source has."""

from __future__ import annotations

import json
import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from ingest_rows import HERE, read, write_csv

from dray.data.open_source import open_source
from dray.data.parquet import open_dataset
from dray.data.parquet_rows import read_slices
from dray.errors import DrayError, StorageError
from dray.events.kinds import Event, Warned
from dray.ingesting import plan, task
from dray.ingesting.cache import Reading, as_parquet
from dray.ingesting.copy_files import result_of
from dray.ingesting.ingest import ingest
from dray.ingesting.journal import sealed
from dray.ingesting.recipe import Recipe
from dray.runs.files import RunFiles
from dray.storage import DEFAULT

MUTANTS = 60
ROWS = list(range(300))


def mutated(content: bytes, seed: int) -> bytes:
    """Return other bytes: some flipped, cut off, doubled, or in place of others."""
    chance = random.Random(seed)
    damaged = bytearray(content)
    at = chance.randrange(max(1, len(damaged)))
    match seed % 5:
        case 0:
            damaged[at : at + 1] = bytes([chance.randrange(256)])
        case 1:
            del damaged[at:]
        case 2:
            damaged[at:at] = damaged[: chance.randrange(64)]
        case 3:
            damaged[at : at + chance.randrange(1, 32)] = b""
        case _:
            other = chance.choice([b"0", b"9", b"-1", b"null", b"[]", b"{}", b'"', b"1e999", b"\xff\xfe"])
            damaged[at : at + len(other)] = other
    return bytes(damaged)


def damage(directory: Path, seed: int) -> Path:
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    file = files[seed % len(files)]
    file.write_bytes(mutated(file.read_bytes(), seed))
    return file


def rows_of(copy: str) -> list[int]:
    slices = open_dataset([copy], DEFAULT).row_groups
    return [x for _, batch in read_slices(slices, ["x"], [], DEFAULT) for x in batch["x"].to_pylist()]


def test_a_damaged_copy_gives_the_rows_of_its_source_or_an_error(tmp_path: Path) -> None:
    source = str(write_csv(tmp_path / "a.csv", len(ROWS)))
    how = Reading(cache=str(tmp_path / "cache"))
    (copy,) = as_parquet(source, DEFAULT, how, lambda *_, **__: None)
    shutil.copytree(copy, tmp_path / "kept")
    refused = 0
    for seed in range(MUTANTS):
        damage(Path(copy), seed)
        if result_of(RunFiles(copy, DEFAULT)) is None:  # it is made anew: see below
            refused += 1
        else:
            with suppress(DrayError):
                assert rows_of(copy) == ROWS, seed
        shutil.rmtree(copy)
        shutil.copytree(tmp_path / "kept", copy)
    assert 0 < refused < MUTANTS


@pytest.mark.parametrize("name", ["_ingest.json", "part-00000.parquet"])
def test_a_copy_that_is_cut_off_is_made_anew_and_that_is_told(name: str, tmp_path: Path) -> None:
    source = str(write_csv(tmp_path / "a.csv", len(ROWS)))
    told: list[str] = []

    def emit(event: Event) -> None:
        told.extend([event.message] if isinstance(event, Warned) else [])

    how = Reading(cache=str(tmp_path / "cache"))
    (copy,) = as_parquet(source, DEFAULT, how, emit)
    file = Path(copy) / name
    file.write_bytes(file.read_bytes()[:-20])
    assert as_parquet(source, DEFAULT, how, emit) == (copy,)
    assert rows_of(copy) == ROWS
    assert told == [f"The copy {copy} of {source} is damaged: it is made anew."]


def test_a_flipped_bit_in_the_rows_of_a_copy_is_an_error(tmp_path: Path) -> None:
    source = str(write_csv(tmp_path / "a.csv", len(ROWS)))
    (copy,) = as_parquet(source, DEFAULT, Reading(cache=str(tmp_path / "cache")), lambda *_, **__: None)
    file = Path(copy) / "part-00000.parquet"
    content = bytearray(file.read_bytes())
    content[200] ^= 1
    file.write_bytes(content)
    with pytest.raises(DrayError, match=r"part-00000\.parquet"):
        rows_of(copy)


def test_a_damaged_journal_gives_the_rows_of_the_source_or_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "LEAST_TASK_BYTES", 2000)
    source = str(write_csv(tmp_path / "a.csv", len(ROWS)))
    source_rows = open_source(source)
    call = task.TaskRunner.__call__

    def ends(self: Any, one: Any) -> Any:
        if one.index == 2:
            raise KeyboardInterrupt
        return call(self, one)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(task.TaskRunner, "__call__", ends)
        ingest(source_rows, str(tmp_path / "kept"), Recipe(), options=HERE)
    resumed = 0
    for seed in range(MUTANTS):
        out = tmp_path / "out"
        shutil.copytree(tmp_path / "kept", out)
        damage(out / "_ingest", seed)
        with suppress(DrayError):
            resumed += ingest(source_rows, str(out), Recipe(), options=HERE).resumed
            assert read(out)["x"].to_pylist() == ROWS, seed
        shutil.rmtree(out)
    assert resumed


@pytest.mark.parametrize("document", ["[]", "1", "null", '{"version": 3}', "[" * 100_000, '{"version": [3]}'])
@pytest.mark.parametrize("name", ["plan.json", "owner.json", "task-00000.json", "alive"])
def test_other_documents_in_a_journal_are_no_crash(name: str, document: str, tmp_path: Path) -> None:
    source = str(write_csv(tmp_path / "a.csv", 10))
    (tmp_path / "out" / "_ingest").mkdir(parents=True)
    (tmp_path / "out" / "_ingest" / name).write_text(document)
    try:
        ingest(open_source(source), str(tmp_path / "out"), Recipe(), options=HERE)
    except DrayError:
        assert name == "plan.json"
    else:
        assert read(tmp_path / "out")["x"].to_pylist() == list(range(10))
        assert json.loads((tmp_path / "out" / "_ingest.json").read_text())["result"]["rows_kept"] == 10


@pytest.mark.parametrize("changed", [{"source": None}, {"recipe": 1}, {"source": {"files": [1]}}, {"schema": [1]}])
def test_a_sealed_plan_of_another_form_is_told(changed: dict[str, Any], tmp_path: Path) -> None:
    source = open_source(str(write_csv(tmp_path / "a.csv", 10)))
    out = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(task.TaskRunner, "__call__", raise_interrupt)
        ingest(source, str(out), Recipe(), options=HERE)
    plan_file = out / "_ingest" / "plan.json"
    plan_file.write_text(json.dumps(sealed({**json.loads(plan_file.read_text()), **changed})))
    with pytest.raises(StorageError, match=r"The plan of the unfinished ingest in .*out is damaged: "):
        ingest(source, str(out), Recipe(), options=HERE)


def raise_interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("changed", [{"rows_kept": "10"}, {"rows_rejected": None}, {"rejects": 1}])
def test_a_sealed_copy_of_another_form_is_damaged(changed: dict[str, Any], tmp_path: Path) -> None:
    source = str(write_csv(tmp_path / "a.csv", 10))
    (copy,) = as_parquet(source, DEFAULT, Reading(cache=str(tmp_path / "cache")), lambda *_, **__: None)
    files = RunFiles(copy, DEFAULT)
    document = files.read_json("_ingest.json")
    files.write_exactly("_ingest.json", sealed({**document, "result": {**document["result"], **changed}}))
    assert result_of(files) is None
