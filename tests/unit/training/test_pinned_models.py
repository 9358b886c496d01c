"""Models of small fixed data, pinned: a change of the code that changes one of them changes everybody's models.

The digests are those of XGBoost 3.2. To renew them after a change that is meant: run this file as a program.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dray

PINNED = Path(__file__).with_name("pinned_models.json")
ROWS = 3_000

CASES: dict[str, dict[str, Any]] = {
    "regression": {"label": "amount"},
    "binary": {"label": "yes", "eval_fraction": 0.2},
    "early stop": {"label": "yes", "eval_fraction": 0.2, "early_stop": 2, "params": {"learning_rate": 0.9}},
    "classes": {"label": "kind", "eval_fraction": 0.1, "objective": "multiclass"},
    "ranking": {"label": "grade", "group": "query", "eval_fraction": 0.2, "objective": "ranking"},
    "weights": {"label": "amount", "weight": "weight", "params": {"max_depth": 4, "max_bin": 32}},
    "sampled": {"label": "yes", "params": {"colsample_bytree": 0.5, "colsample_bynode": 0.7}, "seed": 7},
    "dart": {"label": "amount", "params": {"booster": "dart", "rate_drop": 0.3}, "eval_fraction": 0.2},
    "quantiles": {"label": "amount", "objective": "reg:quantileerror", "params": {"quantile_alpha": [0.1, 0.9]}},
    "absolute error": {"label": "amount", "objective": "reg:absoluteerror"},
}


def table() -> pa.Table:
    """Return rows made by whole numbers alone: the same on every machine and with every NumPy."""
    row = np.arange(ROWS, dtype=np.int64)
    mixed = (row * 2_654_435_761) % 1_000_003
    other = (row * 40_503 + 12_345) % 65_537
    numbers = (mixed % 997) / 8
    numbers[row % 17 == 0] = np.nan
    score = mixed % 101 + 3 * (other % 11) - (row % 7)
    return pa.table(
        {
            "a": numbers,
            "b": (other % 251).astype(np.int32),
            "c": pa.array([f"c{value}" for value in (mixed % 9)]).dictionary_encode(),
            "d": (mixed % 5) / 4,
            "query": row // 15,
            "weight": (other % 4 + 1).astype(np.float32),
            "amount": score / 4,
            "yes": score > 60,
            "kind": pa.array([("red", "green", "blue")[value % 3] for value in score // 40]),
            "grade": (score % 4).astype(np.int32),
        }
    )


def digests(place: Path, names: list[str]) -> dict[str, str]:
    data = place / "rows.parquet"
    pq.write_table(table(), data, row_group_size=500)
    used = {"label", "group", "weight"}
    found = {}
    for name in names:
        asked = CASES[name]
        roles = {asked[key] for key in used if key in asked}
        ignore = sorted({"amount", "yes", "kind", "grade", "weight", "query"} - roles)
        out = str(place / name.replace(" ", "-"))
        result = dray.train(str(data), rounds=12, workers=0, threads=1, ignore=ignore, out=out, **asked)
        found[name] = result.model_digest
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_model_is_the_one_that_it_has_always_been(tmp_path: Path, name: str) -> None:
    assert digests(tmp_path, [name])[name] == json.loads(PINNED.read_text())[name]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        PINNED.write_text(json.dumps(digests(Path(place), list(CASES)), indent=1) + "\n")
