"""When events happened: a column of times as seconds, and where the last share of all events begins."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from dray.data.features import is_text
from dray.data.time_text import PER_SECOND
from dray.data.times import is_of_digits, times_of
from dray.errors import ConfigError, DataError
from dray.learners.factorization.factors import Longs

Doubles = npt.NDArray[np.float64]

_UNITS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY_S = 86_400
_FINEST_S = 2.0**-20
"""About a microsecond: the resolution of a float64 for present times."""
_MOST_BINS = 1 << 16


def require_time(name: str, arrow: pa.DataType) -> None:
    """Refuse a column that does not hold times."""
    if pt.is_dictionary(arrow):
        arrow = arrow.value_type
    moments = pt.is_timestamp(arrow) or pt.is_date(arrow) or is_text(arrow)
    if moments or pt.is_integer(arrow) or pt.is_floating(arrow) or pt.is_decimal(arrow) or pt.is_null(arrow):
        return
    raise DataError(
        f'The time column "{name}" is {arrow}, which is not a time.',
        fix="Write it as a timestamp, a date, text of times, or a number of seconds since 1970: dray data ingest ... "
        "--transform.",
    )


def seconds_of(column: pa.Array, form: str = "") -> Doubles:
    """Return times as seconds since 1970-01-01 UTC; without a zone they are read as UTC. NaN where there is none.

    `form`: how text is written, or dates as numbers, or what numbers count.
    """
    if is_text(column.type.value_type if pt.is_dictionary(column.type) else column.type):
        return times_of(column, form).float_seconds()
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    arrow, per_second = column.type, 1
    if pt.is_timestamp(arrow):
        column, per_second = column.cast(pa.int64()), _UNITS_PER_SECOND[arrow.unit]
    elif pt.is_date(arrow):
        column = pc.multiply(column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), _DAY_S)
    elif is_of_digits(form):
        return times_of(column, form).float_seconds()
    else:
        per_second = PER_SECOND.get(form, 1)
    seconds: Doubles = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return seconds / per_second if per_second > 1 else seconds


@dataclass
class TimeSketch:
    """How many events happened when: bins of one width, as fine as some 65,000 occupied ones allow.

    The width is a power of two and each bin lies within one of the next width, so that sketches of parts of the rows
    merge into the sketch of all rows, whatever the parts. A lonely early or late event costs one bin, not the width.
    """

    width_s: float = _FINEST_S
    bins: Doubles = field(default_factory=lambda: np.zeros(0))
    """Number of each occupied bin, ascending: it holds the times from bin * width_s on."""
    counts: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    latest: Doubles = field(default_factory=lambda: np.zeros(0))
    """The last time in each bin, exactly."""

    @property
    def rows(self) -> int:
        return int(self.counts.sum())

    def add(self, times: Doubles) -> None:
        """Count finite times."""
        times = np.sort(times)
        self._put(*_summed(np.floor(times / self.width_s), np.ones(len(times), np.int64), times))

    def merge(self, other: TimeSketch) -> None:
        bins, counts = other.bins, other.counts
        if other.width_s > self.width_s:
            self.bins, self.width_s = np.floor(self.bins * (self.width_s / other.width_s)), other.width_s
        else:
            bins = np.floor(bins * (other.width_s / self.width_s))
        self._put(bins, counts, other.latest)

    def moment(self, share: float) -> float:
        """Return the moment since which at most `share` of the events happened: what happens at once stays together."""
        if not 0 < share < 1:
            raise ConfigError(
                f"A test subset of {share} of the events is not possible.", fix="Use a share such as 0.2."
            )
        later = np.cumsum(self.counts[::-1])[::-1]  # events of this bin or later
        few = later <= share * self.rows
        if not few.any():
            raise DataError(
                f"{later[-1] if len(later) else 0:,} of {self.rows:,} events happened last, within "
                f"{self.width_s:.3g} seconds: more than a share of {share}.",
                fix="Use a larger share, a finer time column, or split at random.",
            )
        return float(self.bins[np.argmax(few)] * self.width_s)

    def latest_before(self, moment: float) -> float | None:
        """Return the time of the last event before a moment that `moment` gave; None if there is none."""
        before = self.latest[self.bins * self.width_s < moment]
        return float(before[-1]) if len(before) else None

    def _put(self, bins: Doubles, counts: Longs, latest: Doubles) -> None:
        bins, counts = np.concatenate([self.bins, bins]), np.concatenate([self.counts, counts])
        latest = np.concatenate([self.latest, latest])
        order = np.argsort(bins, kind="stable")
        bins, counts, latest = _summed(bins[order], counts[order], latest[order])
        while len(bins) > _MOST_BINS:
            self.width_s *= 2
            bins, counts, latest = _summed(np.floor(bins / 2), counts, latest)
        self.bins, self.counts, self.latest = bins, counts, latest


def _summed(bins: Doubles, counts: Longs, latest: Doubles) -> tuple[Doubles, Longs, Doubles]:
    """Return each of the ascending bins once, with the sum of its counts and its last time."""
    if len(bins) == 0:
        return bins, counts, latest
    starts = np.flatnonzero(np.append(True, bins[1:] != bins[:-1]))
    return bins[starts], np.add.reduceat(counts, starts), np.maximum.reduceat(latest, starts)
