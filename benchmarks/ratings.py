"""Ratings and events of MovieLens' shape, made once with known factors; and rating files that somebody gives.

Users' counts are log-normal, items' popularity falls by a power of the rank, a rating is what 12 factors and two biases
say, with noise, in whole or half stars. An event is a pair that popularity proposed and the factors accepted.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import data
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

# Changes with the recipe below, so that files of an older one are never read.
RECIPE = 1
KNOWN_FACTORS = 12
PAIRS_PER_FILE = 1_000_000
MOST_ROUNDS = 15


@dataclass(frozen=True)
class Kind:
    """What to make."""

    name: str
    users: int
    items: int
    pairs: int
    """Of the training part; the test part comes on top."""
    star: float | None
    """The least difference of two ratings; None for events, which have no rating."""
    test_share: float = 0.02


@dataclass(frozen=True)
class Pairs:
    users: np.ndarray
    items: np.ndarray
    ratings: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.users)

    def of(self, which: np.ndarray) -> "Pairs":
        return Pairs(self.users[which], self.items[which], None if self.ratings is None else self.ratings[which])


def ml_100k() -> Kind:
    return Kind("ml-100k", 943, 1682, 100_000, star=1.0, test_share=0.0)


def ml_1m() -> Kind:
    return Kind("ml-1m", 6040, 3706, 1_000_000, star=1.0, test_share=0.0)


def ml_20m(pairs: int = 20_000_000) -> Kind:
    """The shape of MovieLens-20M; with fewer ratings there are fewer users, as in a sample of the users."""
    share = pairs / 20_000_000
    return Kind(f"ml-20m-{pairs}", max(50, round(138_493 * share)), 26_744 if share > 0.1 else 5_000, pairs, star=0.5)


def events(pairs: int, users: int, items: int) -> Kind:
    return Kind(f"events-{pairs}-{users}-{items}", users, items, pairs, star=None, test_share=0.1)


def made(cache: Path, kind: Kind) -> Path:
    """Return a directory with `train` and `test`, each of Parquet files sorted by user."""
    directory = cache / f"ratings{RECIPE}-{kind.name}"
    if directory.is_dir():
        return directory
    data.require_free_disk(cache, kind.pairs * 12)
    print(f"Making {kind.pairs:,} pairs of {kind.users:,} users and {kind.items:,} items in {directory}", flush=True)
    unfinished = directory.with_name(directory.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    for part in ("train", "test"):
        (unfinished / part).mkdir(parents=True)
    total = round(kind.pairs / (1 - kind.test_share))
    random = np.random.default_rng([1, 0])
    wanted = _counts(random.lognormal(0, 1.2, kind.users), total, most=0.4 * kind.items)
    popularity = random.lognormal(0, 0.5, kind.items) / np.arange(1, kind.items + 1) ** 0.9
    tastes = _Tastes.of(random, kind.items)
    edges = np.unique(np.searchsorted(np.cumsum(wanted), np.arange(0, wanted.sum(), PAIRS_PER_FILE)))
    for file, (first, last) in enumerate(zip(edges, [*edges[1:], kind.users], strict=True)):
        own = np.random.default_rng([1, 1, file])
        table = _pairs(own, kind, wanted[first:last], int(first), popularity, tastes)
        test = own.random(len(table)) < kind.test_share
        pq.write_table(table.filter(pa.array(~test)), unfinished / "train" / f"part-{file:04}.parquet")
        pq.write_table(table.filter(pa.array(test)), unfinished / "test" / f"part-{file:04}.parquet")
    unfinished.rename(directory)
    return directory


def read(directory: Path) -> Pairs:
    """Return all pairs of a directory of Parquet files."""
    table = pq.read_table(directory)
    values = table["rating"].to_numpy() if "rating" in table.column_names else None
    return Pairs(table["user"].to_numpy().astype(np.int32), table["item"].to_numpy().astype(np.int32), values)


def read_file(path: Path) -> Pairs:
    """Return the ratings of a file as MovieLens has them: u.data (tabs), ratings.dat (::) or ratings.csv (a header).

    Ids become 0, 1, ... in their order.
    """
    start = path.open("rb").read(4096)
    if b"::" in start:
        rows = np.array([line.split(b"::")[:3] for line in path.read_bytes().splitlines() if line], np.float64)
        columns = list(rows.T)
    else:
        delimiter = "\t" if b"\t" in start else ","
        header = not start.split(b"\n", 1)[0].split(delimiter.encode())[0].strip().isdigit()
        table = pyarrow.csv.read_csv(
            path,
            read_options=pyarrow.csv.ReadOptions(autogenerate_column_names=not header),
            parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter),
        )
        columns = [table.column(index).to_numpy() for index in range(3)]
    users, items = (np.unique(column, return_inverse=True)[1].astype(np.int32) for column in columns[:2])
    return Pairs(users, items, columns[2].astype(np.float32))


@dataclass(frozen=True)
class _Tastes:
    """The known factors and biases of some users, or items."""

    factors: np.ndarray
    bias: np.ndarray

    @staticmethod
    def of(random: np.random.Generator, count: int) -> "_Tastes":
        factors = random.standard_normal((count, KNOWN_FACTORS)).astype(np.float32)
        return _Tastes(factors, random.standard_normal(count).astype(np.float32))


def _counts(weights: np.ndarray, total: int, most: float) -> np.ndarray:
    """Return whole numbers by weight that sum up to about the total, none above the most."""
    factor = total / weights.sum()
    for _ in range(20):
        factor *= total / np.clip(weights * factor, 1, most).sum()
    return np.clip(weights * factor, 1, most).round().astype(np.int64)


def _pairs(
    random: np.random.Generator, kind: Kind, wanted: np.ndarray, first: int, popularity: np.ndarray, items: _Tastes
) -> pa.Table:
    users = _Tastes.of(random, len(wanted))
    scale = np.float32(0.45 / np.sqrt(KNOWN_FACTORS))

    def liking(u: np.ndarray, i: np.ndarray) -> np.ndarray:
        return scale * np.einsum("nf,nf->n", users.factors[u], items.factors[i])

    def accepted(u: np.ndarray, i: np.ndarray) -> np.ndarray:
        if kind.star is not None:
            return np.ones(len(u), bool)
        return random.random(len(u)) < 1 / (1 + np.exp(2 - 6 * liking(u, i)))

    u, i = _distinct(random, wanted, popularity, accepted)
    columns = {"user": pa.array(u + first), "item": pa.array(i)}
    if kind.star is not None:
        exact = 3.5 + 0.43 * users.bias[u] + 0.5 * items.bias[i] + liking(u, i) + random.normal(0, 0.75, len(u))
        stars = np.clip(np.round(exact / kind.star) * kind.star, kind.star, 5).astype(np.float32)
        columns["rating"] = pa.array(stars)
    return pa.table(columns)


def _distinct(
    random: np.random.Generator,
    wanted: np.ndarray,
    popularity: np.ndarray,
    accepted: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Draw different items for each user, about as many as wanted, by popularity; sorted by user."""
    n_items = len(popularity)
    edges = np.cumsum(popularity / popularity.sum())
    keys, draws = np.empty(0, np.int64), 1.0
    for _ in range(MOST_ROUNDS):
        missing = np.maximum(0, wanted - np.bincount(keys // n_items, minlength=len(wanted)))
        if missing.sum() < 0.002 * wanted.sum():
            break
        u = np.repeat(np.arange(len(wanted)), np.ceil(missing * draws).astype(np.int64))
        i = np.minimum(np.searchsorted(edges, random.random(len(u))), n_items - 1)
        kept = accepted(u, i)
        draws = min(10.0, len(u) / max(1, kept.sum()))
        keys = np.sort(np.concatenate([keys, u[kept] * n_items + i[kept]]))
        keys = keys[np.append(True, keys[1:] != keys[:-1])]
    return keys // n_items, keys % n_items
