"""Names of runs and outputs that mean another: `latest`, and patterns of a date such as nightly/%Y-%m-%d.

`dated` and `newest` are pure. `Names` asks a listing and one clock: all names of a command are of one moment. It is
called once a command, at the edge (`jobs/anywhere.py`); everything below gets plain locations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

from pyarrow import fs as pafs

from dray.errors import ConfigError, ModelError
from dray.runs.listing import RunSummary, list_runs
from dray.storage import DEFAULT, StorageOptions, absolute, is_s3, open_storage, translate_errors

LATEST = "latest"
DEFAULT_DIRECTORY = "runs"
_DIRECTIVES = "YmdHMSyjUWVGuwabABpI"
_DIRECTIVE = re.compile(rf"%[{_DIRECTIVES}]")
_PERCENT = re.compile(r"%(.?)", re.DOTALL)
_UNFINISHED = ("stopped", "failed", "lost")

Tell = Callable[[str, str], object]
"""Hears a name as it was given, and what it means."""
Name = TypeVar("Name", str, str | None)


def dated(name: str, now: datetime) -> str:
    """Return a name with the parts of a date that it asks for; without any, the name as it is. Pure."""
    if not _DIRECTIVE.search(name.replace("%%", "")):
        return name

    def part(found: re.Match[str]) -> str:
        if found[1] == "%":
            return "%"
        if not found[1] or found[1] not in _DIRECTIVES:
            raise ConfigError(
                f'"{found[0]}" in {name} is not a part of a date that dray writes.',
                fix="Use %Y %m %d %H %M %S %j %G %V %u %y %U %W %w %a %b %A %B %I %p; write %% for a %.",
            )
        return now.strftime(found[0])

    return _PERCENT.sub(part, name)


def newest(runs: Sequence[RunSummary], statuses: Sequence[str]) -> RunSummary | None:
    """Return the first run, of a list with the newest first, that has one of the statuses. Pure."""
    return next((run for run in runs if run.status in statuses), None)


class Names:
    """What the names in one command mean."""

    def __init__(
        self, storage: StorageOptions = DEFAULT, tell: Tell = lambda _name, _meant: None, now: datetime | None = None
    ) -> None:
        self._storage, self._tell = storage, tell
        self._now = now or datetime.now().astimezone()

    def finished(self, name: Name) -> Name:
        """Return the run or model that a name means; `latest` is the newest run that is finished."""
        return name if name is None else self._run(name, ("finished",), "finished")

    def unfinished(self, name: str) -> str:
        """Return the run that a name means; `latest` is the newest that ended before its last round."""
        return self._run(name, _UNFINISHED, "unfinished")

    def output(self, name: Name) -> Name:
        """Return the location that a name means: something is written there."""
        if name is None:
            return name
        return self._told(name, dated(name, self._now))

    def _run(self, name: str, statuses: Sequence[str], which: str) -> str:
        """What is on disk under that very name comes first; a name alone is also one that `dray runs` shows."""
        meant = dated(name, self._now)
        directory, _, last = meant.rstrip("/").rpartition("/")
        plain = meant == name and last != LATEST and "/" in name
        if plain or self._is_there(name):
            return name
        if last != LATEST or self._is_there(meant):
            listed = f"{DEFAULT_DIRECTORY}/{meant}"
            return self._told(name, listed if self._is_listed(meant, listed) else meant)
        directory = directory or ("/" if meant.startswith("/") else DEFAULT_DIRECTORY)
        found = newest(list_runs(directory, self._storage), statuses) if self._is_there(directory) else None
        if found is None:
            raise ModelError(
                f"{name} is the newest {which} run in {directory}, and there is no {which} run.",
                fix=f"dray runs {directory} lists what is there; name a run, or another directory: DIR/{LATEST}.",
            )
        return self._told(name, found.directory if is_s3(directory) else f"{directory.rstrip('/')}/{_last(found)}")

    def _told(self, name: str, meant: str) -> str:
        if meant != name:
            self._tell(name, meant)
        return meant

    def _is_listed(self, name: str, listed: str) -> bool:
        alone = "/" not in name and name not in ("", ".", "..", "~")
        return alone and not self._is_there(name) and self._is_there(listed)

    def _is_there(self, location: str) -> bool:
        filesystem, path = open_storage(location, self._storage)
        with translate_errors(location):
            return bool(filesystem.get_file_info(path).type != pafs.FileType.NotFound)


def _last(run: RunSummary) -> str:
    return absolute(run.directory).rstrip("/").rpartition("/")[2]
