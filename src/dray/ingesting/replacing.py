"""Which ingest `--overwrite` may replace: one that is known by _ingest.json or its journal, and holds nothing else."""

from __future__ import annotations

import json
import posixpath
from contextlib import suppress

from dray.batch.output import entries, foreign_in, require_only
from dray.errors import DAMAGE, StorageError
from dray.ingesting.journal import FOLDER, REJECTS, RESULT
from dray.runs.files import RunFiles
from dray.runs.own_files import files_below
from dray.runs.replacing import refuse_links
from dray.storage import DEFAULT, StorageOptions


def require_replaceable(out: str, storage: StorageOptions) -> bool:
    """Whether an output holds a finished ingest, to be replaced. Refuse what holds anything else.

    One that is empty, or holds an unfinished ingest, is written to as without overwriting.
    """
    refuse_links(out)
    there = set(entries(out, storage))
    if not there - {FOLDER}:
        return False
    if RESULT not in there and FOLDER in there:
        return False
    listed = _listed(out, storage)
    if listed is None:
        raise StorageError(
            f"{out} cannot be replaced: it has no {RESULT} of a finished ingest: something else may have written it.",
            fix="Name another output, or remove it.",
        )
    require_only(out, listed | _journal(out, storage), storage)
    return True


def require_only_remains(out: str, storage: StorageOptions) -> None:
    """Refuse an output with an unfinished ingest that holds something else."""
    names, _ = files_below(out, storage)
    parts = (name for name in names if posixpath.basename(name).lstrip(".").startswith(("part-", RESULT, REJECTS)))
    require_only(out, dict.fromkeys(parts) | _journal(out, storage), storage)


def foreign_in_ingest(out: str) -> list[str]:
    """Return the names of what is in a local output that its ingest did not write."""
    return foreign_in(out, (_listed(out, DEFAULT) or {}) | _journal(out, DEFAULT), DEFAULT)


def _journal(out: str, storage: StorageOptions) -> dict[str, None]:
    """Return the files of a journal: a finished ingest has one if it was killed before it removed it."""
    names, _ = files_below(out, storage)
    return dict.fromkeys(name for name in names if name.startswith(f"{FOLDER}/"))


def _listed(out: str, storage: StorageOptions) -> dict[str, None] | None:
    """Return the files of a finished ingest; None if there is none."""
    files = RunFiles(out, storage)
    with suppress(*DAMAGE, StorageError):
        if files.exists(RESULT):
            return {**dict.fromkeys(json.loads(files.read_bytes(RESULT))["footers"]), RESULT: None, REJECTS: None}
    return None
