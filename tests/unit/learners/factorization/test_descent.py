"""Epochs on ratings: what is told of the test part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from factor_group import train_alone, train_together
from rating_files import EXPLICIT, write


@pytest.fixture
def extreme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Users who give 1 or 5 to items that get 1 or 5: sums of what is learned of both leave the scale."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    users, items = random.integers(0, 30, 900), random.integers(0, 30, 900)
    ratings = np.where(users % 2 + items % 2 == 1, 3.0, np.where(users % 2 == 1, 5.0, 1.0))
    test = np.arange(900) % 5 == 0
    table = pa.table({"u": users, "i": items, "r": ratings})
    return {
        "data": write(tmp_path / "train.parquet", table.filter(~test)),
        "eval": write(tmp_path / "eval.parquet", table.filter(test)),
    }


@pytest.mark.parametrize("workers", [0, 2])
def test_scores_are_measured_within_the_scale_of_the_ratings_as_they_are_told(
    extreme: dict[str, str], workers: int
) -> None:
    asked = EXPLICIT | {"data": extreme["data"], "eval": [extreme["eval"]], "rounds": 12, "out": "run"}
    asked |= {"params": {"factors": 8, "learning_rate": 0.1, "regularization": 0.0}}
    result = train_together(asked, workers)[0] if workers else train_alone(asked)[0]
    model = result.loaded
    table = pa.parquet.read_table(extreme["eval"]).group_by(["u", "i"]).aggregate([("r", "max")])
    users, items = model.find_users(table["u"].to_pylist()), model.find_items(table["i"].to_pylist())
    factors = model.factors
    scores = factors.mean + factors.user_bias[users] + factors.item_bias[items]
    scores = scores + np.sum(factors.users[users] * factors.items[items], axis=1)
    assert scores.min() < 1 or scores.max() > 5  # else there is nothing to see here
    errors = np.clip(scores, 1, 5) - table["r_max"].to_numpy()
    assert result.metrics["eval-rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-4)
    assert result.metrics["eval-mae"] == pytest.approx(np.mean(np.abs(errors)), rel=1e-4)
