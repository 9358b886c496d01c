"""The metrics that a training tells are those of what `dray predict` writes, and of its model in plain XGBoost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import lgamma
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xgboost

import datasets
import dray
from dray.learners.xgboost.metrics import OBJECTIVES

Floats = npt.NDArray[np.float64]
ROWS, QUERY_ROWS = 900, 12


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@dataclass
class Case:
    """An objective with labels for it, and the metrics to tell beside its own."""

    objective: str
    label: str
    metrics: list[str] = field(default_factory=list)
    params: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([self.objective, *map(str, self.params.values())])


CASES = [
    Case("binary:logistic", "outcome", ["auc", "aucpr", "rmse", "error@0.7", "ams@0.15"]),
    Case("binary:logitraw", "outcome", ["auc", "aucpr", "error@0.7", "error", "ams@0.15"]),
    Case("binary:hinge", "outcome", ["auc"]),
    Case("multi:softprob", "grade", ["merror", "auc"]),
    Case("multi:softprob", "grade", ["merror"], {"multi_strategy": "multi_output_tree"}),
    Case("reg:squarederror", "value", ["mape", "mae"]),
    Case("reg:squarederror", "outcome", ["auc", "quantile"], {"quantile_alpha": 0.7}),
    Case("reg:logistic", "outcome", ["logloss", "mae"]),
    Case("reg:squaredlogerror", "size", ["rmse"]),
    Case("reg:pseudohubererror", "value", ["mae"], {"huber_slope": 0.5}),
    Case("reg:absoluteerror", "value", ["rmse"]),
    Case("reg:quantileerror", "value", [], {"quantile_alpha": 0.95}),
    Case("reg:quantileerror", "value", [], {"quantile_alpha": [0.1, 0.5, 0.9], "base_score": 0.2}),
    Case("reg:quantileerror", "value", [], {"quantile_alpha": [0.2, 0.8], "multi_strategy": "multi_output_tree"}),
    Case("reg:gamma", "size", ["gamma-nloglik", "rmse"]),
    Case("reg:tweedie", "count", ["poisson-nloglik"], {"tweedie_variance_power": 1.2}),
    Case("count:poisson", "count", ["tweedie-nloglik@1.6", "mae"]),
    Case("rank:ndcg", "grade", ["auc", "ndcg@3"]),
    Case("rank:pairwise", "grade", ["ndcg@3-"]),
    Case("rank:map", "outcome", ["pre@5", "ndcg@5", "map"]),
]


def rows(seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    one, two, three = random.normal(size=(3, ROWS)).astype(np.float32)
    signal = one + 0.7 * two * three + random.normal(size=ROWS)
    return pa.table(
        {
            "one": one,
            "two": two,
            "three": three,
            "outcome": (signal > 0.4).astype(np.int8),
            "grade": np.digitize(signal, [-0.5, 0.8]),
            "value": signal.astype(np.float32),
            "size": np.exp(signal / 2).astype(np.float32),
            "count": random.poisson(np.exp(signal / 3)),
            "query": np.arange(ROWS) // QUERY_ROWS,
            "weight": random.uniform(0.2, 3, ROWS).astype(np.float32),
        }
    )


def train(case: Case, *, weight: bool = False, **settings: Any) -> dray.TrainResult:
    for name, seed in (("train", 1), ("eval", 2)):
        table = rows(seed)
        kept = ["one", "two", "three", case.label]
        kept += ["weight"] if weight else []
        kept += ["query"] if case.objective.startswith("rank:") else []
        pq.write_table(table.select(kept), f"{name}.parquet", row_group_size=500)
    given = {"label": case.label, "objective": case.objective, "eval": "eval.parquet", "workers": 0, "out": "run"}
    given |= {"group": "query"} if case.objective.startswith("rank:") else {}
    given |= {"weight": "weight"} if weight else {}
    return dray.train("train.parquet", **given | settings)


def predictions() -> Floats:
    """What `dray predict` writes for the evaluation rows: a vector, or a column a class or a quantile."""
    dray.predict("run", "eval.parquet", "predictions.parquet", workers=0)
    table = datasets.read("predictions.parquet")
    columns = np.stack([table[name].to_numpy() for name in table.column_names], axis=1).astype(np.float64)
    return columns if columns.shape[1] > 1 else columns[:, 0]


def sigmoid(margin: Floats) -> Floats:
    return 1 / (1 + np.exp(-margin))


def ndcg(labels: Floats, scores: Floats, at: int, *, empty: float = 1.0) -> float:
    """The mean over queries of the gain of the first rows over the best possible one."""
    values = []
    for start in range(0, ROWS, QUERY_ROWS):
        gains = 2.0 ** labels[start : start + QUERY_ROWS] - 1
        order = np.argsort(-scores[start : start + QUERY_ROWS], kind="stable")
        discount = 1 / np.log2(np.arange(2, min(at, QUERY_ROWS) + 2))
        best = (np.sort(gains)[::-1][: len(discount)] * discount).sum()
        values.append((gains[order][: len(discount)] * discount).sum() / best if best else empty)
    return float(np.mean(values))


def mean_precision(labels: Floats, scores: Floats, at: int) -> float:
    values = []
    for start in range(0, ROWS, QUERY_ROWS):
        hits = labels[start : start + QUERY_ROWS][np.argsort(-scores[start : start + QUERY_ROWS], kind="stable")]
        precision = hits.cumsum() / np.arange(1, len(hits) + 1)
        most = min(hits.sum(), at)
        values.append((precision * hits)[:at].sum() / most if most else 1.0)
    return float(np.mean(values))


def recomputed(metric: str, case: Case, y: Floats, p: Floats, w: Floats) -> float | None:
    """The metric by its definition, of the predictions as they were written; nothing for those without one here."""
    name, _, at = metric.removeprefix("eval-").partition("@")
    if case.objective == "binary:logitraw" and name in ("logloss", "error"):
        p = sigmoid(p)

    def mean(values: npt.ArrayLike) -> float:
        return float(np.average(np.asarray(values, np.float64), weights=w))

    slope, eps = case.params.get("huber_slope", 1.0), 1e-6
    columns = np.atleast_2d(p.T)
    alphas = np.atleast_1d(case.params.get("quantile_alpha", 0.5))
    by_name: dict[str, Callable[[], float]] = {
        "rmse": lambda: mean((y - p) ** 2) ** 0.5,
        "rmsle": lambda: mean((np.log1p(y) - np.log1p(p)) ** 2) ** 0.5,
        "mae": lambda: mean(np.abs(y - p)),
        "mape": lambda: mean(np.abs((y - p) / y)),
        "mphe": lambda: mean(slope**2 * (np.sqrt(1 + ((y - p) / slope) ** 2) - 1)),
        "logloss": lambda: mean(-np.where(y == 1, np.log(p), np.log1p(-p))),
        "error": lambda: mean((p > float(at or 0.5)) != y),
        "merror": lambda: mean(p.argmax(axis=1) != y),
        "mlogloss": lambda: mean(-np.log(p[np.arange(len(y)), y.astype(int)])),
        "poisson-nloglik": lambda: mean([lgamma(v + 1) for v in y] + p - y * np.log(p)),
        "gamma-nloglik": lambda: mean(y / p + np.log(p)),
        "gamma-deviance": lambda: 2 * mean(np.log((p + eps) / (y + eps)) + (y + eps) / (p + eps) - 1),
        "tweedie-nloglik": lambda: mean(
            p ** (2 - float(at)) / (2 - float(at)) - y * p ** (1 - float(at)) / (1 - float(at))
        ),
        "quantile": lambda: float(
            np.mean([mean(np.maximum(a * (y - q), (a - 1) * (y - q))) for a, q in zip(alphas, columns, strict=True)])
        ),
        "ndcg": lambda: ndcg(y, p, int(at.rstrip("-")), empty=0.0 if at.endswith("-") else 1.0),
        "map": lambda: mean_precision(y, p, int(at or ROWS)),
    }
    if name == "auc" and case.objective.startswith(("binary:", "reg:")):
        return datasets.auc(y, p, w)
    return by_name[name]() if name in by_name else None


def plain(case: Case, metrics: list[str], weight: bool) -> dict[str, float]:
    """What XGBoost itself says of the saved model."""
    table = pq.read_table("eval.parquet")
    names = ["one", "two", "three"]
    data = xgboost.DMatrix(np.stack([table[name].to_numpy() for name in names], axis=1), feature_names=names)
    data.set_label(table[case.label].to_numpy())
    if case.objective.startswith("rank:"):
        data.set_group([QUERY_ROWS] * (ROWS // QUERY_ROWS))
    if weight:
        data.set_weight(table["weight"].to_numpy())
    booster = xgboost.Booster(model_file="run/model.ubj")
    own = [(name, value) for name, value in case.params.items() if name != "base_score"]
    booster.set_param([("eval_metric", name.removeprefix("eval-")) for name in metrics] + own)
    pairs = (item.rpartition(":") for item in booster.eval(data).split("\t")[1:])
    return {name: float(value) for name, _, value in pairs}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_metric_told_is_that_of_the_predictions(case: Case) -> None:
    compare(case, weight=False)


@pytest.mark.parametrize("case", [case for case in CASES if not case.objective.startswith("rank:")], ids=str)
def test_the_weighted_metric_told_is_that_of_the_predictions(case: Case) -> None:
    compare(case, weight=True)


def compare(case: Case, *, weight: bool) -> None:
    own = OBJECTIVES[case.objective].metrics[-1]
    result = train(case, weight=weight, rounds=12, params=case.params | {"eval_metric": [*case.metrics, own]})
    table = pq.read_table("eval.parquet")
    y = table[case.label].to_numpy().astype(np.float64)
    w = table["weight"].to_numpy().astype(np.float64) if weight else np.ones(ROWS)
    p = predictions()
    assert len(result.metrics) == len(case.metrics) + 1
    by_hand = {name: recomputed(name, case, y, p, w) for name in result.metrics}
    assert by_hand[list(result.metrics)[-1]] is not None
    for name, expected in by_hand.items():
        if expected is not None:
            assert result.metrics[name] == pytest.approx(expected, rel=1e-6, abs=1e-9), name
    for name, expected in plain(case, list(result.metrics), weight).items():
        # XGBoost takes the margins of logitraw for probabilities.
        if case.objective != "binary:logitraw" or name.partition("@")[0] not in ("eval-logloss", "eval-error"):
            assert result.metrics[name] == pytest.approx(expected, rel=1e-6), name


def best_by_plain_xgboost(case: Case, rounds: int) -> int:
    """The round whose predictions of the evaluation rows have the best own metric, one model after another."""
    table = pq.read_table("eval.parquet")
    names = ["one", "two", "three"]
    values = np.stack([table[name].to_numpy() for name in names], axis=1)
    y = table[case.label].to_numpy().astype(np.float64)
    booster = xgboost.Booster(model_file="run/model.ubj")
    metric = OBJECTIVES[case.objective].metrics[-1]
    losses = []
    for number in range(1, rounds + 1):
        p = booster.inplace_predict(values, iteration_range=(0, number), validate_features=False).astype(np.float64)
        loss = recomputed(metric if "tweedie" not in metric else f"{metric}@1.2", case, y, p, np.ones(ROWS))
        assert loss is not None
        losses.append(loss)
    return int(np.argmin(losses)) + 1


STOPPING = [
    case
    for case in CASES
    if case.label != "outcome" or case.objective.startswith("binary:")
    if case.objective.startswith(("reg:", "count:", "binary:"))
]


@pytest.mark.parametrize("case", STOPPING, ids=str)
def test_the_best_round_is_that_of_the_objectives_own_loss(case: Case) -> None:
    fast = {"learning_rate": 0.6, "max_depth": 3}
    result = train(case, rounds=30, early_stop=30, params=case.params | fast)
    (Path("run")).rename("stopped")
    train(case, rounds=30, params=case.params | fast)
    best = best_by_plain_xgboost(case, 30)
    assert result.best_round == best
    assert list(result.metrics)[-1].startswith(f"eval-{OBJECTIVES[case.objective].metrics[-1]}")
    assert xgboost.Booster(model_file="stopped/model.ubj").num_boosted_rounds() == best


def test_a_high_quantile_stops_before_the_last_round() -> None:
    case = Case("reg:quantileerror", "value", [], {"quantile_alpha": 0.95})
    result = train(case, rounds=200, early_stop=5, params=case.params | {"learning_rate": 0.5})
    assert result.rounds < 200


def test_ams_is_maximised() -> None:
    case = Case("binary:logistic", "outcome")
    result = train(case, rounds=25, early_stop=25, params={"eval_metric": ["auc", "ams@0.15"], "learning_rate": 0.5})
    told = pq.read_table("run/rounds.parquet")["eval-ams@0.15"].to_numpy()
    assert result.best_round == int(np.argmax(told)) + 1
    assert result.metrics["eval-ams@0.15"] == told.max() > told.min()
