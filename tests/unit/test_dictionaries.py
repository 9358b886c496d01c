"""A dictionary means a category, whatever its values are and whatever holds the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import dray
from dray.data.describe import describe
from dray.data.open_source import open_source
from dray.data.parquet import open_dataset
from dray.data.scan import merge_categories, scan
from dray.errors import DataError
from dray.ingesting.ingest import ingest
from dray.ingesting.recipe import Recipe
from dray.predicting.predict import load_model
from dray.storage import DEFAULT

STORES = tuple(str(store) for store in range(-2, 12))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def frame(rows: int = 600) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    store = rng.integers(-2, 12, rows)
    store[: len(STORES)] = np.arange(-2, 12)
    return pd.DataFrame(
        {"store": pd.Categorical(store), "x": rng.normal(size=rows), "y": np.isin(store, [3, 7, 10]).astype(int)}
    )


def as_pandas(table: pd.DataFrame, _: Path) -> Any:
    return table


def as_arrow(table: pd.DataFrame, _: Path) -> Any:
    return pa.Table.from_pandas(table)


def as_parquet_of_pandas(table: pd.DataFrame, at: Path) -> Any:
    table.to_parquet(at / "pandas.parquet")
    return str(at / "pandas.parquet")


def as_parquet_of_arrow(table: pd.DataFrame, at: Path) -> Any:
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False).replace_schema_metadata(), at / "arrow.parquet")
    return str(at / "arrow.parquet")


def as_feather(table: pd.DataFrame, at: Path) -> Any:
    feather.write_feather(pa.Table.from_pandas(table), at / "a.feather")
    return str(at / "a.feather")


def as_ingested(table: pd.DataFrame, at: Path) -> Any:
    if not (at / "ingested").exists():
        ingest(open_source(table), str(at / "ingested"))
    return str(at / "ingested")


FORMS = [as_pandas, as_arrow, as_parquet_of_pandas, as_parquet_of_arrow, as_feather, as_ingested]


def trained(data: Any, run: Path, **more: Any) -> str:
    dray.train(data, label="y", out=str(run), workers=0, rounds=4, **more)
    return str(run)


def predicted(run: str, data: Any, out: Path, keep: tuple[str, ...] = ()) -> pa.Table:
    dray.predict(run, data, str(out), workers=0, keep=keep)
    return pq.read_table(out)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_a_dictionary_of_integers_is_one_category_in_training_and_prediction(form: Any, tmp_path: Path) -> None:
    run = trained(form(frame(), tmp_path), tmp_path / "run")
    feature = load_model(run).features[0]  # type: ignore[union-attr]
    assert (feature.kind, feature.categories, feature.values) == ("category", STORES, "int64")
    expected = predicted(run, frame(), tmp_path / "of_pandas.parquet")["prediction"]
    found = predicted(run, form(frame(), tmp_path), tmp_path / "same.parquet")["prediction"]
    assert found.equals(expected)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(lambda store: store.astype("int64"), id="plain"),
        pytest.param(lambda store: store.astype("int16").astype("category"), id="narrow"),
        pytest.param(lambda store: store.astype("float64").astype("category"), id="as if there were gaps"),
    ],
)
def test_the_same_numbers_fit_however_they_are_kept(values: Any, tmp_path: Path) -> None:
    table = frame()
    run = trained(table, tmp_path / "run")
    other = table.assign(store=values(table["store"]))
    expected = predicted(run, table, tmp_path / "expected.parquet")["prediction"]
    assert predicted(run, other, tmp_path / "found.parquet")["prediction"].equals(expected)
    from_polars = pl.from_pandas(table.assign(store=table["store"].astype("int64")))
    assert predicted(run, from_polars, tmp_path / "polars.parquet")["prediction"].equals(expected)


@pytest.mark.parametrize("text", ["{}", "{}.0"])
def test_text_fits_a_category_of_integers_by_its_value(text: str, tmp_path: Path) -> None:
    table = frame()
    run = trained(table, tmp_path / "run")
    other = table.assign(store=table["store"].astype(str).map(text.format))
    expected = predicted(run, table, tmp_path / "expected.parquet")["prediction"]
    assert predicted(run, other, tmp_path / "out.parquet")["prediction"].equals(expected)


def test_evaluation_and_continuing_take_the_same_category(tmp_path: Path) -> None:
    table = frame()
    plain = table.assign(store=table["store"].astype("int64"))
    plain.to_parquet(tmp_path / "eval.parquet")
    run = trained(table, tmp_path / "run", eval=str(tmp_path / "eval.parquet"))
    again = trained(plain, tmp_path / "again", continue_from=run)
    assert load_model(again).features == load_model(run).features  # type: ignore[union-attr]


def test_a_run_that_knows_numbers_takes_a_dictionary_of_them(tmp_path: Path) -> None:
    table = frame()
    plain = table.assign(store=table["store"].astype("int64"))
    run = trained(plain, tmp_path / "run")
    expected = predicted(run, plain, tmp_path / "expected.parquet")["prediction"]
    assert predicted(run, table, tmp_path / "found.parquet")["prediction"].equals(expected)
    trained(as_parquet_of_pandas(table, tmp_path), tmp_path / "again", continue_from=run)


def test_a_kept_dictionary_keeps_its_values(tmp_path: Path) -> None:
    table = frame()
    run = trained(table, tmp_path / "run")
    data = tmp_path / "data"
    data.mkdir()
    table.to_parquet(data / "a.parquet")
    table.assign(store=table["store"].astype("int64")).to_parquet(data / "b.parquet")
    kept = predicted(run, str(data), tmp_path / "out", keep=("store",))
    assert kept["store"].to_pylist() == 2 * table["store"].tolist()


@pytest.mark.parametrize(
    ("values", "type_", "categories"),
    [
        (pd.Categorical([True, False, None]), "bool", ("false", "true")),
        (pd.Categorical([1.0, 0.5, None]), "double", ("0.5", "1")),
        (pd.Categorical([np.uint8(200), np.uint8(30), None]), "uint8", ("30", "200")),
        (pd.Categorical(pd.to_datetime(["2024-02-01", "2024-01-01", None]).date), "date32[day]", None),
        (pd.Categorical(pd.to_datetime(["2024-02-01", "2024-01-01", None])), None, None),
        (pd.Categorical(["b", "a", None]), "string", ("a", "b")),
    ],
    ids=str,
)
def test_dictionaries_of_other_values_are_categories_too(
    values: Any, type_: str | None, categories: tuple[str, ...] | None, tmp_path: Path
) -> None:
    table = pd.DataFrame({"c": values})
    if categories is None:
        categories = ("2024-01-01", "2024-02-01") if type_ else ("2024-01-01 00:00:00", "2024-02-01 00:00:00")
    for form in (as_parquet_of_pandas, as_parquet_of_arrow, as_ingested):
        dataset = open_dataset([form(table, tmp_path)], DEFAULT)
        found = scan(dataset.row_groups, ["c"], None, DEFAULT)
        assert merge_categories([found], "c") == categories
        assert pa.types.is_dictionary(dataset.schema.field("c").type)
        assert type_ in (None, str(dataset.schema.field("c").type.value_type), "string")


def test_whole_numbers_are_in_their_own_order_and_text_in_that_of_text(tmp_path: Path) -> None:
    table = pa.table({"n": pa.array([10, 9, -1]).dictionary_encode(), "t": ["10", "9", "-1"]})
    pq.write_table(table, tmp_path / "a.parquet")
    found = scan(open_dataset([str(tmp_path)], DEFAULT).row_groups, ["n", "t"], None, DEFAULT)
    assert merge_categories([found], "n") == ("-1", "9", "10")
    assert merge_categories([found], "t") == ("-1", "10", "9")


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_dictionary_in_one_file_is_one_in_all(first: str, tmp_path: Path) -> None:
    plain = pa.array([1, 2])
    for name in ("a", "b"):
        pq.write_table(
            pa.table({"c": plain.dictionary_encode() if name == first else plain}), tmp_path / f"{name}.parquet"
        )
        feather.write_feather(
            pa.table({"c": plain.dictionary_encode() if name == first else plain}), tmp_path / f"{name}.feather"
        )
    for ending in ("parquet", "feather"):
        source = open_source(str(tmp_path / f"*.{ending}"))
        assert source.schema.field("c").type == pa.dictionary(pa.int32(), pa.int64())
        rows = [batch for piece in source.pieces() for batch in source.read(piece, None, lambda _: None)]
        assert pa.Table.from_batches(rows)["c"].to_pylist() == [1, 2, 1, 2]


def test_dictionaries_of_text_and_of_numbers_do_not_go_together(tmp_path: Path) -> None:
    pq.write_table(pa.table({"c": pa.array([1, 2]).dictionary_encode()}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"c": pa.array(["1", "x"]).dictionary_encode()}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match='The files differ: column "c" is dictionary'):
        open_dataset([str(tmp_path)], DEFAULT)


def test_a_dictionary_can_be_filtered_by_its_values(tmp_path: Path) -> None:
    table = frame().assign(day=pd.Categorical(pd.to_datetime(["2024-01-01", "2024-02-01"] * 300)))
    source = open_source(as_parquet_of_pandas(table, tmp_path))
    result = ingest(source, str(tmp_path / "out"), Recipe(filter='store > 3 and day >= "2024-02-01"'))
    expected = table[(table["store"].astype(int) > 3) & (table["day"].astype(str) >= "2024-02-01")]
    assert result.rows_kept == len(expected)


def test_a_description_does_not_take_a_category_of_numbers_for_text(tmp_path: Path) -> None:
    found = describe(as_parquet_of_pandas(frame(), tmp_path))
    assert not [concern for concern in found.warnings if concern.kind == "numbers-as-text"]
