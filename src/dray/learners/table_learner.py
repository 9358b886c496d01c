"""What learners of tables with a label have in common. Importing it loads no library, not even pydantic: `--help` does.

A learner of another package inherits from `TableLearner`, and finds the rest in `table.py` (`TableDriver`),
`reporting_worker.py`, `trained_bytes.py` and `table_predictor.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from dray.learners.learner import Flag, Words

if TYPE_CHECKING:
    from dray.learners.result import RunResult
    from dray.learners.table_config import TableConfig
    from dray.storage import StorageOptions

LABEL = Flag("label", "Column to predict; needed.", "COLUMN")
GROUP = Flag("group", "Column that names the query of a row (ranking); never split.", "COLUMN")
WEIGHT = Flag("weight", "Column with the weight of a row.", "COLUMN")
IGNORE = Flag("ignore", "Column to leave out; may be repeated.", "COLUMN", repeated=True)
EVAL_BY = Flag(
    "eval_by",
    "Evaluate on the latest rows by this column of times or numbers: --eval-fraction of them, or those from "
    "--eval-from on. Recommenders: random (any events, the default), or time (the last by --time).",
    "COLUMN",
)
EVAL_FROM = Flag("eval_from", "With --eval-by: evaluate on the rows from then on, such as 2024-06-01.", "TIME")
SPLIT_BY = Flag("split_by", "With --eval-fraction: rows alike in this column stay together.", "COLUMN")
MISSING_LABEL = Flag(
    "missing_label", "Leave out rows without a label, or refuse them. [default: drop]", choices=("drop", "error")
)
TIMES = Flag(
    "times",
    "What becomes of columns of times: seconds since 1970 (text too), or year, month, weekday, hour and days of each; "
    "category: text stays text. [default: number]",
    choices=("number", "parts", "category"),
)
TIME_FORM = Flag(
    "time_form",
    "How the text of a column of times is written, such as when=%d/%m/%Y; may be repeated. [default: found out]",
    "COLUMN=FORM",
    pairs=True,
    texts=True,
    name="time-form",
)


class TableLearner:
    """The attributes of `Learner` that most of them share. A subclass adds name, summary, library and the methods."""

    extra = ""
    default_rounds = "100"
    words = Words(step="round")
    layout: Literal["rows", "keyed"] = "rows"
    fit_fields = frozenset({"params", "rounds", "early_stop", "seed"})
    flags: tuple[Flag, ...] = (
        *(LABEL, GROUP, WEIGHT, IGNORE, MISSING_LABEL, TIMES, TIME_FORM),
        *(EVAL_BY, EVAL_FROM, SPLIT_BY),
    )

    @property
    def Config(self) -> type[TableConfig]:  # noqa: N802
        from dray.learners.table_config import TableConfig

        return TableConfig

    def result(self, document: Mapping[str, Any], storage: StorageOptions) -> RunResult:  # noqa: ARG002
        from dray.learners.result import RunResult, typed

        return RunResult(**typed(document))

    def recognises(self, location: str, storage: StorageOptions) -> bool:  # noqa: ARG002
        return False
