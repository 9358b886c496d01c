"""`implicit`'s batch recommend: the 10 best items of every user, without those that the user had."""

import argparse
import time
from pathlib import Path

import numpy as np
import scipy.sparse
from factor_job import read_pairs, report
from implicit.cpu.als import AlternatingLeastSquares


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("factors", type=Path)
    arguments.add_argument("seen", type=Path, help="directory of Parquet files")
    arguments.add_argument("out", type=Path, help="the lists to write")
    arguments.add_argument("--threads", type=int, required=True)
    asked = arguments.parse_args()
    held = np.load(asked.factors)
    users, items, _ = read_pairs(asked.seen)
    shape = (len(held["users"]), len(held["items"]))
    seen = scipy.sparse.csr_matrix((np.ones(len(users), np.float32), (users, items)), shape=shape)
    model = AlternatingLeastSquares(factors=held["users"].shape[1], num_threads=asked.threads)
    model.user_factors, model.item_factors = held["users"], held["items"]
    started = time.perf_counter()
    lists, _ = model.recommend(np.arange(shape[0]), seen, N=10, filter_already_liked_items=True)
    seconds = time.perf_counter() - started
    np.save(asked.out, np.asarray(lists, np.int32))
    report(top_seconds=seconds)


if __name__ == "__main__":
    main()
