"""The metrics of a recommender: what they are called, and which one decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dray.learners.factorization.evaluate import RankingQuality, RankingSums, merged


def ranking_metrics(quality: RankingQuality, prefix: str = "eval") -> dict[str, float]:
    metrics: dict[str, float] = {}
    for at in quality.at:
        metrics |= {
            f"{prefix}-recall@{at.k}": at.recall,
            f"{prefix}-ndcg@{at.k}": at.ndcg,
            f"{prefix}-map@{at.k}": at.map,
            f"{prefix}-coverage@{at.k}": at.coverage,
        }
    return metrics


def counts_of(quality: RankingQuality) -> dict[str, int]:
    """Return what the means were taken of."""
    return {name: value for name, value in quality.to_json().items() if name != "at"}


def quality_of(parts: Mapping[int, RankingSums], ks: Sequence[int], n_users: int) -> RankingQuality:
    return merged([parts[unit] for unit in sorted(parts)], ks, n_users)


def deciding(kind: str, ks: Sequence[int]) -> str:
    """The metric that tells when to stop."""
    return "eval-rmse" if kind == "explicit" else f"eval-ndcg@{ks[0]}"


def is_better(kind: str, value: float, than: float) -> bool:
    return value < than if kind == "explicit" else value > than
