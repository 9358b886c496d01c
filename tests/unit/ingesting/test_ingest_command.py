"""`dray data ingest` as people call it: what its options mean, what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ingest_rows import read, write_csv

from dray.cli.main import main

KEYS = {
    "rows_read": int,
    "rows_kept": int,
    "rows_rejected": int,
    "rows_filtered": int,
    "rows_duplicate": int,
    "files": int,
    "bytes": int,
    "seconds": float,
    "output": str,
    "rejects": type(None),
    "extra_fields": dict,
    "parts": dict,
    "resumed": int,
}


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "a.csv", 280)
    return tmp_path


def command(*arguments: str) -> int:
    return main(["data", "ingest", "a.csv", "out", "--where", "here", *arguments])


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert command(*arguments, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def error(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert command(*arguments, "--json") == 2
    return str(json.loads(capsys.readouterr().out)["error"]["what"])


def test_the_result_as_json_has_every_key(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--quiet")
    assert {name: type(value) for name, value in found.items()} == KEYS
    assert found["output"] == str(work / "out") and found["rows_read"] == 280


def test_columns_are_separated_by_commas_and_quoted_where_they_have_one(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (work / "a.csv").write_text('"a,b",c,d\n1,2,3\n')
    document(capsys, "--columns", '"a,b", d')
    assert read(work / "out").column_names == ["a,b", "d"]


def test_a_share_and_columns_for_the_test(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--test", "25%", "--split-by", "day", "--seed", "3")
    assert found["parts"]["train"] + found["parts"]["test"] == 280
    days = [set(read(work / "out" / part)["day"].to_pylist()) for part in ("train", "test")]
    assert not days[0] & days[1]


def test_a_moment_for_the_test(capsys: pytest.CaptureFixture[str]) -> None:
    assert document(capsys, "--test-from", "2026-01-22", "--split-by", "day")["parts"] == {"train": 210, "test": 70}


def test_directories_by_value(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert document(capsys, "--partition-by", "s")["files"] == 3
    assert {path.name for path in (work / "out").iterdir()} == {"_ingest.json", "s=a", "s=b", "s=c"}


def test_columns_whose_types_do_not_fit_are_left_out_by_naming_others(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (work / "a.csv").unlink()
    (work / "a.csv").mkdir()
    (work / "a.csv" / "1.csv").write_text("x,day\n1,2026-01-01\n")
    (work / "a.csv" / "2.csv").write_text("x,day\n2,monday\n")
    assert 'column "day" is' in error(capsys)
    assert main(["data", "ingest", "a.csv", "out", "--where", "here"]) == 2
    assert "Or name columns to keep: --columns." in capsys.readouterr().err
    assert document(capsys, "--columns", "x")["rows_kept"] == 2


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--test", "much"), '--test "much" is not a share of the rows.'),
        (("--test", "2"), "The share of test rows is 2."),
        (("--test", "0.2", "--test-from", "2026-01-01"), "Both were given: --test and --test-from."),
        (("--test-from", "2026-01-01"), "--test-from needs the column of the time."),
        (("--split-by", "day"), "--split-by needs --test or --test-from."),
        (("--max-rejects", "few"), 'The limit of rejects is "few".'),
        (("--columns", ","), '--columns "," does not name a column.'),
        (("--transform", "nowhere:clean"), 'There is no module "nowhere" here or installed.'),
        (("--sort", "prize"), 'There is no column "prize" in the source (--sort).'),
    ],
)
def test_what_is_wrong_is_said(
    work: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], what: str
) -> None:
    assert error(capsys, *arguments) == what
    assert not (work / "out").exists()


def test_words_for_people(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (work / "a.csv").read_text().splitlines()
    lines[7] = "too,few"
    (work / "a.csv").write_text("\n".join(lines) + "\n")
    assert command("--filter", "x >= 100", "--test", "0.5") == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert f"{work}/out: 180 rows in 2 files" in told.err
    assert "Of 280 rows read: 99 filtered, 1 rejected." in told.err
    assert f"Rejected rows of {work}/a.csv: 1. The first: {work}/a.csv, line 8: 2 fields instead of 4" in told.err
    assert f"Rejected rows and the reasons: {work}/out/_rejects.jsonl" in told.err


def test_nothing_is_said_when_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--quiet") == 0
    assert capsys.readouterr() == ("", "")
