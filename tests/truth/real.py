"""Real, messy tables, where they are at hand (../shared/data beside the repository); without them made data must do."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

FOLDER = Path(__file__).parents[2] / ".." / "shared" / "data" / "tabular"


@dataclass(frozen=True)
class RealSet:
    """How a file becomes rows with a `label`."""

    file: str
    label: str | int
    objectives: tuple[str, ...]
    times: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


_SETS = {
    "mammography": RealSet("mammography.csv", 6, ("", "binary:logistic", "binary:hinge")),
    "phoneme": RealSet("phoneme.csv", 5, ("", "binary:logistic", "binary:logitraw", "reg:squarederror")),
    "oil-spill": RealSet("oil-spill.csv", 49, ("", "binary:logistic")),
    "wine": RealSet("winequality-white.csv", 11, ("", "reg:squarederror", "count:poisson", "multi:softprob")),
    "abalone": RealSet("abalone.csv", 8, ("", "reg:absoluteerror", "reg:gamma", "count:poisson", "multi:softprob")),
    "taxis": RealSet(
        "taxis.csv", "fare", ("reg:squarederror", "reg:gamma", "reg:quantileerror"), ("pickup", "dropoff"), ("total",)
    ),
}
REAL = {name: found for name, found in _SETS.items() if (FOLDER / found.file).exists()}


@functools.cache
def _frame(name: str) -> pd.DataFrame:
    found = REAL[name]
    header: Any = 0 if isinstance(found.label, str) else None
    frame = pd.read_csv(FOLDER / found.file, header=header, parse_dates=list(found.times))
    frame = frame.drop(columns=list(found.drop)).rename(columns={found.label: "label"})
    return frame.rename(columns={column: f"c{column}" for column in frame.columns if isinstance(column, int)})


def real_rows(name: str, rows: int, random: np.random.Generator) -> pa.Table:
    """Return some rows, in a random order; a label as text where the file has quotes around it."""
    frame = _frame(name)
    chosen = random.choice(len(frame), min(rows, len(frame)), replace=False)
    classes = [np.flatnonzero(frame["label"] == value) for value in frame["label"].unique()]
    if len(classes) == 2:  # a rare one must be among those held out and those that are not
        rare = random.choice(min(classes, key=len), min(len(chosen) // 5, min(map(len, classes))), replace=False)
        chosen = random.permutation(np.union1d(rare, chosen[len(rare) :]))
    picked = frame.iloc[chosen]
    return pa.Table.from_pandas(picked, preserve_index=False).replace_schema_metadata(None)
