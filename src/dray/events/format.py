"""Numbers as people read them: 1.2 GB, 1:05, 12.3 s."""

from __future__ import annotations

import itertools
import math


def count(value: float) -> str:
    return f"{value:,.0f}"


def many(value: float, nouns: str) -> str:
    """Return "1,000 rows", or "1 row": `nouns` is the plural, with an s."""
    return f"{count(value)} {nouns.removesuffix('s') if value == 1 else nouns}"


def rate(value: float) -> str:
    """Return so many a second: with a digit after the point where there are few."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def brief(value: float) -> str:
    """Return 812, 8.1k, 812k or 8.1M: two or three digits."""
    for unit in ("", "k", "M"):
        if value < 999.5:
            return f"{value:.1f}{unit}" if unit and value < 10 else f"{value:.0f}{unit}"
        value /= 1000
    return f"{value:.1f}G"


def size(value: float) -> str:
    """Return 999 B, 1.2 MB, 412 MB or 12.3 GB: the unit that leaves one to three digits before the point."""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or (value >= 10 and unit != "GB") else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def clock(seconds: float) -> str:
    """Return 0:07, 12:34 or 1:02:03."""
    minutes, second = divmod(math.floor(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def duration(seconds: float) -> str:
    """Return 0.35 s, 12.3 s or, from two minutes on, 2:05."""
    if seconds >= 120:
        return clock(seconds)
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.2f} s"


def metric(value: float) -> str:
    """Return a metric with five significant digits after the point at most."""
    return f"{value:.5f}" if abs(value) < 1000 else f"{value:,.1f}"


def sparkline(values: list[float], width: int) -> str:
    """Return the course of `values` as blocks of eight heights, the mean of each of `width` stretches."""
    values = [value for value in values if math.isfinite(value)]
    if len(values) < 2:
        return ""
    width = min(width, len(values))
    edges = [round(i * len(values) / width) for i in range(width + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, span = min(means), (max(means) - min(means)) or 1.0
    return "".join("▁▂▃▄▅▆▇█"[min(7, int((mean - low) / span * 8))] for mean in means)
