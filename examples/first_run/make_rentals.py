"""Make a small data set: how many bicycles a city rents out, hour by hour, for two years. As found: text times, gaps.

    python make_rentals.py rentals.csv tomorrow.csv

The second file holds the hours of the next week, whose number of rentals nobody knows yet.
"""

from __future__ import annotations

import csv
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

START = datetime(2024, 1, 1)
HOURS = 2 * 365 * 24
WEEK = 7 * 24
COLUMNS = ("time", "sky", "temperature", "wind", "humidity", "holiday", "rentals")


def hour_of(number: int, chance: np.random.Generator) -> dict[str, Any]:
    """Return one hour: the weather of the season, and people who ride to work or out into the sun."""
    time = START + timedelta(hours=number)
    season = np.sin(2 * np.pi * (time.timetuple().tm_yday - 110) / 365)
    rain = chance.random() < 0.12
    temperature = 11 + 10 * season + 4 * np.sin(2 * np.pi * (time.hour - 9) / 24) - 2 * rain + chance.normal(0, 2)
    wind = chance.gamma(3, 4)
    free = time.weekday() >= 5 or (time.month, time.day) in {(1, 1), (5, 1), (12, 25), (12, 26)}
    to_work = 0 if free else 260 * (np.exp(-((time.hour - 8) ** 2) / 2) + np.exp(-((time.hour - 17.5) ** 2) / 4))
    outing = (170 if free else 70) * np.exp(-((time.hour - 14) ** 2) / 18) * max(0.1, (temperature - 4) / 16)
    growing = 1 + 0.25 * number / HOURS
    expected = growing * (12 + to_work * (0.55 + 0.45 * (temperature > 5)) + outing) * (0.4 if rain else 1)
    expected *= max(0.3, 1.1 - wind / 60)
    return {
        "time": time.strftime("%Y-%m-%d %H:%M:%S"),
        "sky": "rain" if rain else chance.choice(["clear", "clouds", "mist"], p=[0.5, 0.4, 0.1]),
        "temperature": "" if chance.random() < 0.02 else round(float(temperature), 1),
        "wind": round(float(wind), 1),
        "humidity": int(np.clip(60 + 20 * rain - 8 * season + chance.normal(0, 10), 15, 100)),
        "holiday": "yes" if free and time.weekday() < 5 else "no",
        "rentals": int(chance.poisson(expected)),
    }


def write(path: str, rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    with Path(path).open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    known, next_week = sys.argv[1:]
    chance = np.random.default_rng(7)
    hours = [hour_of(number, chance) for number in range(HOURS + WEEK)]
    write(known, hours[:HOURS], COLUMNS)
    write(next_week, hours[HOURS:], COLUMNS[:-1])
