"""How good a recommender is on its test part: rankings, what they are called, and which metric decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dray.learners.factorization.evaluate import RankingQuality, merged
from dray.learners.factorization.factors import Longs
from dray.learners.factorization.worker import FactorWorker
from dray.learners.learner import Do
from dray.training.factorization.copies import Copy
from dray.training.factorization.foreman import Foreman
from dray.training.factorization.passing import Method, by_unit
from dray.training.factorization.routes import Units


@dataclass(frozen=True)
class TestPart:
    """What is evaluated, and how."""

    pairs: int
    ks: tuple[int, ...]
    item_counts: Longs
    users: int
    """Of the whole model."""
    each_epoch: bool
    """Rankings too, which take longer than an epoch."""


class Judge:
    """Has the workers rank all items for their users."""

    def __init__(self, foreman: Foreman, method: Method, test: TestPart, share: Any) -> None:
        self._foreman = foreman
        self._method = method
        self._test = test
        self._item_counts = share(test.item_counts)

    def quality(self, copy: Copy) -> RankingQuality:
        """How well a model finds the test pairs."""

        def ask(holdings: Mapping[int, Units]) -> dict[int, Any]:
            self._method.meet(holdings)
            return self._answers(
                [
                    self._foreman.call(worker, Do(FactorWorker.rankings), units, *self._common, *own, *copy.items)
                    for worker, units in holdings.items()
                    for own in [[copy.users[unit] for unit in units]]
                ]
            )

        return self._merged(self._foreman.do(ask))

    def popularity(self) -> RankingQuality:
        """How well it is done by showing everybody what is popular."""

        def ask(holdings: Mapping[int, Units]) -> dict[int, Any]:
            return self._answers(
                [
                    self._foreman.call(worker, Do(FactorWorker.popular), units, *self._common)
                    for worker, units in holdings.items()
                ]
            )

        return self._merged(self._foreman.do(ask))

    @property
    def _common(self) -> tuple[Any, tuple[int, ...]]:
        return self._item_counts, self._test.ks

    def _answers(self, calls: Sequence[int]) -> dict[int, Any]:
        return by_unit(self._foreman.wait(calls).values())

    def _merged(self, parts: Mapping[int, Any]) -> RankingQuality:
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
    recalls = {f"popular-recall@{at.k}": at.recall for at in quality.at}
    return recalls | {f"popular-ndcg@{at.k}": at.ndcg for at in quality.at}


def counts_of(quality: RankingQuality) -> dict[str, int]:
    """Return what the means were taken of."""
    return {name: value for name, value in quality.to_json().items() if name != "at"}


def deciding(kind: str, ks: Sequence[int]) -> str:
    """The metric that tells when to stop."""
    return "eval-rmse" if kind == "explicit" else f"eval-ndcg@{ks[0]}"
