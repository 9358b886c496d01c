"""One at a time, and nothing of an earlier one in the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dray.errors import StorageError
from dray.ingesting.journal import Journal, sealed
from dray.ingesting.written import Report, Written
from dray.storage import DEFAULT
from s3_server import S3Server


def journal(out: Path | str) -> Journal:
    return Journal(str(out), DEFAULT)


def test_a_report_comes_back_from_the_journal_as_it_was(tmp_path: Path) -> None:
    report = Report(
        task=3,
        rows_read=10,
        rows_rejected=1,
        rows_filtered=2,
        rows_transformed=9,
        files=(Written("train/part-00003.parquet", 7, 1234, "train"),),
        rejects=(("a.csv", 1, "a.csv, line 2: no"),),
        extra_fields={"promo": 2},
    )
    journal(tmp_path).record(report)
    assert journal(tmp_path).reports(4) == {3: report}
    assert journal(tmp_path).reports(3) == {}


def test_a_report_that_cannot_be_read_is_as_good_as_none(tmp_path: Path) -> None:
    (tmp_path / "_ingest").mkdir()
    (tmp_path / "_ingest" / "task-00000.json").write_text('{"task": 0')
    (tmp_path / "_ingest" / "task-00001.json").write_text("[]")
    assert journal(tmp_path).reports(4) == {}


@pytest.mark.parametrize(
    "changed",
    [
        {"rows_read": "10"},
        {"rows_read": -1},
        {"task": True},
        {"files": None},
        {"files": [{"name": "a\0", "rows": 1, "bytes": 1}]},
        {"files": [{"name": "\ud800", "rows": 1, "bytes": 1}]},
        {"files": [{"name": "a", "rows": 1, "bytes": 1, "part": "x"}]},
        {"rejects": [["a.csv", None, "no"]]},
        {"extra_fields": {"promo": "2"}},
        {"extra_fields": ["promo"]},
        {"new": 1},
    ],
)
def test_a_sealed_report_of_another_form_is_as_good_as_none(changed: dict[str, Any], tmp_path: Path) -> None:
    report = Report(task=0, rows_read=1, rows_rejected=0, rows_filtered=0, rows_transformed=1, files=())
    journal(tmp_path).write_exactly("task-00000.json", sealed({**report.to_json(), **changed}))
    assert journal(tmp_path).reports(1) == {}


def test_a_second_process_is_refused_while_the_first_is_at_work(tmp_path: Path) -> None:
    words = rf"Another .* is writing to {tmp_path} \(process {os.getpid()} on"
    with journal(tmp_path).claimed(), pytest.raises(StorageError, match=words):
        journal(tmp_path).claimed().__enter__()
    with journal(tmp_path).claimed():
        pass


def test_a_process_that_was_killed_is_in_nobodys_way(tmp_path: Path) -> None:
    code = f"""
import os, signal
from dray.ingesting.journal import Journal, sealed
from dray.storage import DEFAULT
with Journal({str(tmp_path)!r}, DEFAULT).claimed():
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    assert json.loads((tmp_path / "_ingest" / "owner.json").read_text())["status"] == "running"
    with journal(tmp_path).claimed():
        pass


def test_one_on_s3_is_known_by_its_owner(s3_server: S3Server) -> None:
    out = s3_server.url("out")
    words = "Another dray data ingest is writing to s3://bucket/out"
    with journal(out).claimed(), pytest.raises(StorageError, match=words):
        journal(out).claimed().__enter__()
    with journal(out).claimed():
        pass


def test_only_the_remains_of_a_start_leave_an_output_free(tmp_path: Path) -> None:
    (tmp_path / "_ingest").mkdir()
    journal(tmp_path).require_free()
    journal(tmp_path / "new").require_free()
    (tmp_path / "something").touch()
    with pytest.raises(StorageError, match=r"exists and is not empty\."):
        journal(tmp_path).require_free()
    with pytest.raises(StorageError, match="exists and is not empty"):
        journal(tmp_path / "something").require_free()


def test_a_damaged_plan_is_told(tmp_path: Path) -> None:
    (tmp_path / "_ingest").mkdir()
    (tmp_path / "_ingest" / "plan.json").write_text("{")
    with pytest.raises(StorageError, match=r"plan\.json is damaged"):
        journal(tmp_path).plan()


@pytest.mark.parametrize("process", [None, 7, {"pid": 7}])
def test_an_owner_of_another_form_is_told_without_its_process(process: object, tmp_path: Path) -> None:
    with journal(tmp_path).claimed():
        journal(tmp_path).write_exactly("owner.json", sealed({"status": "running", "process": process}))
        with pytest.raises(StorageError, match=rf"is writing to {tmp_path}\."):
            journal(tmp_path).claimed().__enter__()
