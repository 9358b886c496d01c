"""What comes from data or from the network cannot steer the terminal, on whatever way it gets there."""

from __future__ import annotations

import ast
import io
import json
import re
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

import dray
from dray.cli.main import main
from dray.cli.output import log_line
from dray.events.sinks.console import SafeConsole
from dray.events.sinks.live import LiveView
from dray.events.sinks.terminal import PlainLines
from dray.events.telemetry import dumps
from dray.events.visible import visible
from dray.jobs.remote import to_stderr
from dray.runs.directory import RunDirectory
from made_events import made_event

EVIL = "a\x1b]0;owned\x07\x9b2J\u202eb\x1b[31mc\x00\r"
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
OURS = re.compile("\x1b\\[[0-9;?]*[A-Za-z]|\r")
"""What rich sends of its own: colours, the cursor."""


@given(st.text())
def test_any_text_comes_out_harmless_and_plain_text_stays(text: str) -> None:
    assert not STEERING.search(visible(text))
    assert visible(visible(text)) == visible(text)
    visible(text).encode()


@pytest.mark.parametrize("text", ["plain", "Zürich 東京 🎉", "👩‍👩‍👧", "می‌خواهم", "a\tb\nc", "ratio: 50 %"])
def test_what_steers_nothing_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


@given(st.text() | st.text(st.characters(categories=["Cc", "Cf", "Cs"])))
def test_json_holds_the_very_value_without_a_character_that_steers(text: str) -> None:
    document = dumps({"value": text})
    assert not STEERING.search(document)
    document.encode()
    found = json.loads(document)["value"]
    assert found == text or json.dumps(found) == json.dumps(text)  # a surrogate pair is one character when parsed


@pytest.fixture
def evil_data(tmp_path: Path) -> str:
    table = pa.table(
        {EVIL: [EVIL, "x\u2066y", "z"] * 20, "y": [0, 1, 0] * 20, "many": [f"{EVIL}{n}" for n in range(60)]}
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    return str(tmp_path / "rows.parquet")


def test_describe_shows_names_and_values_with_control_characters_made_visible(
    evil_data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "describe", evil_data]) == 0
    shown = "".join(capsys.readouterr())
    assert not STEERING.search(shown)
    assert r"\x1b]0;owned\x07\x9b2J\u202e" in shown


def test_an_error_shows_them_visible_and_in_json_as_they_are(
    evil_data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", evil_data, "--label", EVIL + "?", "--workers", "0", "--json"]) == 2
    out, err = capsys.readouterr()
    assert not STEERING.search(out + err)
    assert r"\x1b]0;owned" in err
    assert EVIL in json.loads(out)["error"]["what"]


def test_runs_shows_them_visible(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDirectory.create(str(tmp_path / "runs" / "one"), config={"label": EVIL})
    run.fail(f"The column {EVIL} is missing.")
    run.close()
    assert main(["runs", str(tmp_path / "runs")]) == 0
    shown = "".join(capsys.readouterr())
    assert not STEERING.search(shown)
    assert shown.count(r"\x1b]0;owned") >= 2


@pytest.mark.parametrize("live", [False, True])
def test_lines_and_the_live_view_show_them_visible(live: bool) -> None:
    stream = io.StringIO()
    console = SafeConsole(file=stream, force_terminal=True, width=200)
    sink = LiveView(stream, console) if live else PlainLines(stream)
    sink.event(made_event(time.time(), "run_started", {"run": EVIL, "directory": EVIL, "config": {}}))
    sink.event(made_event(time.time(), "warning", {"message": f"The column {EVIL} is odd.", "fix": EVIL}))
    sink.event(made_event(time.time(), "run_failed", {"error": f"{EVIL} is gone.", "fix": EVIL}))
    sink.close()
    shown = stream.getvalue()
    assert not STEERING.search(OURS.sub("", shown) if live else shown)
    assert "\x1b]0" not in shown
    assert r"\x1b]0;owned" in shown


def test_whatever_is_drawn_keeps_its_own_colours_and_nothing_of_the_text() -> None:
    stream = io.StringIO()
    table = Table("column")
    table.add_row(Text(EVIL, style="red"))
    SafeConsole(file=stream, force_terminal=True, color_system="standard", width=200).print(table)
    assert "\x1b[31m" in stream.getvalue()
    assert "\x1b]0" not in stream.getvalue()


def test_the_log_of_a_job_loses_its_colours_and_shows_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    line = "\x1b[36m(worker pid=7)\x1b[0m loss 0.5\x1b]0;owned\x07\u202e"
    log_line(line)
    to_stderr(line)
    out, err = capsys.readouterr()
    assert out == err == "(worker pid=7) loss 0.5\\x1b]0;owned\\x07\\u202e\n"


def test_there_is_one_place_for_each_way_to_print() -> None:
    """Names of modules that write to a stream or make a console by themselves."""
    allowed = {
        "cli/output.py",
        "cli/completion.py",  # click's script for a shell, which runs it
        "cli/cluster.py",  # manifests, as YAML, which escapes
        "cli/ingest.py",  # what the user's own function prints
        "cli/map.py",
        "jobs/remote.py",
        "jobs/start.py",  # on the cluster: into the job's log
        "jobs/there.py",
        "events/sinks/console.py",
        "events/sinks/terminal.py",
    }
    root = Path(dray.__file__).parent
    found = set()
    for file in root.rglob("*.py"):
        name = file.relative_to(root).as_posix()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            if called in ("print", "click.echo", "click.secho", "Console") or re.fullmatch(
                r"(sys\.std(out|err)|self\._stream)\.write", called
            ):
                found.add(name)
    assert {name for name in found if not name.startswith("clusters/fleet/host/")} - allowed == set()
