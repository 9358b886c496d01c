"""How good a recommender is on its test pairs: rankings, what they are called, and which metric decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dray.data.source import Note
from dray.learners.baseline import NO_BETTER, Baseline
from dray.learners.factorization.blocks import Blocks
from dray.learners.factorization.epoch import Method, Turns, by_unit
from dray.learners.factorization.evaluate import RankingQuality, merged
from dray.learners.factorization.factors import Longs
from dray.learners.factorization.worker import FactorWorker
from dray.learners.learner import Do

POPULAR = "popular-"


@dataclass(frozen=True)
class TestPairs:
    """What is evaluated, and how."""

    pairs: int
    ks: tuple[int, ...]
    item_counts: Longs
    users: int
    """Of the whole model."""
    each_epoch: bool
    """Rankings too, which take longer than an epoch."""


class Rankings:
    """Has the workers rank all items for their users."""

    def __init__(self, method: Method, test: TestPairs) -> None:
        self._method = method
        self._test = test
        self._item_counts: Any = None

    def quality(self, blocks: Blocks, turns: Turns) -> RankingQuality:
        """How well a model finds the test pairs."""
        self._method.meet(turns)
        common = self._common(turns)
        return self._merged(
            turns,
            [
                turns.attempt.call(worker, Do(FactorWorker.rankings), units, *common, *own, *blocks.items).number
                for worker, units in turns.holdings.items()
                for own in [[blocks.users[unit] for unit in units]]
            ],
        )

    def popularity(self, turns: Turns) -> RankingQuality:
        """How well it is done by showing all users what is popular."""
        common = self._common(turns)
        return self._merged(
            turns,
            [
                turns.attempt.call(worker, Do(FactorWorker.popular), units, *common).number
                for worker, units in turns.holdings.items()
            ],
        )

    def _common(self, turns: Turns) -> tuple[Any, tuple[int, ...]]:
        if self._item_counts is None:
            self._item_counts = turns.attempt.share(self._test.item_counts)
        return self._item_counts, self._test.ks

    def _merged(self, turns: Turns, calls: Sequence[int]) -> RankingQuality:
        parts = by_unit(turns.attempt.wait(calls).values())
        return merged([parts[unit] for unit in sorted(parts)], self._test.ks, self._test.users)


def ranking_metrics(quality: RankingQuality) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for at in quality.at:
        metrics |= {
            f"eval-recall@{at.k}": at.recall,
            f"eval-ndcg@{at.k}": at.ndcg,
            f"eval-map@{at.k}": at.map,
            f"eval-coverage@{at.k}": at.coverage,
        }
    return metrics


def popularity_metrics(quality: RankingQuality) -> dict[str, float]:
    """What is popular, as a line to compare with."""
    recalls = {f"{POPULAR}recall@{at.k}": at.recall for at in quality.at}
    return recalls | {f"{POPULAR}ndcg@{at.k}": at.ndcg for at in quality.at}


def rating_baseline(rmse_of_mean: float) -> Baseline:
    """Compare predicted ratings with the mean of all."""
    return Baseline("always the mean", {"eval-rmse": rmse_of_mean}, by="eval-rmse")


def list_baseline(metrics: Mapping[str, float], ks: Sequence[int]) -> Baseline:
    """Compare lists with what is popular, from the metrics of both."""
    popular = {f"eval-{name.removeprefix(POPULAR)}": metrics[name] for name in metrics if name.startswith(POPULAR)}
    return Baseline("always what is popular", popular, by=f"eval-ndcg@{ks[0]}")


def poor(kind: str, metrics: Mapping[str, float], ks: Sequence[int], rmse_of_mean: float | None) -> Iterator[Note]:
    """Yield what to tell of a model that is of no use: for its ratings, for its lists."""
    if kind == "explicit" and rmse_of_mean is not None:
        ratings = rating_baseline(rmse_of_mean)
        gain = ratings.gain(metrics)
        if gain is not None and gain <= -NO_BETTER:
            yield Note(
                f"The saved model is worse than no model: {ratings.verdict(metrics)}.",
                "Keep its best epoch with --early-stop 3, or try more regularization or fewer factors with --param.",
            )
    lists = list_baseline(metrics, ks)
    gain = lists.gain(metrics)
    if gain is not None and gain < NO_BETTER:
        yield Note(
            f"These lists are no better than showing all users what is popular: {lists.verdict(metrics)}.",
            "A model of ratings predicts ratings; for lists leave --rating out."
            if kind == "explicit"
            else "Give more events, try other factors, alpha and regularization with --param, or show what is popular.",
        )


def counts_of(quality: RankingQuality) -> dict[str, int]:
    """Return what the means were taken of."""
    return {name: value for name, value in quality.to_json().items() if name != "at"}


def deciding(kind: str, ks: Sequence[int]) -> str:
    """The metric that tells when to stop."""
    return "eval-rmse" if kind == "explicit" else f"eval-ndcg@{ks[0]}"
