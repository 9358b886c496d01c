"""scikit-surprise's SVD with its defaults: `epochs` passes over the ratings of a directory, or all folds of a file."""

import argparse
import gc
import time
from pathlib import Path

import numpy as np
from factor_job import read_pairs, report, save_factors
from surprise import SVD
from surprise.trainset import Trainset


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("data", type=Path, help="directory of Parquet files, or an .npz with folds")
    arguments.add_argument("--out", type=Path, help="the factors to write")
    arguments.add_argument("--epochs", type=int, default=20)
    asked = arguments.parse_args()
    gc.disable()  # it would walk through millions of tuples time and again while they are made
    if asked.data.suffix == ".npz":
        report(rmse=folds(asked.data, asked.epochs))
        return
    users, items, ratings = read_pairs(asked.data)
    model, seconds = fit(users, items, ratings, asked.epochs)
    save_factors(asked.out, model.pu, model.qi, model.bu, model.bi, model.trainset.global_mean)
    report(epoch_seconds=[seconds / asked.epochs], ratings=len(ratings))


def fit(users: np.ndarray, items: np.ndarray, ratings: np.ndarray, epochs: int) -> tuple[SVD, float]:
    """Return the model and the seconds of training: what it takes to make surprise's lists of tuples is not counted."""
    n_users, n_items = int(users.max()) + 1, int(items.max()) + 1
    order = np.argsort(users, kind="stable")
    edges = np.searchsorted(users[order], np.arange(n_users + 1))
    # One object for each number, not for each rating: that would take twice the memory.
    numbers, stars = list(range(n_items)), {value: float(value) for value in np.unique(ratings).tolist()}
    by_user = {}
    for user in range(n_users):
        own = order[edges[user] : edges[user + 1]]
        by_user[user] = [
            (numbers[i], stars[r]) for i, r in zip(items[own].tolist(), ratings[own].tolist(), strict=True)
        ]
    scale = (float(ratings.min()), float(ratings.max()))
    trainset = Trainset(by_user, {}, n_users, n_items, len(ratings), scale, {}, {})
    trainset.global_mean  # noqa: B018 -- computed by the first who asks, which is no part of training
    model = SVD(n_epochs=epochs, random_state=0)
    started = time.perf_counter()
    model.fit(trainset)
    return model, time.perf_counter() - started


def folds(path: Path, epochs: int) -> list[float]:
    """Return the RMSE of each fold, by surprise's rules: who is unknown has no bias, ratings stay on their scale."""
    held = np.load(path)
    users, items, ratings, fold = (held[name] for name in ("users", "items", "ratings", "fold"))
    errors = []
    for number in range(int(fold.max()) + 1):
        train, test = fold != number, fold == number
        model, _ = fit(users[train], items[train], ratings[train], epochs)
        known_users = np.bincount(users[train], minlength=int(users.max()) + 1) > 0
        known_items = np.bincount(items[train], minlength=int(items.max()) + 1) > 0
        u, i = users[test], items[test]
        has_user, has_item = known_users[u], known_items[i]
        u, i = np.where(has_user, u, 0), np.where(has_item, i, 0)
        scores = model.trainset.global_mean + has_user * model.bu[u] + has_item * model.bi[i]
        scores += has_user * has_item * np.einsum("nf,nf->n", model.pu[u], model.qi[i])
        scores = np.clip(scores, ratings.min(), ratings.max())
        errors.append(float(np.sqrt(np.mean((scores - ratings[test]) ** 2))))
    return errors


if __name__ == "__main__":
    main()
