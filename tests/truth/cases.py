"""What one case of the differential suite asks for: plain values, drawn by hypothesis, printed when a case fails.

`check(Case(...))` of `checking.py` repeats a case from what was printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hypothesis import strategies as st

from truth.real import REAL

Gap = Literal["", "null", "nan", "told"]
"""Where values are missing: nowhere, as null, as NaN, or as null where the label is mostly high."""
Continued = Literal["", "same", "drifted", "bare"]
"""A run that goes on: on the same data, on the drifted rows, or on the same with no parameter said again."""

NUMBERS = ("normal32", "normal64", "lognormal32", "lognormal64", "cauchy", "zeros", "tiny", "int8", "int16", "int64")
OTHERS = ("uint8", "bool", "date", "timestamp", "zoned", "duration", "decimal", "constant", "empty", "null")
IN_CSV = (*NUMBERS, "uint8", "bool", "date", "timestamp", "decimal", "constant")
"""A column without any value says nothing of its type there."""
CATEGORIES = ("text", "many", "dictionary", "integers")
WITH_NAN = ("normal32", "normal64", "lognormal32", "lognormal64", "cauchy", "zeros", "tiny")

LABELS: dict[str, tuple[str, ...]] = {
    "": ("zero_one", "bool", "text2", "text", "heavy", "counts"),
    "binary:logistic": ("zero_one", "bool", "text2", "zero_one_float"),
    "binary:logitraw": ("zero_one", "bool", "text2"),
    "binary:hinge": ("zero_one", "bool", "text2"),
    "reg:logistic": ("zero_one", "share"),
    "multi:softprob": ("classes", "text", "text2", "zero_one"),
    "multi:softmax": ("classes", "text"),
    "count:poisson": ("counts",),
    "reg:squarederror": ("real", "heavy", "counts", "cauchy", "zero_one"),
    "reg:squaredlogerror": ("positive", "counts"),
    "reg:absoluteerror": ("real", "heavy", "cauchy"),
    "reg:pseudohubererror": ("real", "heavy"),
    "reg:quantileerror": ("real", "heavy", "cauchy"),
    "reg:gamma": ("positive", "heavy"),
    "reg:tweedie": ("zero_inflated", "positive"),
    "rank:ndcg": ("relevance",),
    "rank:map": ("relevance2",),
    "rank:pairwise": ("relevance", "relevance2"),
}
"""Labels that fit an objective; "" leaves the choice to dray."""

ASKED: dict[str, tuple[tuple[str, ...], ...]] = {
    "binary:logistic": (("auc",), ("aucpr", "error@0.3"), ("ams@0",), ("logloss", "auc")),
    "binary:logitraw": (("auc",), ("error", "logloss")),
    "binary:hinge": (("error",),),
    "multi:softprob": (("mlogloss", "merror"), ("merror",)),
    "count:poisson": (("rmse", "poisson-nloglik"), ("mae",)),
    "reg:squarederror": (("mae",), ("rmse", "mphe")),
    "reg:gamma": (("gamma-nloglik",), ("gamma-deviance", "mape")),
    "reg:tweedie": (("tweedie-nloglik@1.2",),),
    "rank:ndcg": (("ndcg@3-",), ("ndcg",), ("ndcg@5", "ndcg@2")),
    "rank:map": (("map@3",), ("map", "pre@2")),
}
"""Metrics that may be asked for instead of the default."""


@dataclass(frozen=True)
class ColumnKind:
    kind: str
    gap: Gap = ""


@dataclass(frozen=True)
class Case:
    """One training with its evaluation, its predictions, and a training that goes on from it."""

    seed: int = 0
    rows: int = 200
    data: str = "made"
    """"made", or the name of a real set (`real.py`)."""
    columns: tuple[ColumnKind, ...] = (ColumnKind("normal64"),)
    """Of made data."""
    objective: str = "reg:squarederror"
    label: str = "real"
    params: dict[str, Any] = field(default_factory=dict)
    rounds: int = 5
    early_stop: int | None = None
    weight: Literal["", "uniform", "zeros", "large"] = ""
    evaluation: Literal["fraction", "file", "none"] = "fraction"
    drift: float = 1.0
    """How much wider the evaluation file and the rows to predict are; other than 1, they have unseen categories too."""
    continued: Continued = ""
    format: Literal["parquet", "csv", "table"] = "parquet"
    """Files, or a table of this process."""

    @property
    def ranking(self) -> bool:
        return self.objective.startswith("rank:")


def columns(others: Sequence[str]) -> st.SearchStrategy[ColumnKind]:
    gaps = st.sampled_from(["", "", "null", "told"])
    floats = st.builds(ColumnKind, st.sampled_from(WITH_NAN), st.sampled_from(["", "null", "nan", "told"]))
    numbers = st.builds(ColumnKind, st.sampled_from(others), gaps)
    categories = st.builds(ColumnKind, st.sampled_from(CATEGORIES), gaps)
    return floats | numbers | categories


@st.composite
def tree_params(draw: st.DrawFn, objective: str) -> dict[str, Any]:
    params: dict[str, Any] = {"max_depth": draw(st.sampled_from([3, 1, 6])), "eta": draw(st.sampled_from([0.3, 0.9]))}
    some: dict[str, st.SearchStrategy[Any]] = {
        "max_bin": st.sampled_from([2, 8, 64, 600]),
        "subsample": st.just(0.7),
        "colsample_bynode": st.just(0.6),
        "num_parallel_tree": st.just(2),
        "grow_policy": st.just("lossguide"),
        "max_cat_to_onehot": st.sampled_from([1, 100]),
        "min_child_weight": st.sampled_from([0, 5]),
        "base_score": st.just(0.4),
        "scale_pos_weight": st.just(3),
        "max_delta_step": st.just(0.5),
        "reg_lambda": st.sampled_from([0, 50]),
        "reg_alpha": st.just(1),
    }
    for name in draw(st.lists(st.sampled_from(sorted(some)), max_size=3, unique=True)):
        params[name] = draw(some[name])
    if draw(st.integers(0, 3)) == 0:
        params |= {"booster": "dart", "rate_drop": draw(st.sampled_from([0.1, 0.5]))}
        params |= draw(st.sampled_from([{}, {"one_drop": 1}, {"skip_drop": 0.5}, {"normalize_type": "forest"}]))
    if objective == "reg:quantileerror":
        params["quantile_alpha"] = draw(st.sampled_from([0.5, 0.95, 0.1, [0.1, 0.5, 0.9]]))
    if objective == "reg:tweedie" and draw(st.booleans()):
        params["tweedie_variance_power"] = draw(st.sampled_from([1.1, 1.8]))
    if objective == "reg:pseudohubererror" and draw(st.booleans()):
        params["huber_slope"] = 3.0
    if objective == "rank:ndcg" and draw(st.booleans()):
        params["ndcg_exp_gain"] = False
    if objective in ASKED and draw(st.integers(0, 3)) == 0:
        params["eval_metric"] = list(draw(st.sampled_from(ASKED[objective])))
    return params


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a case, of made data or of real data where they are at hand."""
    data = draw(st.sampled_from(["made", "made", "made", *sorted(REAL)])) if REAL else "made"
    if data == "made":
        objective = draw(st.sampled_from(sorted(LABELS)))
        label = draw(st.sampled_from(LABELS[objective]))
    else:
        objective, label = draw(st.sampled_from(REAL[data].objectives)), ""
    format = draw(st.sampled_from(["parquet"] * 14 + ["csv", "table"]))
    kinds = columns(IN_CSV if format == "csv" else NUMBERS + OTHERS)
    evaluation = draw(st.sampled_from(["fraction", "file", "file", "none"]))
    stops = evaluation != "none" and draw(st.booleans())
    return Case(
        seed=draw(st.integers(0, 2**20)),
        rows=draw(st.sampled_from([200, 400, 800, 1500])),
        data=data,
        columns=tuple(draw(st.lists(kinds, min_size=1, max_size=5))) if data == "made" else (),
        objective=objective,
        label=label,
        params=draw(tree_params(objective)),
        rounds=12 if stops else draw(st.sampled_from([5, 1, 9])),
        early_stop=draw(st.sampled_from([2, 3])) if stops else None,
        weight=draw(st.sampled_from(["", "", "uniform", "zeros", "large"])),
        evaluation=evaluation,
        drift=draw(st.sampled_from([1.0, 50.0, 3.0, -50.0])),
        continued=draw(st.sampled_from(["", "same", "drifted", "bare"])),
        format=format,
    )
