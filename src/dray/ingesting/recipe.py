"""What an ingest does to rows: a plain value, the same on the driver, in the processes and in the journal. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dray.errors import ConfigError, DataError, nearest
from dray.ingesting.limits import Limit

DEFAULT_LIMIT = Limit(share=0.01)


@dataclass(frozen=True, slots=True, kw_only=True)
class HashSplit:
    """A share of the rows, chosen by a hash of their values: the same row always goes to the same subset."""

    share: float
    """Of the rows, for the subset "test"."""
    columns: tuple[str, ...] = ()
    """Rows with equal values in these columns stay together; () = the whole row."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ConfigError(
                f"The share of test rows is {self.share:g}.", fix="Give one between 0 and 1, such as 0.2."
            )
        if self.seed < 0:
            raise ConfigError(f"The seed is {self.seed}.", fix="Give a whole number from 0 on.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSplit:
    """Rows from a time on are test rows; rows before it, and rows without a time, are train rows."""

    column: str
    moment: str
    """A date or a time as text, such as 2026-01-01; in UTC unless it says otherwise."""


Split = HashSplit | TimeSplit
SUBSETS = ("train", "test")


def make_split(share: float | None, columns: tuple[str, ...], moment: str | None, seed: int) -> Split | None:
    """Return the split that the options ask for, if any."""
    if share is not None and moment is not None:
        raise ConfigError(
            "Both were given: --test and --test-from.",
            fix="Leave one of them out: --test splits by a share, --test-from by time.",
        )
    if moment is not None:
        if len(columns) != 1:
            raise ConfigError(
                "--test-from needs the column of the time.",
                fix="Name it with --split-by, such as --test-from 2026-01-01 --split-by ts.",
            )
        return TimeSplit(column=columns[0], moment=moment)
    if share is not None:
        return HashSplit(share=share, columns=columns, seed=seed)
    if columns:
        raise ConfigError("--split-by needs --test or --test-from.", fix="Add --test 0.2, or --test-from 2026-01-01.")
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """All options, in the order of work: read -> transform -> filter -> dedup -> sort -> split -> columns -> write."""

    columns: tuple[str, ...] = ()
    """Columns to write, in this order; () = all."""
    filter: str | None = None
    """Rows for which it is true are kept: see expression.py."""
    transform: str | None = None
    """The function's name, for the journal and for messages."""
    dedup: tuple[str, ...] | None = None
    """Of rows with equal values in these columns the first is kept; () = all columns that are written."""
    sort: tuple[str, ...] = ()
    """Columns; "-price" is descending."""
    partition_by: tuple[str, ...] = ()
    """A directory for each value, a=1/; the column also stays in the files."""
    split: Split | None = None
    max_rejects: Limit = DEFAULT_LIMIT
    """More rejected rows end the run."""

    def __post_init__(self) -> None:
        for what, names in (
            ("columns", self.columns),
            ("dedup", self.dedup or ()),
            ("sort", self.sort_columns),
            ("partition_by", self.partition_by),
        ):
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise ConfigError(f'{what} names the column "{twice}" twice.', fix="Name it once.")
        hidden = next((name for name in self.partition_by if name.startswith(("_", ".")) or not name), None)
        if hidden is not None:
            raise ConfigError(
                f'partition_by names the column "{hidden}": readers of data skip directories with such names.',
                fix="Rename the column in a transform, or partition by another.",
            )

    @property
    def sort_columns(self) -> tuple[str, ...]:
        return tuple(name.removeprefix("-") for name in self.sort)

    @property
    def moves(self) -> bool:
        """Whether rows leave the task that read them."""
        return self.dedup is not None or bool(self.sort)

    @property
    def split_columns(self) -> tuple[str, ...]:
        if self.split is None:
            return ()
        return (self.split.column,) if isinstance(self.split, TimeSplit) else self.split.columns

    def output(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the columns that are written, of rows that have these."""
        return self.columns or tuple(names)

    def carried(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the columns needed after the filter: to write, compare, sort, split and partition by."""
        more = (*(self.dedup or ()), *self.sort_columns, *self.split_columns, *self.partition_by)
        return tuple(dict.fromkeys((*self.output(names), *more)))

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values: tuples as lists."""
        document: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return document


def recipe_of(document: Mapping[str, Any]) -> Recipe:
    """Return the recipe that `to_json` wrote down."""
    names = {name: tuple(document[name]) for name in ("columns", "sort", "partition_by")}
    dedup, split = document["dedup"], document["split"]
    if split is not None:
        split = TimeSplit(**split) if "moment" in split else HashSplit(**{**split, "columns": tuple(split["columns"])})
    more = {"dedup": None if dedup is None else tuple(dedup), "split": split}
    return Recipe(**{**document, **names, **more, "max_rejects": Limit(**document["max_rejects"])})


def require_columns(recipe: Recipe, filter_columns: Sequence[str], names: Sequence[str]) -> None:
    """Refuse a column that the rows do not have; suggest the nearest one."""
    for what, asked in (
        ("--columns", recipe.columns),
        ("--filter", filter_columns),
        ("--dedup", recipe.dedup or ()),
        ("--sort", recipe.sort_columns),
        ("--partition-by", recipe.partition_by),
        ("--split-by", recipe.split_columns),
    ):
        for name in asked:
            if name not in names:
                whose = "the transform's results" if recipe.transform else "the source"
                raise DataError(
                    f'There is no column "{name}" in {whose} ({what}).{nearest(name, names)}',
                    fix=f"The columns are {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}.",
                )


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return the differences of two recipes (as JSON). The limit of rejects may differ."""
    return [
        f"{name} was {json.dumps(before.get(name))} and is {json.dumps(now.get(name))}"
        for name in dict.fromkeys((*before, *now))
        if name != "max_rejects" and before.get(name) != now.get(name)
    ]
