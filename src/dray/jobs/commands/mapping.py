"""`dray map` as a command: a function by its name over data, its results in files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

from dray.batch.options import OnError, Options, Where
from dray.batch.run import run
from dray.clusters.resolve import Attached, Here
from dray.errors import ConfigError
from dray.events.kinds import PhaseStarted
from dray.events.telemetry import Sink, Telemetry
from dray.functions import load_function
from dray.jobs.command import shared_paths
from dray.jobs.commands.asked import AskedOfFunction
from dray.jobs.shared import Head
from dray.jobs.user_code import Code, code_of
from dray.mapping.data_items import batches_of, files_of
from dray.mapping.results_files import result_files
from dray.runs.naming import Names
from dray.storage import StorageOptions, absolute


@dataclass(frozen=True, slots=True, kw_only=True)
class MapResult:
    """What a map over data came to."""

    items: int
    results: int
    rows: int
    """Of results that are tables."""
    failed: int
    seconds: float
    output: str
    files: list[str]
    """The results, then the items that failed."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Map(AskedOfFunction):
    """A function over record batches or files."""

    function: str
    """module:function."""
    data: Sequence[str]
    out: str
    each: Literal["batch", "file"] = "batch"
    ordered: bool = True
    on_error: OnError = "raise"
    timeout_s: float | None = None
    retries: int = 2
    resources: Mapping[str, float] = field(default_factory=dict)
    working_dir: str | None = None
    overwrite: bool = False
    name: ClassVar[str] = "map"

    @property
    def code(self) -> Code | None:
        return code_of(self.function, [*self.data, self.out], self.working_dir, self.excludes)

    def named(self, names: Names) -> Self:
        return replace(self, out=names.output(self.out))

    def settled(self, head: Head) -> Self:
        paths = shared_paths(head, data=self.data, out=self.out)
        where = on_the_cluster(self.where, head)
        return replace(self, data=paths["data"], out=paths["out"][0], where=where, word=head.url, output=None)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        # The job's own directory is the working directory already.
        return cls(**{**values, "storage": StorageOptions(**values["storage"]), "working_dir": None})

    def options(self, word: str | None) -> Options:
        return Options(
            ordered=self.ordered,
            on_error=self.on_error,
            timeout_s=self.timeout_s,
            retries=self.retries,
            where=self.where,
            workers=self.workers,
            cluster=word,
            resources=self.resources,
            runtime_env={"working_dir": self.working_dir} if self.working_dir else {},
        )

    def items(self) -> tuple[Callable[[Any], Any], Iterable[Any]]:
        """Return the function of one item, and the items."""
        function = load_function(self.function)
        if self.each == "batch":
            return batches_of(function, list(self.data), self.storage, **self.read)
        if self.read:
            raise ConfigError(
                "Rows are read as said by --format and --read, and --each file gives names of files instead.",
                fix="Leave out --format and --read, or --each file.",
            )
        return files_of(function, list(self.data), self.storage)

    def execute(self, where: Here | Attached, sinks: Sequence[Sink], job: str | None = None) -> MapResult:  # noqa: ARG002
        options = self.options(None if self.word is None else where.word)
        begun = time.perf_counter()
        count = 0
        telemetry = Telemetry(sinks)
        try:
            with result_files(self.out, self.storage, overwrite=self.overwrite, reads=self.data) as files:
                function, todo = self.items()
                telemetry.emit(PhaseStarted("map"))
                for outcome in run(function, todo, options, telemetry.emit, self.output):
                    count += 1
                    if outcome.error is not None:
                        if self.on_error == "raise":
                            raise outcome.error
                        files.fail(outcome.error)
                    else:
                        for value in outcome.value if self.each == "batch" else [outcome.value]:
                            files.add(value)
                written = [absolute(name) for name in files.publish()]
        finally:
            telemetry.close()
        return MapResult(
            items=count,
            results=files.results,
            rows=files.rows,
            failed=files.failed,
            seconds=round(time.perf_counter() - begun, 3),
            output=absolute(self.out),
            files=written,
        )

    def result_of(self, told: Mapping[str, Any]) -> MapResult:
        return MapResult(**told)


def on_the_cluster(where: Where, head: Head) -> Where:
    """Return where the items run once the command is on the head of a cluster; refuse this machine."""
    if where in ("here", "processes"):
        raise ConfigError(
            f'where is "{where}", on this machine, and the cluster is {head.url}.',
            fix="Leave out --where, or use --cluster local.",
        )
    return "cluster"
