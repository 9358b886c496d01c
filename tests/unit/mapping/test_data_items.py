"""Data by its name as the items of a map, from Python and by the command."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dray
import map_functions as functions
from dray.cli.main import main
from dray.errors import ItemError


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for number in range(3):
        ids = list(range(100 * number, 100 * (number + 1)))
        pq.write_table(pa.table({"id": ids}), tmp_path / "data" / f"part-{number}.parquet", row_group_size=50)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    code = main(["map", *arguments, "--json"])
    captured = capsys.readouterr()
    return code, json.loads(captured.out), captured.err


def test_the_function_gets_every_record_batch(data: Path) -> None:
    assert sum(dray.map(functions.rows, "data")) == 300
    assert sum(dray.map(functions.rows, data / "data" / "part-1.parquet")) == 100


def test_the_function_gets_every_file(data: Path) -> None:
    sizes = [path.stat().st_size for path in sorted((data / "data").iterdir())]
    assert list(dray.map(functions.size_of_file, "data/*.parquet", each="file")) == sizes


def test_a_table_is_gone_through_by_batches_and_not_by_columns() -> None:
    assert sum(dray.map(functions.rows, pa.table({"id": range(10), "b": range(10)}))) == 10


def test_a_piece_that_fails_is_named_by_its_file(data: Path) -> None:
    with pytest.raises(ItemError, match=r"part-1\.parquet.*failed: ValueError: second file"):
        list(dray.map(functions.fails_on_second, "data"))
    results = dray.map(functions.fails_on_second, "data", on_error="return")
    assert [value for value in results if not isinstance(value, ItemError)] == [50, 50]


def test_a_bad_row_fails_its_piece_by_line(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("id,b\n1,2\n3,4,5\n6,7\n")
    with pytest.raises(ItemError, match=r"bad\.csv, line 3"):
        list(dray.map(functions.rows, tmp_path / "bad.csv"))


def test_tables_are_written_as_parquet(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, result, told = run(capsys, "map_functions:with_double", "data", "out")
    assert code == 0
    assert (result["rows"], result["failed"]) == (300, 0)
    table = pq.read_table(data / "out" / "results.parquet")
    assert table["doubled"].to_pylist() == [2 * number for number in range(300)]
    assert "300 rows" in told


def test_anything_else_is_written_as_json_lines(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, result, _ = run(capsys, "map_functions:size_of_file", "data", "sizes.jsonl", "--each", "file", "--quiet")
    assert code == 0
    assert (result["items"], result["results"]) == (3, 3)
    lines = (data / "sizes.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [path.stat().st_size for path in sorted((data / "data").iterdir())]


def test_failures_end_it_or_are_listed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, result, _ = run(capsys, "map_functions:fails_on_second", "data", "out")
    assert code == 1
    assert result["error"]["type"] == "ItemError"
    assert not (data / "out").exists()
    code, result, told = run(capsys, "map_functions:fails_on_second", "data", "out", "--on-error", "skip")
    assert code == 0
    assert result["failed"] == len((data / "out" / "failures.jsonl").read_text().splitlines()) > 0
    failure = json.loads((data / "out" / "failures.jsonl").read_text().splitlines()[0])
    assert failure["kind"] == "raised"
    assert "second file" in failure["traceback"]
    assert "failed and were left out" in told


def test_a_dry_run_says_what_it_would_take_and_writes_nothing(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, result, told = run(capsys, "map_functions:rows", "data", "out", "--dry-run")
    assert code == 0
    assert result["recommended"] in ("here", "processes")
    assert "one process" in told
    assert not (data / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("map_functions", "data", "out"), "is not the name of a function"),
        (("nowhere_at_all:f", "data", "out"), 'no module "nowhere_at_all"'),
        (("map_functions:doubel", "data", "out"), 'Did you mean "double"'),
        (("map_functions:rows", "missing", "out"), "missing"),
        (("map_functions:rows", "data", "data"), "exists and is not empty"),
        (("map_functions:rows", "data", "out", "--resource", "memory"), "is not NAME=AMOUNT"),
    ],
)
def test_mistakes_have_words_and_exit_code_2(
    data: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    code, result, _ = run(capsys, *arguments)
    assert code == 2
    assert told in f"{result['error']['what']} {result['error']['fix']}"


def test_what_the_function_prints_does_not_disturb_the_json(data: Path) -> None:
    (data / "noisy.py").write_text("def f(name):\n    print('hello')\n    return name\n")
    dray_command = str(Path(sys.executable).with_name("dray"))
    done = subprocess.run(
        [dray_command, "map", "noisy:f", "data", "out", "--each", "file", "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["results"] == 3
    assert done.stderr.count("hello") == 3


def test_the_help_names_every_choice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["map", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("--dry-run", "--on-error", "--timeout", "--json", "--each"))


def test_ctrl_c_ends_the_command_and_everything_it_started(data: Path) -> None:
    (data / "slow.py").write_text(
        "import os, time\ndef f(name):\n    print(os.getpid(), flush=True)\n    time.sleep(60)\n"
    )
    command = [str(Path(sys.executable).with_name("dray")), "map", "slow:f", "data", "out", "--each", "file"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        pids = []
        while not pids:
            pids += [int(word) for word in process.stderr.readline().split() if word.isdigit()]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert not (data / "out").exists()
