"""The checks of a table that is about to be trained on: made in a thread, told once, never in the way of the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from dray.data.parquet import Dataset
from dray.data.source import Note
from dray.data.split import Split
from dray.events.kinds import Event, Warned


class TableChecks:
    """One thread begins and tells; another one looks."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dray-checks")
        self._found: Future[list[Note]] | None = None

    def begin(
        self, train: Dataset, evaluation: Dataset | None, features: Sequence[str], label: str, split: Split | None
    ) -> None:
        self._found = self._pool.submit(_check, train, evaluation, features, label, split)

    def tell(self, emit: Callable[[Event], object]) -> None:
        """Report what was found, once. What cannot be looked at is no reason to end a run: loading says why."""
        found, self._found = self._found, None
        if found is None:
            return
        if (error := found.exception()) is not None:
            emit(Warned(f"The columns could not be checked before training: {error}"))
            return
        for note in found.result():
            emit(Warned(note.what, note.fix))

    def close(self) -> None:
        self._pool.shutdown()


def _check(
    train: Dataset, evaluation: Dataset | None, features: Sequence[str], label: str, split: Split | None
) -> list[Note]:
    from dray.data.describing.checking import check  # while the workers start

    return check(train, evaluation, features, label, split)
