"""One user's ten best items of a large catalogue, from a model that was saved and loaded: milliseconds of an answer."""

import argparse
import tempfile
import time

import numpy as np
from factor_job import report

from dray.learners.factorization.factors import Factors, Seen
from dray.learners.factorization.model import FactorModel

USERS = 500


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("kind", choices=["random", "falling"])
    arguments.add_argument("--items", type=int, required=True)
    arguments.add_argument("--factors", type=int, required=True)
    asked = arguments.parse_args()
    random = np.random.default_rng(0)
    items = random.standard_normal((asked.items, asked.factors), dtype=np.float32)
    users = random.standard_normal((USERS, asked.factors), dtype=np.float32)
    if asked.kind == "falling":  # as trained ones are: few directions matter most, popular items have long vectors
        spectrum = (np.arange(1, asked.factors + 1) ** -0.5).astype(np.float32)
        users *= spectrum
        items *= spectrum * (0.2 + 0.5 * random.pareto(2.5, (asked.items, 1))).astype(np.float32)
    who = random.integers(0, USERS, asked.items).astype(np.int32)
    seen = Seen.of(who, np.arange(asked.items, dtype=np.int32), USERS)
    settings = {"regularization": 0.1, "alpha": 1.0, "frequency_power": 1.0}
    made = FactorModel.of(
        "implicit", Factors.of(users, items), np.arange(USERS), np.arange(asked.items), seen, settings
    )
    with tempfile.TemporaryDirectory() as directory:
        made.save(f"{directory}/model")
        model = FactorModel.load(f"{directory}/model")
        seconds = []
        for user in range(USERS):
            started = time.perf_counter()
            model.recommend(user, 10)
            seconds.append(time.perf_counter() - started)
    report(
        first_ms=1000 * seconds[0],
        ms=1000 * float(np.median(seconds[1:])),
        p90_ms=1000 * np.percentile(seconds[1:], 90),
    )


if __name__ == "__main__":
    main()
