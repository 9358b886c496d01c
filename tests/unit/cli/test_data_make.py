"""`dray data make` as people run it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dray.cli import output
from dray.cli.main import main


def test_json_is_one_document_and_words_go_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    assert main(["data", "make", out, "--rows", "1000", "--features", "4", "--files", "2", "--json"]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert set(document) == {"rows", "features", "files", "bytes", "seconds", "output"}
    assert (document["rows"], document["features"], document["files"], document["output"]) == (1000, 4, 2, out)
    assert "1,000 rows x 4 features" in captured.err
    assert pq.read_table(out).num_rows == 1000


def test_without_json_stdout_stays_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "make", str(tmp_path / "out"), "--preset", "tiny", "--rows", "200"]) == 0
    assert capsys.readouterr().out == ""


def test_options_reach_the_data(tmp_path: Path) -> None:
    options = ["--rows", "1000", "--features", "10", "--categorical", "0.5", "--missing", "0", "--minority", "0.25"]
    assert main(["data", "make", str(tmp_path / "out"), *options, "--seed", "3", "--processes", "1"]) == 0
    table = pq.read_table(tmp_path / "out")
    assert sum(name.startswith("cat_") for name in table.column_names) == 5
    assert sum(column.null_count for column in table.columns) == 0
    assert sum(table["label"].to_pylist()) == 250


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        ([], "Give --rows and --features, or --preset"),
        (["--rows", "0", "--features", "3"], "Set --rows to 1 or more."),
        (["--preset", "hueg"], "Use one of tiny"),
        (["--preset", "tiny", "--minority", "1.5"], "Set --minority"),
    ],
)
def test_bad_values_exit_with_2_and_a_fix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], fix: str
) -> None:
    assert main(["data", "make", str(tmp_path / "out"), *options]) == 2
    assert f"Fix: {fix}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_output_that_exists_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("precious")
    assert main(["data", "make", str(tmp_path), "--preset", "tiny"]) == 2
    assert "is not an empty directory" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_leaves_nothing_behind(tmp_path: Path, number: signal.Signals, code: int) -> None:
    command = [sys.executable, "-m", "dray.cli.main", "data", "make", str(tmp_path / "out")]
    size = ["--rows", "20000000", "--features", "20", "--processes", "2"]
    process = subprocess.Popen([*command, *size], stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".out-*/*.parquet")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    # As a terminal does it: the whole process group gets the signal.
    os.killpg(process.pid, number)
    _, words = process.communicate(timeout=30)
    assert process.returncode == code
    assert "Traceback" not in words
    assert not list(tmp_path.iterdir())


def test_a_bar_with_the_time_left_is_shown_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with output.progress("Making data", "rows") as report:
        report(50, 100)
        report(100, 100)
    words = capsys.readouterr().err
    assert "Making data" in words
    assert "100 %" in words
    assert "rows/s" in words
    assert "left" in words


def test_elsewhere_progress_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [100.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: clock[0])
    with output.progress("Making data", "rows") as report:
        for done in range(1, 21):
            clock[0] += 1
            report(done * 5, 100)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "Making data: 25 of 100 rows (25%), 15.0 s left",
        "Making data: 50 of 100 rows (50%), 10.0 s left",
        "Making data: 75 of 100 rows (75%), 5.0 s left",
        "Making data: 100 of 100 rows (100%)",
    ]
