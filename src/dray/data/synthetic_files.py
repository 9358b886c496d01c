"""Write the files of a synthetic data set, in this process or in several.

A process gets one file at a time and answers after every row group. The parent owns all processes and ends them
at once when one fails or the user interrupts; a file is complete only when its process has reported so.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pyarrow.parquet as pq

from dray.data.synthetic import FilePlan
from dray.data.synthetic_rows import TableSpec, rows
from dray.errors import WorkerError

_DONE = "done"


def write_files(
    directory: Path, spec: TableSpec, plan: Sequence[FilePlan], processes: int, wrote: Callable[[int], None]
) -> None:
    """Write every file of the plan; `wrote` is called in this thread with the rows of each row group."""
    if min(processes, len(plan)) == 1:
        for index in range(len(plan)):
            for count in write_file(directory, spec, plan, index):
                wrote(count)
        return
    _write_in_processes(directory, spec, plan, min(processes, len(plan)), wrote)


def write_file(directory: Path, spec: TableSpec, plan: Sequence[FilePlan], index: int) -> Iterator[int]:
    """Write one file; yield the rows of each row group once it is written."""
    file = plan[index]
    digits = max(3, len(str(len(plan) - 1)))
    levels = [column.name for column in spec.columns if column.levels]
    # Not compressed: the numbers are noise to a compressor, the levels are already a few bits each. And without
    # Arrow's own schema in the footer, levels read as the plain strings that data from elsewhere has.
    with pq.ParquetWriter(
        directory / f"part-{index:0{digits}}.parquet",
        spec.schema,
        compression="none",
        use_dictionary=levels,
        store_schema=False,
    ) as writer:
        start = file.start
        for group, count in enumerate(file.groups):
            writer.write_table(rows(spec, index, group, start, count), row_group_size=count)
            start += count
            yield count


def _write_in_processes(
    directory: Path, spec: TableSpec, plan: Sequence[FilePlan], processes: int, wrote: Callable[[int], None]
) -> None:
    waiting = iter(range(len(plan)))
    # Spawned, not forked: numpy, pyarrow and the caller may have threads, whose locks a fork would copy.
    context = get_context("spawn")
    workers: dict[Connection, SpawnProcess] = {}
    try:
        for _ in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, directory, spec, plan), daemon=True)
            with _no_interrupt():
                process.start()
            theirs.close()
            workers[ours] = process
            _send(ours, process, next(waiting))
        busy = set(workers)
        while busy:
            for connection in wait(list(busy)):
                assert isinstance(connection, Connection)
                answer = _receive(connection, workers[connection])
                if answer != _DONE:
                    wrote(int(answer))
                elif (index := next(waiting, None)) is None:
                    busy.remove(connection)
                else:
                    _send(connection, workers[connection], index)
    finally:
        for process in workers.values():
            process.terminate()
        for connection, process in workers.items():
            process.join()
            connection.close()


def _send(connection: Connection, process: SpawnProcess, index: int) -> None:
    try:
        connection.send(index)
    except OSError:
        raise _lost(process) from None


def _receive(connection: Connection, process: SpawnProcess) -> int | str:
    try:
        answer: int | str | Exception = connection.recv()
    except (EOFError, OSError):
        raise _lost(process) from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _lost(process: SpawnProcess) -> WorkerError:
    process.join(5)
    return WorkerError(
        f"A process that writes files ended unexpectedly (exit code {process.exitcode}).",
        "Its own message, if any, is above. If memory was short, use fewer --processes. A script that calls "
        'make() with several processes must do so under if __name__ == "__main__".',
    )


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """A process started inside ignores Ctrl-C: while it is loading, it would print a traceback."""
    # multiprocessing starts its tracker with the first process, which would unblock the signal again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(connection: Connection, directory: Path, spec: TableSpec, plan: Sequence[FilePlan]) -> None:
    # Ctrl-C reaches the whole process group; the parent alone decides, and ends its processes itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # The pipe breaks when the parent has ended: the files are not wanted any more.
    with suppress(EOFError, BrokenPipeError):
        while True:
            index = connection.recv()
            try:
                for count in write_file(directory, spec, plan, index):
                    connection.send(count)
                connection.send(_DONE)
            except BrokenPipeError:
                raise
            except Exception as error:
                connection.send(error)
                return
