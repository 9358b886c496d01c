"""The runs in a directory, summarised for a list."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from pyarrow import fs as pafs

from dray.errors import DrayError, StorageError
from dray.runs.alive import is_alive
from dray.runs.directory import open_run
from dray.runs.files import MANIFEST, RunFiles
from dray.runs.parameters import label_of, parameters
from dray.storage import DEFAULT, StorageOptions, absolute, is_s3, join, open_storage, translate_errors

_LARGEST = 1e300
"""Larger numbers are damage; those of JSON have no end."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run as a list shows it. What is not known (yet) is None."""

    run: str
    """Its id."""
    directory: str
    status: str
    """running, finished, failed, stopped (before its end, on purpose), lost (its process is gone) or broken (its
    description cannot be read)."""
    started: str | None = None
    model: str | None = None
    """The name of its learner."""
    rows: int | None = None
    workers: int | None = None
    rounds: int | None = None
    """Of a recommender: epochs."""
    metrics: dict[str, float] | None = None
    seconds: float | None = None
    label: str | None = None
    """The column that it predicts; of a recommender "item for user"."""
    parameters: dict[str, Any] | None = None
    """What its model depends on: the keys of its run file, those of params by their own names."""
    problem: str | None = None
    """Why it failed, was stopped or is broken."""

    @property
    def name(self) -> str:
        """The last part of its directory, by which it is named."""
        return _name(self.directory)


def list_runs(directory: str, options: StorageOptions = DEFAULT) -> list[RunSummary]:
    """Return the runs right below `directory` (or the one that it is), newest first."""
    location = absolute(directory).rstrip("/")
    if RunFiles(location, options).exists(MANIFEST):
        return [_summary(location, options)]
    filesystem, path = open_storage(location, options)
    with translate_errors(location):
        entries = filesystem.get_file_info(pafs.FileSelector(path))
    prefix = "s3://" if is_s3(location) else ""
    places = [prefix + entry.path for entry in entries if entry.type == pafs.FileType.Directory]
    # On an object store each one is a few round trips, so they go side by side.
    with ThreadPoolExecutor(16 if prefix else 1) as pool:
        found = [summary for summary in pool.map(lambda place: _summary_if_run(place, options), places) if summary]
    return sorted(found, key=lambda summary: (summary.started or "", summary.run), reverse=True)


def _summary_if_run(location: str, options: StorageOptions) -> RunSummary | None:
    try:
        if not RunFiles(location, options).exists(MANIFEST):
            return None
    except StorageError as error:
        return RunSummary(_name(location), location, "broken", problem=error.what)
    return _summary(location, options)


def _summary(location: str, options: StorageOptions) -> RunSummary:
    try:
        run = open_run(location, options)
        lost = run.document["status"] == "running" and not is_alive(run)
    except DrayError as error:
        return RunSummary(_name(location), location, "broken", problem=error.what)
    document = run.document
    result = _dict(document.get("result"))
    return RunSummary(
        run=str(document["run"]),
        directory=location,
        status="lost" if lost else str(document["status"]),
        started=_text(document.get("started")),
        model=_text(result.get("learner") or _dict(document.get("config")).get("model")),
        rows=_count(result.get("rows")),
        workers=_count(result.get("workers")),
        rounds=_count(result.get("rounds")),
        metrics=_numbers(result.get("metrics")),
        seconds=_number(_dict(result.get("seconds")).get("total")),
        label=label_of(_dict(document.get("config"))),
        parameters=parameters(_dict(document.get("config"))),
        problem=_text(_dict(document.get("error")).get("what")),
    )


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and abs(value) < _LARGEST else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and abs(value) < _LARGEST else None


def _numbers(metrics: Any, prefix: str = "") -> dict[str, float] | None:
    """Return the numbers in `metrics` with flat names."""
    numbers: dict[str, float] = {}
    for name, value in _dict(metrics).items():
        if isinstance(value, dict):
            numbers |= _numbers(value, f"{prefix}{name}-") or {}
        elif (number := _number(value)) is not None:
            numbers[prefix + name] = number
    return numbers or None


def _name(location: str) -> str:
    return join(location).rpartition("/")[2]
