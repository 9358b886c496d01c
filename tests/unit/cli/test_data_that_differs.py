"""Training and ingests of files that differ, as the command line has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click import Command
from click.testing import CliRunner

from dray.cli.ingest import ingest
from dray.cli.main import main
from dray.cli.train import train
from dray.data.open_source import open_source
from dray.errors import DataError
from small_data import write

TRAIN = ("--label", "y", "--workers", "0", "--rounds", "2", "--out", "run")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write six files: two of them have a new column, and one another kind of zip."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for month in range(6):
        rows = range(month, month + 300)
        columns = {"x": list(rows), "y": [i % 2 for i in rows], "zip": ["a" if month == 3 else i % 7 for i in rows]}
        columns |= {"promo": [i % 3 for i in rows]} if month > 3 else {}
        write(tmp_path / "parquet" / f"{month}.parquet", columns)
        lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
        path = tmp_path / "csv" / f"{month}.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(lines))


def run(command: Command, *arguments: str) -> str:
    done = CliRunner().invoke(command, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("data", ["parquet", "csv"])
def test_a_column_whose_types_do_not_fit_stops_training_only_if_it_is_used(data: str) -> None:
    with pytest.raises(DataError, match=r'column "zip" is int64 in 5 files .* but string in'):
        run(train, data, *TRAIN)
    run(train, data, *TRAIN, "--ignore", "zip")


def test_columns_same_is_the_strict_way_and_copies_no_parquet(tmp_path: Path) -> None:
    with pytest.raises(DataError, match='column "promo" is missing in 4 of 6 files'):
        run(train, "parquet", *TRAIN, "--ignore", "zip", "--read", "columns=same")
    run(train, "parquet/4.parquet", "parquet/5.parquet", *TRAIN, "--read", "columns=same")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("data", ["parquet", "csv"])
def test_an_ingest_writes_all_columns_or_those_that_are_named(data: str) -> None:
    with pytest.raises(DataError, match='column "zip" is int64'):
        run(ingest, data, "all")
    run(ingest, data, "some", "--columns", "y,promo")
    source = open_source("some")
    assert (source.schema.names, source.rows) == (["y", "promo"], 1_800)


def test_too_many_bad_rows_are_left_out_by_the_command_of_the_hint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [f"{i},{i % 2}" if i % 10 else "bad" for i in range(200)]
    Path("rows.csv").write_text("\n".join(["x,y", *rows]) + "\n")
    assert main(["train", "rows.csv", "--label", "y", "--workers", "0", "--rounds", "2"]) == 2
    assert "dray data ingest DATA OUT --max-rejects N" in capsys.readouterr().err
    assert main(["data", "ingest", "rows.csv", "good", "--max-rejects", "20", "--quiet"]) == 0
    assert main(["train", "good", "--label", "y", "--workers", "0", "--rounds", "2", "--quiet"]) == 0
