"""`dray.map`: a function over many items, in parallel, as a loop would have done it."""

from __future__ import annotations

import functools
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from typing import Any, Generic, Literal, Self, TypeVar, get_args, overload

from dray.batch.engine import Chunk, Emit, Engine, Items, silence
from dray.batch.open_executor import cluster_cpus, open_processes, slots_here, verdict_of
from dray.batch.options import OnError, Options, Where, one_of
from dray.batch.packing import name_of
from dray.batch.pieces import OverPieces, is_data
from dray.batch.run import opened_engine
from dray.batch.verdict import Verdict
from dray.clusters.resolve import require_attachable
from dray.errors import ConfigError, ItemError
from dray.events.kinds import PhaseStarted, Warned
from dray.hints import speaks_python

R = TypeVar("R")
Each = Literal["batch", "file"]

KEPT_FAILURES = 1000
TOLD_FAILURES = 5
EXPLAIN_S = 1.0
_STRETCH = 512


@dataclass(slots=True)
class _State:
    """What is known of a map besides its results."""

    name: str
    begun: bool = False
    failed: int = 0
    failures: list[ItemError] = field(default_factory=list)


class Results(Generic[R]):
    """The results of a map, as they are asked for. Nothing runs before the first one is; closing it ends everything.

    Iterate over it once. A loop that runs to its end, an error, a `with` block and the end of the program all close it.
    """

    def __init__(self, state: _State, values: Generator[R, None, None]) -> None:
        self._state = state
        self._values = values
        weakref.finalize(self, _complain, state)

    @property
    def failures(self) -> list[ItemError]:
        """The items that failed so far, the first thousand of them."""
        return self._state.failures

    @property
    def failed(self) -> int:
        """How many items failed so far."""
        return self._state.failed

    def __iter__(self) -> Iterator[R]:
        self._state.begun = True
        return self._values

    def __next__(self) -> R:
        self._state.begun = True
        return next(self._values)

    def close(self) -> None:
        """Cancel what runs and end every process."""
        self._state.begun = True
        self._values.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _complain(state: _State) -> None:
    if not state.begun:
        warnings.warn(
            f"The results of dray.map({state.name}, ...) were never asked for, so nothing ran: iterate over them.",
            RuntimeWarning,
            stacklevel=2,
        )


@overload
def map(
    function: Callable[..., R], items: Iterable[Any] | str | PathLike[str], *, explain: Literal[True], **options: Any
) -> Verdict: ...


@overload
def map(
    function: Callable[..., R],
    items: Iterable[Any] | str | PathLike[str],
    *,
    explain: Literal[False] = False,
    **options: Any,
) -> Results[R]: ...


@speaks_python  # type: ignore[misc]  # the overloads tell what comes back, this one what can be given
def map(
    function: Callable[..., R],
    items: Iterable[Any] | str | PathLike[str],
    *,
    shared: Mapping[str, Any] | None = None,
    each: Each = "batch",
    ordered: bool = True,
    on_error: OnError = "raise",
    timeout_s: float | None = None,
    retries: int = 2,
    where: Where = "auto",
    workers: int | Literal["auto"] = "auto",
    cluster: str | None = None,
    batch: int | None = None,
    resources: Mapping[str, float] | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    endpoint: str | None = None,
    region: str | None = None,
    profile: str | None = None,
    role: str | None = None,
    progress: bool = False,
    explain: bool = False,
) -> Results[R] | Verdict:
    """Run `function` over `items` in parallel; iterate over what comes back, in order, as of the built-in `map`.

    >>> sizes = list(dray.map(measure, ["a.txt", "b.txt"]))
    >>> for row in dray.map(score, rows(), shared={"model": model}, on_error="skip", progress=True): ...
    >>> print(dray.map(score, rows, explain=True))  # runs the first items for a second: is it worth it?

    items: a sequence, an iterator (it may never end), or the name of data (a file, a directory, a pattern, s3://...):
    then the function gets each record batch, or each file's name (`each="file"`).
    shared: keyword arguments for every call. Large arrays and tables are handed over once, wherever they are: here,
    in a closure, in a partial or in the items; functions get them read-only.
    ordered: False gives results as they come.
    on_error: "raise" an `ItemError` that names the item, "skip" it (`.failures` of the result has it), or "return" the
    error in place of the result. timeout_s limits one item; retries count for processes that were killed.
    where: "processes" of this machine, a "cluster", "here" (this process, for debugging), or "auto": this machine, and
    on to the cluster that is named or joined if that is predicted to be faster.
    An item may run more than once if its process died; it has one result.
    """
    require_attachable(cluster)
    options = Options(
        ordered=ordered,
        on_error=on_error,
        timeout_s=timeout_s,
        retries=retries,
        where=where,
        workers=workers,
        cluster=cluster,
        batch=batch,
        resources=dict(resources or {}),
        runtime_env=dict(runtime_env or {}),
    )
    called, found = prepare(function, items, shared, each, (endpoint, region, profile, role))
    if explain:
        return judge_first(called, found, options)
    state = _State(name_of(function))
    values = _values(state, called, found, options, progress)
    return Results(state, _flat(values) if isinstance(called, OverPieces) else values)


def prepare(
    function: Callable[..., Any],
    items: Any,
    shared: Mapping[str, Any] | None = None,
    each: Each = "batch",
    storage: tuple[str | None, ...] = (),
) -> tuple[Callable[[Any], Any], Iterable[Any]]:
    """Return the function of one item and the items; of data an item is a piece (`OverPieces`) or a file's name."""
    if not callable(function):
        raise ConfigError(f"{function!r} cannot be called.", fix="Give a function of one item.")
    one_of("each", each, get_args(Each))
    if shared:
        function = functools.partial(function, **shared)
    data = isinstance(items, str | PathLike) or is_data(items)
    if not data and not isinstance(items, Iterable):
        raise ConfigError(
            f"Items are {type(items).__name__}, nothing to go through.", fix="Give a sequence or an iterator."
        )
    if not data:
        return function, items
    from dray.mapping.data_items import batches_of, files_of
    from dray.storage import StorageOptions

    options = StorageOptions(*storage)
    location = fspath(items) if isinstance(items, PathLike) else items
    return files_of(function, [location], options) if each == "file" else batches_of(function, location, options)


def judge_first(function: Callable[[Any], Any], items: Iterable[Any], options: Options) -> Verdict:
    """Run the first items, for about a second, in another process; say what all of them would take where."""
    todo = Items(items)
    executor = open_processes(function, replace(options, where="auto", workers=1), todo.total, None)
    slots = slots_here(options)
    engine = Engine(executor, todo, options)
    begun = time.monotonic()
    with closing(engine.chunks()) as chunks:
        for chunk in chunks:
            if chunk.errors:
                raise next(iter(chunk.errors.values()))
            if engine.pace.seconds >= EXPLAIN_S or time.monotonic() - begun > 3 * EXPLAIN_S:
                break
    if not engine.done:
        raise ConfigError("There are no items.", fix="Give at least one.")
    return verdict_of(engine, slots, cluster_cpus(options), todo.total, options.cpus)


def _values(
    state: _State, function: Callable[[Any], Any], items: Iterable[Any], options: Options, progress: bool
) -> Generator[Any, None, None]:
    with _told(progress) as emit:
        emit(PhaseStarted("map"))
        with opened_engine(function, items, options, emit) as engine, closing(engine.chunks()) as chunks:
            for chunk in chunks:
                values = engine.values(chunk)
                if chunk.errors:
                    values = list(_settle(state, chunk, values, options.on_error, emit))
                for start in range(0, len(values), _STRETCH):
                    yield from values[start : start + _STRETCH]
                    engine.pump()
        if state.failed and options.on_error == "skip":
            emit(Warned(f"{state.failed:,} items failed and were skipped.", "See .failures."))


@contextmanager
def _told(progress: bool) -> Iterator[Emit]:
    """Give the receiver of events: the terminal, or none."""
    if not progress:
        yield silence
        return
    from dray.events.sinks.terminal import terminal
    from dray.events.telemetry import Telemetry

    telemetry = Telemetry([terminal(sys.stderr, live=sys.stderr.isatty())])
    try:
        yield telemetry.emit
    finally:
        telemetry.close()


def _settle(state: _State, chunk: Chunk, values: list[Any], on_error: OnError, emit: Emit) -> Iterator[Any]:
    """Yield the values of a chunk in which items failed, as was asked for."""
    for offset, value in enumerate(values):
        error = chunk.errors.get(offset)
        if error is None:
            yield value
            continue
        state.failed += 1
        if len(state.failures) < KEPT_FAILURES:
            state.failures.append(error)
        if on_error == "raise":
            raise error
        if on_error == "return":
            yield error
        elif state.failed <= TOLD_FAILURES:
            emit(Warned(f"Skipped: {error.what}"))


def _flat(values: Generator[Any, None, None]) -> Generator[Any, None, None]:
    """Yield the results of each batch of a piece; an error takes the place of the piece's results."""
    with closing(values):
        for results in values:
            if isinstance(results, ItemError):
                yield results
            else:
                yield from results
