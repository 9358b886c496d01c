"""Divide a query by ranges of a key. Pure: values in, text of conditions out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

Value = int | float | date | datetime
_KINDS: dict[str, type[Value]] = {kind.__name__: kind for kind in (datetime, date, int, float)}
"""A datetime is a date: it comes first."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A key, as it is written in a query, with its least and greatest value."""

    key: str
    low: Value
    high: Value
    zoned: str = "TIMESTAMP WITH TIME ZONE"
    """How the database writes a time with its zone."""

    def condition(self, index: int, count: int) -> str:
        """Return the condition for the rows of one of `count` ranges of equal width.

        Every row meets exactly one of the conditions, also without a key, and with a key beyond the least and the
        greatest, which may have been added meanwhile.
        """
        if count == 1:
            return ""
        above = f"{self.key} >= {self.literal(self.bound(index, count))}" if index else ""
        below = f"{self.key} < {self.literal(self.bound(index + 1, count))}" if index < count - 1 else ""
        if not index:
            return f"({below} OR {self.key} IS NULL)"
        return f"({above} AND {below})" if below else f"({above})"

    def beyond(self) -> str:
        """Return the condition for the rows below the least and above the greatest value."""
        return f"({self.key} < {self.literal(self.low)} OR {self.key} > {self.literal(self.high)})"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON, exactly: the bounds that are read again give the same ranges."""
        values = [value.isoformat() if isinstance(value, date) else value for value in (self.low, self.high)]
        kinds = [
            next(name for name, kind in _KINDS.items() if isinstance(value, kind)) for value in (self.low, self.high)
        ]
        return {"key": self.key, "bounds": values, "kinds": kinds, "zoned": self.zoned}

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> KeyRange:
        """Return what `to_json` wrote; raises ValueError, KeyError or TypeError for anything else."""
        low, high = (
            _value(_KINDS[kind], value) for kind, value in zip(document["kinds"], document["bounds"], strict=True)
        )
        # A TypeError where they cannot be compared.
        if not low <= high:  # type: ignore[operator]
            raise ValueError(f"{low!r} is above {high!r}")
        return KeyRange(str(document["key"]), low, high, str(document["zoned"]))

    def bound(self, index: int, count: int) -> Value:
        low, high = self.low, self.high
        if isinstance(low, datetime) and isinstance(high, datetime):
            return low + timedelta(microseconds=(high - low) // timedelta(microseconds=1) * index // count)
        if isinstance(low, date) and isinstance(high, date):
            return date.fromordinal(low.toordinal() + (high.toordinal() - low.toordinal()) * index // count)
        if isinstance(low, int) and isinstance(high, int):
            return low + (high - low) * index // count
        assert isinstance(low, int | float) and isinstance(high, int | float)
        return low + (high - low) * (index / count)

    def literal(self, value: Value) -> str:
        """Return a value as standard SQL writes it."""
        if isinstance(value, datetime):
            if value.tzinfo is not None:
                zoned = value.astimezone(UTC).replace(tzinfo=None)
                return f"{self.zoned} '{zoned.isoformat(sep=' ')}+00:00'"
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        return f"DATE '{value.isoformat()}'" if isinstance(value, date) else repr(value)

    def most_ranges(self) -> int:
        """Return the largest number of distinct ranges."""
        if isinstance(self.low, datetime) and isinstance(self.high, datetime):
            return max(1, (self.high - self.low) // timedelta(microseconds=1))
        if isinstance(self.low, date) and isinstance(self.high, date):
            return max(1, (self.high - self.low).days)
        if isinstance(self.low, int) and isinstance(self.high, int):
            return max(1, self.high - self.low)
        return 1 << 20 if self.low < self.high else 1  # type: ignore[operator]


def key_value(value: object) -> Value | None:
    """Return a key's value as one that can be divided, or None if it is of another kind."""
    if isinstance(value, str):  # some drivers return an exact decimal as text
        try:
            value = Decimal(value)
        except InvalidOperation:
            return None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value if isinstance(value, int | float | date) and not isinstance(value, bool) else None


def _value(kind: type[Value], value: Any) -> Value:
    if issubclass(kind, date):
        return kind.fromisoformat(value)
    if type(value) is not kind or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not {kind.__name__}")
    return value
