"""One model for the same rows in the same order, however they are laid out in files and row groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import dray
from dray.data import parquet_rows, sample, stream

ROWS = 3_000
ROLES = ("amount", "yes", "kind", "grade", "weight", "query")

CASES: dict[str, dict[str, Any]] = {
    "numbers": {"label": "amount", "ignore": ["c"]},
    "categories": {"label": "kind", "objective": "multiclass"},
    "weights": {"label": "amount", "weight": "weight"},
    "evaluation": {"label": "yes", "eval_fraction": 0.2},
    "ranking": {"label": "grade", "group": "query", "objective": "ranking", "eval_fraction": 0.2},
}


def rows() -> pa.Table:
    random = np.random.default_rng(0)
    one, other = random.normal(size=ROWS), random.exponential(size=ROWS)
    score = one + 0.3 * other + random.normal(size=ROWS) / 3
    return pa.table(
        {
            "a": pa.array(one, mask=random.random(ROWS) < 0.1),
            "b": other * np.linspace(1, 3, ROWS),  # not alike at the beginning and at the end
            "c": np.array(["red", "green", "blue"])[random.integers(0, 3, ROWS)],
            "d": random.integers(0, 50, ROWS),
            "query": np.arange(ROWS) // 11,
            "weight": random.integers(1, 5, ROWS) / 4,
            "amount": score,
            "yes": (score > 0.5).astype(int),
            "kind": np.array(["no", "perhaps", "sure"])[np.searchsorted([0.0, 1.0], score)],
            "grade": np.clip(score + 1, 0, 4).astype(int),
        }
    )


def write(table: pa.Table, place: Path, files: int, group_rows: int) -> str:
    place.mkdir()
    each = -(-ROWS // files)
    for number in range(files):
        part = table.slice(number * each, each)
        pq.write_table(part, place / f"part-{number:04}.parquet", row_group_size=group_rows)
    return str(place)


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    place, table = tmp_path_factory.mktemp("layouts"), rows()
    pacsv.write_csv(table, place / "rows.csv")
    dray.ingest(str(place / "rows.csv"), str(place / "ingested"))
    return {
        "one group": write(table, place / "one", 1, ROWS),
        "7 files": write(table, place / "seven", 7, 200),
        "1,000 groups": write(table, place / "groups", 1, 3),
        "500 files": write(table, place / "files", 500, 100),
        "ingested": str(place / "ingested"),
        "CSV": str(place / "rows.csv"),
    }


@pytest.fixture(params=["all rows", "blocks of rows"])
def sampled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows that the cuts are made from: of small data, which is decoded once, and of large data."""
    if request.param == "blocks of rows":
        monkeypatch.setattr(sample, "MOST_KEPT_BYTES", 0)
        monkeypatch.setattr(sample, "MOST_ROWS_READ", 1_000)
        monkeypatch.setattr(sample, "LEAST_ROWS", 500)
        monkeypatch.setattr(sample, "MOST_ROWS", 500)
        monkeypatch.setattr(sample, "BLOCKS", 10)


@pytest.mark.usefixtures("sampled")
@pytest.mark.parametrize("name", CASES)
def test_the_layout_of_files_and_row_groups_does_not_change_the_model(
    layouts: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(parquet_rows, "MOST_FILES", 5)  # so that threads read ahead
    asked = {"ignore": [], "params": {"max_bin": 32}} | CASES[name]
    used = {asked[key] for key in ("label", "weight", "group") if key in asked}
    ignore = [*asked.pop("ignore"), *(role for role in ROLES if role not in used)]
    found = {
        layout: dray.train(
            data,
            rounds=5,
            workers=0,
            threads=1,
            ignore=ignore,
            out=str(tmp_path / layout),
            cache=str(tmp_path),
            **asked,
        )
        for layout, data in layouts.items()
    }
    assert {result.rows for result in found.values()} == {found["one group"].rows}
    metrics = {layout: result.metrics for layout, result in found.items()}
    assert metrics == dict.fromkeys(layouts, found["one group"].metrics)
    digests = {layout: result.model_digest for layout, result in found.items()}
    assert digests == dict.fromkeys(layouts, found["one group"].model_digest)


def test_one_process_loads_small_data_without_decoding_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write(rows().select(["a", "b", "yes"]), tmp_path / "data", 7, 200)

    def trained(out: str) -> str:
        return dray.train(data, label="yes", rounds=2, workers=0, threads=1, out=str(tmp_path / out)).model_digest

    def refuse(*_: Any) -> Any:
        raise AssertionError("A file was read.")

    with monkeypatch.context() as patch:
        patch.setattr(sample, "MOST_KEPT_BYTES", 0)
        decoded_again = trained("again")
    monkeypatch.setattr(stream, "read_slices", refuse)
    assert trained("once") == decoded_again
