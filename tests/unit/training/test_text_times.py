"""Times as they are found, as text or numbers, in trainings and in what is done with their models."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import xgboost

import dray
from dray.data.parquet import open_dataset
from dray.data.time_columns import look_at_texts
from dray.errors import ConfigError, DataError
from dray.storage import DEFAULT
from small_data import write

ROWS = 3_000
PARTS = ["pickup_year", "pickup_month", "pickup_weekday", "pickup_hour", "pickup_days"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def rides(form: str | None = "%Y-%m-%d %H:%M:%S", seed: int = 0) -> pa.Table:
    """Rides whose fare depends on the hour and the day of the week; with the pickup as text of a form."""
    random = np.random.default_rng(seed)
    seconds = np.sort(random.integers(1_551_398_400, 1_580_515_200, ROWS))
    hour, weekday = seconds // 3600 % 24, (seconds // 86_400 + 3) % 7
    distance = random.exponential(size=ROWS)
    fare = distance * 3 + 10 * (hour > 18) + 5 * (weekday >= 5) + random.normal(size=ROWS) / 10
    moments = pa.array(seconds, pa.timestamp("s"))
    pickup = moments.cast(pa.timestamp("us")) if form is None else pc.strftime(moments, form)
    return pa.table({"distance": distance, "pickup": pickup, "fare": fare})


def train(table: pa.Table, **settings: Any) -> Any:
    path = write(Path("rides.parquet"), table, row_group_rows=500)
    return dray.train(path, **{"label": "fare", "rounds": 8, "workers": 0, "out": "run", **settings})


def warned(run: str = "run") -> list[str]:
    events = [json.loads(line) for line in Path(run, "events.jsonl").read_text().splitlines()]
    return [f"{event['message']} {event['fix']}" for event in events if event["kind"] == "warning"]


def features() -> list[dict[str, Any]]:
    text = xgboost.Booster(model_file="run/model.ubj").attr("dray")
    assert text is not None
    found: list[dict[str, Any]] = json.loads(text)["features"]
    return found


def predicted(data: pa.Table | str) -> list[float]:
    source = data if isinstance(data, str) else write(Path("new.parquet"), data)
    out = Path("predictions")
    for file in out.glob("*"):
        file.unlink()
    dray.predict("run", source, str(out))
    found: list[float] = pq.read_table(out)["prediction"].to_pylist()
    return found


@pytest.mark.parametrize("form", ["%Y-%m-%d %H:%M:%S", "%d.%m.%Y %H:%M:%S", "%Y-%m-%dT%H:%M:%S+00:00"])
@pytest.mark.parametrize("times", ["number", "parts"])
def test_times_as_text_give_the_model_of_timestamps(form: str, times: str) -> None:
    as_times = train(rides(None), times=times, out="other")
    as_text = train(rides(form), times=times)
    assert as_text.model_digest == as_times.model_digest


def test_it_is_told_that_a_text_is_read_as_a_time_with_the_flag_for_its_parts() -> None:
    train(rides())
    [told] = [text for text in warned() if "pickup" in text]
    assert 'Column "pickup" holds times as text, such as "2019-03-01 ' in told
    assert "read as seconds since 1970" in told and "--times parts" in told


@pytest.mark.parametrize("form", [None, "%d.%m.%Y %H:%M:%S"])
@pytest.mark.parametrize("times", ["number", "parts"])
def test_words_for_missing_are_no_unreadable_times(form: str | None, times: str) -> None:
    train(rides(form), times=times)
    Path("new.csv").write_text("distance,pickup\n1.0,NA\n1.0,NaN\n1.0, null \n1.0,\n1.0,soon\n")
    result = dray.predict("run", "new.csv", "out.csv")
    assert result.unreadable == {"pickup": 1}
    assert len(set(pacsv.read_csv("out.csv")["prediction"].to_pylist())) == 1


def test_it_is_told_that_times_are_numbers_unless_that_was_asked_for() -> None:
    table = rides(None).append_column("until", rides(None)["pickup"])
    train(table)
    [told] = [text for text in warned() if "pickup" in text]
    assert told.startswith('Columns "pickup", "until": times are read as numbers') and "--times parts" in told
    for times in ("number", "parts", "category"):
        train(table, times=times, out=times)
        assert not [text for text in warned(times) if "times are read" in text]


def test_parts_are_features_of_their_own_that_a_plain_library_reads() -> None:
    train(rides(), times="parts", rounds=30)
    booster = xgboost.Booster(model_file="run/model.ubj")
    assert booster.feature_names == ["distance", *PARTS]
    gain = booster.get_score(importance_type="total_gain")
    assert set(sorted(gain, key=lambda name: -gain[name])[:3]) == {"distance", "pickup_hour", "pickup_weekday"}
    assert features()[4] == {"name": "pickup_hour", "kind": "number", "of": "pickup", "part": "hour", "form": "iso"}


@pytest.mark.parametrize("times", ["number", "parts"])
def test_new_data_may_have_the_times_as_text_or_as_timestamps_of_any_kind(times: str) -> None:
    train(rides("%d.%m.%Y %H:%M:%S"), times=times)
    as_text, as_times = rides("%d.%m.%Y %H:%M:%S"), rides(None)
    expected = predicted(as_text)
    zoned = pc.assume_timezone(as_times["pickup"], "UTC").cast(pa.timestamp("ms", "Europe/Berlin"))
    assert len(set(expected)) > 20
    assert predicted(as_times) == expected
    assert predicted(as_times.set_column(1, "pickup", zoned)) == expected
    assert predicted(as_text.set_column(1, "pickup", as_text["pickup"].dictionary_encode())) == expected
    pacsv.write_csv(as_text, "new.csv")
    assert predicted("new.csv") == pytest.approx(expected, abs=1e-4)  # distances are written with fewer digits


def test_dates_have_no_hour() -> None:
    table = rides(None)
    train(table.set_column(1, "pickup", table["pickup"].cast(pa.date32(), safe=False)), times="parts")
    assert [feature["name"] for feature in features()] == ["distance", *(p for p in PARTS if p != "pickup_hour")]


def test_texts_without_a_time_of_day_have_no_hour() -> None:
    train(rides("%Y-%m-%d"), times="parts")
    assert "pickup_hour" not in [feature["name"] for feature in features()]


def test_day_and_month_are_not_guessed_but_told_with_the_flag_that_says_it() -> None:
    table = rides("%d/%m/%Y")
    early = table.filter(pc.less_equal(pc.utf8_slice_codeunits(table["pickup"], 0, 2), "12"))
    train(early)
    [told] = [text for text in warned() if "pickup" in text]
    assert "no value tells the day from the month: it is used as a category" in told
    assert "--time-form 'pickup=%d/%m/%Y', or %m/%d/%Y" in told
    assert features()[1]["kind"] == "category"


def test_a_form_that_is_given_decides() -> None:
    table = rides("%d/%m/%Y")
    early = table.filter(pc.less_equal(pc.utf8_slice_codeunits(table["pickup"], 0, 2), "12"))
    train(early, time_form={"pickup": "%m/%d/%Y"}, times="parts")
    assert not [text for text in warned() if "pickup" in text]
    assert features()[1]["form"] == "%m/%d/%Y"


@pytest.mark.parametrize(
    ("settings", "error", "why"),
    [
        ({"time_form": {"pickup": "%d.%m.%Y"}}, DataError, "no time of the form %d.%m.%Y, but values such as"),
        ({"time_form": {"pickup": "%d.%Q"}}, ConfigError, "is not the form of a time"),
        ({"time_form": {"pikcup": "%d.%m.%Y"}}, ConfigError, 'Did you mean "pickup"'),
        ({"times": "seconds"}, ConfigError, "parts"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, Any], error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        train(rides(), **settings)


def test_a_column_with_the_name_of_a_part_is_refused() -> None:
    with pytest.raises(DataError, match=r'^times="parts" makes "pickup_hour" of "pickup", but'):
        train(rides().append_column("pickup_hour", pa.array(np.zeros(ROWS))), times="parts")


def test_texts_stay_categories_where_that_is_asked() -> None:
    train(rides("%Y-%m"), times="category")
    assert features()[1]["kind"] == "category"
    assert not [text for text in warned() if "pickup" in text]


def test_a_time_that_does_not_fit_is_missing_and_counted() -> None:
    table = rides()
    texts = [f"later {row}" if row % 50 == 7 else text for row, text in enumerate(table["pickup"].to_pylist())]
    texts[3] = ""
    result = train(table.set_column(1, "pickup", pa.array(texts)), times="parts", eval_fraction=0.3)
    assert any(text.startswith('60 rows have a text in "pickup" that is not a time') for text in warned())
    without = [None if text == "" or text.startswith("later") else text for text in texts]
    other = train(table.set_column(1, "pickup", pa.array(without)), times="parts", eval_fraction=0.3, out="other")
    assert result.model_digest == other.model_digest


def test_the_way_rows_are_divided_does_not_matter() -> None:
    whole = train(rides(), times="parts", out="other").model_digest
    path = write(Path("divided.parquet"), rides(), row_group_rows=77)
    assert dray.train(path, label="fare", rounds=8, workers=0, times="parts", out="run").model_digest == whole


def test_an_evaluation_set_may_hold_timestamps() -> None:
    timestamps = train(rides(), times="parts", eval=write(Path("timestamps.parquet"), rides(None, seed=1)), out="one")
    texts = train(rides(), times="parts", eval=write(Path("texts.parquet"), rides(seed=1)), out="other")
    assert timestamps.metrics == texts.metrics


def test_a_run_that_goes_on_keeps_the_parts() -> None:
    train(rides(), times="parts", out="first")
    train(rides(None, seed=1), continue_from="first")
    assert [feature["name"] for feature in features()] == ["distance", *PARTS]
    with pytest.raises(ConfigError, match="has parts of times"):
        train(rides(seed=1), continue_from="first", times="number", out="third")


def test_the_form_that_csv_was_read_with_is_kept_for_new_text() -> None:
    pacsv.write_csv(rides("%d.%m.%Y %H:%M:%S"), "rides.csv")
    read = {"types": {"pickup": "timestamp(%d.%m.%Y %H:%M:%S)"}}
    dray.train("rides.csv", label="fare", rounds=8, workers=0, out="run", read=read)
    assert features()[1] == {"name": "pickup", "kind": "timestamp", "form": "%d.%m.%Y %H:%M:%S"}
    assert len(set(predicted(rides("%d.%m.%Y %H:%M:%S")))) > 20
    assert predicted(rides("%d.%m.%Y %H:%M:%S")) == predicted(rides(None))


@pytest.mark.parametrize("at", [0, 15_000, 25_000])
def test_the_start_the_middle_and_the_end_decide_whether_texts_are_times(at: int) -> None:
    times = pc.strftime(pa.array(range(30_000), pa.timestamp("s")), "%d.%m.%Y %H:%M:%S").to_pylist()
    other = [*times[:at], *["soon"] * 5_000, *times[at + 5_000 :]]
    unlike = [f"{text}{row}" if text == "soon" else text for row, text in enumerate(other)]
    for texts, found in ((times, ["t"]), (unlike, [])):
        path = write(Path("texts.parquet"), pa.table({"t": texts}))
        assert list(look_at_texts(open_dataset([path], DEFAULT), ["t"])) == found


# Recommenders


def events(form: str | None) -> pa.Table:
    """Events in the order of time; `form`: how the time is written, or what it counts."""
    random = np.random.default_rng(0)
    seconds = np.sort(random.integers(1_291_190_400, 1_323_000_000, 2_000))
    times: Any = pa.array(seconds, pa.timestamp("s"))
    if form in ("seconds", "milliseconds", "nanoseconds"):
        times = pa.array(seconds * {"seconds": 1, "milliseconds": 10**3, "nanoseconds": 10**9}[form])
    elif form is not None:
        times = pc.strftime(times, form)
    return pa.table({"u": random.integers(0, 60, 2_000), "i": random.integers(0, 40, 2_000), "t": times})


def recommend(table: pa.Table, **settings: Any) -> Any:
    how = {"model": "factorization", "user": "u", "item": "i", "time": "t", "half_life_days": 30, "eval_last": 1}
    path = write(Path("events.parquet"), table, row_group_rows=300)
    return dray.train(path, **{**how, "rounds": 2, "workers": 0, "params": {"factors": 4}, "out": "run", **settings})


@pytest.mark.parametrize("form", ["%d.%m.%Y %H:%M:%S", "%Y-%m-%d %H:%M:%S UTC", "milliseconds", "nanoseconds"])
def test_a_recommender_reads_times_as_they_are_written(form: str) -> None:
    expected = recommend(events(None), out="other").model_digest
    assert recommend(events(form)).model_digest == expected
    reasons = [json.loads(line) for line in Path("run/events.jsonl").read_text().splitlines()]
    assert any("time: t " in str(event) for event in reasons)


@pytest.mark.parametrize("as_", [str, int, float])
@pytest.mark.parametrize("time_form", [{}, {"t": "%Y%m%d"}])
def test_a_recommender_reads_dates_that_are_written_as_numbers(as_: type, time_form: dict[str, str]) -> None:
    expected = recommend(events("%Y-%m-%d"), out="other").model_digest
    digits = events("%Y%m%d")
    table = digits.set_column(2, "t", pa.array([as_(text) for text in digits["t"].to_pylist()]))
    assert recommend(table, time_form=time_form).model_digest == expected
    assert "time: t holds dates as numbers, read as %Y%m%d, such as 2010" in read_events()
    new = table.slice(1000, 100).set_column(0, "u", pa.array(np.full(100, 999)))
    assert dray.recommend("run", events=write(Path("new.parquet"), new), out="lists", top=3).rows == 3


def test_a_number_that_is_no_date_among_dates_is_refused_with_a_filter_for_it() -> None:
    digits = [int(text) for text in events("%Y%m%d")["t"].to_pylist()]
    with pytest.raises(DataError, match=r"1 of 2,000 rows have no time .* 't != 20240230'"):
        recommend(events(None).set_column(2, "t", pa.array([*digits[:-1], 20240230])))


def test_the_unit_of_numbers_is_told_with_an_example() -> None:
    recommend(events("seconds"))
    assert re.search(r"time: t holds seconds since 1970, such as 1291\d+ \(2010-12-\d\d\)", read_events())
    assert not [text for text in warned() if "before 1971" in text]


def test_years_as_numbers_do_not_age_and_this_is_told() -> None:
    recommend(events(None).set_column(2, "t", pa.array(np.arange(2_000) // 100 + 2000)))
    [told] = [text for text in warned() if "before 1971" in text]
    assert "seconds since 1970" in told and "such as 2000 (1970-01-01)" in told and "or leave" in told


def read_events() -> str:
    return Path("run/events.jsonl").read_text()


def test_new_events_are_read_as_those_of_the_training() -> None:
    recommend(events("%d/%m/%Y %H:%M:%S"), time_form={"t": "%d/%m/%Y %H:%M:%S"})
    new = events("%d/%m/%Y %H:%M:%S").slice(1000, 100)
    new = new.set_column(0, "u", pa.array(np.full(100, 999)))
    result = dray.recommend("run", events=write(Path("new.parquet"), new), out="lists", top=3)
    assert result.rows == 3


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (["07/11/2024", "01/02/2024"], r'time_form={"t": "%d/%m/%Y"}, or time_form={"t": "%m/%d/%Y"}'),
        (["abc", "2024-11-07"], r'holds text that is not a time, such as "abc" in row 1\.'),
        (["2024-11-07", "1.2.2024"], "in two forms"),
    ],
)
def test_a_recommender_tells_what_is_not_decided(texts: list[str], why: str) -> None:
    table = events(None)
    with pytest.raises(DataError, match=why):
        recommend(table.set_column(2, "t", pa.array((texts * 1000)[:2000])))


def test_a_recommender_tells_a_text_that_is_no_time_with_its_row() -> None:
    texts = events("%Y-%m-%d %H:%M:%S")["t"].to_pylist()
    texts[1234] = "soon"
    with pytest.raises(DataError, match=r'not a time in 1 of 2,000 rows, such as "soon" in .*, row 1,235 of all data'):
        recommend(events(None).set_column(2, "t", pa.array(texts)))


def test_moments_before_1970_and_far_away_are_times() -> None:
    table = rides()
    texts = [["1969-12-31 23:59:59", "9999-12-31", "2020-02-29 12:00"][row % 3] for row in range(ROWS)]
    train(table.set_column(1, "pickup", pa.array(texts)), times="parts")
    assert not any("is not a time" in text for text in warned())
