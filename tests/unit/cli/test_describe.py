"""`dray data describe` as people run it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from dray.cli.describe import bars, describe
from dray.data.describing.figures import Histogram
from dray.errors import ConfigError, DataError
from small_data import write


def run(*arguments: str) -> Result:
    return CliRunner().invoke(describe, arguments, catch_exceptions=False)


@pytest.fixture
def data(tmp_path: Path) -> str:
    random = np.random.default_rng(0)
    label = random.integers(0, 2, 20_000)
    columns = {
        "id": np.arange(20_000),
        "price": pa.array(random.exponential(100, 20_000), mask=random.random(20_000) < 0.25),
        "colour": random.choice(["red", "green", "blue"], 20_000, p=[0.7, 0.2, 0.1]),
        "paid": label * 2.0,
        "country": ["NA"] * 20_000,
        "label": label,
    }
    return write(tmp_path / "data" / "a.parquet", columns, row_group_rows=2500)


def test_every_column_has_a_line_with_its_figures(data: str) -> None:
    result = run(data, "--label", "label", "--workers", "4", "--sample", "1000")
    lines = result.stdout.splitlines()
    assert "20,000 rows, 6 columns" in lines[0] and "of parquet in 1 file" in lines[0]
    assert lines[1] == "8 row groups of 2,500 rows; even for 4 workers."
    assert lines[2].startswith("~ from a sample of 1,000 rows")
    by_name = {line.split()[0]: line for line in lines[4:] if line}
    assert by_name["id"].split()[1:3] == ["int64", "0%"]
    assert by_name["id"].endswith("0 … 19,999")
    assert "25." in by_name["price"]
    assert "~red 7" in by_name["colour"] or "~red 6" in by_name["colour"]
    assert by_name["label"].split()[3] == "2"


def test_json_has_names_and_values_as_they_are_in_the_data(tmp_path: Path) -> None:
    urls = ["postgresql://a:one@host", "postgresql://a:two@host"]
    columns = json.loads(run(write(tmp_path / "a.parquet", {"pwd=1": urls * 5}), "--json").stdout)["columns"]
    assert columns[0]["name"] == "pwd=1" and all(url in json.dumps(columns[0]) for url in urls)


def test_what_to_mind_stands_below(data: str) -> None:
    words = run(data, "--label", "label", "--workers", "16").stdout.partition("Warnings")[2]
    assert "id: looks like an id" in words
    assert 'paid: alone predicts "label" (AUC 1.000)' in words
    assert "country: the same value in every row: 'NA'" in words


def test_json_is_one_document_and_says_the_basis_of_every_figure(data: str) -> None:
    result = run(data, "--label", "label", "--workers", "4", "--sample", "1000", "--json")
    document = json.loads(result.stdout)
    assert document["rows"] == {"value": 20_000, "basis": "exact"}
    assert (document["format"], document["label"], document["complete"]) == ("parquet", "label", False)
    assert document["layout"]["row_groups"] == 8
    assert document["layout"]["dealings"] == [{"workers": 4, "largest": 5000, "smallest": 5000, "even": True}]
    columns = {column["name"]: column for column in document["columns"]}
    assert columns["id"]["high"] == {"value": 19_999, "basis": "exact"}
    assert columns["price"]["missing"]["basis"] == "exact"
    assert columns["price"]["distinct"]["basis"] == "estimate"
    assert columns["colour"]["values"]["basis"] == "sample"
    assert columns["colour"]["values"]["top"][0]["value"] == "red"
    assert {(warning["kind"], warning["column"]) for warning in document["warnings"]} == {
        ("id", "id"),
        ("leak", "paid"),
        ("constant", "country"),
    }


def test_bad_rows_are_shown_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n1,2,3\n4,5\n")
    words = run(str(tmp_path)).stdout
    assert "1 row cannot be read:" in words
    assert f"{tmp_path / 'a.csv'}, line 3: 3 fields instead of 2: 1,2,3" in words
    assert "CSV has no row groups" in words


def test_how_it_is_read_can_be_said(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1;2\n3;4\n")
    arguments = ["--format", "csv", "--read", "delimiter=;", "--read", "header=false", "--read", "names=[a, b]"]
    document = json.loads(run(str(tmp_path), *arguments, "--json").stdout)
    assert [column["name"] for column in document["columns"]] == ["a", "b"]


def test_wide_data_hides_no_column(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {f"column_{i}": [i, i + 1] for i in range(500)})
    words = run(str(tmp_path)).stdout
    assert all(f"column_{i} " in words for i in range(500))


def test_on_a_terminal_no_line_of_the_table_is_wider(data: str) -> None:
    terminal = {"FORCE_COLOR": "1", "COLUMNS": "70", "TERM": "xterm"}
    words = CliRunner().invoke(describe, [data], env=terminal, color=True).stdout
    lines = re.sub(r"\x1b\[[0-9;]*m", "", words).splitlines()
    table = lines[next(i for i, line in enumerate(lines) if line.startswith("column")) :][:7]
    assert [line.split()[0] for line in table] == ["column", "id", "price", "colour", "paid", "country", "label"]
    assert max(map(len, table)) == 70


def test_odd_names_and_values_do_not_break_the_table(tmp_path: Path) -> None:
    columns = {"[red]": ["[bold]x[/bold]", ""], "two\nlines": ["a\nb", " "], "x" * 100: [None, 1], "": [1, 2]}
    write(tmp_path / "a.parquet", columns)
    words = run(str(tmp_path)).stdout
    assert "[red]" in words and "[bold]x[/bold] 50%, '' 50%" in words
    assert "two⏎lines" in words and "a⏎b 50%" in words
    assert "x" * 31 + "…" in words


def test_bad_input_is_an_error_with_a_fix(data: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match='Did you mean "label"'):
        run(data, "--label", "labels")
    with pytest.raises(DataError, match="No file found"):
        run(str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match='no format "cvs"'):
        run(data, "--format", "cvs")
    assert run(data, "--workers", "0").exit_code == 2


@pytest.mark.parametrize(
    ("counts", "drawn"),
    [((0, 1, 8), " ▁█"), ((5,), "█"), ((1, 1_000_000), "▁█"), (tuple(range(1, 9)), "▁▂▃▄▅▆▇█")],
)
def test_bars_show_even_a_single_row(counts: tuple[int, ...], drawn: str) -> None:
    assert bars(Histogram(counts)) == drawn
