"""How the source falls into tasks, and these into row groups: by bytes alone, so that the number of workers changes
nothing about the output. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dray.data.source import Piece

TASKS = 16
LEAST_TASK_BYTES = 8 << 20
MOST_TASK_BYTES = 256 << 20
LEAST_GROUP_BYTES = 4 << 10
SMALL_GROUP_BYTES = 256 << 10
MOST_GROUP_BYTES = 24 << 20


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
    """Return the words for a stretch of a source."""
    return f"{name} ({start:,} to {stop:,})" if stop else name


def task_bytes(total: int) -> int:
    """Return the bytes of a task: some for each worker of a machine, none so large that losing it hurts."""
    return min(max(total // TASKS, LEAST_TASK_BYTES), MOST_TASK_BYTES)


def group_bytes(total: int) -> int:
    """Return the bytes of a row group in memory, as `dray data make` has them.

    128 in all leave 2 to 64 workers about even; data too small for that has 32. Above that, they are as large as the
    memory of those who write and read them allows.
    """
    wanted = max(total // 128, min(total // 32, SMALL_GROUP_BYTES))
    return min(max(wanted, LEAST_GROUP_BYTES), MOST_GROUP_BYTES)


def make_tasks(pieces: Sequence[Piece], target_bytes: int) -> list[Task]:
    """Return the pieces as tasks of about that size, in order; small files share one."""
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
    """Return the name of the file of a task: in order by name."""
    return f"part-{index:0{max(5, len(str(count - 1)))}}.parquet"
