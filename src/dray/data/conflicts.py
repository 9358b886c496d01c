"""Columns that files store with types that do not fit together.

A schema is without them, and holds in its metadata what was found: such a column is an error only where it is used.
Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dray.errors import DataError

_KEY = b"dray:conflicts"


@dataclass(frozen=True, slots=True)
class Conflicts:
    """The columns of some files whose types do not fit together."""

    found: Mapping[str, str]
    """By column, what its types are and where."""
    fix: str
    """What to do with one of them, where NAME is the column."""

    def fix_of(self, name: str) -> str:
        return f"{self.fix.replace('NAME', name)}."

    def error(self, names: Sequence[str], or_else: str) -> DataError:
        """Return one error for these columns."""
        told = "; ".join(f"{_column(name)} {self.found[name]}" for name in names)
        return DataError(f"The files differ: {told}.", fix=f"{self.fix_of(names[0])} {or_else}".rstrip())


def with_conflicts(schema: pa.Schema, found: Mapping[str, str], fix: str) -> pa.Schema:
    """Return the schema with the columns that it leaves out, and why."""
    return schema.with_metadata({_KEY: json.dumps([dict(found), fix])}) if found else schema.remove_metadata()


def conflicts_of(schema: pa.Schema) -> Conflicts:
    """Return what `with_conflicts` noted down."""
    found, fix = json.loads((schema.metadata or {}).get(_KEY, b'[{}, ""]'))
    return Conflicts(found, fix)


def refuse_conflicts(
    schema: pa.Schema,
    names: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
    *,
    or_else: Callable[[Sequence[str]], str] = lambda _names: "",
) -> None:
    """Raise one error for all columns among `names` (None: any) whose types do not fit together, if there are any.

    `or_else`: how the command does without such columns; with nothing, they are needed.
    """
    conflicts = conflicts_of(schema)
    used = [name for name in conflicts.found if (names is None or name in names) and name not in ignore]
    if used:
        raise conflicts.error(used, or_else(used))


def keep_conflicts(schema: pa.Schema, of: pa.Schema) -> pa.Schema:
    """Return the schema of a copy with the conflicts of what was copied."""
    conflicts = conflicts_of(of)
    return with_conflicts(schema, conflicts.found, conflicts.fix) if conflicts.found else schema


def _column(name: str) -> str:
    return f'column "{name}"'
