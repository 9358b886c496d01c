"""Whether the output is apart from the source."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from itertools import combinations
from pathlib import Path

from dray.errors import ConfigError, DrayError
from dray.storage import absolute, covers, is_s3, join

_FILE = "part-*.parquet"
"""The files that an ingest writes below its output, in directories that a split makes, and --partition-by."""
_DIRECTORIES = ("train", "test", "*=*")
_MOST_PARTS = 16
"""With more names, as a shell makes of *.csv, not all combinations are checked."""
_WILDCARD = re.compile(r"[*?\[]")


def require_apart(locations: Sequence[str], out: str) -> None:
    """Refuse an output inside the source: the next read of the source would take it for data and read rows twice."""
    for location in locations:
        if "://" in location and not location.startswith(("s3://", "file://")):
            continue
        try:
            inside = absolute(location)
        except DrayError:  # the name of a table or a query, not a location
            continue
        # Any file may match below **, whatever its name will be.
        directory = _fixed(inside) if "**" in inside else inside
        names = list(_names_of(out, _fixed(inside)))
        covered = any(covers(directory, join(name, "part-00000.parquet")) for name in names)
        if covered or any(may_name(inside, absolute(name)) for name in names):
            raise ConfigError(
                f"The output {out} is inside the source {location}: the next reading would take it for data.",
                fix="Name an output elsewhere, or one that begins with _: readers of data skip such names.",
            )


def may_name(pattern: str, out: str) -> bool:
    """Whether a pattern without ** may name a file that an ingest writes below `out`. Pure.

    >>> may_name("data/*/region=*/*.parquet", "data/out")
    True
    >>> may_name("data/*/*.csv", "data/out")
    False
    """
    wanted, parts = pattern.split("/"), out.rstrip("/").split("/")
    if len(wanted) <= len(parts) or not all(map(_fits, parts, wanted)):
        return False
    *directories, last = wanted[len(parts) :]
    # A value of a partition may end like a file: *.csv means files, day=*.csv a directory.
    as_directory = _DIRECTORIES if "=" in last else _DIRECTORIES[:2]
    return all(_may_be(one, _DIRECTORIES) for one in directories) and _may_be(last, (_FILE, *as_directory))


def _fits(part: str, wanted: str) -> bool:
    """Whether a pattern names a part of a path; a wildcard names none that readers of data skip."""
    return part == wanted or (fnmatchcase(part, wanted) and not part.startswith(("_", ".")))


def _may_be(wanted: str, made: Sequence[str]) -> bool:
    return any(meet(wanted, one) for one in made)


@cache
def meet(one: str, other: str) -> bool:
    """Whether some name fits both patterns; sets of characters are taken to have one in common. Pure.

    >>> meet("part-0000[1-9]*", "part-*.parquet"), meet("*.csv", "part-*.parquet"), meet("region=*", "*=*")
    (True, False, True)
    """
    if not one or not other:
        return not (one or other).strip("*")
    if one[0] == "*" or other[0] == "*":
        star, text = (one, other) if one[0] == "*" else (other, one)
        return meet(star[1:], text) or meet(star, _rest(text))
    set_or_any = one[0] in "?[" or other[0] in "?["
    return (set_or_any or one[0] == other[0]) and meet(_rest(one), _rest(other))


def _rest(pattern: str) -> str:
    """Return the pattern behind its first character, or set of characters."""
    closing = pattern.find("]", 2) if pattern[0] == "[" else -1
    return pattern[closing + 1 :] if closing > 0 else pattern[1:]


def locations_in(name: str) -> list[str]:
    """Return all locations that a source's name may list: a directory may have a comma in its own name."""
    parts = name.split(", ")
    if len(parts) > _MOST_PARTS:
        return [name, *parts]
    return [", ".join(parts[start:stop]) for start, stop in combinations(range(len(parts) + 1), 2)]


def _fixed(location: str) -> str:
    """Return the directory up to the first wildcard; all of it if there is none."""
    wildcard = _WILDCARD.search(location)
    return location if wildcard is None else location[: wildcard.start()].rpartition("/")[0] or "/"


def _names_of(out: str, directory: str) -> Iterator[str]:
    """Yield the paths of an output, also those below a directory: links may lead to it on several paths."""
    yield out
    if is_s3(out) or is_s3(directory):
        return
    real = os.path.realpath(out)
    for link in (directory, *_links(directory)):
        target = os.path.realpath(link)
        if real == target or real.startswith(target.rstrip("/") + "/"):
            yield link + real.removeprefix(target.rstrip("/"))


def _links(directory: str) -> Iterator[str]:
    """Yield the links to directories below a directory, also through other links; cycles are followed once."""
    waiting, seen = [directory], set[str]()
    while waiting:
        place = waiting.pop()
        if (real := os.path.realpath(place)) in seen:
            continue
        seen.add(real)
        for found, names, _ in os.walk(place):
            links = [str(Path(found) / name) for name in names if (Path(found) / name).is_symlink()]
            yield from links
            waiting += links
