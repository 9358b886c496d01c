"""The keys of a run file that XGBoost has of its own."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from dray.config.run_file import Column, Locations, RunConfig, as_json


def _as_params(value: Any) -> Any:
    params = as_json(value)
    if isinstance(params, dict) and isinstance(order := params.get("monotone_constraints"), list):
        # XGBoost takes a tuple, which JSON and YAML lack, or this text, but no list.
        return params | {"monotone_constraints": f"({','.join(map(str, order))})"}
    return params


class XGBoostConfig(RunConfig):
    """A training run of XGBoost."""

    model: Literal["xgboost"] = "xgboost"
    """Trees that predict a column."""

    params: Annotated[dict[str, Any], BeforeValidator(_as_params)] = Field(default_factory=dict)
    """XGBoost's parameters, passed through."""

    label: Column
    """Column to predict."""

    objective: str | None = None
    """binary, multiclass, regression, ranking, or any XGBoost objective. Default: chosen by the label."""

    group: str | None = None
    """Column that names the query of a row (ranking). Rows of one group are next to each other and are never split."""

    weight: str | None = None
    """Column with the weight of a row (of a group's first row in ranking)."""

    ignore: Locations = ()
    """Columns that are neither feature nor anything else."""

    @model_validator(mode="after")
    def _columns_differ(self) -> Self:
        columns = [name for name in (self.label, self.group, self.weight) if name is not None]
        if len(set(columns)) < len(columns):
            raise ValueError("label, group and weight must be three different columns: name another")
        return self
