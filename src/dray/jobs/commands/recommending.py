"""`dray recommend` as a command: the lists of many users. Similar items and exports run where they are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import pyarrow as pa

from dray.clusters.resolve import Attached, Here
from dray.errors import ConfigError
from dray.events.telemetry import Sink
from dray.jobs.command import shared_paths
from dray.jobs.commands.asked import AskedOfModel
from dray.jobs.shared import Head
from dray.learners.ids import as_ids
from dray.learners.recommender import recommends
from dray.learners.registry import available
from dray.recommending.recommend import RecommendResult, recommend
from dray.recommending.wanted_ids import is_file
from dray.runs.naming import Names

MOST_BYTES = 4 << 20
"""Of lists that a job tells in its log; more have to be written to files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommend(AskedOfModel):
    """The best items of users, written to files or told."""

    model: Any
    """A location; in this process also a model."""
    users: Any = None
    top: int = 10
    exclude_seen: bool = True
    items: Any = None
    events: Any = None
    out: str | None = None
    overwrite: bool = False
    most_users: int | None = None
    name: ClassVar[str] = "recommend"

    @property
    def libraries(self) -> tuple[str, ...]:
        return tuple(learner.library for learner in available() if recommends(learner))

    def named(self, names: Names) -> Self:
        model = names.finished(self.model) if isinstance(self.model, str) else self.model
        return replace(self, model=model, out=names.output(self.out))

    def settled(self, head: Head) -> Self:
        paths = shared_paths(head, model=self.model, events=self.events, out=self.out, cache=self.cache)
        return replace(
            self,
            model=paths["model"][0],
            users=self._ids(self.users, "user", head),
            items=self._ids(self.items, "item", head),
            events=paths["events"] or None,
            out=next(iter(paths["out"]), None),
            cache=next(iter(paths["cache"]), None),
        )

    def _ids(self, given: Any, side: str, head: Head) -> Any:
        """Return ids as JSON has them; of a file, its location."""
        if given is None:
            return None
        if not isinstance(given, str):
            return as_ids(given, f"{side} id").to_pylist()
        if not is_file(given, self.storage):
            return given
        name = f"The file of {side} ids"
        [location] = shared_paths(head, **{name: given})[name]
        return location

    def execute(self, where: Here | Attached, sinks: Sequence[Sink], job: str | None = None) -> RecommendResult:
        result = recommend(
            self.model,
            users=self.users,
            top=self.top,
            exclude_seen=self.exclude_seen,
            items=self.items,
            events=self.events,
            out=self.out,
            overwrite=self.overwrite,
            workers=self.workers,
            threads=self.threads,
            cluster=where.word,
            storage=self.storage,
            reading=self.reading(where),
            sinks=sinks,
            most_users=self.most_users,
        )
        return result if job is None else _Told(**{entry.name: getattr(result, entry.name) for entry in fields(result)})

    def result_of(self, told: Mapping[str, Any]) -> RecommendResult:
        table = told.get("table")
        return RecommendResult(**{**told, "table": None if table is None else _table(bytes.fromhex(table))})


class _Told(RecommendResult):
    """A result with its table as Arrow's bytes: a log masks passwords, and values of data must stay as they are."""

    def to_json(self) -> dict[str, Any]:
        document = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return document if self.table is None else document | {"table": _bytes(self.table).hex()}


def _bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    if len(found) > MOST_BYTES:
        raise ConfigError(
            f"The lists take {len(found):,} bytes, and a job returns at most {MOST_BYTES:,} without files.",
            fix="Write them with --out to storage that the cluster reaches, or name fewer with --users.",
        )
    return found


def _table(content: bytes) -> pa.Table:
    with pa.ipc.open_stream(content) as reader:
        return reader.read_all()
