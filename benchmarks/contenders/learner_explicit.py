"""dray's learner of explicit ratings alone, without the command: a directory, or all folds of a file."""

import argparse
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from factor_job import read_pairs, report, save_factors

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from dray.learners.factorization.explicit import ExplicitSettings
from dray.learners.factorization.grid import build_blocks, lay_out, shape_for
from dray.learners.factorization.ratings import Ratings, Triples
from serial_factorization import fit_blocks, fit_explicit
from whole_evaluation import rating_errors


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("data", type=Path, help="directory of Parquet files, or an .npz with folds")
    arguments.add_argument("--out", type=Path, help="the factors to write")
    arguments.add_argument("--epochs", type=int, default=20)
    arguments.add_argument("--threads", type=int, default=1)
    asked = arguments.parse_args()
    settings = ExplicitSettings(epochs=asked.epochs)
    if asked.data.suffix == ".npz":
        report(rmse=folds(asked.data, settings, asked.threads))
        return
    users, items, ratings = read_pairs(asked.data)
    user_counts, item_counts = counts(users), counts(items)
    layout = lay_out(user_counts, item_counts, shape_for(len(ratings), len(user_counts), len(item_counts)), 0)
    blocks = build_blocks(layout, [Triples(users, items, ratings)])
    del users, items, ratings
    fit = fit_blocks(layout, blocks, settings, threads=asked.threads)
    f = fit.factors
    save_factors(asked.out, f.users, f.items, f.user_bias, f.item_bias, f.mean)
    report(epoch_seconds=[epoch.seconds for epoch in fit.epochs], ratings=len(blocks))


def counts(indices: np.ndarray) -> np.ndarray:
    """Return how often each occurs, a part at a time: numpy takes 8 bytes more for each index that it counts."""
    most = int(indices.max()) + 1
    parts = (indices[first : first + 1_000_000] for first in range(0, len(indices), 1_000_000))
    return sum((np.bincount(part, minlength=most) for part in parts), np.zeros(most, np.int64))


def folds(path: Path, settings: ExplicitSettings, threads: int) -> list[float]:
    """Return the RMSE of each fold."""
    held = np.load(path)
    users, items, ratings, fold = (held[name] for name in ("users", "items", "ratings", "fold"))
    user_ids, item_ids = pa.array(range(int(users.max()) + 1)), pa.array(range(int(items.max()) + 1))
    limits = float(ratings.min()), float(ratings.max())
    errors = []
    for number in range(int(fold.max()) + 1):
        train, test = fold != number, fold == number
        fit = fit_explicit(
            Ratings(users[train], items[train], ratings[train], user_ids, item_ids), settings, threads=threads
        )
        found = rating_errors(fit.factors, users[test], items[test], ratings[test], limits, threads)
        errors.append(found.rmse)
    return errors


if __name__ == "__main__":
    main()
