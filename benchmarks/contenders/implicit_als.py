"""`implicit`'s alternating least squares by the conjugate gradient, on all pairs of a directory."""

import argparse
from pathlib import Path

import numpy as np
import scipy.sparse
from factor_job import read_pairs, report, save_factors
from implicit.cpu.als import AlternatingLeastSquares


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("data", type=Path, help="directory of Parquet files")
    arguments.add_argument("--out", type=Path, help="the factors to write")
    arguments.add_argument("--factors", type=int, required=True)
    arguments.add_argument("--iterations", type=int, required=True)
    arguments.add_argument("--threads", type=int, required=True)
    arguments.add_argument("--alpha", type=float, required=True)
    arguments.add_argument("--regularization", type=float, required=True)
    asked = arguments.parse_args()
    users, items, _ = read_pairs(asked.data)
    entries = scipy.sparse.csr_matrix((np.ones(len(users), np.float32), (users, items)))
    model = AlternatingLeastSquares(
        factors=asked.factors,
        alpha=asked.alpha,
        regularization=asked.regularization,
        iterations=asked.iterations,
        num_threads=asked.threads,
        use_cg=True,
        random_state=0,
    )
    seconds: list[float] = []
    model.fit(entries, show_progress=False, callback=lambda _, elapsed, *__: seconds.append(elapsed))
    save_factors(asked.out, model.user_factors, model.item_factors)
    report(epoch_seconds=seconds, entries=entries.nnz)


if __name__ == "__main__":
    main()
