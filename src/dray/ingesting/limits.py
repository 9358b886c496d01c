"""How many rows may be rejected before a run gives up. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dray.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Limit:
    """A number of rows, or a share of the rows read; without either there is no limit."""

    rows: int | None = None
    share: float | None = None

    def exceeded(self, rejected: int, read: float) -> bool:
        """Whether `rejected` of `read` rows are too many."""
        if self.rows is not None and rejected > self.rows:
            return True
        return self.share is not None and rejected > self.share * read

    def __str__(self) -> str:
        if self.rows is not None:
            return f"{self.rows:,} rows"
        return "none" if self.share is None else f"{self.share * 100:g} %"


def parse_limit(text: str) -> Limit:
    """Return the limit that "100" (rows) or "1%" means."""
    found = re.fullmatch(r"\s*(\d+)\s*|\s*(\d+(?:\.\d+)?)\s*%\s*", text)
    if found is None or (found[2] is not None and float(found[2]) > 100):
        raise ConfigError(
            f'The limit of rejects is "{text}".', fix="Give a number of rows, such as 100, or a share, such as 1%."
        )
    return Limit(rows=int(found[1])) if found[1] is not None else Limit(share=float(found[2]) / 100)
