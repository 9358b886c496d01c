"""XGBoost's parameters: which there are, which are dray's own, which break the promise of one model. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import Any

from dray.errors import ConfigError, nearest
from dray.learners.labels import full_name
from dray.learners.xgboost.metrics import (
    OBJECTIVES,
    asked_metrics,
    known_objective,
    metrics_for,
    quantiles_of,
)

# https://xgboost.readthedocs.io/en/release_3.2.0/parameter.html
_KNOWN = frozenset(
    {
        "booster",
        "device",
        "verbosity",
        "validate_parameters",
        "nthread",
        "eta",
        "learning_rate",
        "gamma",
        "min_split_loss",
        "max_depth",
        "min_child_weight",
        "max_delta_step",
        "subsample",
        "sampling_method",
        "colsample_bytree",
        "colsample_bylevel",
        "colsample_bynode",
        "lambda",
        "reg_lambda",
        "alpha",
        "reg_alpha",
        "tree_method",
        "scale_pos_weight",
        "updater",
        "refresh_leaf",
        "process_type",
        "grow_policy",
        "max_leaves",
        "max_bin",
        "num_parallel_tree",
        "monotone_constraints",
        "interaction_constraints",
        "multi_strategy",
        "max_cached_hist_node",
        "extmem_single_page",
        "max_cat_to_onehot",
        "max_cat_threshold",
        "sketch_ratio",
        "sample_type",
        "normalize_type",
        "rate_drop",
        "one_drop",
        "skip_drop",
        "feature_selector",
        "top_k",
        "tweedie_variance_power",
        "huber_slope",
        "quantile_alpha",
        "aft_loss_distribution",
        "aft_loss_distribution_scale",
        "lambdarank_pair_method",
        "lambdarank_num_pair_per_sample",
        "lambdarank_normalization",
        "lambdarank_score_normalization",
        "lambdarank_unbiased",
        "lambdarank_bias_norm",
        "ndcg_exp_gain",
        "objective",
        "base_score",
        "eval_metric",
        "seed",
        "random_state",
        "seed_per_iteration",
        "num_class",
        "disable_default_eval_metric",
    }
)
_DRAY_OWN = {
    "nthread": "Use --threads.",
    "n_jobs": "Use --threads.",
    "n_estimators": "Use --rounds.",
    "num_boost_round": "Use --rounds.",
    "num_round": "Use --rounds.",
    "early_stopping_rounds": "Use --early-stop.",
    "random_state": "Use --seed.",
    "seed": "Use --seed.",
    "process_type": "dray always grows new trees.",
    "updater": "dray always uses the hist updater.",
}
_ALIASES = (("learning_rate", "eta"), ("min_split_loss", "gamma"), ("reg_lambda", "lambda"), ("reg_alpha", "alpha"))
_SHARES = ("subsample", "colsample_bytree", "colsample_bylevel", "colsample_bynode")
_BOUNDS: dict[str, tuple[Callable[[float], bool], str]] = {
    **dict.fromkeys(("learning_rate", "eta"), (lambda value: value > 0, "greater than 0")),
    **dict.fromkeys(_SHARES, (lambda value: 0 < value <= 1, "greater than 0 and at most 1")),
    "scale_pos_weight": (lambda value: value > 0, "greater than 0"),
    "huber_slope": (lambda value: value > 0, "greater than 0"),
    "tweedie_variance_power": (lambda value: 1 < value < 2, "greater than 1 and less than 2"),
    "lambdarank_num_pair_per_sample": (lambda value: value >= 1, "at least 1"),
}
"""Numbers that XGBoost takes and makes nonsense of; those that it refuses it refuses itself, in `rehearse`."""
_BELONGS_TO = {
    "quantile_alpha": "reg:quantileerror",
    "tweedie_variance_power": "reg:tweedie",
    "huber_slope": "reg:pseudohubererror",
    "num_class": "multi:",
    "lambdarank_": "rank:",
    "ndcg_exp_gain": "rank:",
    "aft_loss_": "survival:",
}
"""Parameters by how they begin, and the objectives that look at them."""
_METRIC_USES = {"quantile_alpha": "quantile", "huber_slope": "mphe"}


def check_params(params: Mapping[str, Any]) -> None:
    """Raise for a parameter that does not exist or that dray decides itself."""
    for name, value in params.items():
        if name in _DRAY_OWN:
            raise ConfigError(f'The parameter "{name}" is decided by dray.', fix=_DRAY_OWN[name])
        if name not in _KNOWN:
            raise ConfigError(
                f'XGBoost has no parameter "{name}".{nearest(name, _KNOWN)}',
                fix="See https://xgboost.readthedocs.io/en/stable/parameter.html.",
            )
        if name == "tree_method" and value not in ("hist", "auto"):
            raise ConfigError(
                f'tree_method "{value}" does not work on binned data.', fix="Leave it out: dray uses hist."
            )
        if name == "booster" and value not in ("gbtree", "dart"):
            raise ConfigError(f'The booster "{value}" is not made of trees.', fix="Use gbtree or dart.")
        _check_value(name, value)

    for one, other in _ALIASES:
        if one in params and other in params and params[one] != params[other]:
            raise ConfigError(
                f"{one} is {params[one]} and {other} is {params[other]}: they are one parameter.",
                fix="Give one of them.",
            )
    asked_metrics(params.get("eval_metric"))
    quantiles_of(params)


def _check_value(name: str, value: Any) -> None:
    """Raise for a number that XGBoost would take without a word."""
    for number in _numbers(value):
        if not isfinite(number):
            raise ConfigError(f'The parameter "{name}" is {value}.', fix="Give a finite number, or leave it out.")
        fits, words = _BOUNDS.get(name, (isfinite, ""))
        if not fits(number):
            raise ConfigError(f'The parameter "{name}" is {value}, and must be {words}.', fix="Leave it out.")


def _numbers(value: Any) -> Iterator[float]:
    """The numbers in a parameter; XGBoost itself checks text that is not a number."""
    for item in value if isinstance(value, list | tuple) else [value]:
        try:
            yield float(item)
        except (TypeError, ValueError):
            continue


def check_objective(params: Mapping[str, Any], objective: str) -> None:
    """Raise for parameters and metrics that the objective does not have, or not with such values."""
    params = {name: value for name, value in params.items() if value is not None}
    metrics = [metric.name for metric in asked_metrics(params.get("eval_metric"))]
    classes = class_count(params)
    for name in params:
        owner = _owner(name)
        if objective.startswith(owner) or _METRIC_USES.get(name) in metrics:
            continue
        if name == "num_class" and classes < 2:  # as XGBoost's own defaults say it
            continue
        owners = ", ".join(known for known in OBJECTIVES if known.startswith(owner)) or "survival analysis"
        raise ConfigError(
            f'The parameter "{name}" is for {owners}, and the objective is {objective}.',
            fix=f"Leave {name} out, or name another --objective.",
        )
    if objective == "reg:quantileerror" and not quantiles_of(params):
        raise ConfigError(
            "The objective reg:quantileerror does not know which quantile.",
            fix="Give --param quantile_alpha=0.9, or --param quantile_alpha=[0.1,0.5,0.9].",
        )
    if "base_score" in params:
        several = classes if objective.startswith("multi:") else max(1, len(quantiles_of(params)))
        _check_base_score(params["base_score"], objective, several)
    metrics_for(objective, params)


def of_any_objective(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters whose values mean the same whatever the objective."""
    return {
        name: value for name, value in params.items() if name not in ("base_score", "eval_metric") and not _owner(name)
    }


def _owner(parameter: str) -> str:
    return next((owner for start, owner in _BELONGS_TO.items() if parameter.startswith(start)), "")


def _check_base_score(asked: Any, objective: str, outputs: int) -> None:
    """`outputs` is how many numbers a prediction has, 0 while that is unknown."""
    scores = list(asked) if isinstance(asked, list | tuple) else [asked]
    numbers = list(_numbers(asked))
    if not numbers or len(numbers) != len(scores) or (outputs and len(scores) not in (1, outputs)):
        more = f" or {outputs}" if outputs > 1 else ""
        raise ConfigError(
            f"base_score is {asked!r}, and must be one number{more}.", fix="Leave it out: dray estimates it."
        )
    predicts = OBJECTIVES[objective].predicts
    if predicts == "probability" and not all(0 < number < 1 for number in numbers):
        raise ConfigError(
            f"base_score is {asked}, and for {objective} it is a probability between 0 and 1.", fix="Leave it out."
        )
    if predicts == "mean" and not all(number > 0 for number in numbers):
        raise ConfigError(f"base_score is {asked}, and for {objective} it must be positive.", fix="Leave it out.")


def asked_objective(objective: str | None, params: Mapping[str, Any]) -> str | None:
    """Return the objective that was asked for by either name, in full."""
    native = params.get("objective")
    if objective is not None and native is not None and full_name(objective) != full_name(str(native)):
        raise ConfigError(f"Two objectives are given: {objective} and {native}.", fix="Give one of them.")
    named = objective or native
    return None if named is None else known_objective(str(named))


def has_classes(objective: str) -> bool:
    return objective.startswith(("binary:", "multi:"))


def bins_of(params: Mapping[str, Any]) -> int:
    try:
        bins = int(params.get("max_bin", 256))
    except (TypeError, ValueError):
        bins = 0
    if bins < 2:
        raise ConfigError(f"max_bin is {params['max_bin']!r}: a number from 2 on is needed.", fix="Leave it out: 256.")
    return bins


def class_count(params: Mapping[str, Any]) -> int:
    """Return what `num_class` says, 0 when it is not given."""
    try:
        return int(params.get("num_class") or 0)
    except (TypeError, ValueError):
        raise ConfigError(f"num_class is {params['num_class']!r}, and must be a number.", fix="Leave it out.") from None


def complete(params: Mapping[str, Any], *, objective: str, classes: int, seed: int) -> dict[str, Any]:
    """Return all that the booster is told, the same on every worker."""
    full = {name: value for name, value in params.items() if value is not None}
    full |= {"objective": objective, "seed": seed, "tree_method": "hist"}
    # A round's random choices must not depend on where a training was interrupted.
    full["seed_per_iteration"] = True
    full.setdefault("verbosity", 0)
    if classes:
        asked = class_count(full) or classes
        if asked < classes:
            raise ConfigError(f"num_class is {asked}, but the label has {classes} classes.", fix="Leave num_class out.")
        full["num_class"] = asked
    if "quantile_alpha" in full:
        full["quantile_alpha"] = quantiles_of(full)
    check_objective(full, objective)
    if "base_score" in full and (outputs := max(class_count(full), len(quantiles_of(full)))) > 1:
        # XGBoost takes one number for all outputs of a new model, and refuses it for the same model read again.
        given = list(_numbers(full["base_score"]))
        full["base_score"] = str(given * outputs if len(given) == 1 else given)
    full["eval_metric"] = metrics_for(objective, full)
    return full


def samples_columns_or_rows(params: Mapping[str, Any]) -> bool:
    """Say whether XGBoost's tree builder makes random choices."""
    return any(_share(params, name) < 1 for name in _SHARES) and str(params.get("device", "cpu")) == "cpu"


def _share(params: Mapping[str, Any], name: str) -> float:
    return next(_numbers(params.get(name)), 1.0)


def broken_promise(params: Mapping[str, Any], objective: str, *, weighted: bool = False) -> str | None:
    """Say why the model may depend on the number of workers, or nothing when it does not."""
    if _share(params, "subsample") < 1:
        return f"subsample={params['subsample']} draws rows on each worker by itself"
    if objective.startswith("rank:") and params.get("lambdarank_pair_method") == "mean":
        return "lambdarank_pair_method=mean draws pairs on each worker by itself"
    if objective.startswith("rank:") and str(params.get("lambdarank_unbiased", False)).lower() in ("true", "1"):
        return "lambdarank_unbiased estimates the bias of a position on each worker by itself"
    if objective.startswith("rank:") and weighted:
        return "ranking scales the weights of groups on each worker by itself"
    if objective in ("reg:absoluteerror", "reg:quantileerror"):
        return f"{objective} takes the median or quantile of a leaf on each worker by itself and averages them"
    if str(params.get("device", "cpu")) != "cpu":
        return f"device={params['device']} adds in another order than a CPU"
    return None
