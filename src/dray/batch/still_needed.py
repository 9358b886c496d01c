"""What an output may not replace though it was named: what the same command reads, and the files of a run or model."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from dray.errors import DrayError, StorageError
from dray.runs.files import MANIFEST, RunFiles
from dray.runs.own_files import is_own
from dray.storage import StorageOptions, absolute, covers, is_s3

_MODEL = "model.json"
"""Tells of a directory that it is a model, wherever it was copied to."""


def locations_of(*inputs: Any) -> tuple[str, ...]:
    """Return the locations among the inputs of a command; tables and lists of ids are none."""
    found: list[str] = []
    for given in inputs:
        several = given if isinstance(given, list | tuple) else [given]
        found += [one for one in several if isinstance(one, str) and one]
    return tuple(found)


def require_not_read(out: str, reads: Iterable[str]) -> None:
    """Refuse an output that is, holds, or lies in what the command reads: the data would be gone."""
    for location in reads:
        try:
            pairs = [(absolute(location), absolute(out))]
        except DrayError:  # the name of a table or a query, not a location
            continue
        if not is_s3(location) and not is_s3(out):
            pairs.append((os.path.realpath(pairs[0][0]), os.path.realpath(pairs[0][1])))
        if any(covers(given, place) or covers(place, given) for given, place in pairs):
            raise StorageError(
                f"The output {out} cannot be replaced: it is read by the same command, as {location}.",
                fix="Name another output.",
            )


def require_no_part_of_a_model(out: str, storage: StorageOptions) -> None:
    """Refuse a single file that belongs to a run or to a model: without it they are damaged."""
    folder, _, name = absolute(out).rpartition("/")
    above, _, last = folder.rpartition("/")
    places = [(folder, name, MANIFEST), (above, f"{last}/{name}", MANIFEST), (folder, f"model/{name}", _MODEL)]
    for place, own, sign in places:
        if place.strip("/") and is_own(own, {}) and RunFiles(place, storage).exists(sign):
            raise StorageError(f"The output {out} is a file of the run or model {place}.", fix="Name another output.")
