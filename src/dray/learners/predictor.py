"""The contract of a model that predicts rows. Importing this module loads no learner's library.

A predictor is made in the driver by `Learner.open`, checks there what it is asked, and is sent to the processes that
predict: it pickles. There it is opened once a process; `OpenPredictor` is used by one file at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

PredictionType = Literal["probability", "class", "margin"]


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be predicted for each row."""

    type: PredictionType | None = None
    """None is the learner's own choice."""
    contributions: bool = False


@dataclass(slots=True)
class Counted:
    """Rows, by column, with a value that the model could not use as it was."""

    unseen: Counter[str] = field(default_factory=Counter)
    """The model does not know it: a category, a user, an item."""
    infinite: Counter[str] = field(default_factory=Counter)
    """Infinite, or too large for float32; it counted as missing."""
    unreadable: Counter[str] = field(default_factory=Counter)
    """Of another kind than the column, such as text that is not a number; it counted as missing."""


class OpenPredictor(Protocol):
    """A predictor in the process that predicts."""

    def prepare(self, batch: pa.RecordBatch) -> Any:
        """Return the rows as `predict` takes them. Called in the thread that reads, one batch after the other.

        The batch has all of `Predictor.columns`, of any type. It has a prediction for each row: what cannot be read is
        missing, and is counted.
        """
        ...

    def predict(self, prepared: Any) -> Sequence[pa.Array]:
        """Return one array for each of `Predictor.fields`. Called beside the next `prepare`."""
        ...

    def take_counted(self) -> Counted:
        """Return what was counted since the last call."""
        ...


class Predictor(Protocol):
    """A model that predicts rows, in the driver."""

    learner: str
    """The name of its learner."""
    columns: tuple[str, ...]
    """What it reads."""
    categories: tuple[str, ...]
    """Those of them that are read as categories."""
    uses_threads: bool
    """Whether one process of many threads is faster than one of a single thread."""

    @property
    def model(self) -> Any:
        """What `dray.load` returns."""
        ...

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns that hold numbers: text may write them as other countries do."""
        ...

    @property
    def moments(self) -> tuple[str, ...]:
        """The columns that hold dates and times: a number is none."""
        ...

    def check(self, schema: pa.Schema) -> tuple[str, ...]:
        """Refuse data that is not for this model, by a `DataError`; return the columns that may be missing and are.

        The types of columns do not matter: values are read one by one, whatever their type.
        """
        ...

    def fields(self, question: Question) -> list[pa.Field]:
        """Return the columns of the answer; refuse a question that the model has no answer to."""
        ...

    def open(self, question: Question, threads: int, *, own_process: bool) -> OpenPredictor:
        """Load the model. `own_process`: nothing but dray runs in this process, so imports may be trimmed."""
        ...
