"""Real inputs: what an ingest that was ended leaves, and a copy in the cache, as the code of today writes them."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

from dray.batch.options import Options
from dray.data.open_source import open_source
from dray.data.source import Source
from dray.ingesting import plan, task
from dray.ingesting.cache import Reading, as_parquet
from dray.ingesting.ingest import ingest
from dray.ingesting.limits import parse_limit
from dray.ingesting.recipe import Recipe
from dray.storage import DEFAULT

ROWS = list(range(300))
RECIPE = Recipe(max_rejects=parse_limit("1"))
TASKS = 3


def source_with_a_reject() -> Source:
    """Return a source of two tasks and a bit; one line of the first cannot be read."""
    file = Path(tempfile.mkdtemp(), "a.csv")
    lines = [f"{row},{'abc'[row % 3]},{row / 4}\n" for row in ROWS]
    file.write_text("x,s,f\n" + "".join(lines[:10]) + "1,2\n" + "".join(lines[10:]))
    return open_source(str(file))


def ended_ingest(source: Source) -> Path:
    """Return an output whose ingest was ended by Ctrl-C after its first task."""
    out = Path(tempfile.mkdtemp(), "out")
    act = task.TaskRunner.__call__

    def end(self: Any, one: Any) -> Any:
        if one.index == 1:
            raise KeyboardInterrupt
        return act(self, one)

    with (
        mock.patch.object(plan, "LEAST_TASK_BYTES", source.bytes // TASKS + 1),
        mock.patch.object(task.TaskRunner, "__call__", end),
        suppress(KeyboardInterrupt),
    ):
        ingest(source, str(out), RECIPE, options=Options(where="here"))
    return out


def copy_in_cache() -> Path:
    """Return the copy of a CSV file that a training makes."""
    place = Path(tempfile.mkdtemp())
    (place / "a.csv").write_text("x,s\n" + "".join(f"{row},{'abc'[row % 3]}\n" for row in ROWS))
    reading = Reading(cache=str(place / "cache"))
    (copy,) = as_parquet(str(place / "a.csv"), DEFAULT, reading, lambda *_, **__: None)
    return Path(copy)
