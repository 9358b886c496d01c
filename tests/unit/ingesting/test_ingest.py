"""The whole of it, in this process: what is written, what is counted, what is refused, what goes on."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ingest_rows import HERE, double, read, rejects, run, write_csv

from dray.batch.options import Options
from dray.data.open_source import open_source
from dray.errors import ConfigError, DataError, ItemError, StorageError
from dray.events.kinds import Warned
from dray.ingesting import ingest as module
from dray.ingesting import moving, plan, task, writing
from dray.ingesting.apart import require_apart
from dray.ingesting.ingest import ingest
from dray.ingesting.limits import Limit
from dray.ingesting.recipe import HashSplit, Recipe, TimeSplit
from dray.storage import absolute


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks of 2 kB instead of 8 MB."""
    monkeypatch.setattr(plan, "LEAST_TASK_BYTES", 2000)


def test_rows_come_out_as_they_were_in_order(tmp_path: Path, small_tasks: None) -> None:
    source = write_csv(tmp_path / "a.csv", 1000)
    result = run(str(source), tmp_path / "out")
    assert read(tmp_path / "out")["x"].to_pylist() == list(range(1000))
    assert (result.rows_read, result.rows_kept, result.rows_rejected, result.rows_filtered) == (1000, 1000, 0, 0)
    assert (result.rows_duplicate, result.resumed, result.rejects, result.parts) == (0, 0, None, {})
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["_ingest.json", *(f"part-{index:05}.parquet" for index in range(result.files))]
    assert result.files > 5
    assert result.bytes == sum(path.stat().st_size for path in (tmp_path / "out").glob("*.parquet"))
    kept = json.loads((tmp_path / "out" / "_ingest.json").read_text())
    assert kept["result"] == result.to_json() and kept["source"]["files"][0][0] == str(source)


def test_the_output_is_the_same_bytes_wherever_the_tasks_run(tmp_path: Path, small_tasks: None) -> None:
    source = write_csv(tmp_path / "a.csv", 1000)
    run(str(source), tmp_path / "one")
    run(str(source), tmp_path / "two", options=Options(where="processes", workers=2))
    for path in (tmp_path / "one").glob("part-*"):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_columns_are_written_in_the_order_that_was_asked_for_and_only_needed_ones_are_read(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "a.csv", 100)
    result = run(str(source), tmp_path / "out", columns=("f", "x"), filter='s == "a"', partition_by=("day",))
    table = read(tmp_path / "out")
    assert table.column_names == ["f", "x"]
    assert sorted(table["x"].to_pylist()) == list(range(0, 100, 3))
    assert result.rows_filtered == 66 and result.files == 28


def test_a_transform_gets_batches_and_its_tables_are_written(tmp_path: Path, small_tasks: None) -> None:
    source = write_csv(tmp_path / "a.csv", 500)
    result = run(str(source), tmp_path / "out", function=double, filter="twice >= 500", columns=("twice",))
    assert read(tmp_path / "out")["twice"].to_pylist() == list(range(500, 1000, 2))
    assert (result.rows_read, result.rows_filtered, result.rows_kept) == (500, 250, 250)


@pytest.mark.parametrize(
    "made",
    [
        lambda batch: batch.to_pandas(),
        lambda batch: pl.from_arrow(batch),
        lambda batch: pa.Table.from_batches([batch]),
        lambda batch: batch,
    ],
)
def test_a_transform_may_return_any_kind_of_table(tmp_path: Path, made: Any) -> None:
    run(str(write_csv(tmp_path / "a.csv", 10)), tmp_path / "out", function=made)
    assert read(tmp_path / "out")["x"].to_pylist() == list(range(10))


def test_a_split_by_a_column_keeps_its_values_apart(tmp_path: Path, small_tasks: None) -> None:
    source = write_csv(tmp_path / "a.csv", 1000)
    split = HashSplit(share=0.3, columns=("day",))
    result = run(str(source), tmp_path / "out", split=split, columns=("x", "day"))
    days = [set(read(tmp_path / "out" / part)["day"].to_pylist()) for part in ("train", "test")]
    assert not days[0] & days[1] and len(days[0] | days[1]) == 28
    assert sum(result.parts.values()) == 1000 and set(result.parts) == {"train", "test"}


def test_a_split_by_time(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "a.csv", 280)
    result = run(str(source), tmp_path / "out", split=TimeSplit(column="day", moment="2026-01-15"), columns=("x",))
    assert result.parts == {"train": 140, "test": 140}
    assert all(x % 28 >= 14 for x in read(tmp_path / "out" / "test")["x"].to_pylist())


@given(
    st.lists(st.sampled_from(["1,a", "2,b", "x,a", "3", "4,b", "5,a,b", ","]), min_size=1, max_size=60),
    st.sampled_from([None, "n > 1", 'n > 1 and s == "b"', "n is None"]),
)
def test_every_row_is_counted_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], text: str | None
) -> None:
    directory = tmp_path_factory.mktemp("counted")
    (directory / "a.csv").write_text("n,s\n" + "".join(f"{line}\n" for line in lines))
    source = open_source(str(directory / "a.csv"), types={"n": "int64", "s": "string"})
    result = ingest(source, str(directory / "out"), Recipe(filter=text, max_rejects=Limit()), options=HERE)
    assert result.rows_read == len(lines)
    assert result.rows_read == result.rows_kept + result.rows_rejected + result.rows_filtered
    assert result.rows_rejected == sum(line in ("x,a", "3", "5,a,b") for line in lines)
    assert result.rows_kept == (read(directory / "out").num_rows if result.files else 0)


def test_rejects_are_listed_in_order_with_file_line_and_reason(tmp_path: Path, small_tasks: None) -> None:
    for name in ("a", "b"):
        lines = (write_csv(tmp_path / f"{name}.csv", 300)).read_text().splitlines()
        lines[100] = "no number,a,1,2026-01-01"
        lines[250] += ",too much"
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    told: list[str] = []
    source = open_source([str(tmp_path / "a.csv"), str(tmp_path / "b.csv")], types={"x": "int64"})
    result = ingest(
        source,
        str(tmp_path / "out"),
        options=HERE,
        emit=lambda event: told.append(event.message) if isinstance(event, Warned) else None,
    )
    found = rejects(tmp_path / "out")
    assert [(Path(reject["file"]).name, reject["line"]) for reject in found] == [
        ("a.csv", 101),
        ("a.csv", 251),
        ("b.csv", 101),
        ("b.csv", 251),
    ]
    assert found[0]["reason"] == "column \"x\": 'no number' is not int64"
    assert found[1]["text"].endswith(",too much")
    assert result.rows_rejected == 4 and result.rejects == str(tmp_path / "out" / "_rejects.jsonl")
    assert len(told) == 2 and all(f"Rejected rows of {tmp_path}/{name}.csv: 2." in " ".join(told) for name in "ab")


def test_a_limit_of_rejects_ends_the_run_and_a_larger_one_goes_on(tmp_path: Path, small_tasks: None) -> None:
    lines = write_csv(tmp_path / "a.csv", 500).read_text().splitlines()
    lines[200:203] = ["bad", "worse", "worst"]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=r"3 rows could not be read, more than the limit of 2 rows") as raised:
        run(str(tmp_path / "a.csv"), tmp_path / "out", max_rejects=Limit(rows=2))
    assert f"The first: {tmp_path}/a.csv, line 201: 1 fields instead of 4: 'bad'" in raised.value.what
    result = run(str(tmp_path / "a.csv"), tmp_path / "out", max_rejects=Limit(rows=3))
    assert result.resumed > 0 and result.rows_rejected == 3


def test_a_share_of_rejects_is_a_share_of_all_rows(tmp_path: Path, small_tasks: None) -> None:
    lines = write_csv(tmp_path / "a.csv", 500).read_text().splitlines()
    lines[1:5] = ["bad"] * 4  # 4 of the first 90 rows, and 0.8 % of all
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    assert run(str(tmp_path / "a.csv"), tmp_path / "out").rows_rejected == 4
    lines[5:7] = ["bad"] * 2
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=r"6 of .* rows could not be read, more than the limit of 1 %"):
        run(str(tmp_path / "a.csv"), tmp_path / "again")


@pytest.mark.parametrize(
    ("recipe", "what"),
    [
        ({"columns": ("xx",)}, 'no column "xx"'),
        ({"filter": "xx > 1"}, 'no column "xx"'),
        ({"filter": 's > 1 and x == "a"'}, "compares"),
        ({"filter": "x >"}, "not an expression"),
        ({"dedup": ("xx",)}, 'no column "xx"'),
        ({"sort": ("-xx",)}, 'no column "xx"'),
        ({"partition_by": ("xx",)}, 'no column "xx"'),
        ({"split": HashSplit(share=0.1, columns=("xx",))}, 'no column "xx"'),
        ({"split": TimeSplit(column="s", moment="2026-01-01")}, 'column "s" is string'),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    tmp_path: Path, recipe: dict[str, Any], what: str
) -> None:
    source = write_csv(tmp_path / "a.csv", 10)
    with pytest.raises((ConfigError, DataError), match=what):
        run(str(source), tmp_path / "out", **recipe)
    assert not (tmp_path / "out").exists()


def test_columns_are_those_of_the_transform(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "a.csv", 10)
    with pytest.raises(DataError, match='no column "day" in the transform\'s results'):
        run(str(source), tmp_path / "out", function=double, partition_by=("day",))
    assert not (tmp_path / "out").exists()


def failing_at(number: int) -> Any:
    def transform(batch: pa.RecordBatch) -> pa.RecordBatch:
        if number in batch["x"].to_pylist():
            raise ValueError(f"cannot do {number}")
        return batch

    return transform


def test_a_transform_that_raises_is_told_with_place_and_traceback_and_what_is_done_stays(
    tmp_path: Path, small_tasks: None
) -> None:
    source = write_csv(tmp_path / "a.csv", 500)
    with pytest.raises(
        ItemError, match=r"The transform f failed at .*a\.csv \(.* to .*\): ValueError: cannot do 300"
    ) as e:
        run(str(source), tmp_path / "out", function=failing_at(300), transform="f")
    assert 'raise ValueError(f"cannot do {number}")' in e.value.traceback
    assert "dray/ingest" not in e.value.traceback
    done = len(list((tmp_path / "out").glob("part-*")))
    assert done > 0
    result = run(str(source), tmp_path / "out", function=failing_at(-1), transform="f")
    assert result.resumed == done and read(tmp_path / "out")["x"].to_pylist() == list(range(500))


@pytest.mark.parametrize(
    ("made", "what"),
    [
        (lambda batch: None, "returned nothing"),
        (lambda batch: 5, "returned a int, not a table"),
        (lambda batch: batch["x"], "not a table"),
        (lambda batch: pd.DataFrame({"x": [1, "a"]}), "that Arrow cannot hold"),
        (lambda batch: pa.table([batch["x"], batch["x"]], names=["x", "x"]), 'returned two columns "x"'),
    ],
)
def test_a_transform_that_returns_something_else_is_told(tmp_path: Path, made: Any, what: str) -> None:
    with pytest.raises(DataError, match=what):
        run(str(write_csv(tmp_path / "a.csv", 10)), tmp_path / "out", function=made)
    assert not (tmp_path / "out").exists()


def changing(column: Any) -> Any:
    def transform(batch: pa.RecordBatch) -> pa.Table:
        first = batch["x"][0].as_py() == 0
        return pa.table({"x": batch["x"]} if first else column(batch))

    return transform


@pytest.mark.parametrize(
    ("later", "what"),
    [
        (lambda b: {"x": pa.array(["text"] * b.num_rows)}, 'column "x" as string, which was int64 in the first batch'),
        (lambda b: {"x": pa.array([0.5] * b.num_rows)}, 'column "x" as double, which was int64'),
        (lambda b: {"y": b["x"]}, 'lacks column "x", which the first one had'),
        (lambda b: {"x": b["x"], "y": b["x"]}, 'has column "y", which the first one lacked'),
    ],
)
def test_a_transform_that_changes_its_mind_is_told_with_the_place(
    tmp_path: Path, small_tasks: None, later: Any, what: str
) -> None:
    with pytest.raises(DataError, match=what) as raised:
        run(str(write_csv(tmp_path / "a.csv", 500)), tmp_path / "out", function=changing(later))
    assert "a.csv (" in raised.value.what


def test_later_batches_are_cast_where_nothing_is_lost(tmp_path: Path, small_tasks: None) -> None:
    changed = changing(lambda b: {"x": b["x"].cast(pa.float64())})
    run(str(write_csv(tmp_path / "a.csv", 500)), tmp_path / "out", function=changed)
    assert read(tmp_path / "out").schema.field("x").type == pa.int64()


def test_a_column_without_values_at_first_has_the_type_of_the_first_value(tmp_path: Path, small_tasks: None) -> None:
    def transform(batch: pa.RecordBatch) -> pd.DataFrame:
        x = batch["x"].to_pandas()
        return pd.DataFrame({"x": x, "note": np.where(x > 150, "late", None)})

    run(str(write_csv(tmp_path / "a.csv", 500)), tmp_path / "out", function=transform)
    assert read(tmp_path / "out")["note"].to_pylist() == [None] * 151 + ["late"] * 349


@pytest.mark.parametrize(
    ("location", "out", "inside"),
    [
        ("/data", "/data/out", True),
        ("/data/", "/data/a/out", True),
        ("/data/**/*.csv", "/data/out", True),
        ("s3://bucket/data", "s3://bucket/data/out", True),
        ("/data/*", "/data/out", True),
        ("/data/*", "/data/a/out", True),
        ("/data/o?t", "/data/out", True),
        ("/data/[n-p]*/*", "/data/out", True),
        ("/data/*/*.parquet", "/data/out", True),
        ("/nowhere/*/out", "/nowhere/data/out", True),
        ("file:///data/*", "/data/out", True),
        ("s3://bucket/data/*", "s3://bucket/data/out", True),
        ("s3://bucket/*/part*", "s3://bucket/out", True),
        ("s3://bucket/data/*", "s3://other/data/out", False),
        ("s3://bucket/data/*.csv", "s3://bucket/data/out", False),
        ("s3://data/*", "/data/out", False),
        ("/data/*/region=*/*.parquet", "/data/out", True),
        ("/data/*/test/*", "/data/out", True),
        ("/data/*/test", "/data/out", True),
        ("/data/*/train/day=*/part-*", "/data/out", True),
        ("/data/*/part-0000[1-9].parquet", "/data/out", True),
        ("s3://bucket/*/part-00001*", "s3://bucket/out", True),
        ("/data/*/region=*/*.csv", "/data/out", False),
        ("/data/*/raw/*.parquet", "/data/out", False),
        ("/data/in*/region=*/*.parquet", "/data/out", False),
        ("/data/*/region=*/*.parquet", "/data/_out", False),
        ("/data/*", "/data/_out", False),
        ("/data/*", "/data/.out/more", False),
        ("/data/*/*.csv", "/data/out", False),
        ("/data/a*", "/data/out", False),
        ("/data", "/data/_out", False),
        ("/data/*.csv", "/data/out", False),
        ("/data/a.csv", "/data/out", False),
        ("/data", "/data-out", False),
        ("postgresql://host/data", "/data", False),
        ("a table of pandas", "/data", False),
    ],
)
def test_an_output_inside_the_source_is_refused(location: str, out: str, inside: bool) -> None:
    if inside:
        with pytest.raises(ConfigError, match="is inside the source"):
            require_apart([location], out)
    else:
        require_apart([location], out)


@pytest.mark.parametrize(
    ("location", "out"),
    [
        ("data", "link/out"),
        ("data/*", "link/out"),
        ("link", "data/out"),
        ("link/*", "data/out"),
        ("data", "elsewhere/out"),
        ("data/*", "elsewhere/deep/out"),
        ("circle", "elsewhere/out"),
    ],
)
def test_an_output_that_is_inside_the_source_by_a_link_is_refused(
    location: str, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("data", "elsewhere", "apart"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("data")
    (tmp_path / "data" / "more").symlink_to("../elsewhere")
    (tmp_path / "elsewhere" / "back").symlink_to("../data")
    (tmp_path / "circle").symlink_to("elsewhere/back")
    with pytest.raises(ConfigError, match="is inside the source"):
        require_apart([location], absolute(out))
    require_apart([location], absolute("apart/out"))


def test_rows_are_not_read_twice_because_of_an_output_among_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    write_csv(tmp_path / "data" / "a.csv", 10)
    with pytest.raises(ConfigError, match=r"is inside the source data/\*: the next reading would take it for data"):
        run("data/*", Path("data/out"))
    assert [path.name for path in Path("data").iterdir()] == ["a.csv"]


@pytest.mark.parametrize("sources", [["a, b"], ["other", "a, b"], ["a, b", "other"]])
def test_an_output_inside_a_source_with_a_comma_in_its_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sources: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a, b", "other"):
        Path(name).mkdir()
        write_csv(Path(name) / "a.csv", 10)
    with pytest.raises(ConfigError, match="is inside the source a, b"):
        run(sources, Path("a, b/out"))
    assert run(sources, Path("a, b2")).rows_kept == 10 * len(sources)


def test_an_output_that_holds_something_is_refused(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "a.csv", 10)
    run(str(source), tmp_path / "out")
    with pytest.raises(StorageError, match="is not empty: it holds a finished ingest"):
        run(str(source), tmp_path / "out")
    assert not (tmp_path / "out" / "_ingest").exists()


def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **recipe: Any) -> Path:
    """Leave an ingest of 1,000 rows behind that was ended in the middle."""
    source = write_csv(tmp_path / "a.csv", 1000)
    call = task.TaskRunner.__call__

    def ends(self: Any, one: Any) -> Any:
        if one.index == 4:
            raise KeyboardInterrupt
        return call(self, one)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(task.TaskRunner, "__call__", ends)
        run(str(source), tmp_path / "out", **recipe)
    return source


def test_the_same_call_goes_on_where_another_ended_and_reads_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_tasks: None
) -> None:
    source = interrupted(tmp_path, monkeypatch)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("part-*")}
    assert len(before) == 4
    result = run(str(source), tmp_path / "out")
    assert result.resumed == 4 and result.rows_read == result.rows_kept == 1000
    assert read(tmp_path / "out")["x"].to_pylist() == list(range(1000))
    assert all((tmp_path / "out" / name).stat().st_mtime_ns == time for name, time in before.items())
    assert not (tmp_path / "out" / "_ingest").exists()


def test_names_that_look_like_passwords_are_known_again_by_the_call_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_tasks: None
) -> None:
    def named(batch: pa.RecordBatch) -> pa.Table:
        return pa.table({"x": batch["x"], "has_password": batch["s"]})

    source = interrupted(tmp_path, monkeypatch, function=named, partition_by=("has_password",))
    result = run(str(source), tmp_path / "out", function=named, partition_by=("has_password",))
    assert result.resumed == 4 and result.rows_kept == 1000
    assert sorted(read(tmp_path / "out")["x"].to_pylist()) == list(range(1000))
    names = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.parquet")}
    assert json.loads((tmp_path / "out" / "_ingest.json").read_text())["footers"].keys() == names


def test_a_filter_with_an_address_in_it_goes_on_and_one_with_another_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_tasks: None
) -> None:
    source = interrupted(tmp_path, monkeypatch, filter='s != "https://a:b@host"')
    with pytest.raises(ConfigError, match="other options"):
        run(str(source), tmp_path / "out", filter='s != "https://a:c@host"')
    assert run(str(source), tmp_path / "out", filter='s != "https://a:b@host"').resumed == 4


def test_rows_that_must_move_are_staged_and_a_move_that_failed_is_done_again_without_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_tasks: None
) -> None:
    source = write_csv(tmp_path / "a.csv", 1000)
    asked: list[dict[str, Any]] = []

    def move(staged: list[str], **given: Any) -> moving.Moved[Any]:
        table = pa.concat_tables([pq.read_table(file) for file in staged])
        asked.append({**given, "names": table.column_names, "position": table["__dray_position"].to_pylist()})
        if len(asked) == 1:
            raise KeyboardInterrupt
        table = table.drop_columns("__dray_position").slice(0, 10)
        return moving.Moved((given["write"](0, table),), 500, 10)

    monkeypatch.setattr(moving, "move", move)
    recipe: dict[str, Any] = {"filter": "x >= 500", "dedup": (), "sort": ("-f",), "columns": ("x", "s")}
    with pytest.raises(KeyboardInterrupt):
        run(str(source), tmp_path / "out", **recipe)
    assert not list((tmp_path / "out").glob("*.parquet"))
    result = run(str(source), tmp_path / "out", **recipe)
    assert asked[0]["names"] == ["x", "s", "f", "__dray_position"]
    assert asked[0]["dedup"] == ("x", "s") and asked[0]["sort"] == ("-f",)
    assert asked[0]["position"] == asked[1]["position"] == sorted(set(asked[0]["position"]))
    assert (result.rows_kept, result.rows_duplicate, result.rows_filtered) == (10, 490, 500)
    assert result.resumed > 10 and result.files == 1
    assert read(tmp_path / "out").to_pydict() == {"x": list(range(500, 510)), "s": list("cabcabcabc")}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["_ingest.json", "part-00000.parquet"]


def test_other_options_do_not_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_tasks: None) -> None:
    source = interrupted(tmp_path, monkeypatch)
    with pytest.raises(ConfigError, match=r'unfinished ingest with other options: filter was null and is "x > 1"'):
        run(str(source), tmp_path / "out", filter="x > 1")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda path: path.write_text(path.read_text() + "1,a,1,2026-01-01\n"), r"a\.csv was changed: .* bytes before"),
        (lambda path: path.write_text(path.read_text().replace("1,b", "2,b", 1)), r"a\.csv was changed"),
        (lambda path: path.rename(path.with_name("b.csv")), r"a\.csv is gone; .*b\.csv is new"),
    ],
)
def test_a_source_that_was_changed_meanwhile_does_not_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_tasks: None, change: Any, what: str
) -> None:
    change(interrupted(tmp_path, monkeypatch))
    with pytest.raises(DataError, match=what):
        run(f"{tmp_path}/*.csv", tmp_path / "out")


def test_a_transform_that_returns_other_columns_does_not_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_tasks: None
) -> None:
    source = write_csv(tmp_path / "a.csv", 500)
    with pytest.raises(ItemError):
        run(str(source), tmp_path / "out", function=failing_at(300), transform="f")
    with pytest.raises(DataError, match=r"returned other columns: x int64, s string.*; now it returns x int64, twice"):
        run(str(source), tmp_path / "out", function=double, transform="f")


def test_rejects_of_files_that_share_a_task_are_told_by_file(tmp_path: Path) -> None:
    told: list[str] = []
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("x,y\n" + "1,2\n" * 200 + "1\n")
    ingest(
        open_source(str(tmp_path / "*.csv")),
        str(tmp_path / "out"),
        options=HERE,
        emit=lambda event: told.append(event.message) if isinstance(event, Warned) else None,
    )
    assert [Path(text.split(": ")[0]).name for text in told] == ["a.csv", "b.csv"]
    assert all("line 202" in text for text in told)


def test_a_source_file_that_vanished_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_tasks: None
) -> None:
    source = write_csv(tmp_path / "a.csv", 1000)
    opened = open_source(str(source))
    pieces = opened.pieces(2000)
    source.unlink()
    monkeypatch.setattr(type(opened), "pieces", lambda self, target: pieces)
    with pytest.raises(DataError, match=r"a\.csv no longer exists"):
        ingest(opened, str(tmp_path / "out"), options=HERE)


def test_files_that_no_task_tells_of_go_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_tasks: None
) -> None:
    source = interrupted(tmp_path, monkeypatch, partition_by=("s",))
    (tmp_path / "out" / "s=z").mkdir()
    (tmp_path / "out" / "s=z" / "part-00007.parquet").touch()
    run(str(source), tmp_path / "out", partition_by=("s",))
    assert sorted(path.parent.name for path in (tmp_path / "out").rglob("part-00007.parquet")) == ["s=a", "s=b", "s=c"]


def test_values_of_all_tasks_together_may_be_too_many_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_tasks: None
) -> None:
    monkeypatch.setattr(module, "MOST_PARTITIONS", 200)
    with pytest.raises(DataError, match="x has more than"):
        run(str(write_csv(tmp_path / "a.csv", 500)), tmp_path / "out", partition_by=("x",))


def test_a_full_disk_is_told_and_what_is_done_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_tasks: None
) -> None:
    source = write_csv(tmp_path / "a.csv", 1000)
    written = 0

    class Full(pq.ParquetWriter):  # type: ignore[misc]
        def write_table(self, *args: Any, **kwargs: Any) -> None:
            nonlocal written
            written += 1
            if written > 4:
                raise OSError(errno.ENOSPC, "No space left on device")
            super().write_table(*args, **kwargs)

    with monkeypatch.context() as patched, pytest.raises(StorageError, match="No space left on the disk while writing"):
        patched.setattr(writing.pq, "ParquetWriter", Full)
        run(str(source), tmp_path / "out")
    assert list((tmp_path / "out" / "_ingest" / "scratch").iterdir()) == []
    assert run(str(source), tmp_path / "out").resumed > 0


def test_a_filter_that_keeps_nothing_is_no_error_but_told(tmp_path: Path) -> None:
    told: list[str] = []
    source = open_source(str(write_csv(tmp_path / "a.csv", 10)))
    result = ingest(
        source,
        str(tmp_path / "out"),
        Recipe(filter="x > 100"),
        options=HERE,
        emit=lambda event: told.append(event.message) if isinstance(event, Warned) else None,
    )
    assert (result.files, result.rows_kept, result.rows_filtered) == (0, 0, 10)
    assert "No row was written: the filter kept none." in told


def test_an_empty_source_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(DataError, match="no rows"):
        run(str(tmp_path / "a.csv"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_filter_that_overflows_is_told_with_the_place(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"x\n{2**62}\n")
    with pytest.raises(DataError, match=r"The filter 'x \* 4 > 1' cannot be computed at .*a\.csv.*overflow"):
        run(str(tmp_path / "a.csv"), tmp_path / "out", filter="x * 4 > 1")


def test_tables_in_memory_are_a_source_too(tmp_path: Path) -> None:
    table = pa.table({"x": range(100), "c": pa.array(["a", "b"] * 50).dictionary_encode()})
    run(table, tmp_path / "out", filter='c == "a"')
    assert read(tmp_path / "out")["x"].to_pylist() == list(range(0, 100, 2))
