"""Small training sets as Parquet, in several files and row groups: one for each task, with every kind of column."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Floats = npt.NDArray[np.float64]

ROWS = 2400
FEATURES = ("one", "gaps", "whole", "flag", "colour", "shape", "day", "moment", "price")
COLOURS = ("blue", "green", "grey", "red", "white")
CLASSES = ("high", "low", "middle")


def binary(rows: int = ROWS, seed: int = 0) -> pa.Table:
    """`label` is 0 or 1; `weight` and `id` stand beside the features."""
    columns, signal = _features(rows, seed)
    return pa.table(columns | {"label": pa.array((signal > 0).astype(np.int64)), **_besides(rows, seed)})


def multiclass(rows: int = ROWS, seed: int = 0) -> pa.Table:
    """`label` is one of three strings."""
    columns, signal = _features(rows, seed)
    names = np.array(["low", "middle", "high"])[np.searchsorted([-0.7, 0.7], signal)]
    return pa.table(columns | {"label": pa.array(names), **_besides(rows, seed)})


def regression(rows: int = ROWS, seed: int = 0) -> pa.Table:
    """`label` is a real number."""
    columns, signal = _features(rows, seed)
    return pa.table(columns | {"label": pa.array(10 + 3 * signal), **_besides(rows, seed)})


def ranking(rows: int = ROWS, seed: int = 0) -> pa.Table:
    """`label` is a relevance from 0 to 3, `query` names groups of 1 to 25 rows, which cross every kind of border."""
    columns, signal = _features(rows, seed)
    sizes = np.random.default_rng(seed + 1).integers(1, 26, rows)
    queries = np.repeat(np.arange(rows), sizes)[:rows]
    relevance = np.searchsorted([0, 1, 2], signal)
    besides = {"query": pa.array(queries), **_besides(rows, seed)}
    return pa.table(columns | {"label": pa.array(relevance), **besides})


def write(directory: Path, table: pa.Table, *, files: int = 3, row_group_rows: int = 170) -> str:
    """Write the table as that many files of unequal length; return the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    borders = np.linspace(0, 1, files + 1) ** 1.3 * table.num_rows
    for index, (start, stop) in enumerate(zip(borders[:-1].astype(int), borders[1:].astype(int), strict=True)):
        part = table.slice(start, stop - start)
        pq.write_table(part, directory / f"part-{index}.parquet", row_group_size=row_group_rows)
    return str(directory)


def replaced(table: pa.Table, **columns: Any) -> pa.Table:
    """The table with some columns changed, or added at its end."""
    for name, values in columns.items():
        array = values if isinstance(values, pa.Array) else pa.array(values)
        index = table.schema.get_field_index(name)
        table = table.append_column(name, array) if index < 0 else table.set_column(index, name, array)
    return table


def read(location: str | Path) -> pa.Table:
    """All rows of a directory of Parquet files, or of one, in the order of the files."""
    path = Path(location)
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    return pa.concat_tables([pq.ParquetFile(file).read() for file in files])


def auc(labels: npt.ArrayLike, scores: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
    """The area under the ROC curve by its definition: the share of pairs in the right order, ties count half."""
    truth, score = np.asarray(labels), np.asarray(scores, dtype=np.float64)
    weight = np.ones(len(truth)) if weights is None else np.asarray(weights, dtype=np.float64)
    good, bad = truth == 1, truth == 0
    right = np.sign(score[good][:, None] - score[bad][None, :]) / 2 + 0.5
    pairs = weight[good][:, None] * weight[bad][None, :]
    return float((right * pairs).sum() / pairs.sum())


def _features(rows: int, seed: int) -> tuple[Mapping[str, pa.Array], Floats]:
    """Every kind of column, some with nulls, and a signal that needs most of them, centred on 0."""
    random = np.random.default_rng(seed)
    one = random.normal(size=rows)
    gaps = random.normal(size=rows)
    whole = random.integers(-5, 50, rows)
    flag = random.random(rows) < 0.4
    colour = random.integers(0, len(COLOURS), rows)
    shape = random.integers(0, 3, rows)
    day = random.integers(18_000, 20_000, rows)
    moment = random.integers(1_600_000_000, 1_700_000_000, rows)
    cents = random.integers(0, 100_000, rows)
    signal = one + 0.7 * np.where(np.isnan(gaps), 0, gaps) + 0.03 * whole + 0.6 * flag + 0.5 * (colour == 3)
    signal += 0.4 * shape + (day - 19_000) / 2000 + cents / 100_000 + random.normal(size=rows)
    signal -= np.median(signal)
    hidden, no_number, no_colour = (random.random(rows) < share for share in (0.1, 0.05, 0.05))
    columns = {
        "one": pa.array(one.astype(np.float32)),
        "gaps": pa.array(np.where(no_number, np.nan, gaps), mask=hidden),
        "whole": pa.array(whole.astype(np.int32)),
        "flag": pa.array(flag),
        "colour": pa.array(np.array(COLOURS)[colour], mask=no_colour),
        "shape": pa.array(np.array(["disc", "ring", "star"])[shape]).dictionary_encode(),
        "day": pa.array(day.astype(np.int32)).cast(pa.date32()),
        "moment": pa.array(moment * 1000).cast(pa.timestamp("ms", "UTC")),
        "price": pa.array([Decimal(int(value)) / 100 for value in cents], pa.decimal128(10, 2)),
    }
    return columns, signal


def _besides(rows: int, seed: int) -> dict[str, pa.Array]:
    random = np.random.default_rng(seed + 2)
    return {"weight": pa.array(random.uniform(0.5, 2, rows).astype(np.float32)), "id": pa.array(np.arange(rows))}
