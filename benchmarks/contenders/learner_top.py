"""dray's best items of every user, 10 each, without those that the user had; without the command."""

import argparse
import time
from pathlib import Path

import numpy as np
from factor_job import read_pairs, report

from dray.learners.factorization.factors import Factors, Seen
from dray.learners.factorization.top import best_for_users


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("factors", type=Path)
    arguments.add_argument("seen", type=Path, help="directory of Parquet files")
    arguments.add_argument("out", type=Path, help="the lists to write")
    arguments.add_argument("--threads", type=int, required=True)
    asked = arguments.parse_args()
    held = np.load(asked.factors)
    factors = Factors.of(held["users"], held["items"])
    users, items, _ = read_pairs(asked.seen)
    seen = Seen.of(users, items, len(factors.users))
    # Compiled, or read from numba's cache, before the clock starts: a service does so once.
    for _ in best_for_users(factors, seen, 10, np.arange(1, dtype=np.int32)):
        pass
    started = time.perf_counter()
    lists = np.concatenate([best.items for best in best_for_users(factors, seen, 10, threads=asked.threads)])
    seconds = time.perf_counter() - started
    np.save(asked.out, lists)
    report(top_seconds=seconds)


if __name__ == "__main__":
    main()
