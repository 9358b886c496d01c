"""Data of every kind is described: what is exact, what comes from a sample, and how the rows lie."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from dray.data.describe import describe
from dray.data.describing import footers, probes, sampling
from dray.data.describing.figures import ColumnProfile, Description, Figure
from dray.data.describing.layout import assignment, parquet_layout
from dray.data.describing.probes import spread
from dray.data.open_source import open_source
from dray.errors import ConfigError, DataError, DrayError, StorageError
from s3_server import S3Server
from small_data import write


@pytest.fixture
def only_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if small text files were too large to be read as a whole."""
    monkeypatch.setattr(sampling, "READ_ALL_BYTES", 0)
    monkeypatch.setattr(probes, "LEAST_WINDOW_BYTES", 1024)


def column(found: Description, name: str) -> ColumnProfile:
    return next(column for column in found.columns if column.name == name)


class TestParquet:
    def test_rows_nulls_and_ranges_come_from_the_footers(self, tmp_path: Path) -> None:
        rows = 50_000
        whole = np.arange(rows)
        value = pa.array(np.where(whole == 31_234, -1e9, whole / rows), mask=whole % 4 == 0)
        for part in range(5):
            table = pa.table({"i": whole, "v": value}).slice(part * 10_000, 10_000)
            write(tmp_path / f"{part}.parquet", table, row_group_rows=2500)
        found = describe(str(tmp_path), sample=500)
        assert found.rows == Figure(rows, "exact")
        assert not found.complete and found.sample_rows <= 1000
        assert (column(found, "i").low, column(found, "i").high) == (Figure(0, "exact"), Figure(rows - 1, "exact"))
        assert column(found, "v").low == Figure(-1e9, "exact")
        assert column(found, "v").missing == Figure(0.25, "exact")
        assert column(found, "i").distinct == Figure(rows, "estimate")
        assert column(found, "v").histogram is not None

    def test_the_sample_is_spread_over_all_files_and_row_groups(self, tmp_path: Path) -> None:
        for part in range(40):
            write(tmp_path / f"{part:02}.parquet", {"file": [f"f{part}"] * 1000}, row_group_rows=100)
        found = describe(str(tmp_path), sample=800)
        assert column(found, "file").distinct_seen == 40

    def test_a_sample_of_sorted_rows_is_no_head(self, tmp_path: Path) -> None:
        write(tmp_path / "a.parquet", {"x": np.arange(100_000) / 100_000}, row_group_rows=1000)
        histogram = column(describe(str(tmp_path), sample=5000), "x").histogram
        assert histogram is not None
        assert max(histogram.counts) < 2 * min(histogram.counts)

    def test_small_data_is_known_exactly(self, tmp_path: Path) -> None:
        write(tmp_path / "a.parquet", {"x": ["a", "b", None]})
        found = describe(str(tmp_path))
        assert found.complete and found.sample_rows == 3
        assert column(found, "x").distinct == Figure(2, "exact")
        assert column(found, "x").values_basis == "exact"

    def test_a_sample_of_0_reads_every_row(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sampling, "FULL_SAMPLE", 1000)
        columns = {"x": np.arange(20_000), "c": np.array(["a", "b"])[(np.arange(20_000) < 5).astype(int)]}
        write(tmp_path / "a.parquet", columns, row_group_rows=3000)
        found = describe(str(tmp_path), sample=0)
        assert found.complete and 500 <= found.sample_rows <= 1000
        assert [(top.value, top.share) for top in column(found, "c").values] == [("a", 0.99975), ("b", 0.00025)]
        assert column(found, "c").values_basis == "exact"
        assert column(found, "x").distinct is not None
        assert column(found, "x").distinct.value == pytest.approx(20_000, rel=0.03)

    def test_statistics_that_are_missing_leave_the_sample(self, tmp_path: Path) -> None:
        table = pa.table({"x": np.arange(10_000)})
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=1000, write_statistics=False)
        found = describe(str(tmp_path), sample=100)
        assert found.rows == Figure(10_000, "exact")
        assert column(found, "x").low is not None and column(found, "x").low.basis == "sample"

    def test_too_many_statistics_are_left_unread(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(footers, "MOST_CHUNKS", 3)
        write(tmp_path / "a.parquet", {"x": np.arange(10_000)}, row_group_rows=1000)
        found = column(describe(str(tmp_path), sample=100), "x")
        assert found.low is not None and found.low.basis == "sample"

    def test_a_group_of_nulls_does_not_hide_the_range(self, tmp_path: Path) -> None:
        write(tmp_path / "a.parquet", {"x": pa.array([None] * 100 + [1, 2] * 50, pa.int64())}, row_group_rows=100)
        found = column(describe(str(tmp_path), sample=10), "x")
        assert (found.low, found.high) == (Figure(1, "exact"), Figure(2, "exact"))

    def test_every_type_has_a_range_that_reads_well(self, tmp_path: Path) -> None:
        whole = np.arange(1000)
        columns = {
            "ns": pa.array(whole, pa.timestamp("ns")),
            "zone": pa.array(whole, pa.timestamp("ms", tz="Europe/Berlin")),
            "s": pa.array(whole, pa.timestamp("s")),
            "day": pa.array(whole.astype(np.int32), pa.date32()),
            "time": pa.array(whole, pa.time64("us")),
            "flag": pa.array(whole % 2 == 0),
            "half": pa.array(whole.astype(np.float16)),
            "money": pa.array(whole.tolist(), pa.decimal128(9, 2)),
        }
        columns["list"] = pa.array([[1]] * 1000)
        columns["struct"] = pa.array([{"a": 1}] * 1000)
        write(tmp_path / "a.parquet", columns, row_group_rows=100)
        found = describe(str(tmp_path), sample=200)
        ranges = {c.name: (c.low.value, c.high.value) for c in found.columns if c.low and c.high}
        assert ranges["ns"] == ("1970-01-01 00:00:00", "1970-01-01 00:00:00")
        assert ranges["zone"] == ("1970-01-01 00:00:00+00:00", "1970-01-01 00:00:00.999000+00:00")
        assert ranges["s"] == ("1970-01-01 00:00:00", "1970-01-01 00:16:39")
        assert ranges["day"] == ("1970-01-01", "1972-09-26")
        assert ranges["flag"] == (False, True)
        assert ranges["money"] == (0.0, 999.0)
        assert "list" not in ranges and "struct" not in ranges
        json.dumps(found.to_json(), allow_nan=False)

    def test_infinite_values_are_known_from_the_footers(self, tmp_path: Path) -> None:
        numbers = np.random.default_rng(0).normal(size=100_000)
        numbers[77_777] = np.inf
        write(tmp_path / "a.parquet", {"x": numbers}, row_group_rows=10_000)
        [warning] = describe(str(tmp_path), sample=100).warnings
        assert (warning.kind, warning.column) == ("infinite", "x")


class TestText:
    @pytest.mark.parametrize("ending", ["csv", "csv.gz", "jsonl", "jsonl.gz", "json"])
    @pytest.mark.parametrize("whole", [True, False])
    def test_text_files_of_every_kind(
        self, tmp_path: Path, ending: str, whole: bool, request: pytest.FixtureRequest
    ) -> None:
        rows = 30_000
        records = [{"i": i, "word": f"w{i % 7}", "gap": None if i % 2 else 1.5} for i in range(rows)]
        if ending.startswith("csv"):
            lines = ["i,word,gap", *(f"{r['i']},{r['word']},{'' if r['gap'] is None else r['gap']}" for r in records)]
            text = "\n".join(lines) + "\n"
        elif ending == "json":
            text = json.dumps(records)
        else:
            text = "".join(json.dumps(record) + "\n" for record in records)
        data = gzip.compress(text.encode()) if ending.endswith("gz") else text.encode()
        (tmp_path / f"a.{ending}").write_bytes(data)
        if not whole:
            request.getfixturevalue("only_windows")
        found = describe(str(tmp_path), sample=2000)
        assert found.complete == whole
        if whole:
            assert found.rows == Figure(rows, "exact")
            assert column(found, "i").high == Figure(rows - 1, "exact")
            assert column(found, "gap").missing == Figure(0.5, "exact")
        else:
            assert found.rows.basis == "estimate"
            assert found.rows.value == pytest.approx(rows, rel=0.15)
            assert column(found, "i").high is not None and column(found, "i").high.basis == "sample"
            assert column(found, "gap").missing.value == pytest.approx(0.5, abs=0.05)
        assert found.bytes == len(data)
        assert column(found, "word").distinct is not None and column(found, "word").distinct.value == 7
        assert found.layout.advice is not None and "dray data ingest" in found.layout.advice

    @pytest.mark.parametrize("ending", ["csv", "jsonl"])
    @pytest.mark.usefixtures("only_windows")
    def test_windows_are_spread_over_the_file(self, tmp_path: Path, ending: str) -> None:
        rows = 100_000
        lines = [f"{i}" if ending == "csv" else f'{{"i": {i}}}' for i in range(rows)]
        (tmp_path / f"a.{ending}").write_text("\n".join(["i", *lines] if ending == "csv" else lines))
        found = column(describe(str(tmp_path), sample=3000), "i")
        assert found.low is not None and found.high is not None
        assert (found.low.basis, found.high.basis) == ("sample", "sample")
        assert found.low.value < 500 and found.high.value > rows - 500
        assert found.histogram is not None and max(found.histogram.counts) < 3 * min(found.histogram.counts)

    @pytest.mark.usefixtures("only_windows")
    def test_windows_respect_quoted_line_ends(self, tmp_path: Path) -> None:
        text = "id,note\n" + "".join(f'{i},"one\nmore, ""quoted""\nlines"\n' for i in range(20_000))
        (tmp_path / "a.csv").write_text(text)
        found = describe(str(tmp_path), sample=2000)
        assert found.rejected.value == 0
        assert found.rows.value == pytest.approx(20_000, rel=0.05)

    @pytest.mark.parametrize("whole", [True, False])
    def test_bad_rows_are_counted_and_the_first_is_shown_with_its_line(
        self, tmp_path: Path, whole: bool, request: pytest.FixtureRequest
    ) -> None:
        if not whole:
            request.getfixturevalue("only_windows")
        lines = ["a,b", *(f"{i},{i}" for i in range(50_000))]
        for bad in range(100, 50_000, 500):
            lines[bad] = "1,2,3"
        (tmp_path / "a.csv").write_text("\n".join(lines))
        found = describe(str(tmp_path), sample=5000)
        assert found.rejected.basis == ("exact" if whole else "sample")
        assert found.rejected.value == 100 if whole else 0 < found.rejected.value < 100
        assert found.rejects[0].line is not None
        assert lines[found.rejects[0].line - 1] == "1,2,3"
        assert (found.rejects[0].reason, found.rejects[0].text) == ("3 fields instead of 2", "1,2,3")
        assert found.warnings[-1].kind == "rejects"

    @pytest.mark.usefixtures("only_windows")
    def test_lines_far_into_a_file_are_not_counted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sampling, "COUNTED_BYTES", 10)
        (tmp_path / "a.csv").write_text("a,b\n" + "1,2\n" * 200 + "1,2,3\n" * 200)
        first = describe(str(tmp_path), sample=100).rejects[0]
        assert first.line is None
        assert "at byte" in first.reason

    def test_a_reject_that_fills_the_data_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("a,b\n1,2,3\n1,2,3\n")
        with pytest.raises(DataError, match=r"No row of .* can be read: 2 .* line 2: 3 fields instead of 2"):
            describe(str(tmp_path))

    def test_what_was_noticed_is_told_where_no_row_can_be_read(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("# of May\na,b\n1,2\n1,2\n")
        with pytest.raises(DataError, match="No row of") as raised:
            describe(str(tmp_path))
        assert "looks like a comment" in raised.value.fix and '"comment": "#"' in raised.value.fix


class TestOtherSources:
    def test_arrow_files_are_estimated_from_their_batches(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table = pa.table({"x": np.arange(200_000)})
        feather.write_feather(table, tmp_path / "a.feather", compression="uncompressed", chunksize=1000)
        assert describe(str(tmp_path)).rows == Figure(200_000, "exact")
        monkeypatch.setattr(sampling, "READ_ALL_BYTES", 0)
        found = describe(str(tmp_path), sample=1000)
        assert found.rows.basis == "estimate"
        assert found.rows.value == pytest.approx(200_000, rel=0.1)

    def test_a_table_in_memory(self) -> None:
        found = describe(pa.table({"x": np.arange(10_000)}), sample=100)
        assert found.rows == Figure(10_000, "exact")
        assert found.sample_rows == pytest.approx(100, rel=0.4)

    def test_a_source_that_is_open_already(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("x;y\n1;2\n")
        found = describe(open_source(str(tmp_path), format="csv", delimiter=";"))
        assert [c.name for c in found.columns] == ["x", "y"]

    def test_a_query(self, tmp_path: Path) -> None:
        import sqlite3

        def connect() -> sqlite3.Connection:
            return sqlite3.connect(tmp_path / "shop.db")

        with connect() as connection:
            connection.execute("CREATE TABLE orders (id INTEGER, price REAL)")
            connection.executemany("INSERT INTO orders VALUES (?, ?)", [(i, i * 1.5) for i in range(5000)])
        found = describe(open_source(connect, table="orders", key="id"), sample=500)
        assert found.rows == Figure(5000, "exact")
        without_key = describe(open_source(connect, table="orders"), sample=10_000)
        assert without_key.rows == Figure(5000, "exact")  # all were read on the way

    def test_a_delta_table(self, tmp_path: Path) -> None:
        deltalake = pytest.importorskip("deltalake")
        for part in range(3):
            deltalake.write_deltalake(str(tmp_path / "t"), pa.table({"x": np.arange(1000) + part}), mode="append")
        found = describe(str(tmp_path / "t"), sample=300)
        assert (found.format, found.rows) == ("delta", Figure(3000, "exact"))
        assert found.layout.files == 3

    @pytest.mark.usefixtures("only_windows")
    def test_windows_of_text_on_s3(self, s3_server: S3Server) -> None:
        (s3_server.directory / "d").mkdir()
        lines = "".join(f"{i},{i % 3}\n" for i in range(50_000))
        (s3_server.directory / "d" / "a.csv").write_text("i,c\n" + lines + "1,2,3\n")
        found = describe(s3_server.url("d"), sample=1000)
        assert found.rows.value == pytest.approx(50_000, rel=0.1)
        assert [row.line for row in found.rejects] == [50_002]

    def test_on_s3(self, s3_server: S3Server) -> None:
        for part in range(3):
            table = pa.table({"x": np.arange(part * 10_000, (part + 1) * 10_000)})
            write(s3_server.directory / "d" / f"{part}.parquet", table)
        found = describe(s3_server.url("d"), sample=1000)
        assert found.rows == Figure(30_000, "exact")
        assert column(found, "x").high == Figure(29_999, "exact")


class TestBadInput:
    def test_a_label_that_is_not_there_names_the_nearest(self, tmp_path: Path) -> None:
        write(tmp_path / "a.parquet", {"price": [1.0]})
        with pytest.raises(DataError, match='Did you mean "price"'):
            describe(str(tmp_path), label="prices")

    @pytest.mark.parametrize("options", [{"sample": -1}, {"workers": 0}])
    def test_impossible_numbers_are_refused(self, options: dict[str, int]) -> None:
        with pytest.raises(ConfigError):
            describe(pa.table({"x": [1]}), **options)  # type: ignore[arg-type]

    @pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
    def test_data_without_rows_is_an_error(self, tmp_path: Path, ending: str) -> None:
        if ending == "parquet":
            write(tmp_path / "a.parquet", {"x": pa.array([], pa.int64())})
        else:
            (tmp_path / f"a.{ending}").write_text("")
        with pytest.raises(DataError, match="no rows"):
            describe(str(tmp_path))

    @pytest.mark.usefixtures("only_windows")
    def test_a_file_that_disappears_between_windows_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("x\n" + "1\n" * 10_000)
        source = open_source(str(tmp_path))
        (tmp_path / "a.csv").unlink()
        with pytest.raises(StorageError, match=r"a\.csv does not exist"):
            describe(source, sample=100)

    @pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
    def test_a_file_that_disappears_is_named(self, tmp_path: Path, ending: str) -> None:
        path = tmp_path / f"a.{ending}"
        if ending == "parquet":
            write(path, {"x": [1, 2]})
        else:
            path.write_text("x\n1\n" if ending == "csv" else '{"x": 1}\n')
        source = open_source(str(tmp_path))
        path.unlink()
        with pytest.raises((StorageError, DataError), match=rf"a\.{ending}"):
            describe(source)

    def test_an_unknown_format_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "a.xyz").write_text("hello")
        with pytest.raises(DrayError, match="is not known from its name"):
            describe(str(tmp_path))


class TestLayout:
    def test_even_row_groups_feed_workers(self) -> None:
        layout = parquet_layout([1000] * 32, files=4, largest_group_bytes=10**6, workers=8)
        assert [(found.workers, found.even) for found in layout.dealings] == [(8, True)]
        assert layout.advice is None

    @pytest.mark.parametrize("rows", [[1000], [1000] * 3, [1000, 1000, 1000, 100]])
    def test_row_groups_are_judged_as_training_cuts_them(self, rows: list[int]) -> None:
        layout = parquet_layout(rows, files=1, largest_group_bytes=10**6, workers=4)
        assert layout.dealings[0].even
        assert layout.advice is None

    def test_too_few_rows_are_told(self) -> None:
        layout = parquet_layout([1, 2], files=1, largest_group_bytes=10**6, workers=4)
        assert not layout.dealings[0].even and layout.dealings[0].smallest == 0
        assert layout.advice is not None and "3 rows are too few for 4 workers" in layout.advice

    def test_five_percent_more_is_still_even(self) -> None:
        assert assignment([105, 100], 2).even
        assert not assignment([106, 100], 2).even

    def test_huge_row_groups_are_told(self) -> None:
        layout = parquet_layout([1000] * 64, files=1, largest_group_bytes=5 * 10**9, workers=None)
        assert layout.advice is not None and "5.0 GB" in layout.advice

    def test_without_a_number_the_usual_ones_are_judged(self, tmp_path: Path) -> None:
        write(tmp_path / "a.parquet", {"x": np.arange(8000)}, row_group_rows=1000)
        found = describe(str(tmp_path)).layout
        assert [dealt.workers for dealt in found.dealings if dealt.even] == [2, 4, 8, 16, 32]
        assert found.rows_per_group == (1000, 1000, 1000)


@pytest.mark.parametrize(("weights", "count"), [([1], 64), ([5, 0, 100], 4), ([1] * 1000, 64), ([10**12, 1], 8)])
def test_looks_are_spread_by_weight(weights: list[int], count: int) -> None:
    found = spread(weights, count)
    assert sum(share for _, share in found) == pytest.approx(1)
    assert len(found) <= count
    assert all(0 <= index < len(weights) for index, _ in found)
