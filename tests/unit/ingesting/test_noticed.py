"""What is noticed about data when it is opened is told once, by every command that opens it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from dray.cli.describe import describe as describe_command
from dray.cli.ingest import ingest as ingest_command
from dray.cli.train import train as train_command
from dray.data.describe import describe
from dray.data.open_source import open_source
from dray.data.source import Note
from dray.errors import DataError
from dray.events.kinds import Event, Warned
from dray.ingesting.cache import Reading, as_parquet
from dray.ingesting.noticed import of_extra_fields, tell
from dray.storage import DEFAULT

FIX = "--read header=false"


@pytest.fixture
def headless(tmp_path: Path) -> Path:
    path = tmp_path / "a.csv"
    path.write_text("".join(f"{i % 7 + 0.5},{i % 3 + 3},{i % 2}\n" for i in range(40)))
    return path


def told(events: list[Event]) -> list[str]:
    return [event.fix for event in events if isinstance(event, Warned)]


def test_a_note_is_told_once() -> None:
    events: list[Event] = []
    tell([Note("one", "fix"), Note("two"), Note("one", "fix")], events.append)
    assert [(event.message, event.fix) for event in events if isinstance(event, Warned)] == [
        ("one", "fix"),
        ("two", ""),
    ]


def test_it_is_told_before_columns_are_missed_and_where_a_copy_is_there_already(headless: Path) -> None:
    def refuse(_schema: object) -> None:
        raise DataError("There is no column y.", fix="")

    events: list[Event] = []
    reading = Reading(cache=str(headless.parent / "cache"))
    with pytest.raises(DataError):
        as_parquet(str(headless), DEFAULT, reading, events.append, refuse)
    assert len(told(events)) == 1 and FIX in told(events)[0]
    for _ in range(2):
        events.clear()
        as_parquet(str(headless), DEFAULT, reading, events.append)
        assert len(told(events)) == 1


def test_ingest_tells_it_once(headless: Path) -> None:
    ran = CliRunner().invoke(ingest_command, [str(headless), str(headless.parent / "out"), "--where", "here"])
    assert ran.exit_code == 0, ran.output
    assert ran.output.count(FIX) == 1


EXTRA = 'fields that the first rows did not have were left out: "new" in 1,801 rows, "ref.id" in 1 row.'


@pytest.fixture
def grown(tmp_path: Path) -> Path:
    """Events of which some in the middle have further fields: in none of the samples."""
    rows = (
        ['{"x": 1}'] * 60_000
        + ['{"x": 2, "new": "a"}'] * 1_801
        + ['{"x": 3, "ref": {"id": 7}}']
        + ['{"x": 1}'] * 160_000
    )
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(rows))
    return path


def test_fields_that_the_first_rows_did_not_have_are_counted_once_for_all_tasks(
    grown: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dray.ingesting.ingest.task_bytes", lambda _bytes: 300_000)
    ran = CliRunner().invoke(ingest_command, [str(grown), str(grown.parent / "out"), "--where", "here", "--json"])
    assert ran.exit_code == 0, ran.output
    assert ran.stderr.count(EXTRA) == 1
    result = json.loads(ran.stdout)
    assert (result["rows_kept"], result["rows_rejected"]) == (221_802, 0)
    assert result["extra_fields"] == {"new": 1_801, "ref.id": 1}


def test_a_copy_that_is_used_again_tells_which_fields_it_lacks(grown: Path) -> None:
    reading = Reading(cache=str(grown.parent / "cache"))
    for _ in range(2):
        events: list[Event] = []
        as_parquet(str(grown), DEFAULT, reading, events.append)
        (warning,) = [event for event in events if isinstance(event, Warned)]
        assert EXTRA in warning.message and "--read extra_fields=reject" in warning.fix


def test_the_hint_of_a_field_that_was_left_out_reads_it(grown: Path) -> None:
    (note,) = of_extra_fields({"new": 2})
    assert note.what == '1 field that the first rows did not have was left out: "new" in 2 rows.'
    options = shlex.split(note.fix.partition(" reads")[0])
    ran = CliRunner().invoke(ingest_command, [str(grown), str(grown.parent / "out"), "--where", "here", *options])
    assert ran.exit_code == 0, ran.output
    found = pq.read_table(grown.parent / "out")["new"]
    assert len(found) - found.null_count == 1_801


def test_describe_tells_it_in_text_and_in_json(headless: Path) -> None:
    shown = CliRunner().invoke(describe_command, [str(headless)])
    assert shown.output.count(FIX) == 1
    document = json.loads(CliRunner().invoke(describe_command, [str(headless), "--json"]).stdout)
    (warning,) = [warning for warning in document["warnings"] if warning["kind"] == "looks"]
    assert FIX in warning["message"]


def test_a_label_that_is_not_there_is_told_with_what_may_be_why(headless: Path) -> None:
    with pytest.raises(DataError) as raised:
        describe(open_source(str(headless)), label="y")
    assert 'read={"header": False}' in raised.value.fix
    with pytest.raises(DataError) as raised:
        describe(open_source(str(headless), header=False), label="y")
    assert raised.value.fix == "Columns: f0, f1, f2; the last is f2."


def test_a_model_is_trained_on_data_as_another_country_writes_it(tmp_path: Path) -> None:
    rows = [f"{i % 50},{i % 10};1.{i % 1000:03d};{'ja' if i % 50 > 25 else 'nein'}" for i in range(400)]
    (tmp_path / "a.csv").write_bytes("\n".join(["Bericht", "a;b;y", *rows]).encode("utf-16"))
    read = [word for option in ("skip=1", "decimal=,", "thousands=.") for word in ("--read", option)]
    ran = CliRunner().invoke(
        train_command,
        [
            str(tmp_path / "a.csv"),
            "--label",
            "y",
            "--rounds",
            "2",
            "--workers",
            "0",
            *read,
            "--json",
            "--out",
            str(tmp_path / "run"),
            "--cache",
            str(tmp_path / "cache"),
        ],
    )
    assert ran.exit_code == 0, ran.output
    assert ran.stderr.count("divided by semicolons") == ran.stdout.count("divided by semicolons") == 1
    schema = pq.read_schema(next((tmp_path / "cache").rglob("*.parquet")))
    assert [str(type_) for type_ in schema.types] == ["double", "int64", "string"]
