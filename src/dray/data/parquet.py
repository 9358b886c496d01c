"""Parquet files as one data set: what their footers say. `parquet_rows.py` reads the rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from dray.data.common_schema import Columns, common_schema, common_type, differing, may_lose
from dray.data.fitted import Given
from dray.data.parquet_footer import Schemas, footers_of, stored_bytes
from dray.data.partitions import Constant, constants_of, kept_types, partitions_of
from dray.data.shards import Slice
from dray.data.source import Note
from dray.data.sources.beside import notes_of
from dray.data.sources.columns import require_distinct
from dray.data.sources.files import expand_data
from dray.data.sources.linked import notes_of_links
from dray.data.statistics import UNKNOWN, Statistics, statistics_of
from dray.errors import DataError
from dray.storage import StorageOptions


@dataclass(frozen=True, slots=True)
class Dataset:
    """What the footers say."""

    schema: pa.Schema
    row_groups: tuple[Slice, ...]
    """Every row group as a slice, in the order of the files."""
    bytes: int
    storage: StorageOptions
    contents: tuple[tuple[str, int, int], ...] = ()
    """Name, rows and bytes of every file."""
    footers: tuple[str, ...] = ()
    """Digest of every file's footer."""
    statistics: Statistics = UNKNOWN
    """Only of columns that were asked for: it takes time where there are many files."""
    notes: tuple[Note, ...] = ()
    """How the files differ, and which were passed over."""

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.row_groups)

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(group.file for group in self.row_groups))


def open_dataset(
    locations: Sequence[str],
    storage: StorageOptions,
    columns: Columns = "union",
    *,
    statistics: Callable[[pa.Field], bool] | None = None,
    may_be_empty: bool = False,
    own_types: bool = False,
) -> Dataset:
    """Read the footers of all files, in parallel, and find one schema for them: see `common_schema.py`.

    `statistics` says of which columns those are wanted. `own_types`: for a reader that takes any. A column is read with
    each file's own type where no type may hold the values of all; if there is none at all, it is text in the schema.
    """
    files, passed_over, again = expand_data(locations, storage)
    read = footers_of(files, storage)
    footers = [footer.metadata for footer in read]
    memo = Schemas()
    schemas = [memo.of(footer) for footer in footers]
    constants = _constants(locations, files, footers, schemas)
    schemas = [with_fields(found, own) for found, own in zip(schemas, constants, strict=True)]
    for file, found in zip(files, schemas, strict=True):
        require_distinct(found.names, file, fix="Write the file with distinct names.")
    mixed: set[str] = set()

    def choose(name: str, types: Sequence[pa.DataType]) -> pa.DataType:
        found = common_type(types)
        if found is None or may_lose(found, types):
            mixed.add(name)
        return found or pa.string()

    found = list(zip(files, schemas, strict=True))
    common = common_schema(found, columns, choose=choose if own_types else None)
    differ = _differing(schemas, common.schema, mixed)
    groups: list[Slice] = []
    position = 0
    for file, footer, given, own in zip(files, read, differ, constants, strict=True):
        for index in range(footer.metadata.num_row_groups):
            rows = footer.metadata.row_group(index).num_rows
            if rows:
                groups.append(Slice(file, index, 0, rows, position, own, footer.digest, given))
            position += rows
    if not groups and not may_be_empty:
        raise DataError(f"There are no rows in {', '.join(locations)}.", fix="Name Parquet files that hold rows.")
    size = sum(f.row_group(i).total_byte_size for f in footers for i in range(f.num_row_groups))
    contents = [(file, footer.num_rows, stored_bytes(footer)) for file, footer in zip(files, footers, strict=True)]
    elsewhere = {constant.name for own in constants for constant in own}
    wanted = [] if statistics is None else [field for field in common.schema if statistics(field)]
    known = statistics_of(footers, [field for field in wanted if field.name not in elsewhere]) if wanted else UNKNOWN
    digests = tuple(footer.digest for footer in read)
    notes = notes_of(passed_over) + notes_of_links(again) + common.notes
    return Dataset(common.schema, tuple(groups), size, storage, tuple(contents), digests, known, notes)


def _differing(schemas: Sequence[pa.Schema], common: pa.Schema, mixed: Collection[str]) -> list[Given]:
    """Return for each file what differs; one tuple for files alike, which is pickled once.

    `mixed`: columns that a file keeps as it has them.
    """
    found: list[Given] = []
    for index, schema in enumerate(schemas):
        alike = index > 0 and schema.equals(schemas[index - 1])
        own = () if alike else differing(schema, common)
        kept = tuple(field for field in own if field.name not in mixed or field.name not in schema.names)
        found.append(found[-1] if alike else kept)
    known = {given: given for given in found}
    return [known[given] for given in found]


def _constants(
    locations: Sequence[str], files: Sequence[str], footers: Sequence[pq.FileMetaData], schemas: Sequence[pa.Schema]
) -> list[tuple[Constant, ...]]:
    """Return the columns in the names of each file's directories; if a file holds the column, its type counts."""
    parts = partitions_of(locations, files)
    types: dict[str, pa.DataType] = {}
    for footer, schema in zip(footers, schemas, strict=True):
        held = {key: schema.field(key).type for key, _ in parts[0] if key in schema.names}
        types = {**held, **kept_types(footer.metadata), **types}
    return constants_of(parts, types)


def with_fields(schema: pa.Schema, constants: Sequence[Constant]) -> pa.Schema:
    """Return a file's schema with the columns in the names of its directories."""
    for constant in constants:
        if constant.name not in schema.names:
            schema = schema.append(pa.field(constant.name, constant.type))
    return schema
