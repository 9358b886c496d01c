"""Files of one night that differ from each other: each value is read as the model knows its column."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import dray
from dray.cli.main import main

Rows = list[dict[str, str]]


def made(count: int, seed: int) -> Rows:
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        code, day, amount = int(random.integers(10, 19)), int(random.integers(1, 28)), float(random.normal())
        label = code / 4 + day / 14 + amount > 4.6
        rows.append(
            {
                "code": str(code) if code % 2 else f"X{code}",
                "amount": f"{amount:.3f}",
                "day": f"2024-03-{day:02}",
                "label": "yes" if label else "no",
            }
        )
    return rows


def write_csv(path: str, rows: Rows) -> str:
    Path(path).parent.mkdir(exist_ok=True)
    with Path(path).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def values(out: str) -> list[Any]:
    found: list[Any] = pacsv.read_csv(out)["prediction"].to_pylist()
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("several")
    train = write_csv(str(root / "train.csv"), made(400, 1))
    return str(dray.train(train, label="label", rounds=5, workers=0, out=str(root / "run"), cache=None).directory)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def digits(rows: Rows) -> Rows:
    """Rows of a file in which the codes are all digits, and look like whole numbers."""
    return [row for row in rows if row["code"].isdecimal()]


def as_parquet(path: str, rows: Rows) -> str:
    """Rows as pandas writes them: with the types that the values of this file show."""
    Path(path).parent.mkdir(exist_ok=True)
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    columns["amount"] = list(map(float, columns["amount"]))
    if all(map(str.isdecimal, columns["code"])):
        columns["code"] = list(map(int, columns["code"]))
        columns["day"] = pa.array(columns["day"]).cast(pa.date32())
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize(("write", "ending"), [(write_csv, "csv"), (as_parquet, "parquet")])
def test_a_column_whose_types_do_not_fit_together_is_read_in_every_file(
    write: Callable[[str, Rows], str], ending: str, run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = made(60, 3)
    alone = []
    for name, some in (("a", digits(rows)), ("b", rows)):
        write(f"in/{name}.{ending}", some)
        dray.predict(run, f"in/{name}.{ending}", f"{name}.csv")
        alone += values(f"{name}.csv")
    assert len(set(alone)) > 10
    assert main(["predict", run, "in", "both.csv", "--keep", "code"]) == 0
    assert "Warning" not in (told := capsys.readouterr().err) and "missing" not in told
    assert values("both.csv") == alone
    as_text = pacsv.ConvertOptions(column_types={"code": pa.string()})
    kept = pacsv.read_csv("both.csv", convert_options=as_text)["code"].to_pylist()
    assert kept == [row["code"] for row in [*digits(rows), *rows]]
    dray.predict(run, "in", "each")
    found = [value for name in "ab" for value in pq.read_table(f"each/{name}.parquet")["prediction"].to_pylist()]
    assert np.array_equal(found, np.array(alone, np.float32))


def test_evaluation_files_whose_types_differ_are_read_with_the_types_of_training() -> None:
    rows = made(60, 3)
    write_csv("eval/a.csv", digits(rows))
    write_csv("eval/b.csv", [*rows, {**rows[0], "amount": ""}])
    data = write_csv("train.csv", made(400, 1))
    result = dray.train(data, label="label", eval="eval", rounds=2, workers=0, out="run-eval")
    assert result.eval_rows == len(digits(rows)) + 61


def test_a_column_that_one_parquet_file_lacks_is_told(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = made(20, 3)
    as_parquet("in/a.parquet", rows)
    as_parquet("in/b.parquet", [{name: row[name] for name in row if name != "day"} | {"code": "X10"} for row in rows])
    assert main(["predict", run, "in", "out.csv"]) == 0
    assert 'Column "day" is missing in 1 of 2 files' in " ".join(capsys.readouterr().err.split())
    assert len(values("out.csv")) == 40


def test_a_column_that_cannot_be_read_in_all_files_is_not_taken_for_missing(run: str) -> None:
    Path("in").mkdir()
    columns = {"amount": [1.0], "day": ["2024-03-01"]}
    for name, codes in (("a", pa.array([3])), ("b", pa.array(["X10"]))):
        with pa.ipc.new_file(f"in/{name}.arrow", (table := pa.table({"code": codes, **columns})).schema) as file:
            file.write_table(table)
    with pytest.raises(dray.DataError, match=r'column "code" is int64 in .* but string in'):
        dray.predict(run, "in", "out.csv")


def test_files_of_several_formats_are_told_as_such(run: str) -> None:
    rows = made(20, 3)
    inputs = [write_csv("night.csv", rows), as_parquet("night.parquet", rows)]
    with pytest.raises(dray.DataError, match="files of several formats: 1 csv"):
        dray.predict(run, inputs, "out.csv")


def test_a_file_whose_format_nothing_shows_is_read_as_the_training_data_was(run: str) -> None:
    rows = made(20, 3)
    whole = write_csv("night.csv", rows)
    Path("night").write_text(Path(whole).read_text())
    for name in ("night", "night.csv"):
        dray.predict(run, name, "out.csv", overwrite=True)
        assert len(values("out.csv")) == 20


def test_row_numbers_go_on_from_one_batch_to_the_next_and_begin_anew_with_each_file(run: str) -> None:
    rows = made(90, 3)
    as_parquet("in/a.parquet", rows[:60])
    as_parquet("in/b.parquet", rows[60:])
    pq.write_table(pq.read_table("in/a.parquet"), "in/a.parquet", row_group_size=7)
    dray.predict(run, "in", "out.parquet", row_number=True, file_column=True)
    table = pq.read_table("out.parquet")
    assert table["row_number"].to_pylist() == [*range(60), *range(30)]
    assert [Path(name).name for name in table["file"].to_pylist()] == ["a.parquet"] * 60 + ["b.parquet"] * 30


def test_a_kept_number_with_a_decimal_comma_is_that_number() -> None:
    def with_commas(path: str, rows: Rows) -> str:
        return write_csv(path, [{**row, "amount": row["amount"].replace(".", ",")} for row in rows])

    read = {"decimal": ","}
    dray.train(with_commas("train.csv", made(400, 1)), label="label", rounds=2, workers=0, read=read, out="commas")
    rows = made(20, 3)
    result = dray.predict("commas", with_commas("night.csv", rows), "out.csv", keep=["amount"])
    assert result.unreadable == {}
    assert pacsv.read_csv("out.csv")["amount"].to_pylist() == [float(row["amount"]) for row in rows]


def test_a_value_that_is_both_kept_and_read_by_the_model_is_counted_once(run: str) -> None:
    rows = made(200, 3) * 400  # more than is looked at of a file
    rows[24_000] = {**rows[24_000], "amount": "n.v."}
    result = dray.predict(run, write_csv("night.csv", rows), "out.csv", keep=["amount"])
    assert result.unreadable == {"amount": 1}
    assert pacsv.read_csv("out.csv")["amount"].null_count == 1


def test_the_day_of_a_time_with_an_offset_is_the_day_in_its_zone(run: str) -> None:
    rows = made(40, 3)
    dray.predict(run, write_csv("days.csv", rows), "days-out.csv")
    for clock in (" 23:30:00-05:00", "T00:30:00+02:00", "T23:59:59Z", " 23:59:59 UTC"):
        late = [{**row, "day": row["day"] + clock} for row in rows]
        result = dray.predict(run, write_csv("late.csv", late), "late-out.csv", overwrite=True)
        assert result.unreadable == {} and values("late-out.csv") == values("days-out.csv")


def test_whole_numbers_beside_doubles_of_another_file_are_read_as_in_each_alone() -> None:
    """pandas writes a column of whole numbers as doubles once one is missing."""
    random = np.random.default_rng(0)
    ids = random.integers(0, 6, 600) + 2**60
    table = pa.table({"id": ids, "amount": random.random(600), "label": (ids % 2 + random.random(600) > 0.8) * 1})
    Path("in").mkdir()
    pq.write_table(table, "train.parquet")
    run = dray.train("train.parquet", label="label", rounds=5, workers=0, out="run").directory
    pq.write_table(table.slice(0, 20), "in/a.parquet")
    gaps = pa.array([None if row % 3 else float(value) for row, value in enumerate(ids[20:40].tolist())])
    pq.write_table(table.slice(20, 20).set_column(0, "id", gaps), "in/b.parquet")
    alone = []
    for name in ("a", "b"):
        dray.predict(run, f"in/{name}.parquet", f"{name}.csv")
        alone += values(f"{name}.csv")
    dray.predict(run, "in", "together.csv", keep=["amount"])
    assert values("together.csv") == alone
    assert len(set(alone)) > 4
    with pytest.raises(dray.DataError, match=r'Column "id" of .*a.parquet is int64, and double in all files'):
        dray.predict(run, "in", "kept.csv", keep=["id"])
    assert not Path("kept.csv").exists()
