"""Divide the source into tasks, and tasks into row groups: by bytes alone, so that the number of workers does not
change the output. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dray.data.source import Piece

TASKS = 16
LEAST_TASK_BYTES = 8 << 20
MOST_TASK_BYTES = 256 << 20
MOST_GROUP_BYTES = 24 << 20
LEAST_GROUP_ROWS, MOST_GROUP_ROWS = 50_000, 1 << 20
WIDE_GROUP_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, repr=False)
class Task:
    """Consecutive pieces that become one file."""

    index: int
    pieces: tuple[Piece, ...]

    @property
    def bytes(self) -> int:
        return sum(piece.bytes for piece in self.pieces)

    def __repr__(self) -> str:
        first, last = self.pieces[0], self.pieces[-1]
        if first.name != last.name:
            return f"{first.name} to {last.name}"
        return where(first.name, first.start, last.stop)


def where(name: str, start: int, stop: int) -> str:
    """Return the description of a range of a source, for messages."""
    return f"{name} ({start:,} to {stop:,})" if stop else name


def task_bytes(total: int) -> int:
    """Return the bytes of a task: several tasks for each worker of a machine, small enough to repeat after a loss."""
    return min(max(total // TASKS, LEAST_TASK_BYTES), MOST_TASK_BYTES)


def group_bytes(total: int) -> int:
    """Return the bytes of a row group in memory that a source asks for.

    128 row groups in all can be assigned evenly to 2 to 64 workers. In larger data they are as large as is good for
    the memory of writers and readers.
    """
    return min(total // 128, MOST_GROUP_BYTES)


def group_rows(wanted_bytes: int, row_bytes: float) -> int:
    """Return the rows of a row group: the wanted bytes, yet 50,000 at least, since small groups cost time to read.

    Memory wins where rows are wide: above 1.3 kB a row, a group has as many as fit into 64 MB.
    """
    least = min(LEAST_GROUP_ROWS, WIDE_GROUP_BYTES / row_bytes)
    return max(1, int(min(max(wanted_bytes / row_bytes, least), MOST_GROUP_ROWS)))


def make_tasks(pieces: Sequence[Piece], target_bytes: int) -> list[Task]:
    """Return the pieces as tasks of about that size, in order; several small files make one task."""
    tasks: list[Task] = []
    waiting: list[Piece] = []
    held = 0
    for piece in pieces:
        if waiting and held + piece.bytes > target_bytes:
            tasks.append(Task(len(tasks), tuple(waiting)))
            waiting, held = [], 0
        waiting.append(piece)
        held += piece.bytes
    if waiting:
        tasks.append(Task(len(tasks), tuple(waiting)))
    return tasks


def part_name(index: int, count: int) -> str:
    """Return the name of a task's file: names sort in the order of tasks."""
    return f"part-{index:0{max(5, len(str(count - 1)))}}.parquet"
