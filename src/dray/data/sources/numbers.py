"""Which type keeps different numbers of a text different.

Pure: literals in, types out. Text has numbers of any size; int64 ends at 2^63, and a double holds only some of the
whole numbers above 2^53, so that several ids would become one. And `001` may be another id than `1`.

| a column that holds                                             | is                                              |
|-----------------------------------------------------------------|-------------------------------------------------|
| a whole number with a leading zero, such as `007` (in CSV)      | text                                            |
| whole numbers of int64; none below 0, and some up to 2^64 - 1   | int64; uint64                                   |
| other whole numbers                                             | decimal(38, 0)                                  |
| fractions, and nothing that a double cannot hold                | double                                          |
| fractions, and digits beyond 2^53 that a double cannot hold     | decimal, with as many digits after the point    |
|                                                                 | as the largest of them leaves                   |
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import numpy as np
import pyarrow as pa

EXACT_BELOW = 2**53
"""A double holds every whole number below; of those above only every second, fourth, ..."""
CODE = r"[+-]?0(?:[0-9]+|[xX][0-9a-fA-F]+)"
"""A whole number whose text differs from its value: with a leading zero, or in hexadecimal digits."""
_CODE = re.compile(CODE)
_WHOLE = re.compile(r"-?[0-9]+")  # pyarrow takes no plus sign before an integer
_INT64, _UINT64 = (-(2**63), 2**63 - 1), (0, 2**64 - 1)
_ENOUGH_DIGITS = 100
"""No type holds a number of so many."""
_WHOLE_DIGITS = 20
"""A decimal has room for at least so many digits before the point, as 64 bits have."""


def exact_as_double(literal: str) -> bool:
    """Whether a double holds the number, or the number was written from a double.

    Programs write a double above 2^53 with all its digits, or with the fewest that identify it. A number of neither
    form was not a double, and would change as one. A number with an exponent is meant to be approximate.
    """
    if "e" in literal.lower():
        return True
    value = float(literal)
    if abs(value) < EXACT_BELOW or value != value:  # NaN
        return True
    try:
        written = Decimal(literal)
    except InvalidOperation:
        return True
    return Decimal(value) == written or Decimal(repr(value)) == written


def fits_decimal(literal: str, type_: pa.DataType) -> bool:
    """Whether a decimal type has room for all digits.

    pyarrow makes 0 of many a number that is too small, such as 5e-259, without an error (seen in pyarrow 26).
    """
    number = Decimal(literal)
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        return False
    zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    return abs(number) < room(type_) and (not number or exponent + zeros >= -type_.scale)


def room(type_: pa.DataType) -> int:
    """Return the least number that a decimal type has no room for."""
    most: int = 10 ** (type_.precision - type_.scale)
    return most


def may_wrap(type_: pa.DataType) -> bool:
    """Whether pyarrow silently changes a number that is too large.

    It multiplies to get the digits after the point, without a check that the product fits (seen in pyarrow 26).
    """
    return bool(pa.types.is_decimal(type_) and type_.scale > 0)


def has_large(column: pa.ChunkedArray) -> bool:
    """Whether a number of 64 bits is so large that a double may not hold its digits."""
    kind = np.float64 if pa.types.is_floating(column.type) else np.int64
    for chunk in column.chunks:
        if not len(chunk):
            continue
        # The bytes under a missing value do no harm: they only cause a second look. Arrow's min_max takes 20 times as
        # long for doubles (measured with pyarrow 26).
        values = np.frombuffer(chunk.buffers()[1], kind)[chunk.offset : chunk.offset + len(chunk)]
        most = values.max()
        if most >= EXACT_BELOW or values.min() <= -EXACT_BELOW or np.isnan(most):
            return True
    return False


@dataclass(slots=True)
class Numbers:
    """What the numbers of a column look like, as far as they were read."""

    low: int = 0
    high: int = 0
    whole: bool = True
    """Every one is a whole number, written as one."""
    finite: bool = True
    """A decimal can hold each: none is infinite."""
    digits: int = 1
    """Most digits before the point."""
    scale: int = 0
    """Most digits after the point."""
    code: str | None = None
    """A whole number with a leading zero."""
    inexact: str | None = None
    """A number that a double cannot hold."""

    def add(self, literal: str) -> None:
        """Add a number as it is written in JSON or by Arrow."""
        literal = literal.strip()
        if _CODE.fullmatch(literal):
            self.code = self.code or literal
            return
        if _WHOLE.fullmatch(literal):
            value = int(literal[:_ENOUGH_DIGITS])  # Python refuses to convert very many
            self.low, self.high = min(self.low, value), max(self.high, value)
            self.digits = max(self.digits, len(literal.lstrip("-")))
        else:
            self.whole = False
            self._add_fraction(literal)
        if self.inexact is None and not exact_as_double(literal):
            self.inexact = literal

    def _add_fraction(self, literal: str) -> None:
        try:
            written = Decimal(literal)
        except InvalidOperation:
            self.finite = False
            return
        exponent = written.as_tuple().exponent
        if not isinstance(exponent, int):  # infinity, NaN
            self.finite = False
            return
        self.digits = max(self.digits, written.adjusted() + 1)
        self.scale = max(self.scale, -exponent)

    def merge(self, other: Numbers) -> None:
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.whole, self.finite = self.whole and other.whole, self.finite and other.finite
        self.digits, self.scale = max(self.digits, other.digits), max(self.scale, other.scale)
        self.code, self.inexact = self.code or other.code, self.inexact or other.inexact

    def arrow(self, precisions: tuple[int, ...] = (38,)) -> pa.DataType | None:
        """Return the type that keeps all numbers unchanged; None if no number type does.

        `precisions`: the digits of the decimals to choose from: 38, or also 76.
        """
        if self.code is not None:
            return None
        if self.whole:
            for (low, high), type_ in ((_INT64, pa.int64()), (_UINT64, pa.uint64())):
                if low <= self.low and self.high <= high:
                    return type_
            return next((_decimal(most, 0) for most in precisions if self.digits <= most), None)
        if self.inexact is None:
            return pa.float64()
        for most in precisions if self.finite else ():
            scale = max(self.scale, most - max(self.digits, _WHOLE_DIGITS))
            if self.digits + scale <= most:
                return _decimal(most, scale)
        return None


def _decimal(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
