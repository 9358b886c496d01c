"""A training run as a job that may be tried more than once: a further try goes on with the run of the one before.

What tells the run of this job from any other is the job's id in run.json. A run of another job, or of none, is never
touched: training there is refused, as anywhere.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from typing import Any

from pyarrow import fs as pafs

from dray.config.run_file import RunConfig
from dray.errors import ModelError
from dray.events.kinds import Waiting
from dray.events.telemetry import Sink, Telemetry, dumps
from dray.learners.registry import find
from dray.learners.result import RunResult
from dray.runs.alive import ALIVE, LOST_AFTER_S, is_alive
from dray.runs.directory import EVENTS, RunDirectory, open_run
from dray.runs.files import MANIFEST, RunFiles
from dray.runs.replacing import beside
from dray.storage import StorageOptions, absolute, is_s3, open_storage, remove_directory, translate_errors
from dray.training.resume import resume
from dray.training.train import train

LOOK_S = 2.0
_BEGINNING = re.compile(rf"{ALIVE}|\.({ALIVE}|{re.escape(MANIFEST)})\.[0-9a-f]+\.tmp")
"""What a run writes before its run.json, beside an empty log of events."""


def train_or_go_on(config: RunConfig, sinks: Sequence[Sink] = (), *, job: str, cluster: str | None = None) -> RunResult:
    """Train; or go on with the run that an earlier try of the same job left, or return its result.

    `cluster`: the word by which the user named the cluster, which is kept in run.json.
    """
    storage = StorageOptions(**config.storage.model_dump())
    if config.out is None:
        return train(config, sinks, job=job, cluster=cluster)
    location = _place_of_earlier(config.out, config, storage)
    if not RunFiles(location, storage).exists(MANIFEST):
        _clear_beginning(location, storage)
        return train(config, sinks, job=job, cluster=cluster)
    try:
        earlier = open_run(location, storage)
    except ModelError:  # not a run: refused below
        return train(config, sinks, job=job, cluster=cluster)
    if not is_earlier_try(earlier.document, config, job):
        return train(config, sinks, job=job, cluster=cluster)
    if earlier.document["status"] == "finished":
        result = earlier.document["result"]
        return find(result["learner"]).result(result, storage)
    _wait_until_lost(earlier, location, storage, Telemetry(sinks))
    return resume(location, storage, {"cluster": config.cluster}, sinks)


def _place_of_earlier(out: str, config: RunConfig, storage: StorageOptions) -> str:
    """Return where an earlier try has written: a run that replaces another grows beside it."""
    if config.overwrite and not is_s3(out) and RunFiles(place := beside(absolute(out)), storage).exists(MANIFEST):
        return place
    return out


def is_earlier_try(document: dict[str, Any], config: RunConfig, job: str) -> bool:
    """Whether a run.json is of an earlier try: the same job, asked for the same. Pure."""
    found = document.get("config")
    if document.get("job") != job or not isinstance(found, dict):
        return False
    asked = json.loads(dumps(config.model_dump(mode="json")))
    return {**found, "cluster": ""} == {**asked, "cluster": ""}


def _wait_until_lost(run: RunDirectory, location: str, storage: StorageOptions, telemetry: Telemetry) -> None:
    """Return once the earlier try counts as dead: its last sign of life may be younger than that."""
    end = time.monotonic() + LOST_AFTER_S + LOOK_S
    if is_alive(run):
        why = f"Waiting up to {LOST_AFTER_S:.0f} s for the earlier try of this job to count as lost."
        telemetry.emit(Waiting(why=why, limit_s=LOST_AFTER_S))
    while is_alive(run) and time.monotonic() < end:
        time.sleep(LOOK_S)
        run = open_run(location, storage)


def _clear_beginning(location: str, storage: StorageOptions) -> None:
    """Remove what a try left that was killed before its run.json was there; wait until it counts as lost."""
    filesystem, path = open_storage(location, storage)
    while True:
        with translate_errors(location):
            found = filesystem.get_file_info(pafs.FileSelector(path, allow_not_found=True))
        if not found or not all(_is_beginning(entry) for entry in found):
            return
        youngest = max((entry.mtime_ns or 0) / 1e9 for entry in found)
        if time.time() - youngest > LOST_AFTER_S:
            break
        time.sleep(LOOK_S)
    if is_s3(location):
        remove_directory(location, storage)
        return
    with translate_errors(location):
        for entry in found:
            filesystem.delete_file(entry.path)


def _is_beginning(entry: pafs.FileInfo) -> bool:
    if entry.base_name == EVENTS:
        return bool(entry.type == pafs.FileType.File and not entry.size)
    return bool(entry.type == pafs.FileType.File and _BEGINNING.fullmatch(entry.base_name))
