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


class TableLearner:
    """The attributes of `Learner` that most of them share. A subclass adds name, summary, library and the methods."""

    extra = ""
    default_rounds = "100"
    words = Words(step="round")
    layout: Literal["rows", "keyed"] = "rows"
    fit_fields = frozenset({"params", "rounds", "early_stop", "seed"})
    flags: tuple[Flag, ...] = (LABEL, GROUP, WEIGHT, IGNORE)

    @property
    def Config(self) -> type[TableConfig]:  # noqa: N802
        from dray.learners.table_config import TableConfig

        return TableConfig

    def result(self, document: Mapping[str, Any], storage: StorageOptions) -> RunResult:  # noqa: ARG002
        from dray.learners.result import RunResult, typed

        return RunResult(**typed(document))

    def recognises(self, location: str, storage: StorageOptions) -> bool:  # noqa: ARG002
        return False
