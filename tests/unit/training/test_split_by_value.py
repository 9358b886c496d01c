"""What is evaluated on: the latest rows, those from a time on, whole groups."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dray
from dray.data.held_out import FromKey, Search, key_of, keys_of
from dray.errors import ConfigError, DrayError
from dray.learners.table import TableDriver

ROWS = 2000
START = dt.datetime(2024, 1, 1)


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(7)
    hours = rng.integers(0, 24 * 60, ROWS)
    times = [START + dt.timedelta(hours=int(hour)) for hour in hours]
    x = rng.normal(size=ROWS)
    return pa.table(
        {
            "x": x,
            "when": pa.array(times, pa.timestamp("ms")),
            "day": pa.array([time.date() for time in times], pa.date32()),
            "year": pa.array(hours % 20 + 2000, pa.int16()),
            "age": pa.array(rng.normal(size=ROWS)),
            "customer": [f"c{number}" for number in rng.integers(0, 150, ROWS)],
            "y": (x + rng.normal(size=ROWS) > 0).astype(int),
        }
    )


@pytest.fixture
def data(table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    for at in range(3):
        pq.write_table(table.slice(at * 700, 700), f"data/{at}.parquet", row_group_size=150)
    return "data"


@pytest.fixture
def held_out(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return, after a training, which rows were evaluated on."""
    found: list[Any] = []
    find = TableDriver._find_split

    def noted(self: TableDriver, workers: Any) -> Any:
        split = find(self, workers)
        assert split is not None
        found.append(split.picks(np.arange(self.train.rows)))
        return split

    monkeypatch.setattr(TableDriver, "_find_split", noted)
    return found


def train(data: str, **settings: Any) -> Any:
    return dray.train(data, **({"label": "y", "ignore": ["customer"], "rounds": 2, "workers": 0} | settings))


@pytest.mark.parametrize("column", ["when", "day", "year", "age"])
def test_the_latest_rows_are_evaluated_on_and_rows_of_one_time_stay_together(
    column: str, data: str, table: pa.Table, held_out: list[Any]
) -> None:
    result = train(data, eval_by=column, eval_fraction=0.2)
    [mask] = held_out
    values = table[column].to_numpy()
    assert values[mask].min() > values[~mask].max()
    assert result.eval_rows == mask.sum() >= 0.2 * ROWS
    assert mask.sum() - (values == values[mask].min()).sum() < 0.2 * ROWS  # not one time more than needed


@pytest.mark.parametrize(
    ("column", "start"),
    [("when", "2024-02-01 12:00"), ("day", "2024-02-01"), ("day", dt.date(2024, 2, 1)), ("year", 2015), ("age", "0.5")],
)
def test_rows_from_a_time_on_are_evaluated_on(
    column: str, start: Any, data: str, table: pa.Table, held_out: list[Any]
) -> None:
    train(data, eval_by=column, eval_from=start)
    values = table[column].to_pylist()
    least = {"when": dt.datetime(2024, 2, 1, 12), "day": dt.date(2024, 2, 1), "year": 2015, "age": 0.5}[column]
    assert held_out[0].tolist() == [value >= least for value in values]


@pytest.mark.parametrize("form", ["%Y-%m-%d %H:%M:%S UTC", "%d.%m.%Y %H:%M"])
def test_times_may_be_text(form: str, data: str, table: pa.Table, held_out: list[Any]) -> None:
    times = table["when"].to_pylist()
    texts = table.set_column(1, "when", pa.array([time.strftime(form) for time in times]))
    pq.write_table(texts, "texts.parquet")
    train("texts.parquet", eval_by="when", eval_from="2024-02-01")
    assert held_out[0].tolist() == [time >= dt.datetime(2024, 2, 1) for time in times]
    train("texts.parquet", eval_by="when", eval_fraction=0.2)
    train(data, eval_by="when", eval_fraction=0.2)
    assert (held_out[1] == held_out[2]).all()


def test_groups_are_whole_and_as_ingest_has_them(data: str, table: pa.Table, held_out: list[Any]) -> None:
    train(data, split_by="customer", eval_fraction=0.3, split_seed=5)
    [mask] = held_out
    customers = np.array(table["customer"].to_pylist())
    assert not set(customers[mask]) & set(customers[~mask]) and 0.2 < mask.mean() < 0.4
    dray.ingest(data, "split", test=0.3, split_by=["customer"], seed=5)
    assert set(pq.read_table("split/test")["customer"].to_pylist()) == set(customers[mask])


def test_the_split_does_not_depend_on_how_rows_lie_in_files(
    data: str, table: pa.Table, held_out: list[Any], tmp_path: Path
) -> None:
    pq.write_table(table, "whole.parquet", row_group_size=10_000)
    for where in (data, "whole.parquet"):
        train(where, eval_by="when", eval_fraction=0.25)
    assert (held_out[0] == held_out[1]).all()


def test_rows_without_a_time_are_trained_on_and_told(data: str, table: pa.Table, held_out: list[Any]) -> None:
    times = [None if row % 10 == 0 else time for row, time in enumerate(table["when"].to_pylist())]
    pq.write_table(table.set_column(1, "when", pa.array(times, pa.timestamp("us"))), "gaps.parquet")
    result = train("gaps.parquet", eval_by="when", eval_fraction=0.5)
    assert not held_out[0][::10].any() and abs(held_out[0].sum() - 900) < 10
    since = train("gaps.parquet", eval_by="when", eval_from="2024-02-01")
    for one in (result, since):
        assert any("200 of 2,000 rows have no time" in warning for warning in one.warnings)


def test_a_resumed_or_repeated_run_has_the_same_rows(data: str) -> None:
    first, second = (train(data, eval_by="when", eval_fraction=0.2, out=name) for name in ("a", "b"))
    assert (first.model_digest, first.metrics) == (second.model_digest, second.metrics)
    more = train(data, eval_by="when", eval_fraction=0.2, continue_from="a", out="c")
    assert more.eval_rows == first.eval_rows
    with pytest.raises(ConfigError, match="was trained on") as refused:
        train(data, split_by="customer", eval_fraction=0.2, continue_from="a")
    assert 'eval_by="when"' in refused.value.fix


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"eval_by": "when"}, "eval_fraction"),
        ({"eval_from": "2024-02-01"}, "eval_by"),
        ({"split_by": "customer"}, "eval_fraction"),
        ({"split_by": "customer", "eval_by": "when", "eval_fraction": 0.1}, "exclude each other"),
        ({"eval_by": "when", "eval_from": "2024-02-01", "eval_fraction": 0.1}, "exclude each other"),
        ({"eval_by": "customer", "eval_fraction": 0.1}, 'column "customer" is text that holds no times'),
        ({"eval_by": "nothing", "eval_fraction": 0.1}, "nothing"),
        ({"eval_by": "when", "eval_from": "soon"}, "not a date or time"),
        ({"eval_by": "age", "eval_from": "soon"}, "not such a number"),
        ({"eval_by": "when", "eval_from": "2030-01-01"}, "No row is evaluated on"),
        ({"split_by": "customer", "eval_fraction": 1e-9}, "Give another split_seed or eval_fraction"),
        ({"eval_by": "when", "eval_from": "2020-01-01"}, "All rows are evaluated on"),
    ],
)
def test_what_cannot_be_is_refused_in_words(data: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(DrayError) as refused:
        train(data, **settings)
    assert words in refused.value.what + refused.value.fix


def test_early_stopping_goes_by_the_rows_from_a_time_on(data: str) -> None:
    assert train(data, eval_by="when", eval_from="2024-02-01", early_stop=1, rounds=50).best_round < 50


@pytest.mark.parametrize(
    "values",
    [
        pa.array([3, -7, 0, None, 2**40], pa.int64()),
        pa.array([0, 2**64 - 1, 5], pa.uint64()),
        pa.array([1.5, -0.0, 0.0, -1e300, float("nan"), 1e-300], pa.float64()),
        pa.array([-1.5, 2.5, 0.25], pa.float32()),
        pa.array([dt.date(1960, 1, 1), dt.date(2024, 1, 1)], pa.date32()),
        pa.array([dt.date(1960, 1, 1), dt.date(2024, 1, 1)], pa.date64()),
    ],
)
def test_keys_have_the_order_of_the_values(values: pa.Array) -> None:
    keys, known = keys_of(values)
    plain = [value for value, there in zip(values.to_pylist(), known, strict=True) if there]
    assert [plain[at] for at in np.argsort(keys[known], kind="stable")] == sorted(plain)
    assert len(np.unique(keys[known])) == len(set(plain))  # -0.0 and 0.0 are one


def test_a_search_finds_the_value_that_sorting_would(table: pa.Table) -> None:
    values = table["age"].combine_chunks()
    for wanted in (1, 2, 777, ROWS):
        search = Search(wanted)
        while not search.over:
            search = search.narrowed(search.count(values.slice(0, 900)) + search.count(values.slice(900)))
        assert FromKey("age", search.prefix).picks(values).sum() == wanted


def test_a_number_that_lies_between_whole_numbers_is_the_next_one() -> None:
    keys, _ = keys_of(pa.array([2014, 2015], pa.int32()))
    assert key_of("2014.5", "year", pa.int32()) == int(keys[1])
    seconds = pa.array([dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 1)], pa.timestamp("s"))
    keys, _ = keys_of(seconds)
    assert key_of("2024-01-01 00:00:00.5", "when", seconds.type) == int(keys[1])


def test_a_whole_number_is_compared_in_all_its_digits() -> None:
    at = 1706572800000000001  # nanoseconds since 1970: as a float it is another one
    keys, _ = keys_of(pa.array([at], pa.int64()))
    assert key_of(str(at), "t", pa.int64()) == int(keys[0])


@pytest.mark.parametrize("asked", ["nan", "inf", "1e30", "soon"])
def test_what_is_no_number_of_the_column_is_refused(asked: str) -> None:
    with pytest.raises(ConfigError, match="is not such a number"):
        key_of(asked, "t", pa.int64())


def test_text_of_times_with_a_zone_is_compared_with_one(table: pa.Table, held_out: list[Any], tmp_path: Path) -> None:
    text = [f"{time:%Y-%m-%dT%H:%M:%SZ}" for time in table["when"].to_pylist()]
    data = str(tmp_path / "a.parquet")
    pq.write_table(table.drop_columns(["when"]).append_column("when", pa.array(text)), data)
    dray.train(data, "y", rounds=1, out=str(tmp_path / "run"), eval_by="when", eval_from="2024-02-01T01:00:00+01:00")
    expected = [time >= dt.datetime(2024, 2, 1) for time in table["when"].to_pylist()]
    assert held_out[-1].tolist() == expected


def test_text_that_does_not_tell_the_day_from_the_month_says_how_to_tell(tmp_path: Path) -> None:
    days = [f"{1 + at % 12:02}/{1 + at % 11:02}/2024" for at in range(400)]
    pq.write_table(pa.table({"x": range(400), "y": [0, 1] * 200, "t": days}), tmp_path / "a.parquet")
    with pytest.raises(DrayError, match="does not tell how they are written") as caught:
        dray.train(str(tmp_path / "a.parquet"), "y", out=str(tmp_path / "run"), eval_by="t", eval_fraction=0.2)
    assert "time_form" in str(caught.value)


def test_a_row_without_a_value_is_never_picked_whatever_the_bound() -> None:
    rule = FromKey("t", key_of("-5", "t", pa.int64()))
    assert rule.picks(pa.array([-6, -5, None, 3], pa.int64())).tolist() == [False, True, False, True]


def test_both_zeros_are_one_number() -> None:
    rule = FromKey("t", key_of("0", "t", pa.float64()))
    assert rule.picks(pa.array([-0.0, 0.0, -1.0])).tolist() == [True, True, False]


@pytest.mark.parametrize("label", ["text", "number"])
def test_classes_that_only_evaluation_rows_have_are_told_with_their_rows_and_do_not_make_a_model_better(
    label: str, tmp_path: Path
) -> None:
    x = np.random.default_rng(3).random(1000)
    codes = np.where(np.arange(1000) < 900, (x * 3).astype(int), 3)  # the last days have a class of their own
    y = pa.array(codes) if label == "number" else pa.array(["a", "b", "c", "new"]).take(pa.array(codes))
    data = str(tmp_path / "days.parquet")
    pq.write_table(pa.table({"x": x, "day": np.arange(1000) // 10, "y": y}), data, row_group_size=300)
    settings = {"label": "y", "eval_by": "day", "objective": "multiclass", "rounds": 3, "workers": 0}
    result = dray.train(data, **settings, eval_fraction=0.1, ignore=["day"], out=str(tmp_path / "run"))
    name = "3" if label == "number" else '"new"'
    what = f'100 of 100 evaluation rows have a label "y" that no training row has: {name} (100 rows).'
    assert len([warning for warning in result.warnings if what in warning]) == 1
    assert result.metrics["eval-merror"] == 1
    assert "better" not in result.verdict.replace("no better", "")
