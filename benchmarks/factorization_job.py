"""What every part of the factorization benchmark needs: who runs what, and how its answer is judged."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bench
import measure
import numpy as np
import pyarrow.parquet as pq
import ratings
import reporting
from reporting import Must

DRAY = "dray"
FACTORS = 100


@dataclass(frozen=True)
class Job:
    """How to run, and where."""

    cache: Path
    scratch: Path
    env: dict[str, str]
    dray: str
    threads: int
    repeats: int
    scale: int
    """What the sizes are divided by."""
    learner_alone: bool
    surprise: str
    """The Python that has it."""
    implicit: str
    files: Sequence[Path]
    """Rating files that were given."""


@dataclass(frozen=True)
class Part:
    """What a part of the benchmark found."""

    tables: list[str]
    musts: list[Must]
    figures: dict[str, Any]


@dataclass
class Runs:
    """What one contender did, a value for each repeat."""

    epoch_seconds: list[float] = field(default_factory=list)
    """The median of the epochs of a run."""
    seconds: list[float] = field(default_factory=list)
    peak_memory_bytes: list[int] = field(default_factory=list)
    quality: list[float] = field(default_factory=list)

    def middle(self, what: str) -> float | None:
        values = getattr(self, what)
        return statistics.median(values) if values else None

    def add(self, measured: measure.Measured, epochs: Sequence[float], quality: float) -> None:
        self.epoch_seconds.append(statistics.median(epochs))
        self.seconds.append(measured.seconds)
        self.peak_memory_bytes.append(measured.peak_memory_bytes)
        self.quality.append(quality)


def over(upper: float | None, lower: float | None) -> float | None:
    return upper / lower if upper is not None and lower else None


def above(value: float, base: float) -> float:
    """Return how far a value is above another, in percent of that."""
    return 100 * (float(value) / float(base) - 1)


def run_in(job: Job, python: str, script: str, *arguments: object, **env: str) -> measure.Measured:
    """Run a contender's script in the Python that has what it needs."""
    command = [python, *bench.contender(script, *arguments)[1:]]
    return measure.run(command, {**job.env, **env}, job.scratch / "logs")


def train_explicit(job: Job, train: Path, out: Path, epochs: int, workers: int, threads: int) -> list[str]:
    """Return the dray command that trains on ratings; nothing is evaluated on the way, as surprise does not either."""
    columns = ["--user", "user", "--item", "item", "--rating", "rating"]
    size = ["--rounds", str(epochs), "--param", f"factors={FACTORS}", "--workers", str(workers), "--threads"]
    model = [job.dray, "train", str(train), "--model", "factorization", *columns]
    return [*model, *size, str(threads), "--out", str(out), "--json"]


def epochs_of_run(out: Path) -> list[float]:
    """Return the seconds of each epoch of a run directory."""
    return [float(value) for value in pq.read_table(out / "rounds.parquet")["seconds"].to_pylist()]


def rmse_of_run(out: Path, test: ratings.Pairs) -> float:
    """Return the error of a run's model on pairs that it was not trained on."""
    from dray.learners.factorization.model import FactorModel

    scores = FactorModel.load(str(out / "model")).score(test.users.astype(np.int64), test.items.astype(np.int64))
    return rmse(scores.values, test)


def rmse_of_factors(path: Path, test: ratings.Pairs) -> float:
    """Return the same of factors in a file of a contender; who is beyond them is unknown."""
    held = np.load(path)
    users, items = held["users"], held["items"]
    u, i = np.minimum(test.users, len(users) - 1), np.minimum(test.items, len(items) - 1)
    has_user, has_item = test.users < len(users), test.items < len(items)
    scores = float(held["mean"]) + has_user * held["user_bias"][u] + has_item * held["item_bias"][i]
    for first in range(0, len(u), 100_000):
        some = slice(first, first + 100_000)
        scores[some] += (has_user & has_item)[some] * np.einsum("nf,nf->n", users[u[some]], items[i[some]])
    return rmse(scores, test)


def rmse(scores: np.ndarray, test: ratings.Pairs) -> float:
    truth = test.ratings.astype(np.float64)
    return float(np.sqrt(np.mean((np.clip(scores, truth.min(), truth.max()) - truth) ** 2)))


def table_of(runs: dict[str, Runs], base: str, quality: str) -> str:
    """Return a table: seconds an epoch, speed against the base, memory, and a quality."""

    def row(name: str, one: Runs) -> list[str]:
        if not one.seconds:
            return [name, "not measured", "-", "-", "-", "-"]
        low, high = min(one.epoch_seconds), max(one.epoch_seconds)
        return [
            name,
            f"{one.middle('epoch_seconds'):.3f} ({low:.3f}-{high:.3f})",
            reporting.ratio(runs[base].middle("epoch_seconds"), one.middle("epoch_seconds")),
            f"{one.middle('seconds'):.1f}",
            f"{one.middle('peak_memory_bytes') / 1e9:.2f} GB",
            f"{one.middle('quality'):.4f}",
        ]

    header = ["contender", "an epoch s (min-max)", "speed", "total s", "peak memory", quality]
    return reporting.table(header, [row(name, one) for name, one in runs.items()])
