"""Two runs side by side: what differs in what was asked, in the data, and in what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dray.errors import ModelError
from dray.runs.directory import RunDirectory, open_run
from dray.runs.parameters import label_of, parameters
from dray.runs.trained_on import DATA, read_data
from dray.storage import DEFAULT, StorageOptions

Section = Literal["configuration", "data", "outcome", "machine"]
SECTIONS: tuple[Section, ...] = ("configuration", "data", "outcome", "machine")
"""The last one does not change a model."""
_OUTCOME = ("objective", "rows", "eval_rows", "rounds", "best_round", "features")


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing in which two runs differ; None: that run has none."""

    section: Section
    what: str
    a: Any
    b: Any


@dataclass(frozen=True, slots=True)
class Facts:
    """What is compared of a run, by section."""

    configuration: Mapping[str, Any]
    data: Mapping[str, Any]
    outcome: Mapping[str, Any]
    machine: Mapping[str, Any]


def compare_runs(a: str, b: str, options: StorageOptions = DEFAULT) -> list[Difference]:
    """Return in what two runs differ; an empty list if in nothing."""
    return compare(*(facts_of(open_run(location, options)) for location in (a, b)))


def compare(a: Facts, b: Facts) -> list[Difference]:
    """Pure."""
    found = []
    for section in SECTIONS:
        left, right = getattr(a, section), getattr(b, section)
        found += [
            Difference(section, key, left.get(key), right.get(key))
            for key in dict.fromkeys([*left, *right])
            if left.get(key) != right.get(key)
        ]
    return found


def facts_of(run: RunDirectory) -> Facts:
    document = run.document
    config, result = document.get("config") or {}, document.get("result") or {}
    machine = {key: config.get(key) for key in ("workers", "threads", "cluster")} | (document.get("versions") or {})
    if isinstance(seconds := result.get("seconds"), Mapping):
        machine["seconds"] = seconds.get("total")
    label = {} if "label" in config or (label := label_of(config)) is None else {"recommends": label}
    return Facts(parameters(config) | label, dict(_data(run)), dict(_outcome(document, result)), machine)


def _outcome(document: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "status", document["status"]
    for key in _OUTCOME:
        if key in result:
            yield key, result[key]
    yield from (result.get("metrics") or {}).items()
    if "model_digest" in result:
        yield "model digest", str(result["model_digest"])[:12]


def _data(run: RunDirectory) -> Iterator[tuple[str, Any]]:
    """Files by name: their rows, and a digest of what is in them; rows of all."""
    try:
        found = read_data(run) if run.exists(DATA) else {}
    except ModelError as error:
        yield "data", error.what
        return
    for role in ("train", "eval"):
        files = found.get(role, ())
        if files:
            yield f"{role} rows in files", sum(rows for _, rows, _ in files)
        for name, rows, _ in files:
            mark = found.get("files", {}).get(name, {})
            digest = str(mark.get("content") or mark.get("footer") or "")[:8]
            yield f"{role} {name}", f"{rows:,} rows" + (f", {digest}" if digest else "")
