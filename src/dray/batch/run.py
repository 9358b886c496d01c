"""One run of a function over items: an executor, an engine, and what became of each item."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager

from dray.batch.engine import Emit, Engine, Items, Outcome, silence
from dray.batch.function import Tell, ignore
from dray.batch.open_executor import Function, mover, open_executor
from dray.batch.options import Options
from dray.batch.processes import Printed


def run(
    function: Function,
    items: Iterable[object],
    options: Options | None = None,
    emit: Emit = silence,
    printed: Printed | None = None,
) -> Generator[Outcome, None, None]:
    """Yield what became of each item, errors included whatever `on_error` says."""
    with opened_engine(function, items, options or Options(), emit, printed) as engine:
        yield from outcomes(engine)


@contextmanager
def opened_engine(
    function: Function,
    items: Iterable[object],
    options: Options,
    emit: Emit,
    printed: Printed | None = None,
    tell: Tell = ignore,
) -> Iterator[Engine]:
    """Give the engine of a run; leaving the block ends every process."""
    todo = Items(items)
    executor = open_executor(function, options, todo.total, printed, tell)
    engine = Engine(executor, todo, options, emit, mover(function, options, printed))
    try:
        yield engine
    finally:
        engine.close(good=False)


def outcomes(engine: Engine) -> Generator[Outcome, None, None]:
    with closing(engine.chunks()) as chunks:
        for chunk in chunks:
            for offset, value in enumerate(engine.values(chunk)):
                yield Outcome(chunk.first + offset, value, chunk.errors.get(offset))
            engine.pump()
