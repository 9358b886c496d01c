"""The keys of a run file that XGBoost has of its own."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from dray.config.run_file import as_json
from dray.learners.table_config import TableConfig


def _as_params(value: Any) -> Any:
    params = as_json(value)
    if isinstance(params, dict) and isinstance(order := params.get("monotone_constraints"), list):
        # XGBoost takes a tuple, which JSON and YAML lack, or this text, but no list.
        return params | {"monotone_constraints": f"({','.join(map(str, order))})"}
    return params


class XGBoostConfig(TableConfig):
    """A training run of XGBoost."""

    model: Literal["xgboost"] = "xgboost"
    """Trees that predict a column."""

    params: Annotated[dict[str, Any], BeforeValidator(_as_params)] = Field(default_factory=dict)
    """XGBoost's parameters, passed through."""

    stratify: bool = True
    """With eval_fraction and classes: the same share of every class is evaluated on, exact to one row. false: any rows,
    by position, as other objectives have it."""

    objective: str | None = None
    """binary, multiclass, regression, ranking, or any XGBoost objective. Default: chosen by the label."""
