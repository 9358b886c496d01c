"""The rows of a case: columns of every type with gaps and heavy tails, and labels that depend on them."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from truth.cases import Case, ColumnKind, Gap
from truth.real import real_rows

Floats = npt.NDArray[np.float64]
Random = np.random.Generator

NAMES = ("plain", "x[0]", "a<b", "naïve col", "last")
"""Of made columns: some that XGBoost refuses as they are."""
FEW = np.array(["ash", "birch", "cedar", "date palm", "elm"])
MANY = np.array([f"c{number:03}" for number in range(120)])
CLASSES = np.array(["bad", "fair", "good"])
DAY = 86_400
SHARE = 0.3
"""Of the rows of `fraction`, for evaluation."""


@dataclass(frozen=True)
class Tables:
    train: pa.Table
    eval: pa.Table
    other: pa.Table
    """To predict, and to go on with: as wide as the evaluation rows."""


def make_tables(case: Case) -> Tables:
    """Return the rows of a case, with a column `id`; the same for the same case."""
    rows = max(100, case.rows // 2)
    train = _table(case, case.rows, np.random.default_rng([case.seed, 0]), 1.0, 0)
    others = [
        _table(case, rows, np.random.default_rng([case.seed, part]), case.drift, part * 100_000) for part in (1, 2)
    ]
    if case.objective.startswith("multi:") and case.data != "made":
        others = [_with_known_classes(table, train["label"]) for table in others]
    return Tables(train, *others)


def _with_known_classes(table: pa.Table, known: pa.ChunkedArray) -> pa.Table:
    """Return the table with another label where training has not seen it: a class that is new is refused."""
    label = table["label"]
    seen = pc.is_in(label, value_set=known.unique())
    label = pc.if_else(seen, label, known[0])
    return table.set_column(table.schema.get_field_index("label"), "label", label)


def _table(case: Case, rows: int, random: Random, drift: float, first_id: int) -> pa.Table:
    if case.data == "made":
        columns, signal = _made(case.columns, rows, random, drift)
        label = _label(case.label, signal, random)
    else:
        table = real_rows(case.data, rows, random)
        rows = table.num_rows
        columns = {name: _drifted(table[name], random, drift) for name in table.column_names if name != "label"}
        label = table["label"].combine_chunks()
    columns |= {"label": label, "id": pa.array(np.arange(first_id, first_id + rows))}
    if case.ranking:
        columns["query"] = pa.array(np.repeat(np.arange(rows), random.integers(1, 15, rows))[:rows])
    if case.weight:
        columns["weight"] = pa.array(_weights(case.weight, rows, random))
    return pa.table(columns)


def _made(kinds: tuple[ColumnKind, ...], rows: int, random: Random, drift: float) -> tuple[dict[str, pa.Array], Floats]:
    columns: dict[str, pa.Array] = {}
    signal = random.normal(size=rows)
    for name, kind in zip(NAMES, kinds, strict=False):
        hidden = random.random(rows) < (0.15 if drift == 1 else 0.3)
        if not kind.gap:
            hidden[:] = False
        values, own = _values(kind.kind, rows, random, drift)
        signal += np.where(hidden, 2.5 * (random.random(rows) < 0.7) if kind.gap == "told" else 0, own)
        columns[name] = _with_gap(values, hidden, kind.gap)
    return columns, signal


def _with_gap(values: pa.Array, hidden: npt.NDArray[np.bool_], gap: Gap) -> pa.Array:
    if gap == "nan":
        return pa.array(
            np.where(hidden, np.nan, values.to_numpy(zero_copy_only=False)).astype(values.type.to_pandas_dtype())
        )
    if not hidden.any() or pa.types.is_null(values.type):
        return values
    missing = pa.nulls(1, values.type)
    return pa.concat_arrays([values, missing]).take(pa.array(np.where(hidden, len(values), np.arange(len(values)))))


def _values(kind: str, rows: int, random: Random, drift: float) -> tuple[pa.Array, Floats]:
    """Return values of a kind, and what they mean to the label, around 0 and about 1 wide."""
    latent = random.normal(size=rows)
    match kind:
        case "normal32":
            return pa.array((latent * drift).astype(np.float32)), latent
        case "normal64":
            return pa.array(latent * drift), latent
        case "lognormal32":
            return pa.array((np.exp(3 + 2 * latent) * drift).astype(np.float32)), latent
        case "lognormal64":
            return pa.array(np.exp(3 + 2 * latent) * drift), latent
        case "cauchy":
            heavy = random.standard_cauchy(rows)
            return pa.array(heavy * drift), np.clip(heavy, -2, 2)
        case "zeros":
            mostly = np.where(random.random(rows) < 0.8, 0, np.exp(latent))
            return pa.array(mostly * drift), np.log1p(mostly)
        case "tiny":
            return pa.array(np.exp(latent) * 1e-38 * drift), latent
        case "int8":
            return _whole(latent * 20, pa.int8(), drift), latent
        case "uint8":
            return _whole(np.abs(latent) * 20, pa.uint8(), abs(drift)), latent
        case "int16":
            return _whole(latent * 500, pa.int16(), drift), latent
        case "int64":
            return _whole(np.exp(5 * latent + 15), pa.int64(), drift), latent
        case "bool":
            return pa.array(latent > 0), np.sign(latent)
        case "date":
            return pa.array((19_000 + latent * 300 * drift).astype(np.int32)).cast(pa.date32()), latent
        case "timestamp":
            moments = (1_700_000_000 + latent * 50 * DAY * drift) * 1e6
            return pa.array(moments.astype(np.int64)).cast(pa.timestamp("us")), latent
        case "zoned":
            seconds = (1_700_000_000 + latent * 50 * DAY * drift).astype(np.int64)
            return pa.array(seconds * 1000).cast(pa.timestamp("ms", "Europe/Berlin")), latent
        case "duration":
            return pa.array((latent * 3e6 * drift).astype(np.int64)).cast(pa.duration("ms")), latent
        case "decimal":
            return pa.array([Decimal(int(cents * drift)) / 100 for cents in latent * 1e4], pa.decimal128(18, 2)), latent
        case "constant":
            return pa.array(np.full(rows, 7.5 * drift)), np.zeros(rows)
        case "empty":  # training has the column and no value of it
            values = latent if drift != 1 else np.full(rows, np.nan)
            return pa.array(values, mask=np.isnan(values)), np.zeros(rows)
        case "null":
            return pa.nulls(rows), np.zeros(rows)
    return _categories(kind, rows, random, drift)


def _whole(values: Floats, arrow: pa.DataType, drift: float) -> pa.Array:
    """Return whole numbers of a type; wider ones need a wider type."""
    least, most = np.iinfo(arrow.to_pandas_dtype()).min, np.iinfo(arrow.to_pandas_dtype()).max
    fitting = np.clip(values, least, min(most, 2**53))
    if drift == 1:
        return pa.array(fitting.astype(np.int64)).cast(arrow)
    return pa.array(np.clip(fitting * drift, -(2**53), 2**53).astype(np.int64))


def _categories(kind: str, rows: int, random: Random, drift: float) -> tuple[pa.Array, Floats]:
    known = MANY if kind == "many" else FEW
    codes = random.integers(0, len(known), rows)
    meaning = np.sin(codes * 2.4)
    if kind == "integers":
        numbers = codes * 10 + (7 * (random.random(rows) < 0.1) if drift != 1 else 0)
        return pa.array(numbers).dictionary_encode(), meaning
    names = known[codes].astype(object)
    if drift != 1:
        names[random.random(rows) < 0.1] = "unseen"
    values = pa.array(names, pa.string())
    return values.dictionary_encode() if kind == "dictionary" else values, meaning


def _drifted(values: pa.ChunkedArray, random: Random, drift: float) -> pa.Array:
    """Return a real column; wider, or with unseen categories."""
    array = values.combine_chunks()
    if drift == 1:
        return array
    if pa.types.is_floating(array.type) or pa.types.is_integer(array.type):
        numbers = array.cast(pa.float64()).to_numpy(zero_copy_only=False)
        return pa.array(numbers * drift, mask=np.isnan(numbers))
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        unseen = pa.array(random.random(len(array)) < 0.1)
        return pc.if_else(unseen, pa.scalar("unseen", array.type), array)
    return array


def _label(kind: str, signal: Floats, random: Random) -> pa.Array:
    rows = len(signal)
    noisy = signal + random.normal(size=rows)
    high = noisy > 0.5
    high[:2] = [True, False]  # both outcomes in any rows
    grade = np.searchsorted([-0.5, 1.0], noisy)
    grade[:3] = [0, 1, 2]
    match kind:
        case "zero_one":
            return pa.array(high.astype(np.int64))
        case "zero_one_float":
            return pa.array(high.astype(np.float64))
        case "bool":
            return pa.array(high)
        case "text2":
            return pa.array(np.array(["no", "yes"])[high.astype(int)])
        case "share":
            return pa.array(1 / (1 + np.exp(-noisy)))
        case "classes":
            return pa.array(grade)
        case "text":
            return pa.array(CLASSES[grade])
        case "counts":
            return pa.array(random.poisson(np.exp(np.clip(signal / 2, -3, 3))))
        case "real":
            return pa.array(10 + 3 * noisy)
        case "heavy" | "positive":
            return pa.array(np.exp((2 if kind == "heavy" else 0.5) * np.clip(noisy, -5, 5) / 2 + 1))
        case "cauchy":
            return pa.array(signal + random.standard_cauchy(rows))
        case "zero_inflated":
            return pa.array(np.where(random.random(rows) < 0.5, 0, np.exp(np.clip(noisy / 2, -3, 3))))
        case "relevance":
            return pa.array(np.clip(grade + (noisy > 2), 0, 3))
        case "relevance2":
            return pa.array(high.astype(np.int32))
    raise ValueError(kind)


def _weights(kind: str, rows: int, random: Random) -> npt.NDArray[Any]:
    weights = random.uniform(0.5, 2, rows)
    if kind == "zeros":
        weights[random.random(rows) < 0.3] = 0
        weights[:3] = 1
    return weights.astype(np.float32) if kind != "large" else weights * 1e4
