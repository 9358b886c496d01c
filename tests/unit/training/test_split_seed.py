"""The seed of the split apart from that of the learner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dray
from dray.data.split import Split
from dray.errors import ConfigError
from dray.learners.factorization.driver import FactorDriver

ROWS = 600
HERE: dict[str, Any] = {"workers": 0, "threads": 1, "rounds": 2, "eval_fraction": 0.3}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    x = random.normal(size=ROWS)
    columns = {"x": x, "y": x + random.normal(size=ROWS), "u": np.arange(ROWS) % 37, "i": np.arange(ROWS) % 23}
    pq.write_table(pa.table(columns | {"stars": random.integers(1, 6, ROWS).astype(float)}), "data.parquet")
    return "data.parquet"


def trees(data: str, **settings: Any) -> dray.TrainResult:
    return dray.train(data, label="y", ignore=["u", "i", "stars"], params={"subsample": 0.5}, **HERE, **settings)


def test_another_seed_with_the_same_split_seed_is_evaluated_on_the_same_rows(data: str) -> None:
    first, second = (trees(data, seed=seed, split_seed=4) for seed in (1, 2))
    assert first.eval_rows == second.eval_rows == Split(0.3, 4).picks(np.arange(ROWS)).sum()
    assert first.model_digest != second.model_digest
    # The run itself compares the rows: it refuses to evaluate on rows that the earlier one was trained on.
    assert trees(data, seed=3, split_seed=4, continue_from=first.directory).eval_rows == first.eval_rows
    with pytest.raises(ConfigError, match="split_seed=4"):
        trees(data, seed=1, split_seed=5, continue_from=first.directory)


def test_without_a_split_seed_the_split_is_that_of_the_seed(data: str) -> None:
    by_seed, by_both = trees(data, seed=4), trees(data, seed=4, split_seed=4)
    assert by_seed.eval_rows == Split(0.3, 4).picks(np.arange(ROWS)).sum()
    assert by_seed.model_digest == by_both.model_digest


def test_a_recommender_splits_by_the_split_seed(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    plan = FactorDriver._planned
    monkeypatch.setattr(FactorDriver, "_planned", lambda *given: (found := plan(*given), seen.append(found.split))[0])
    settings = {"model": "factorization", "user": "u", "item": "i", "rating": "stars", "params": {"factors": 2}}
    first, second = (dray.train(data, seed=seed, split_seed=4, **settings, **HERE) for seed in (1, 2))
    old = dray.train(data, seed=4, **settings, **HERE)
    assert [rule.seed for rule in seen] == [4, 4, 4]
    assert first.eval_rows == second.eval_rows == old.eval_rows
    assert len({first.model_digest, second.model_digest, old.model_digest}) == 3
