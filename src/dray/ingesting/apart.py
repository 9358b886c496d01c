"""Whether the output is apart from the source."""

from __future__ import annotations

from collections.abc import Sequence

from dray.errors import ConfigError, DrayError
from dray.storage import absolute, is_s3


def require_apart(locations: Sequence[str], out: str) -> None:
    """Refuse an output inside the source: the next look at the source would take it for data."""
    for location in locations:
        pattern = next((index for index, character in enumerate(location) if character in "*?["), None)
        if "://" in location and not is_s3(location):
            continue
        if pattern is not None:
            if "**" not in location:
                continue
            location = location[:pattern].rpartition("/")[0] or "/"
        try:
            inside = absolute(location).rstrip("/") + "/"
        except DrayError:  # no location, but a table's or a query's name
            continue
        below = out.removeprefix(inside) if out.startswith(inside) else ""
        if below and not any(name.startswith(("_", ".")) for name in below.split("/")):
            raise ConfigError(
                f"The output {out} is inside the source {location}.",
                fix="Name an output elsewhere, or one that begins with _: readers of data skip such names.",
            )
