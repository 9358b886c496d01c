from __future__ import annotations

import pytest

from dray.learners.baseline import NO_BASELINE, Baseline


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        ({"eval-rmse": 0.62}, {"eval-rmse": 0.88}, "eval-rmse 0.62000 (always the mean: 0.88000): 30 % better"),
        ({"eval-rmse": 1.1}, {"eval-rmse": 1.0}, "eval-rmse 1.10000 (always the mean: 1.00000): 10 % worse"),
        ({"eval-rmse": 1.001}, {"eval-rmse": 1.0}, "no better"),
        ({"eval-auc": 0.9}, {"eval-auc": 0.5}, "eval-auc 0.90000 (always the mean: 0.50000): better"),
        ({"eval-ndcg@10": 0.1}, {"eval-ndcg@10": 0.2}, ": worse"),
        ({"eval-mae": 0.1, "eval-rmse": 0.5}, {"eval-mae": 1.0, "eval-rmse": 1.0}, "eval-rmse 0.50000"),
        ({"eval-poisson-nloglik": -2.0}, {"eval-poisson-nloglik": -1.0}, ": better"),
        ({"eval-rmse": 0.5}, {}, ""),
    ],
)
def test_the_verdict_says_how_far_the_model_is_from_an_answer_without_one(
    ours: dict[str, float], theirs: dict[str, float], words: str
) -> None:
    verdict = Baseline("always the mean", theirs).verdict(ours)
    assert words in verdict and bool(verdict) is bool(words)


def test_the_metric_that_decides_can_be_named() -> None:
    baseline = Baseline("what is popular", {"eval-ndcg@5": 0.1, "eval-ndcg@10": 0.5}, by="eval-ndcg@5")
    assert baseline.gain({"eval-ndcg@5": 0.2, "eval-ndcg@10": 0.2}) == pytest.approx(1.0)


def test_without_a_baseline_nothing_is_judged() -> None:
    assert (NO_BASELINE.gain({"eval-auc": 0.9}), NO_BASELINE.verdict({"eval-auc": 0.9})) == (None, "")
