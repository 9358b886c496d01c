"""What a run needs to go on after its driver died: the model so far and the rounds that made it.

    checkpoints/round-000050.model   the model, as its learner writes it
    checkpoints/latest.json          which model counts, its digest, and the rounds' history

The model comes first, latest.json second, and only then do older models go, each on the disk before the next step:
whenever the process is killed, the power fails or the disk is full, latest.json names a model that is whole.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from dray.errors import DAMAGE, ModelError, StorageError
from dray.events.telemetry import dumps
from dray.runs.files import MANIFEST, RunFiles
from dray.storage import join

FOLDER = "checkpoints"
LATEST = "latest.json"


@dataclass(frozen=True, slots=True)
class WrittenCheckpoint:
    """A run after one of its rounds."""

    round: int
    """How many rounds were done."""
    model: bytes
    """As its learner writes it."""
    rounds: tuple[dict[str, Any], ...]
    """One {round, seconds, metrics} for each round, as in the events."""
    start: dict[str, float] = field(default_factory=dict)
    """The metrics of the model that the run went on from."""
    baseline: dict[str, float] = field(default_factory=dict)
    """Those of an answer without a model."""


class Checkpoints:
    """The checkpoints of one run, of which the last one counts. One thread at a time."""

    def __init__(self, directory: RunFiles) -> None:
        self._directory = directory
        self._in_use: str | None = None
        self._settled = False
        """Whether `_in_use` is what latest.json names; not known at first, nor after a failure."""

    def write(self, checkpoint: WrittenCheckpoint) -> None:
        """Make `checkpoint` the one that counts. On a StorageError the earlier one still counts."""
        if not self._settled:
            self._in_use = self._named()
            self._remove_others()  # what a killed process or a failed try left takes up room
        self._settled = False
        digest = hashlib.sha256(checkpoint.model).hexdigest()
        file = f"round-{checkpoint.round:06d}.model"
        if file == self._in_use:  # never overwrite the model that counts with another one
            file = f"round-{checkpoint.round:06d}-{digest[:8]}.model"
        document = {
            "round": checkpoint.round,
            "file": file,
            "bytes": len(checkpoint.model),
            "sha256": digest,
            "rounds": checkpoint.rounds,
            "start": checkpoint.start,
            "baseline": checkpoint.baseline,
        }
        self._put(file, checkpoint.model)
        self._put(LATEST, (dumps(document) + "\n").encode())
        self._in_use, self._settled = file, True
        self._remove_others()

    def read(self) -> WrittenCheckpoint | None:
        """Return the last checkpoint, or None if there is none."""
        if not self._directory.exists(_path(LATEST)):
            return None
        document = self._directory.read_json(_path(LATEST))
        try:
            file, number, digest = str(document["file"]), int(document["round"]), str(document["sha256"])
            rounds = tuple(_round(row) for row in document["rounds"])
            start, baseline = (_numbers(document.get(key, {})) for key in ("start", "baseline"))  # older ones: none
            model = self._directory.read_bytes(_path(file)) if self._directory.exists(_path(file)) else None
        except DAMAGE as error:
            raise self._damaged(LATEST, "it does not describe a checkpoint") from error
        if model is None:
            raise self._damaged(file, "it is missing")
        if hashlib.sha256(model).hexdigest() != digest:
            raise self._damaged(file, f"its {len(model):,} bytes are not those that were written")
        return WrittenCheckpoint(number, model, rounds, start, baseline)

    def clear(self) -> None:
        """Remove all checkpoints: a finished run needs none."""
        self._in_use, self._settled = None, False
        self._directory.delete_folder(FOLDER, beside=MANIFEST)

    def _named(self) -> str | None:
        """Return the model that latest.json names, if there is such a thing."""
        if not self._directory.exists(_path(LATEST)):
            return None
        try:
            return str(json.loads(self._directory.read_bytes(_path(LATEST)))["file"])
        except DAMAGE:
            return None

    def _put(self, name: str, content: bytes) -> None:
        self._directory.write_bytes(_path(name), content)

    def _remove_others(self) -> None:
        with suppress(StorageError):  # they only take up room, and the next checkpoint tries again
            names = self._directory.names(FOLDER)
            others = [_path(name) for name in names if name not in (LATEST, self._in_use)]
            if LATEST in names:
                self._directory.delete(others, beside=_path(LATEST))

    def _damaged(self, name: str, why: str) -> ModelError:
        return ModelError(
            f"The checkpoint {self._directory.path(_path(name))} is damaged: {why}.",
            fix="Put the file back if there is a copy; otherwise train again with the configuration in run.json.",
        )


def _round(row: dict[str, Any]) -> dict[str, Any]:
    _numbers({"seconds": row["seconds"]})
    return {**row, "round": int(row["round"]), "metrics": _numbers(row["metrics"])}


def _numbers(kept: dict[str, Any]) -> dict[str, Any]:
    """Return numbers by name as they are; JSON has null for those that it lacks."""
    for value in kept.values():
        if value is not None:
            float(value + 0)
    return dict(kept)


def _path(name: str) -> str:
    return join(FOLDER, name)
