"""The checks of a table that is about to be trained on: made in a thread, told once, never in the way of the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from dray.data.parquet import Dataset
from dray.data.split import PickedRows, Split
from dray.events.kinds import Event, Warned

if TYPE_CHECKING:
    from dray.data.describing.checking import Checked


class TableChecks:
    """One thread begins and tells; another one looks."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dray-checks")
        self._found: Future[Checked] | None = None

    def begin(
        self, train: Dataset, evaluation: Dataset | None, features: Sequence[str], label: str, group: str | None
    ) -> None:
        self._found = self._pool.submit(_check, train, evaluation, features, label, group)

    def tell(self, emit: Callable[[Event], object], split: Split | PickedRows | None) -> None:
        """Report what was found, once; `split` picks the rows to evaluate on, if they are some of the training data.

        What cannot be looked at is no reason to end a run: loading says why.
        """
        found, self._found = self._found, None
        if found is None:
            return
        if (error := found.exception()) is not None:
            emit(Warned(f"The columns could not be checked before training: {error}"))
            return
        for note in found.result().notes(split):
            emit(Warned(note.what, note.fix))

    def close(self) -> None:
        self._pool.shutdown()


def _check(
    train: Dataset, evaluation: Dataset | None, features: Sequence[str], label: str, group: str | None
) -> Checked:
    from dray.data.describing.checking import check  # while the workers start

    return check(train, evaluation, features, label, group)
