"""Files that come every night, none quite like the one that was trained on: no row is lost, none is shifted."""

from __future__ import annotations

import csv
import gzip
import json
import re
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

import dray
from dray.batch.input_files import InputFile
from dray.cli.main import main
from dray.errors import ConfigError, DataError
from dray.events.kinds import Warned
from dray.predicting.outputs import output_files
from dray.predicting.predict import predict

COLUMNS = ("zip", "amount", "count", "active", "since", "seen_at", "colour", "label")
Rows = list[dict[str, str]]


def made(count: int, seed: int) -> Rows:
    """Rows as they are written: text cells."""
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        zip_, amount, active = int(random.integers(1, 9)), float(random.normal()), bool(random.random() > 0.5)
        day = int(random.integers(1, 28))
        label = amount + zip_ / 4 + active + day / 14 + float(random.normal()) / 4 > 2.5
        rows.append(
            {
                "zip": f"{zip_:05}" if zip_ % 2 else f"X{zip_}",
                "amount": "NA" if random.random() < 0.02 else f"{amount:.4f}",
                "count": str(int(random.integers(0, 2**40))),
                "active": "true" if active else "false",
                "since": f"2024-03-{day:02}",
                "seen_at": f"2024-03-{day:02} {int(random.integers(0, 23)):02}:15:00",
                "colour": str(random.choice(["red", "green", "blue"])),
                "label": "yes" if label else "no",
            }
        )
    return rows


def write(path: Path, rows: Rows, columns: Sequence[str] = COLUMNS, header: bool = True) -> str:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if header:
            writer.writerow(columns)
        writer.writerows([row[name] for name in columns] for row in rows)
    return str(path)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("nights")
    train, test = write(root / "train.csv", made(600, 1)), write(root / "eval.csv", made(200, 2))
    result = dray.train(
        train, label="label", eval=test, rounds=8, workers=0, out=str(root / "run"), cache=str(root / "cache")
    )
    assert result.metrics["eval-auc"] > 0.8
    return str(root / "run")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def expected(run: str, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The predictions of a night without trouble."""
    root = tmp_path_factory.mktemp("expected")
    return predictions(run, write(root / "night.csv", made(50, 3)), root / "out.csv")


def predictions(run: str, data: Any, out: Path) -> list[Any]:
    dray.predict(run, data, str(out))
    return values(out)


def values(out: Path) -> list[Any]:
    found: list[Any] = pacsv.read_csv(out)["prediction"].to_pylist()
    return found


def without(name: str, value: str) -> Callable[[Rows], Rows]:
    return lambda rows: [{**row, name: value} for row in rows]


def one(name: str, value: str) -> Callable[[Rows], Rows]:
    return lambda rows: [{**row, name: value} if number == 7 else row for number, row in enumerate(rows)]


@dataclass(frozen=True)
class Night:
    """What is different in a night's file."""

    change: Callable[[Rows], Rows] = lambda rows: rows
    columns: Sequence[str] = COLUMNS
    unreadable: dict[str, int] = field(default_factory=dict)
    unseen: dict[str, int] = field(default_factory=dict)
    same: Callable[[int], bool] = lambda _: True
    """Which rows are predicted as in a night without trouble."""


NIGHTS = {
    "as always": Night(),
    "without the label": Night(columns=COLUMNS[:-1]),
    "in another order": Night(columns=COLUMNS[::-1]),
    "a new column": Night(lambda rows: [{**row, "new": "\\x00?"} for row in rows], columns=("new", *COLUMNS)),
    "a number empty": Night(without("amount", ""), same=lambda _: False),
    "a number all NA": Night(without("amount", "NA"), same=lambda _: False),
    "a boolean empty": Night(without("active", ""), same=lambda _: False),
    "codes that are all digits": Night(without("zip", "00003"), same=lambda _: False),
    "one n.v. among numbers": Night(one("amount", "n.v."), unreadable={"amount": 1}, same=lambda row: row != 7),
    "30 February": Night(one("since", "2024-02-30"), unreadable={"since": 1}, same=lambda row: row != 7),
    "dates as timestamps": Night(lambda rows: [{**row, "since": row["since"] + " 00:00:00"} for row in rows]),
    "times with a zone": Night(lambda rows: [{**row, "seen_at": row["seen_at"] + "Z"} for row in rows]),
    "booleans as 1 and 0": Night(lambda rows: [{**row, "active": "10"[row["active"] == "false"]} for row in rows]),
    "whole numbers as 7.0": Night(lambda rows: [{**row, "count": row["count"] + ".0"} for row in rows]),
    "a new colour": Night(one("colour", "mauve"), unseen={"colour": 1}, same=lambda row: row != 7),
    "NA as a colour": Night(one("colour", "NA"), unseen={"colour": 1}, same=lambda row: row != 7),
}


@pytest.mark.parametrize("name", NIGHTS)
def test_every_row_of_a_night_is_predicted(name: str, run: str, expected: list[float]) -> None:
    night = NIGHTS[name]
    data = write(Path("night.csv"), night.change(made(50, 3)), night.columns)
    result = dray.predict(run, data, "out.csv", key=["zip"])
    found = values(Path("out.csv"))
    assert (result.rows, len(found), result.rows_rejected, None in found) == (50, 50, 0, False)
    assert (result.unreadable, result.unseen) == (night.unreadable, night.unseen)
    assert [found[row] for row in range(50) if night.same(row)] == [
        expected[row] for row in range(50) if night.same(row)
    ]
    assert not Path("cache").exists()


_LITERAL = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?|true|false")


def as_json(rows: Rows, columns: Sequence[str] = COLUMNS) -> list[str]:
    """Rows as a system that writes JSON has them: numbers and booleans bare, what is empty null, the rest text."""

    def value(name: str, cell: str) -> str:
        if name in ("amount", "count", "active"):
            if _LITERAL.fullmatch(cell):
                return cell
            cell = "" if cell == "NA" else cell
        return json.dumps(cell or None)

    return ["{" + ", ".join(f"{json.dumps(name)}: {value(name, row[name])}" for name in columns) + "}" for row in rows]


JSON_NIGHTS = NIGHTS | {
    "text among numbers, late": Night(
        lambda rows: [*rows[:49], {**rows[49], "amount": "n.v.", "active": "unknown", "count": "many"}],
        unreadable={"amount": 1, "active": 1, "count": 1},
        same=lambda row: row != 49,
    ),
    "numbers as text": Night(lambda rows: [{**row, "amount": f" {row['amount']}"} for row in rows]),
    "a number as a colour": Night(one("colour", "7"), unseen={"colour": 1}, same=lambda row: row != 7),
}


@pytest.mark.parametrize("form", ["lines", "array"])
@pytest.mark.parametrize("name", JSON_NIGHTS)
def test_every_row_of_a_night_in_json_is_predicted(name: str, form: str, run: str, expected: list[float]) -> None:
    night = JSON_NIGHTS[name]
    rows = as_json(night.change(made(50, 3)), night.columns)
    Path("night.json").write_text("\n".join(rows) if form == "lines" else f"[{','.join(rows)}]")
    result = dray.predict(run, "night.json", "out.csv", key=["zip"])
    found = values(Path("out.csv"))
    assert (result.rows, len(found), result.rows_rejected, None in found) == (50, 50, 0, False)
    assert (result.unreadable, result.unseen) == (night.unreadable, night.unseen)
    assert [found[row] for row in range(50) if night.same(row)] == [
        expected[row] for row in range(50) if night.same(row)
    ]
    assert not Path("cache").exists()


def test_a_column_that_the_first_rows_of_json_lack_is_told_and_read_on_demand(
    run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    short = [line.replace('"colour": "red"', '"other": 1') for line in as_json(made(60, 3))]
    plain = [line for line in short if "colour" not in line][:5] * 1_500  # more than is looked at of a file
    later = [line.replace("{", '{"further": 1, ', 1) for line in as_json(made(50, 3))]
    Path("night.jsonl").write_text("\n".join([*plain, *later, *plain, *plain, *plain]))
    assert main(["predict", run, "night.jsonl", "out.csv"]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert 'field that the first rows did not have was left out: "colour" in 50 rows.' in told
    assert main(["predict", run, "night.jsonl", "named.csv", "--read", 'types={"colour": "string"}']) == 0
    assert "left out" not in capsys.readouterr().err
    assert values(Path("named.csv"))[7_500:7_550] == predictions(
        run, write(Path("a.csv"), made(50, 3)), Path("a-out.csv")
    )


@pytest.mark.parametrize("ending", ["out", "out.csv"])
def test_rows_that_cannot_be_read_keep_their_place(
    ending: str, run: str, expected: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = Path(write(Path("night.csv"), made(50, 3))).read_text().splitlines()
    lines[3] += ",too,many"
    lines[20] = "few"
    Path("night.csv").write_text("\n".join(lines) + "\n")
    assert main(["predict", run, "night.csv", ending, "--row-number", "--json", "--max-rejects", "1"]) == 1
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert (document["rows"], document["rows_rejected"]) == (50, 2)
    assert "2 rows cannot be read, more than --max-rejects 1" in told.err and document["rejects"] in told.err
    table = pacsv.read_csv(ending) if ending.endswith(".csv") else dataset(ending)
    assert table["row_number"].to_pylist() == list(range(50))
    bad = {2, 19}
    wanted = pa.array([None if row in bad else expected[row] for row in range(50)], pa.float32())
    assert table["prediction"].cast(pa.float32()).to_pylist() == wanted.to_pylist()
    rejects = Path(document["rejects"])
    [listed] = [rejects] if rejects.is_file() else rejects.iterdir()
    assert [json.loads(line)["line"] for line in listed.read_text().splitlines()] == [4, 21]
    assert main(["predict", run, "night.csv", "again.csv", "--max-rejects", "4%", "--quiet"]) == 0


def test_a_list_of_rejects_of_an_earlier_output_does_not_stay_beside_a_new_one(run: str) -> None:
    good = write(Path("good.csv"), made(50, 3))
    Path("bad.csv").write_text(Path(good).read_text() + "few\n")
    rejects = Path("out.csv.rejects.jsonl")
    assert dray.predict(run, "bad.csv", "out.csv").rejects == str(rejects.resolve()) and rejects.exists()
    Path("out.csv").unlink()
    with pytest.raises(dray.StorageError, match=r"out\.csv\.rejects\.jsonl exists"):
        dray.predict(run, good, "out.csv")
    assert rejects.exists() and not Path("out.csv").exists()
    assert dray.predict(run, good, "out.csv", overwrite=True).rejects is None
    assert Path("out.csv").exists() and not rejects.exists()
    dray.predict(run, "bad.csv", "out.csv", overwrite=True)
    assert len(rejects.read_text().splitlines()) == 1
    assert dray.predict(run, good, "out.csv", overwrite=True).rows == 50 and not rejects.exists()


def test_a_quote_that_is_never_closed_costs_one_row(run: str, expected: list[float]) -> None:
    lines = Path(write(Path("night.csv"), made(50, 3))).read_text().splitlines()
    lines[21] = '"' + lines[21]
    Path("night.csv").write_text("\n".join(lines) + "\n")
    result = dray.predict(run, "night.csv", "out.csv")
    assert (result.rows, result.rows_rejected) == (50, 1)
    assert values(Path("out.csv")) == [*expected[:20], None, *expected[21:]]


@pytest.mark.parametrize("output", ["probability", "class"])
def test_a_missing_prediction_alone_on_its_line_is_not_an_empty_line(output: Any, run: str) -> None:
    lines = Path(write(Path("night.csv"), made(50, 3))).read_text().splitlines()
    lines[1] = lines[20] = "few"
    Path("night.csv").write_text("\n".join(lines) + "\n")
    dray.predict(run, "night.csv", "out.csv", output=output)
    assert [number for number, line in enumerate(Path("out.csv").read_text().splitlines()) if line == '""'] == [1, 20]
    assert [number for number, value in enumerate(pandas.read_csv("out.csv")["prediction"].isna()) if value] == [0, 19]
    dray.predict(run, "night.csv", "with-id.csv", output=output, row_number=True)
    assert pandas.read_csv("with-id.csv")["prediction"].equals(pandas.read_csv("out.csv")["prediction"])


@pytest.mark.parametrize("content", ["[]", "", " \n", "[\n]\n"])
def test_json_of_a_night_without_rows_gives_an_output_without_rows(content: str, run: str) -> None:
    Path("night.json").write_text(content)
    assert dray.predict(run, "night.json", "out.csv", key=["zip"], keep=["other"]).rows == 0
    assert Path("out.csv").read_text() == '"zip","other","prediction"\n'
    with pytest.raises(dray.DataError):
        dray.train("night.json", label="label", out="none", workers=0)


def test_a_header_without_a_line_end_gives_an_output_without_rows(run: str) -> None:
    Path("night.csv").write_text(",".join(COLUMNS))
    assert dray.predict(run, "night.csv", "out.csv", key=["zip"]).rows == 0
    assert Path("out.csv").read_text() == '"zip","prediction"\n'


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("content", ["", "\n\n"])
def test_csv_of_a_night_without_even_a_header_gives_an_output_without_rows(
    content: str, header: bool, run: str
) -> None:
    if not header:
        train = write(Path("train.csv"), made(100, 1), header=False)
        run = str(dray.train(train, label="f7", rounds=2, workers=0, out="plain", read={"header": False}).directory)
    key = "zip" if header else "f0"
    Path("night.csv").write_text(content)
    assert dray.predict(run, "night.csv", "out.csv", key=[key], keep=["other"]).rows == 0
    assert Path("out.csv").read_text() == f'"{key}","other","prediction"\n'
    for act in (
        lambda: dray.train("night.csv", label="label", out="none", workers=0),
        lambda: dray.describe("night.csv"),
    ):
        with pytest.raises(dray.DataError, match="no rows"):
            act()


def test_an_object_among_the_numbers_of_json_costs_one_row(run: str, expected: list[float]) -> None:
    lines = as_json(made(50, 3))
    lines[7] = '{"amount": {"value": 1}, "colour": ["red"]}'
    Path("night.jsonl").write_text("\n".join(lines))
    assert dray.predict(run, "night.jsonl", "out.csv").rows_rejected == 1
    assert values(Path("out.csv")) == [*expected[:7], None, *expected[8:]]


def dataset(directory: str) -> pa.Table:
    import pyarrow.dataset as ds

    return ds.dataset(directory).to_table()


def test_the_data_itself_is_not_replaced_by_its_predictions(run: str) -> None:
    data = write(Path("night.csv"), made(50, 3))
    before = Path(data).read_text()
    Path("link.csv").symlink_to(data)
    for name in (data, str(Path(data).resolve()), "link.csv"):
        with pytest.raises(dray.StorageError, match="is read by the same command"):
            dray.predict(run, name, data, overwrite=True)
    assert Path(data).read_text() == before


def test_a_frame_with_values_of_several_kinds_is_predicted_as_its_text_is(run: str, expected: list[float]) -> None:
    rows = made(50, 3)
    frame = pandas.DataFrame(rows)
    frame["count"] = [int(row["count"]) if number % 2 else row["count"] for number, row in enumerate(rows)]
    frame["since"] = [pandas.Timestamp(row["since"]) if number % 3 else row["since"] for number, row in enumerate(rows)]
    frame["amount"] = [None if row["amount"] == "NA" else float(row["amount"]) for row in rows]
    frame["further"] = [object() for _ in rows]
    assert predictions(run, frame, Path("out.csv")) == expected
    frame["amount"] = frame["amount"].astype(object)
    frame.loc[7, "amount"] = "n.v."
    result = dray.predict(run, frame, "strange.csv", key=["zip"])
    found = values(Path("strange.csv"))
    assert result.unreadable == {"amount": 1} and found[:7] + found[8:] == expected[:7] + expected[8:]
    with pytest.raises(dray.DataError, match="values of several kinds"):
        dray.train(frame, label="label", out="none", workers=0)


def test_a_header_alone_gives_an_output_without_rows(run: str) -> None:
    data = write(Path("night.csv"), [])
    assert dray.predict(run, data, "out.csv").rows == 0
    assert Path("out.csv").read_text() == '"prediction"\n'
    dray.predict(run, data, "out.json")
    assert json.loads(Path("out.json").read_text()) == []
    assert dray.predict(run, data, "out").rows == 0
    assert dataset("out").num_rows == 0


@pytest.mark.parametrize("form", ["parquet", "directory", "arrow", "frame", "table"])
def test_data_with_columns_alone_gives_an_output_without_rows(form: str, run: str) -> None:
    table = pa.Table.from_pylist(made(2, 3)).slice(0, 0)
    data: Any = {"frame": table.to_pandas(), "table": table}.get(form, f"night.{form}")
    if form == "directory":
        Path(data).mkdir()
        for name in "ab":
            pa.parquet.write_table(table, f"{data}/{name}.parquet")
    elif form == "parquet":
        pa.parquet.write_table(table, data)
    elif form == "arrow":
        with pa.ipc.new_file(data, table.schema) as file:
            file.write_table(table)
    assert dray.predict(run, data, "out.csv", key=["zip"]).rows == 0
    assert Path("out.csv").read_text() == '"zip","prediction"\n'
    assert dray.predict(run, data, "out").rows == 0
    assert dataset("out").column_names == ["prediction"] and dataset("out").num_rows == 0


@pytest.mark.parametrize("workers", [0, 1])
def test_data_without_rows_is_still_refused_for_training(workers: int) -> None:
    table = pa.Table.from_pylist(made(2, 3)).slice(0, 0)
    pa.parquet.write_table(table, "night.parquet")
    for data in ("night.parquet", table):
        with pytest.raises(dray.DataError, match="no rows"):
            dray.train(data, label="label", workers=workers, out="none")


def test_json_with_the_same_values_gives_the_same_predictions(run: str, expected: list[float]) -> None:
    rows: list[dict[str, Any]] = []
    for row in made(50, 3):
        amount = None if row["amount"] == "NA" else float(row["amount"])
        rows.append({**row, "amount": amount, "count": int(row["count"]), "active": row["active"] == "true"})
    Path("lines.jsonl").write_text("".join(json.dumps(dict(reversed(row.items()))) + "\n" for row in rows))
    assert predictions(run, "lines.jsonl", Path("lines.csv")) == expected
    Path("array.json").write_text(json.dumps(rows))
    assert predictions(run, "array.json", Path("array.csv")) == expected
    frame = pa.Table.from_pylist(made(50, 3))  # all text
    assert predictions(run, frame, Path("frame.csv")) == expected
    assert predictions(run, frame.to_pandas(), Path("pandas.csv")) == expected


def test_numbers_in_text_are_the_numbers_that_training_read(run: str, tmp_path: Path) -> None:
    """The same rows as CSV, which is read as text, and as the Parquet copy that training makes of it."""
    from dray.data.open_source import open_source

    texts = ["0.1", "1e-7", "123456789012", "-3.5e10", "16777217", "33554435", "0.30000001192092896", "3.4e38", "5"]
    rows = [{**row, "amount": texts[number % len(texts)]} for number, row in enumerate(made(50, 3))]
    data = write(Path("night.csv"), rows)
    source = open_source(data)
    tables = [batch for piece in source.pieces() for batch in source.read(piece, None, lambda _: None)]
    typed = pa.Table.from_batches(tables)
    assert pa.types.is_float64(typed.schema.field("amount").type)
    assert predictions(run, data, Path("text.csv")) == predictions(run, typed, Path("typed.csv"))


def test_evaluation_data_is_read_with_the_types_of_the_training_data(tmp_path: Path) -> None:
    train = write(Path("train.csv"), made(300, 1))
    rows = [{**row, "amount": "", "zip": "00003"} for row in made(80, 2)]
    result = dray.train(train, label="label", eval=write(Path("eval.csv"), rows), rounds=2, workers=0)
    assert result.eval_rows == 80


def test_whole_numbers_that_became_floats_because_of_a_gap_are_evaluated_on(tmp_path: Path) -> None:
    table = pandas.DataFrame({"rooms": [row % 7 for row in range(300)], "sold": [1 + row % 2 for row in range(300)]})
    table.to_csv("whole.csv", index=False)
    later = table.astype(float).mask(pandas.DataFrame({"rooms": table.index == 5, "sold": False}))
    later.to_csv("floats.csv", index=False)
    result = dray.train("whole.csv", label="sold", eval="floats.csv", rounds=2, out="with-gaps")
    assert (result.eval_rows, result.eval_rows_dropped) == (300, 0)


def test_evaluation_data_may_be_a_table_as_training_data_may(tmp_path: Path) -> None:
    table = pandas.DataFrame({"x": range(300), "sold": ["yes" if row % 3 else "no" for row in range(300)]})
    table.to_csv("later.csv", index=False)
    files = dray.train(table, label="sold", eval="later.csv", rounds=2, out="files")
    assert dray.train(table, label="sold", eval=table, rounds=2, out="tables").metrics == files.metrics
    assert dray.train("later.csv", label="sold", eval=table, rounds=2, out="both").metrics == files.metrics
    with dray.session(table, label="sold", eval=table) as session:
        assert session.fit(rounds=2).metrics == files.metrics


def test_a_frame_to_evaluate_on_may_hold_text_among_its_numbers(tmp_path: Path) -> None:
    table = pandas.DataFrame({"x": np.arange(300) / 7, "sold": ["yes" if row % 3 else "no" for row in range(300)]})
    mixed = table[:60].astype({"x": object})
    mixed.loc[3, "x"] = "n.v."
    gap = table[:60].copy()
    gap.loc[3, "x"] = None
    found = dray.train(table, label="sold", eval=mixed, rounds=2, out="mixed")
    assert found.metrics == dray.train(table, label="sold", eval=gap, rounds=2, out="gap").metrics
    assert '1 evaluation row has a value of "x" that cannot be read' in "".join(found.warnings)
    with pytest.raises(DataError, match='Column "x" of the pandas frame has values of several kinds'):
        dray.train(mixed, label="sold", rounds=2)


@pytest.mark.parametrize("ending", [".parquet", ".jsonl", ".csv"])
def test_evaluation_data_may_be_of_other_types_as_new_data_may(ending: str, tmp_path: Path) -> None:
    train, rows = write(Path("train.csv"), made(300, 1)), made(80, 2)
    plain = dray.train(train, label="label", eval=write(Path("eval.csv"), rows), rounds=3, workers=0)
    frame = pandas.read_csv("eval.csv", dtype={"zip": str})
    frame["since"] = pandas.to_datetime(frame["since"])
    if ending == ".parquet":
        frame["amount"] = [None if value != value else str(value) for value in frame["amount"]]
        frame.to_parquet("typed.parquet")
    elif ending == ".csv":
        frame["since"] = frame["since"].astype(str) + " 00:00:00"
        frame["count"] = frame["count"].astype(float)
        frame.to_csv("typed.csv", index=False)
    else:
        frame.to_json("typed.jsonl", orient="records", lines=True, date_format="iso")
    other = dray.train(train, label="label", eval="typed" + ending, rounds=3, workers=0, out="other")
    assert other.eval_rows == 80 and other.metrics == plain.metrics
    assert "could not be checked" not in Path("other/events.jsonl").read_text()


@pytest.mark.parametrize("ending", [".parquet", ".jsonl", ".csv"])
def test_a_value_of_evaluation_data_that_cannot_be_read_is_missing_and_told(ending: str, tmp_path: Path) -> None:
    train = write(Path("train.csv"), made(300, 1))
    frame = pandas.read_csv(write(Path("plain.csv"), made(80, 2)), dtype=str)
    frame.loc[3:5, "amount"] = "n.v."
    frame.loc[7, "since"] = "2024-02-30"
    data = "eval" + ending
    if ending == ".parquet":
        frame.to_parquet(data)
    elif ending == ".csv":
        frame.to_csv(data, index=False)
    else:
        frame.to_json(data, orient="records", lines=True)
    result = dray.train(train, label="label", eval=data, rounds=2, workers=0, out="run")
    told = Path("run/events.jsonl").read_text()
    assert result.eval_rows == 80
    assert '3 evaluation rows have a value of \\"amount\\" that cannot be read' in told
    assert '1 evaluation row has a value of \\"since\\" that cannot be read' in told
    found = np.array(predictions("run", data, Path("out.csv")), float)
    labels = (frame["label"] == "yes").to_numpy()
    assert result.metrics["eval-logloss"] == pytest.approx(-np.log(np.where(labels, found, 1 - found)).mean(), abs=1e-5)


def test_a_bad_value_far_behind_the_sample_costs_no_row_to_evaluate_on(tmp_path: Path) -> None:
    train = write(Path("train.csv"), made(300, 1))
    rows = made(400, 2) * 100
    rows[15_000] = {**rows[15_000], "amount": "n.v.", "seen_at": "?"}
    result = dray.train(train, label="label", eval=write(Path("eval.csv"), rows), rounds=2, workers=0, out="run")
    assert (result.eval_rows, result.eval_rows_dropped) == (40_000, 0)
    assert '1 evaluation row has a value of \\"seen_at\\" that cannot be read' in Path("run/events.jsonl").read_text()


def test_evaluation_rows_of_text_that_training_has_too_are_told_whatever_their_digits(tmp_path: Path) -> None:
    rows = made(300, 1)
    train = write(Path("train.csv"), rows)
    written = [
        {**row, "amount": row["amount"].replace("NA", "") + ("0" if row["amount"] != "NA" else "")} for row in rows
    ]
    dray.train(train, label="label", eval=write(Path("eval.csv"), written[:80]), rounds=2, workers=0, out="run")
    assert "80 of 80 evaluation rows equal a training row" in Path("run/events.jsonl").read_text()


def test_weights_and_groups_of_evaluation_data_are_read_as_in_training(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"x": np.arange(300) % 17, "w": np.arange(300) % 3 + 0.5, "q": np.arange(300) // 10})
    frame["label"] = (frame["x"] > 8).astype(int)
    frame.to_csv("train.csv", index=False)
    frame[:100].to_csv("eval.csv", index=False)
    frame[:100].to_parquet("eval.parquet")
    for roles in ({"weight": "w"}, {"group": "q", "objective": "ranking"}):
        text, typed = (
            dray.train(
                "train.csv", label="label", eval=f"eval.{end}", rounds=2, workers=0, out=end, overwrite=True, **roles
            )
            for end in ("csv", "parquet")
        )
        assert text.eval_rows == 100 and text.metrics == typed.metrics


def test_evaluation_data_with_other_separators_is_read_as_the_training_data(tmp_path: Path) -> None:
    rows = made(300, 1)
    plain = dray.train(write(Path("train.csv"), rows), label="label", eval=write(Path("eval.csv"), rows[:80]), rounds=2)
    for row in rows:
        row["amount"] = row["amount"].replace(".", ",")
    train, eval_ = write(Path("comma.csv"), rows), write(Path("eval-comma.csv"), rows[:80])
    other = dray.train(train, label="label", eval=eval_, rounds=2, read={"decimal": ","}, out="comma")
    assert other.metrics == plain.metrics
    rows[3]["since"] = "2024-02-30"
    bad = write(Path("bad.csv"), rows[:80])
    assert dray.train(train, label="label", eval=bad, rounds=2, read={"decimal": ","}, out="bad").eval_rows == 80


def timed(count: int, form: str) -> pandas.DataFrame:
    """Rows whose label depends on the time: in the first half of every month it is 1."""
    days = pandas.to_datetime("2024-01-01") + pandas.to_timedelta(np.arange(count) * 29 % 331, "D")
    when = days.strftime(form) if "%" in form else (days - pandas.Timestamp(0)) // pandas.Timedelta(1, "s")
    return pandas.DataFrame({"when": when, "x": 1.5, "label": (days.day < 15).astype(int)})


@pytest.mark.parametrize("form", ["%d.%m.%Y %H:%M", "seconds"])
@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
@pytest.mark.parametrize("told", ["training", "prediction"])
def test_a_time_that_is_not_of_the_form_that_was_told_is_missing_and_costs_no_row(
    form: str, ending: str, told: str
) -> None:
    read = {"types": dict.fromkeys(["when", "note"], f"timestamp({form})")}
    settings: Any = {"label": "label", "rounds": 5, "workers": 0, "out": "run", "times": "parts", "ignore": ["note"]}
    if told == "training":
        timed(400, form).assign(note=timed(400, form)["when"]).to_csv("train.csv", index=False)
        dray.train("train.csv", **settings, read=read)
    else:
        timed(400, "%Y-%m-%d").assign(note="x").to_csv("train.csv", index=False)
        dray.train("train.csv", **settings)
    frame = timed(60, form).astype({"when": object})
    typed = timed(60, form).assign(when=pandas.to_datetime(timed(60, "%Y-%m-%d")["when"]))
    bad = frame.copy()
    bad.loc[5, "when"], bad.loc[6, "when"], bad.loc[7, "when"] = "kaputt", None, "31.02.2024 08:00"
    frame["note"], bad["note"] = frame["when"], bad["when"]
    for name, table in (("good", frame), ("bad", bad)):
        if ending == ".csv":
            table.to_csv(name + ending, index=False)
        else:
            table.to_json(name + ending, orient="records", lines=True)
    how = {} if told == "training" else {"read": read}
    dray.predict("run", typed, "typed.csv")
    dray.predict("run", "good" + ending, "good.out.csv", **how)
    assert len(set(values(Path("good.out.csv")))) > 1
    assert values(Path("good.out.csv")) == values(Path("typed.csv"))
    alone = {} if told == "training" else {"read": {"types": {"when": f"timestamp({form})"}}}
    assert dray.predict("run", "bad" + ending, "alone.out.csv", **alone).unreadable == {"when": 2}
    result = dray.predict("run", "bad" + ending, "bad.out.csv", keep=["when", "note"], **how)
    assert (result.rows, result.rows_rejected, result.unreadable) == (60, 0, {"when": 2, "note": 2})
    found, expected = values(Path("bad.out.csv")), values(Path("typed.csv"))
    assert found[:5] + found[8:] == expected[:5] + expected[8:] and None not in found
    for kept in pacsv.read_csv("bad.out.csv").select(["when", "note"]).columns:
        assert pa.types.is_timestamp(kept.type) and kept.null_count == 3
        assert pandas.Timestamp(kept.to_pylist()[8]).replace(tzinfo=None) == typed["when"][8]


@pytest.mark.parametrize("times", ["parts", "number"])
def test_numbers_where_the_model_knows_times_are_told_with_what_reads_them(
    times: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """So pandas writes times to JSON."""
    frame = timed(400, "%Y-%m-%d")
    frame.to_csv("train.csv", index=False)
    dray.train("train.csv", label="label", rounds=5, workers=0, out="run", times=times)
    frame["when"] = pandas.to_datetime(frame["when"]).astype("datetime64[ms]").astype("int64")
    frame.to_json("night.jsonl", orient="records", lines=True)
    frame.to_parquet("night.parquet")
    assert main(["predict", "run", "night.jsonl", "missing.csv"]) == 0
    told = capsys.readouterr().err
    assert '"when": numbers here, and dates or times for the model' in told and '400 rows with a "when"' in told
    [flag] = re.findall("--read 'types=([^']*)'", told)
    assert main(["predict", "run", "night.jsonl", "read.csv", "--read", f"types={flag}"]) == 0
    assert "numbers here" not in capsys.readouterr().err
    dray.predict("run", "train.csv", "expected.csv")
    assert values(Path("read.csv")) == values(Path("expected.csv")) != values(Path("missing.csv"))
    assert main(["predict", "run", "night.parquet", "parquet.csv"]) == 0
    assert "Write them as timestamps" in capsys.readouterr().err


@pytest.mark.parametrize("types", ["zip", ["zip"], 7, {"zip": 7}])
@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_types_that_are_none_are_refused_in_words(types: Any, ending: str, run: str) -> None:
    frame = pandas.DataFrame(made(5, 1))
    frame.to_csv("night.csv", index=False)
    frame.to_json("night.jsonl", orient="records", lines=True)
    with pytest.raises(ConfigError, match="The option types is"):
        dray.predict(run, "night" + ending, "out.csv", read={"types": types})


def test_numbers_that_are_times_as_in_training_are_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    timed(400, "seconds").assign(x=range(400)).to_csv("train.csv", index=False)
    read = {"types": {"when": "timestamp(seconds)"}}
    dray.train("train.csv", label="label", rounds=2, workers=0, out="run", read=read)
    assert main(["predict", "run", "train.csv", "out.csv"]) == 0
    assert "numbers here" not in capsys.readouterr().err
    settings: Any = {"label": "label", "rounds": 2, "workers": 0, "times": "parts"}
    for form in ("seconds", "%Y%m%d"):
        timed(400, form).to_csv("numbers.csv", index=False)
        dray.train("numbers.csv", **settings, time_form={"when": form}, out="numbers", overwrite=True)
        assert main(["predict", "numbers", "numbers.csv", form.strip("%") + ".csv"]) == 0
        told = capsys.readouterr().err
        assert "numbers here" not in told and "cannot be read" not in told


def test_a_file_without_a_header_is_read_as_the_training_data_was(capsys: pytest.CaptureFixture[str]) -> None:
    train = write(Path("train.csv"), made(300, 1), header=False)
    names = ",".join(COLUMNS)
    read = {"names": names, "header": "false"}
    run = dray.train(train, label="label", rounds=3, workers=0, read=read, out="run").directory
    night = write(Path("night.csv"), made(50, 3), header=False)
    whole = predictions(run, night, Path("whole.csv"))
    assert len(whole) == 50
    unlabelled = write(Path("unlabelled.csv"), made(50, 3), COLUMNS[:-1], header=False)
    assert main(["predict", run, unlabelled, "unlabelled-out.csv"]) == 0
    assert 'read as without the label "label"' in capsys.readouterr().err
    assert values(Path("unlabelled-out.csv")) == whole
    with_header = write(Path("header.csv"), made(50, 3), COLUMNS[::-1])
    dray.predict(run, with_header, "header-out.csv", read={"header": True})
    assert values(Path("header-out.csv")) == whole
    pa.parquet.write_table(pa.Table.from_pylist(made(50, 3)), "night.parquet")
    assert predictions(run, "night.parquet", Path("parquet.csv")) == whole


def test_a_file_without_names_may_lack_a_label_in_the_first_column() -> None:
    columns = ("label", "amount", "colour")
    run = dray.train(
        write(Path("train.csv"), made(300, 1), columns, header=False),
        label="f0",
        rounds=3,
        workers=0,
        read={"header": False},
        out="run",
    ).directory
    whole = predictions(run, write(Path("a.csv"), made(50, 3), columns, header=False), Path("whole.csv"))
    assert predictions(run, write(Path("b.csv"), made(50, 3), columns[1:], header=False), Path("less.csv")) == whole


def test_whole_numbers_that_json_has_with_a_fraction_are_the_codes_of_training() -> None:
    rows = made(300, 1)
    codes = [
        {"code": str(int(row["count"]) % 7), "shop": f"s{number % 3}", "label": row["label"]}
        for number, row in enumerate(rows)
    ]
    for row in codes:
        row["label"] = "yes" if row["code"] in "135" else "no"
    train = write(Path("train.csv"), codes, ("code", "shop", "label"))
    run = dray.train(train, label="label", rounds=3, workers=0, read={"types": {"code": "string"}}, out="run").directory
    whole = predictions(run, train, Path("whole.csv"))
    Path("night.jsonl").write_text("".join(f'{{"code": {row["code"]}.0, "shop": "{row["shop"]}"}}\n' for row in codes))
    result = dray.predict(run, "night.jsonl", "json.csv")
    assert result.unseen == {} and values(Path("json.csv")) == whole


HEADER_NOTE = "that line is read as a header, which the training data did not have"


def test_the_names_that_a_model_gave_its_columns_are_a_header(capsys: pytest.CaptureFixture[str]) -> None:
    columns = ("label", "amount", "colour")
    train = write(Path("train.csv"), made(300, 1), columns, header=False)
    run = dray.train(train, label="f0", rounds=3, workers=0, read={"header": False}, out="run").directory
    rows = made(50, 3)
    whole = predictions(run, write(Path("night.csv"), rows, columns, header=False), Path("whole.csv"))
    assert HEADER_NOTE not in capsys.readouterr().err
    bare = [",".join(row[name] for name in columns[1:]) for row in rows]
    for header, lines in {
        "f1,f2": bare,
        "f0,f1,f2": [f"no,{line}" for line in bare],
        "id,f2,f1": [f"{number},{','.join(reversed(line.split(',')))}" for number, line in enumerate(bare)],
    }.items():
        Path("named.csv").write_text("\n".join([header, *lines]) + "\n")
        assert main(["predict", run, "named.csv", "named-out.csv"]) == 0
        assert HEADER_NOTE in capsys.readouterr().err
        assert values(Path("named-out.csv")) == whole
        Path("named-out.csv").unlink()
    assert main(["predict", run, "named.csv", "as-asked.csv", "--read", "header=false"]) == 0
    assert HEADER_NOTE not in capsys.readouterr().err
    assert len(values(Path("as-asked.csv"))) == 51


def test_given_names_of_columns_are_a_header_too_where_the_data_begins_with_them(tmp_path: Path) -> None:
    train = write(Path("train.csv"), made(300, 1), header=False)
    read = {"names": ",".join(COLUMNS)}
    run = dray.train(train, label="label", rounds=3, workers=0, read=read, out="run").directory
    whole = predictions(run, write(Path("night.csv"), made(50, 3), header=False), Path("whole.csv"))
    named = write(Path("named.csv"), made(50, 3), COLUMNS[::-1])
    assert predictions(run, named, Path("named-out.csv")) == whole


def test_another_file_is_refused_before_anything_is_written(run: str) -> None:
    Path("other.csv").write_text("a,b,c\n1,2,3\n")
    with pytest.raises(dray.DataError, match="does not have any of the columns that the model needs"):
        dray.predict(run, "other.csv", "out.csv")
    assert not Path("out.csv").exists()


def test_keys_are_as_they_are_written_and_kept_columns_have_types(run: str) -> None:
    rows = [{**row, "zip": f"{number:05}", "new": str(number)} for number, row in enumerate(made(50, 3))]
    rows[3]["new"] = "many"
    data = write(Path("night.csv"), rows, (*COLUMNS, "new"))
    result = dray.predict(run, data, "out", key=["zip"], keep=["new", "count"], file_column=True)
    table = dataset("out")
    assert table.column_names == ["file", "zip", "new", "count", "prediction"]
    assert table["zip"].to_pylist() == [f"{number:05}" for number in range(50)]
    assert table["count"].to_pylist() == [int(row["count"]) for row in rows]
    assert set(table["file"].to_pylist()) == {str(Path(data).resolve())}
    assert table["new"].to_pylist() == [row["new"] for row in rows] and result.unreadable == {}  # text, as it shows


def test_many_files_become_one_in_their_order_or_one_each(run: str, expected: list[float]) -> None:
    Path("in").mkdir()
    rows = made(50, 3)
    for name, some in (("a.csv", rows[:20]), ("b.csv", []), ("c.csv", rows[20:])):
        write(Path("in") / name, some)
    assert predictions(run, "in", Path("one.csv")) == expected
    result = dray.predict(run, "in", "each")
    assert sorted(path.name for path in Path("each").glob("[!.]*")) == ["a.parquet", "b.parquet", "c.parquet"]
    assert (result.rows, result.files) == (50, 3)
    Path("in/a.csv.gz").write_bytes(gzip.compress(Path("in/b.csv").read_bytes()))
    dray.predict(run, "in", "stems")
    names = ["a.csv.gz.parquet", "a.csv.parquet", "b.parquet", "c.parquet"]
    assert sorted(path.name for path in Path("stems").glob("[!.]*")) == names


@pytest.mark.parametrize("ending", ["csv", "tsv", "json", "jsonl", "parquet", "csv.gz", "jsonl.gz"])
def test_the_ending_of_the_output_says_what_it_is(ending: str, run: str, expected: list[float]) -> None:
    from dray.data.open_source import open_source

    out = f"out.{ending}"
    dray.predict(run, write(Path("night.csv"), made(50, 3)), out, key=["colour"])
    source = open_source(out)
    rows = [row for piece in source.pieces() for b in source.read(piece, None, lambda _: None) for row in b.to_pylist()]
    assert [np.float32(row["prediction"]) for row in rows] == [np.float32(value) for value in expected]
    assert [row["colour"] for row in rows] == [row["colour"] for row in made(50, 3)]
    if ending == "json":
        assert json.loads(Path(out).read_text()) == rows


def test_an_ending_that_dray_does_not_write_is_refused(run: str) -> None:
    with pytest.raises(dray.ConfigError, match=r"writes no files such as out\.xlsx"):
        dray.predict(run, write(Path("night.csv"), made(5, 3)), "out.xlsx")


def test_rows_that_only_this_process_has_are_predicted_here(run: str, expected: list[float]) -> None:
    frame = pa.Table.from_pylist(made(50, 3))
    heard: list[Any] = []

    class Heard:
        def event(self, event: Any) -> None:
            heard.append(event)

        def sample(self, samples: Any) -> None: ...

        def close(self) -> None: ...

    result = predict(run, frame, "out.csv", workers=2, sinks=[Heard()])
    assert result.workers == 0 and values(Path("out.csv")) == expected
    (warning,) = [event for event in heard if isinstance(event, Warned)]
    assert "only this process has the rows" in warning.message


def test_processes_predict_csv_as_one_does(run: str, expected: list[float]) -> None:
    Path("in").mkdir()
    rows = made(50, 3)
    write(Path("in/a.csv"), rows[:20])
    write(Path("in/b.csv"), rows[20:])
    result = dray.predict(run, "in", "out", workers=2)
    assert (result.workers, result.files) == (2, 2)
    wanted = pa.array(expected, pa.float32()).to_pylist()
    assert dataset("out")["prediction"].to_pylist() == wanted


def test_decimal_commas_are_read_as_in_training() -> None:
    def with_commas(path: str, rows: Rows) -> str:
        return write(Path(path), [{**row, "amount": row["amount"].replace(".", ",")} for row in rows])

    train = with_commas("train.csv", made(300, 1))
    run = dray.train(train, label="label", rounds=3, workers=0, read={"decimal": ","}, out="run").directory
    rows = made(50, 3)
    plain = predictions(run, pa.Table.from_pylist(rows), Path("plain.csv"))
    assert predictions(run, with_commas("night.csv", rows), Path("commas.csv")) == plain
    rows[7]["amount"] = "n.v."
    result = dray.predict(run, with_commas("night.csv", rows), "strange.csv")
    found = values(Path("strange.csv"))
    assert result.unreadable == {"amount": 1} and found[:7] + found[8:] == plain[:7] + plain[8:]


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["a.csv", "../../evil.csv"], "has a file outside it, named '../../evil.csv'"),
        (["a.csv", "/evil.csv"], "has a file outside it, named '/evil.csv'"),
        (["a.csv", "b/c.csv", "b/c.csv"], "has 2 files named 'b/c.csv'"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_archive_cannot_write_outside_the_output_nor_hide_a_file(run: str, names: list[str], told: str) -> None:
    Path("deep/deeper").mkdir(parents=True)
    with zipfile.ZipFile("nights.zip", "w") as archive:
        for number, name in enumerate(names):
            archive.writestr(name, Path(write(Path("rows.csv"), made(5 + number, 3))).read_bytes())
    with pytest.raises(DataError, match=re.escape(told)):
        dray.predict(run, "nights.zip", "deep/deeper/out")
    assert not list(Path().rglob("evil*")) and not Path("deep/deeper/out").exists()


def test_no_input_has_the_output_of_another(run: str) -> None:
    Path("in").mkdir()
    for number, name in enumerate(["a.csv", "a.csv.gz", "a.csv.csv", "b.csv"]):
        content = Path(write(Path("rows.csv"), made(5 + number, number))).read_bytes()
        Path("in", name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    result = dray.predict(run, "in", "out")
    assert (result.rows, result.files, dataset("out").num_rows) == (26, 4, 26)
    assert len(list(Path("out").glob("*.parquet"))) == 4


def test_a_key_of_a_store_does_not_lead_out_of_the_output() -> None:
    inputs = [InputFile(f"s3://bucket/{name}", (), ()) for name in ("a.parquet", "b/../../c.parquet")]
    with pytest.raises(DataError, match=re.escape("'b/../../c.parquet', outside the output")):
        output_files(inputs, "out", parquet=True, files=True)


def german(path: str, rows: int, seed: int) -> str:
    """Bookings as they are exported in Germany."""
    random = np.random.default_rng(seed)
    lines = ["day;amount;account;label"]
    for _ in range(rows):
        cells = {
            "day": f"{random.integers(1, 29):02}.{random.integers(1, 13):02}.2024",
            "amount": f"{random.integers(1, 10)}.{random.integers(0, 1000):03},{random.integers(0, 100):02}",
            "account": f"16.777.{random.integers(216, 236)}",
        }
        label = int(cells["day"][3:5]) % 2 + float(cells["amount"][:3]) / 5 + int(cells["account"][-1]) % 2 > 2
        cells |= {"label": str(int(label))}
        lines.append(";".join(cells.values()))
    Path(path).write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("times", ["number", "parts"])
def test_separators_are_for_numbers_and_not_for_dates(times: str) -> None:
    read = {"decimal": ",", "thousands": "."}
    forms = {"day": "%d.%m.%Y"}
    settings: Any = {"label": "label", "rounds": 10, "workers": 0, "read": read, "time_form": forms, "times": times}
    run = dray.train(german("train.csv", 400, 1), **settings, out="run").directory
    frame = pandas.read_csv(german("night.csv", 60, 2), sep=";", decimal=",", thousands=".", dtype={"day": str})
    wanted = predictions(run, pa.Table.from_pandas(frame), Path("plain.csv"))
    result = dray.predict(run, "night.csv", "german.csv", keep=["day", "amount", "account"])
    assert values(Path("german.csv")) == wanted
    assert len(set(wanted)) > 30
    assert (result.unreadable, result.unseen) == ({}, {})
    kept = pandas.read_csv("german.csv")
    assert [*kept["day"]] == [*frame["day"]]
    assert [*kept["amount"]] == [*frame["amount"]]
    assert [*kept["account"]] == [*frame["account"]]


def test_a_number_written_with_other_separators_is_no_other_number() -> None:
    settings: Any = {"label": "label", "rounds": 30, "workers": 0, "read": {"decimal": ",", "thousands": "."}}
    run = dray.train(german("train.csv", 400, 1), **settings, out="run").directory
    amounts = {"1234,5": 1234.5, "+1.234,5": 1234.5, "1.234": 1234, " 7 ": 7, "8,1e3": 8100, "8.100": 8100, "": None}
    otherwise = ["2.5", "0.005", "1.2345", "1.23,5", "1,234.5", "12.34", "x", "1.5e3", "1..234"]
    amounts |= dict.fromkeys(otherwise, None)
    Path("night.csv").write_text("amount;account\n" + "".join(f"{text};16.777.217\n" for text in amounts))
    frame = pandas.DataFrame({"amount": amounts.values(), "account": 16777217}).astype({"amount": float})
    wanted = predictions(run, pa.Table.from_pandas(frame), Path("plain.csv"))
    result = dray.predict(run, "night.csv", "out.csv")
    assert values(Path("out.csv")) == wanted
    assert len(set(wanted)) > 2
    assert result.unreadable == {"amount": len(otherwise)}


def test_separators_are_not_for_text_that_looks_like_a_number() -> None:
    releases = ["1.5", "2.500", "beta"]
    lines = [f"{releases[row % 3]};{row % 7},5;{int(row % 3 == 1)}" for row in range(300)]
    Path("train.csv").write_text("\n".join(["release;size;label", *lines]))
    read = {"decimal": ",", "thousands": "."}
    run = dray.train("train.csv", label="label", rounds=5, workers=0, read=read, out="run").directory
    Path("night.csv").write_text("\n".join(["release;size", *(line.rpartition(";")[0] for line in lines[:6])]))
    result = dray.predict(run, "night.csv", "out.csv", keep=["release"])
    assert result.unseen == {} and [value > 0.5 for value in values(Path("out.csv"))] == [False, True, False] * 2
    kept = [row["release"] for row in csv.DictReader(Path("out.csv").read_text().splitlines())]
    assert kept == releases * 2


def test_text_that_became_floats_in_json_because_of_a_gap_is_known() -> None:
    frame = pandas.DataFrame({"zip": ["7", "8", "X9"] * 100, "x": 1.5, "label": [0, 1, 0] * 100})
    run = dray.train(frame, label="label", rounds=5, workers=0, out="run").directory
    Path("night.jsonl").write_text('{"zip": 7.0, "x": 1}\n{"zip": 8.0, "x": 1}\n{"zip": null, "x": 1}\n')
    result = dray.predict(run, "night.jsonl", "out.csv")
    assert result.unseen == {} and [value > 0.5 for value in values(Path("out.csv"))] == [False, True, False]
    events = pandas.DataFrame({"user": ["7", "8", "X9"] * 20, "item": [f"i{row % 7}" for row in range(60)]})
    settings: Any = {"model": "factorization", "user": "user", "item": "item", "rounds": 2, "workers": 0}
    run = dray.train(events, **settings, out="factors").directory
    Path("pairs.jsonl").write_text('{"user": 7.0, "item": "i1"}\n{"user": 8.0, "item": "i1"}\n')
    assert dray.predict(run, "pairs.jsonl", "scores.csv").unseen == {}


def test_ids_of_a_recommender_are_written_as_in_training() -> None:
    random = np.random.default_rng(0)
    pairs = [f"{user // 1000}.{user % 1000:03};A.{item}" for user, item in random.integers(1000, 1040, (600, 2))]
    Path("events.csv").write_text("user;item\n" + "\n".join(pairs) + "\n")
    settings: Any = {"model": "factorization", "user": "user", "item": "item", "rounds": 2, "workers": 0}
    run = dray.train("events.csv", **settings, read={"thousands": "."}, out="run").directory
    Path("night.csv").write_text("user;item\n1.007;A.1007\n1007;A.1007\n1007.5;A.1007\n")
    result = dray.predict(run, "night.csv", "out.csv")
    first, second, strange = [row["score"] for row in csv.DictReader(Path("out.csv").read_text().splitlines())]
    assert first == second != strange
    assert (result.unseen, result.unreadable) == ({}, {"user": 1})


def test_how_the_run_read_its_data_is_told_where_it_is_wrong_for_the_new_data(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = Path(write(Path("train.csv"), made(300, 1))).read_text()
    Path("titled.csv").write_bytes(f"Änderungen\n{text}".encode("cp1252"))
    read = {"skip": 1, "encoding": "cp1252"}
    run = dray.train("titled.csv", label="label", rounds=3, workers=0, read=read, out="run").directory
    night = Path(write(Path("night.csv"), made(50, 3)))
    night.write_text(night.read_text().replace("red", "rød"))
    assert main(["predict", run, "night.csv", "out.csv"]) == 2
    told = capsys.readouterr().err
    assert "is read as cp1252: other letters come out. Use --read encoding=utf-8." in told
    assert "It is read as the data of the run was, with skip=1, encoding=cp1252: --read gives other values." in told
    assert main(["predict", run, "night.csv", "out.csv", "--read", "skip=0", "--read", "encoding=utf-8"]) == 0
    assert "other letters" not in capsys.readouterr().err and len(values(Path("out.csv"))) == 50


@pytest.mark.parametrize("times", ["number", "parts"])
@pytest.mark.parametrize("stored", ["whole", "floats"])
def test_numbers_since_1970_are_read_from_text_however_they_were_stored(stored: str, times: str) -> None:
    seconds = np.random.default_rng(0).integers(1_569_888_000, 1_669_888_000, 400)
    label = (seconds // 3600) % 24 > 11
    rows = pandas.DataFrame({"at": seconds if stored == "whole" else seconds + 0.0, "label": label})
    form = {"at": "seconds"}
    run = dray.train(rows, label="label", rounds=3, workers=0, times=times, time_form=form, out="run").directory
    wanted = predictions(run, pa.Table.from_pandas(rows), Path("wanted.csv"))
    for name, written in (("whole", rows["at"].astype("int64")), ("floats", rows["at"].astype("float64"))):
        rows.assign(at=written).to_csv("night.csv", index=False)
        rows.assign(at=written).to_json("night.jsonl", orient="records", lines=True, double_precision=1)
        for file in ("night.csv", "night.jsonl"):
            result = dray.predict(run, file, f"{name}.csv", overwrite=True)
            assert (values(Path(f"{name}.csv")), result.unreadable) == (wanted, {}), file


def test_files_of_an_archive_have_an_output_each(run: str, expected: list[float]) -> None:
    with zipfile.ZipFile("nights.zip", "w") as archive:
        archive.write(write(Path("a.csv"), made(50, 3)))
        archive.write(write(Path("b.csv"), []))
    result = dray.predict(run, "nights.zip", "out")
    assert (result.rows, result.files) == (50, 2)
    assert sorted(path.name for path in Path("out").glob("[!.]*")) == ["a.parquet", "b.parquet"]
    assert predictions(run, "nights.zip", Path("one.csv")) == expected
