"""Whether the trees in a saved model are trees that can be followed without leaving their arrays. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dray.learners.xgboost.ubjson import decode

_INDICES = ("left_children", "right_children", "parents", "split_indices", "split_type")
_OF_NODES = (*_INDICES, "split_conditions", "default_left")
NO_TREES = "it is not made of trees"
_LEAF = -1
_CATEGORY = 1
_MOST_CATEGORIES = 1 << 24
"""XGBoost takes no larger codes: they would not be exact as float32."""


def problem_of(model: bytes) -> str | None:
    """Return what is wrong with a saved model, a whole UBJSON document; None if its trees can be followed."""
    try:
        return _problem_of(decode(model)["learner"])
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        return f"{type(error).__name__}: {error}"


def _problem_of(learner: Mapping[str, Any]) -> str | None:
    sizes = learner["learner_model_param"]
    features = int(sizes["num_feature"])
    groups = max(1, int(sizes["num_class"])) * max(1, int(sizes.get("num_target", 1)))
    booster = learner["gradient_booster"]
    model = booster.get("gbtree", booster)["model"]  # dart wraps the trees once more
    if "trees" not in model:  # gblinear
        return NO_TREES
    trees, info = model["trees"], np.asarray(model["tree_info"])
    if len(info) != len(trees) or int(model["gbtree_model_param"]["num_trees"]) != len(trees):
        return "trees are missing"
    if len(info) and not 0 <= info.min() <= info.max() < groups:
        return "a tree belongs to no class"
    if "weight_drop" in booster and len(booster["weight_drop"]) != len(trees):
        return "trees have no weight"
    rounds = np.asarray(model.get("iteration_indptr", [0, len(trees)]), np.int64)
    if rounds[0] != 0 or rounds[-1] != len(trees) or (np.diff(rounds) < 0).any():
        return "rounds have no trees"
    return next((problem for tree in trees if (problem := _problem_of_tree(tree, features))), None)


def _problem_of_tree(tree: Mapping[str, Any], features: int) -> str | None:
    nodes = int(tree["tree_param"]["num_nodes"])
    if nodes < 1 or any(len(tree[name]) != nodes for name in _OF_NODES) or len(tree["base_weights"]) < nodes:
        return "a tree has arrays of several lengths"
    left, right, parents, splits, kinds = (np.asarray(tree[name], np.int64) for name in _INDICES)
    there = np.zeros(nodes, bool)
    level = np.zeros(1, np.int64)
    while len(level):
        there[level] = True
        level = level[left[level] != _LEAF]
        if (splits[level] < 0).any() or (splits[level] >= features).any():
            return "a node asks for a feature that is not there"
        below = np.concatenate([left[level], right[level]])
        if (below < 0).any() or (below >= nodes).any() or there[below].any() or len(np.unique(below)) != len(below):
            return "a node has no two children of its own"
        if (parents[below] != np.concatenate([level, level])).any():
            return "a node does not know its parent"
        level = below
    # A leaf of several numbers holds their position in its right child.
    leaves, several = right[there & (left == _LEAF)], max(1, int(tree["tree_param"].get("size_leaf_vector", 1)))
    if leaves.min() < _LEAF or leaves.max() >= len(tree.get("leaf_weights", ())) // several:
        return "a leaf has a child"
    return _problem_of_categories(tree, np.flatnonzero(there & (left != _LEAF) & (kinds == _CATEGORY)))


def _problem_of_categories(tree: Mapping[str, Any], nodes: npt.NDArray[np.int64]) -> str | None:
    told, starts, sizes, categories = (
        np.asarray(tree[name], np.int64)
        for name in ("categories_nodes", "categories_segments", "categories_sizes", "categories")
    )
    if not len(told) == len(starts) == len(sizes) or not np.isin(nodes, told).all():
        return "a node has no categories"
    if (starts < 0).any() or (sizes < 0).any() or (starts + sizes > len(categories)).any():
        return "categories are missing"
    if (categories < 0).any() or (categories > _MOST_CATEGORIES).any():
        return "a category is out of range"
    return None
