"""XGBoost's parameters: which there are, which are dray's own, which break the promise of one model. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dray.errors import ConfigError, nearest
from dray.learners.labels import full_name

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
_DEFAULT_METRICS = {
    "binary:": ["auc", "logloss"],
    "multi:": ["merror", "mlogloss"],
    "rank:": ["ndcg@10"],
}
_TO_MAXIMISE = ("auc", "aucpr", "pre", "map", "ndcg")


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


def check_constraints(params: Mapping[str, Any], features: Sequence[str]) -> None:
    """Raise for a constraint on a feature that is not there."""
    monotone, interaction = params.get("monotone_constraints"), params.get("interaction_constraints")
    named = list(monotone) if isinstance(monotone, Mapping) else []
    named += [name for group in interaction for name in group] if isinstance(interaction, list) else []
    for name in named:
        if isinstance(name, str) and name not in features:
            raise ConfigError(
                f'A constraint names "{name}", which is no feature.{nearest(name, features)}',
                fix="Name features as the data does.",
            )


def asked_objective(objective: str | None, params: Mapping[str, Any]) -> str | None:
    """Return the objective that was asked for by either name, in full."""
    native = params.get("objective")
    if objective is not None and native is not None and full_name(objective) != full_name(native):
        raise ConfigError(f"Two objectives are given: {objective} and {native}.", fix="Give one of them.")
    named = objective or native
    return None if named is None else full_name(named)


def bins_of(params: Mapping[str, Any]) -> int:
    try:
        bins = int(params.get("max_bin", 256))
    except (TypeError, ValueError):
        bins = 0
    if bins < 2:
        raise ConfigError(f"max_bin is {params['max_bin']!r}: a number from 2 on is needed.", fix="Leave it out: 256.")
    return bins


def complete(params: Mapping[str, Any], *, objective: str, classes: int, seed: int) -> dict[str, Any]:
    """Return all that the booster is told, the same on every worker."""
    full = dict(params) | {"objective": objective, "seed": seed, "tree_method": "hist"}
    # A round's random choices must not depend on where a training was interrupted.
    full["seed_per_iteration"] = True
    full.setdefault("verbosity", 0)
    if classes:
        asked = int(full.setdefault("num_class", classes))
        if asked < classes:
            raise ConfigError(f"num_class is {asked}, but the label has {classes} classes.", fix="Leave num_class out.")
    full["eval_metric"] = metrics_for(objective, params.get("eval_metric"))
    return full


def metrics_for(objective: str, asked: Any) -> list[str]:
    """The metrics, in order; the last one decides early stopping, as in XGBoost."""
    if asked is None:
        return next(
            (names for start, names in _DEFAULT_METRICS.items() if objective.startswith(start)), ["mae", "rmse"]
        )
    names = asked if isinstance(asked, list | tuple) else str(asked).split(",")
    return [str(name).strip() for name in names]


def samples_columns_or_rows(params: Mapping[str, Any]) -> bool:
    """Say whether XGBoost's tree builder makes random choices."""
    shares = ("subsample", "colsample_bytree", "colsample_bylevel", "colsample_bynode")
    return any(float(params.get(name, 1)) < 1 for name in shares) and str(params.get("device", "cpu")) == "cpu"


def is_better(metric: str, value: float, best: float) -> bool:
    """Compare two values of a metric such as "eval-ndcg@5-"; a closing "-" says how to score a group without hits."""
    bare = metric.removeprefix("eval-").split("@")[0].rstrip("-")
    return value > best if bare in _TO_MAXIMISE else value < best


def broken_promise(params: Mapping[str, Any], objective: str, *, weighted: bool = False) -> str | None:
    """Say why the model may depend on the number of workers, or nothing when it does not."""
    if float(params.get("subsample", 1)) < 1:
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
