"""Compare a run with the simplest recommender there is: the most popular items that a user has not had yet.

Both are asked for ten items and judged by the same test part: the pairs of the events that the run has not trained on.
For the model this gives the figures that the run itself has computed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.dataset as ds

import dray
from dray.errors import DrayError
from dray.storage import StorageOptions, join, open_storage

TOP = 10
Lists = Mapping[int, list[int]]
"""For a user, items by their index in the model: the best first."""


def test_pairs(model: dray.FactorModel, config: Mapping[str, Any], storage: StorageOptions) -> dict[int, set[int]]:
    """Return what was set aside: the items of each user which are in the events, but not in the training part."""
    [data] = config["data"]
    filesystem, path = open_storage(data, storage)
    events = ds.dataset(path, filesystem=filesystem, format="json")
    columns = [str(config[name]) for name in ("user", "item", "event")]
    weights: Mapping[str, float] = config["event_weights"]
    sums: dict[tuple[int, int], float] = {}
    for batch in events.to_batches(columns=columns):
        users = pc.index_in(batch.column(0), value_set=model.user_ids).to_pylist()
        items = pc.index_in(batch.column(1), value_set=model.item_ids).to_pylist()
        for user, item, kind in zip(users, items, batch.column(2).to_pylist(), strict=True):
            sums[user, item] = sums.get((user, item), 0.0) + weights[kind]
    found: dict[int, set[int]] = {}
    for (user, item), weight in sums.items():
        if weight > 0:
            found.setdefault(user, set()).add(item)
    for user in list(found):
        found[user] -= set(model.seen.of_user(user).tolist())
        if not found[user]:
            del found[user]
    return found


def lists_of_model(model: dray.FactorModel, users: list[int]) -> Lists:
    """Return the model's lists, as `dray recommend` writes them."""
    table = dray.recommend(model, users=[model.user_ids[user].as_py() for user in users], top=TOP).table
    assert table is not None
    lists: dict[int, list[int]] = {user: [] for user in users}
    rows = pc.index_in(table["user"], value_set=model.user_ids).to_pylist()
    for user, item in zip(rows, pc.index_in(table["item"], value_set=model.item_ids).to_pylist(), strict=True):
        lists[user].append(item)
    return lists


def lists_of_popular(model: dray.FactorModel, users: list[int]) -> Lists:
    """Return for each user the most popular items without its own."""
    lists = {}
    for user in users:
        had = set(model.seen.of_user(user).tolist())
        lists[user] = [item for item in model.popular[: TOP + len(had)].tolist() if item not in had][:TOP]
    return lists


def quality(lists: Lists, wanted: Mapping[int, set[int]]) -> tuple[float, float]:
    """Return Recall@10 and NDCG@10, means over the users."""
    gains = 1 / np.log2(np.arange(2, TOP + 2))
    recalls, ndcgs = [], []
    for user, items in wanted.items():
        hits = np.array([item in items for item in lists[user]], float)
        recalls.append(hits.sum() / len(items))
        ndcgs.append((hits * gains[: len(hits)]).sum() / gains[: len(items)].sum())
    return float(np.mean(recalls)), float(np.mean(ndcgs))


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare a run on events with popularity.")
    parser.add_argument("run", help="the run directory, local or s3://")
    parser.add_argument("--endpoint", help="address of an S3-compatible store, such as http://minio:9000")
    parser.add_argument("--json", action="store_true", help="print figures for programs")
    asked = parser.parse_args()
    storage = StorageOptions(endpoint=asked.endpoint or None)
    filesystem, path = open_storage(join(asked.run, "run.json"), storage)
    with filesystem.open_input_stream(path) as file:
        config = json.loads(file.read())["config"]
    model = dray.load(asked.run, endpoint=asked.endpoint or None)
    assert isinstance(model, dray.FactorModel)
    wanted = test_pairs(model, config, storage)
    users = sorted(wanted)
    found = {
        "model": quality(lists_of_model(model, users), wanted),
        "popularity": quality(lists_of_popular(model, users), wanted),
    }
    if asked.json:
        named = {name: {"recall": recall, "ndcg": ndcg} for name, (recall, ndcg) in found.items()}
        print(json.dumps({"users": len(users), "at": TOP, **named}))
        return
    print(f"{len(users):,} users with test items       Recall@{TOP}   NDCG@{TOP}")
    for name, (recall, ndcg) in found.items():
        print(f"{name:<33}{recall:>8.4f}{ndcg:>10.4f}")
    print(f"{'model by popularity':<33}{found['model'][0] / found['popularity'][0]:>7.1f}x", end="")
    print(f"{found['model'][1] / found['popularity'][1]:>9.1f}x")


if __name__ == "__main__":
    try:
        main()
    except DrayError as error:
        sys.exit(str(error))
