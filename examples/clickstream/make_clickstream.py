"""Make the clickstream of a shop that does not exist: JSON lines, a file a day, local or on s3://.

Users have tastes: each likes a few categories of items and one price range. Items have a popularity, and some appear
only after a while. In a session a user looks at items of one category, puts some into the cart, and pays for some of
these, which sometimes fails. The same seed makes the same events.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from dray.errors import DataError, DrayError
from dray.storage import StorageOptions, expand, write_atomically

CATEGORIES = [
    *("lamps", "sofas", "rugs", "clocks", "vases", "tents", "boots", "bikes", "skis", "kayaks"),
    *("pens", "novels", "puzzles", "guitars", "drums", "teas", "coffees", "spices", "knives", "pans"),
]
PRICE_RANGES = 3
FIRST_DAY = datetime(2026, 3, 2, tzinfo=UTC)
TO_CART, TO_PAY, FAILS = 0.22, 0.55, 0.12


@dataclass(frozen=True)
class Shop:
    """What there is to buy, and who buys."""

    names: list[str]
    category: np.ndarray
    price_range: np.ndarray
    price: np.ndarray
    popularity: np.ndarray
    first_day: np.ndarray
    """When an item appears."""
    tastes: np.ndarray
    """Of each user, how likely a session is about each category."""
    likes_range: np.ndarray
    sessions: np.ndarray
    """Of each user, how many there are a day on average."""


def make_shop(users: int, items: int, days: int, random: np.random.Generator) -> Shop:
    category = random.integers(len(CATEGORIES), size=items)
    price_range = random.integers(PRICE_RANGES, size=items)
    late = random.random(items) < 0.15
    return Shop(
        names=[f"{CATEGORIES[c]}-{number:04}" for number, c in enumerate(category)],
        category=category,
        price_range=price_range,
        price=np.round(np.exp(random.normal(2.0 + 1.2 * price_range, 0.4)), 2),
        popularity=1.0 / (1.0 + random.permutation(items)) ** 0.8,
        first_day=np.where(late, random.integers(0, max(1, days), size=items), 0),
        tastes=random.dirichlet(np.full(len(CATEGORIES), 0.12), size=users),
        likes_range=random.integers(PRICE_RANGES, size=users),
        sessions=random.lognormal(-1.6, 0.8, size=users),
    )


def events_of_day(shop: Shop, day: int, random: np.random.Generator) -> list[dict[str, Any]]:
    """Return what happened on a day, the earliest first."""
    midnight = FIRST_DAY + timedelta(days=day)
    happened: list[tuple[float, dict[str, Any]]] = []
    there = shop.first_day <= day
    for user in np.flatnonzero(random.poisson(shop.sessions) > 0):
        taste = random.choice(len(CATEGORIES), p=shop.tastes[user])
        shelf = np.flatnonzero(there & (shop.category == taste))
        if not len(shelf):
            continue
        fits = np.where(shop.price_range[shelf] == shop.likes_range[user], 1.0, 0.08)
        appeal = shop.popularity[shelf] * fits
        looked_at = min(1 + random.poisson(4), int(np.count_nonzero(appeal)))
        viewed = random.choice(shelf, size=looked_at, replace=False, p=appeal / appeal.sum())
        second = random.uniform(6 * 3600, 23 * 3600)
        session = f"s-{day:03}-{user:06}"
        for item in viewed:
            for kind in steps(bool(shop.price_range[item] == shop.likes_range[user]), random):
                second += random.exponential(25.0)
                event = {
                    "timestamp": (midnight + timedelta(seconds=second)).isoformat(timespec="milliseconds"),
                    "user_id": f"u-{user:06}",
                    "session_id": session,
                    "event_type": kind,
                    "item_id": shop.names[item],
                    "category": CATEGORIES[taste],
                    "price": float(shop.price[item]),
                }
                happened.append((second, event))
    happened.sort(key=lambda one: one[0])
    return [{"event_id": f"e-{day:03}-{number:07}", **event} for number, (_, event) in enumerate(happened)]


def steps(fits: bool, random: np.random.Generator) -> Iterator[str]:
    """Yield how far down the funnel a user goes with an item."""
    yield "view"
    if random.random() < TO_CART * (1.0 if fits else 0.3):
        yield "add_to_cart"
        if random.random() < TO_PAY:
            yield "payment_failed" if random.random() < FAILS else "purchase"


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a clickstream as JSON lines, a file a day.")
    parser.add_argument("out", help="an empty directory, local or s3://bucket/prefix")
    parser.add_argument("--users", type=int, default=3000)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--days", type=int, default=42)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--endpoint", help="address of an S3-compatible store, such as http://minio:9000")
    asked = parser.parse_args()
    storage = StorageOptions(endpoint=asked.endpoint or None)
    if is_taken(asked.out, storage):
        sys.exit(f"{asked.out} holds files already: choose another place, or remove them.")
    random = np.random.default_rng(asked.seed)
    shop = make_shop(asked.users, asked.items, asked.days, random)
    total = 0
    for day in range(asked.days):
        events = events_of_day(shop, day, random)
        total += len(events)
        content = "".join(json.dumps(event) + "\n" for event in events).encode()
        name = f"{asked.out.rstrip('/')}/{FIRST_DAY + timedelta(days=day):%Y-%m-%d}.jsonl"
        write_atomically(name, storage, lambda file, content=content: file.write(content))  # type: ignore[misc]
    print(f"{asked.out}: {total:,} events of {asked.users:,} users with {asked.items:,} items, {asked.days} files")


def is_taken(place: str, storage: StorageOptions) -> bool:
    try:
        return bool(expand([place], storage))
    except DataError:  # nothing there
        return False


if __name__ == "__main__":
    try:
        main()
    except DrayError as error:
        sys.exit(str(error))
