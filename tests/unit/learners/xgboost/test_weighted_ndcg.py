"""NDCG with weights of groups, against its definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import dray
from small_data import write


def ranking(weights: dict[bool, float], seed: int) -> dict[str, Any]:
    """Groups of ten, every third without a relevant row; weights by whether a group has any."""
    random = np.random.default_rng(seed)
    x, query = random.normal(size=600), np.repeat(np.arange(60), 10)
    relevance = np.where(query % 3 == 0, 0, np.clip((x + random.normal(size=600)).round(), 0, 3))
    weight = np.array([weights[bool(group % 3)] * (1 + group % 2) for group in query])
    return {"x": x, "query": query, "w": weight, "y": relevance.astype(np.int64)}


def weighted_ndcg(rows: dict[str, Any], scores: np.ndarray[Any, Any], hitless: float, top: int = 10) -> float:
    total = sums = 0.0
    for group in np.unique(rows["query"]):
        chosen = rows["query"] == group
        gains, weight = 2.0 ** rows["y"][chosen] - 1, rows["w"][chosen][0]
        discounts = 1 / np.log2(np.arange(2, len(gains) + 2))[:top]
        best = (np.sort(gains)[::-1][:top] * discounts).sum()
        found = (gains[np.argsort(-scores[chosen], kind="stable")][:top] * discounts).sum()
        sums += weight * (found / best if best else hitless)
        total += weight
    return sums / total


@pytest.mark.parametrize(
    "weights", [{True: 1, False: 10}, {True: 10, False: 0.1}, {True: 1, False: 0}, {True: 1, False: 1}]
)
def test_groups_without_hits_count_with_their_weight(tmp_path: Path, weights: dict[bool, float]) -> None:
    train, test = ranking({True: 1, False: 1}, 0), ranking(weights, 1)
    result = dray.train(
        write(tmp_path / "train.parquet", train),
        label="y", group="query", weight="w", rounds=3, workers=0, out=str(tmp_path / "run"),
        eval=[write(tmp_path / "test.parquet", test)], params={"eval_metric": ["ndcg@10-", "ndcg@10"]},
    )  # fmt: skip
    dray.predict(str(tmp_path / "run"), str(tmp_path / "test.parquet"), str(tmp_path / "out.parquet"), workers=0)
    scores = pq.read_table(tmp_path / "out.parquet")["prediction"].to_numpy()
    assert result.metrics["eval-ndcg@10"] == pytest.approx(weighted_ndcg(test, scores, 1.0), rel=1e-6)
    assert result.metrics["eval-ndcg@10-"] == pytest.approx(weighted_ndcg(test, scores, 0.0), rel=1e-6)
