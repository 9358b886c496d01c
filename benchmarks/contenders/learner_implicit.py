"""dray's learner of implicit feedback alone, without the command, on all pairs of a directory."""

import argparse
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from factor_job import read_pairs, report, save_factors

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from dray.learners.factorization.implicit import ImplicitSettings
from dray.learners.factorization.ratings import Ratings
from serial_factorization import fit_implicit


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("data", type=Path, help="directory of Parquet files")
    arguments.add_argument("--out", type=Path, help="the factors to write")
    arguments.add_argument("--factors", type=int, required=True)
    arguments.add_argument("--iterations", type=int, required=True)
    arguments.add_argument("--threads", type=int, required=True)
    asked = arguments.parse_args()
    users, items, _ = read_pairs(asked.data)
    ids = (pa.array(range(int(side.max()) + 1)) for side in (users, items))
    pairs = Ratings(users, items, np.ones(len(users), np.float32), *ids)
    settings = ImplicitSettings(factors=asked.factors, iterations=asked.iterations)
    fit = fit_implicit(pairs, settings, threads=asked.threads)
    save_factors(asked.out, fit.factors.users, fit.factors.items)
    report(epoch_seconds=[epoch.seconds for epoch in fit.epochs], entries=len(users))


if __name__ == "__main__":
    main()
