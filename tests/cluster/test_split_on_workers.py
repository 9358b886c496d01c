"""Rows are evaluated on by their values, whatever the workers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dray


@pytest.mark.parametrize("settings", [{"eval_by": "when"}, {"split_by": "customer"}])
def test_any_number_of_workers_evaluates_on_the_same_rows(tmp_path: Path, settings: dict[str, str]) -> None:
    rng = np.random.default_rng(3)
    x, customer = rng.normal(size=3000), rng.integers(0, 99, 3000)
    columns = {"x": x, "when": rng.integers(0, 10**9, 3000), "customer": customer, "y": x + rng.normal(size=3000) > 0}
    pq.write_table(pa.table(columns), tmp_path / "data.parquet", row_group_size=400)
    found = []
    for workers in (0, 2):
        result = dray.train(
            str(tmp_path / "data.parquet"),
            label="y",
            ignore=["customer"],
            rounds=3,
            eval_fraction=0.25,
            workers=workers,
            out=str(tmp_path / f"run-{workers}"),
            **settings,
        )
        found.append((result.model_digest, result.eval_rows, result.metrics))
    assert found[0] == found[1]
