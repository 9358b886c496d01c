"""Columns in the names of directories: `year=2024/month=1/part.parquet`, as Hive, Spark and pyarrow write.

| what                              | means                                                                           |
|-----------------------------------|---------------------------------------------------------------------------------|
| `key=value`, below what was named | a column with one value in all rows of the files below                          |
| `__HIVE_DEFAULT_PARTITION__`      | missing                                                                         |
| `%2F` and the like                | the character that it encodes, in keys and values                               |
| whole numbers in all directories  | int64; text if two of them are one number (`01` and `1`)                        |
| anything else                     | text; where dray wrote the files, what the column was before                    |

Directories above the location that the user named do not count. Of a glob, those from the first wildcard on count; of
several locations, those in which they differ: so `data/g=*` means the same whether the shell expands it or dray.

Pure but for the values of batches. A reader of files gets the constants of a file along with its name.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from dray.errors import DataError
from dray.storage import absolute, is_s3

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
KEPT_TYPES = b"dray:partitions"
"""Metadata key under which a Parquet file that dray wrote holds the types of the columns in its directories' names."""
_WHOLE = re.compile(r"-?[0-9]+")
_INT64 = range(-(2**63), 2**63)

DirectoryKeys = tuple[tuple[str, str | None], ...]
"""Keys of a file's directories with their values, outermost first; None is missing."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A column with one value in all rows of a file."""

    name: str
    text: str | None
    type: pa.DataType

    def value(self, type_: pa.DataType, file: str) -> pa.Scalar:
        """Return the value as one of a type."""
        try:
            return pa.scalar(self.text, pa.string()).cast(type_)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(
                f'The directory {self.name}={self.text} of {file} is not {type_}, which the column "{self.name}" is.',
                fix="Rename the directory, or write the column with one type in all files.",
            ) from error

    def array(self, rows: int, file: str) -> pa.Array:
        """Return the column."""
        if not pt.is_dictionary(self.type):
            return pa.repeat(self.value(self.type, file), rows)
        if self.text is None:
            return pa.nulls(rows, self.type)
        indices = pa.repeat(pa.scalar(0, self.type.index_type), rows)
        return pa.DictionaryArray.from_arrays(indices, pa.array([self.value(self.type.value_type, file)]))


def partitions_of(locations: Sequence[str], files: Sequence[str]) -> list[DirectoryKeys]:
    """Return the keys and values in the directories of each file; all have the same keys."""
    bases = [_base(location, files) for location in locations]
    if len(bases) > 1 and (common := _common(bases)) is not None:
        found = [_keys_of(file, common) for file in files]
        if len({tuple(key for key, _ in keys) for keys in found}) == 1:
            return found
    found = [_keys_of(file, _own(file, bases)) for file in files]
    for file, keys in zip(files, found, strict=True):
        for one, one_parts, other, other_parts in ((files[0], found[0], file, keys), (file, keys, files[0], found[0])):
            lacking = {key for key, _ in one_parts} - {key for key, _ in other_parts}
            if lacking:
                raise DataError(
                    f'The files differ: column "{min(lacking)}" is a directory of {one} but not of {other}.',
                    fix="Name directories of the same depth, or move the file.",
                )
    return found


def constants_of(keys: Sequence[DirectoryKeys], known: Mapping[str, pa.DataType]) -> list[tuple[Constant, ...]]:
    """Return the columns of each file, with one type a key: the known one, or what the names say."""
    types = {
        key: known[key] if key in known and not pt.is_null(known[key]) else _type([dict(found)[key] for found in keys])
        for key, _ in (keys[0] if keys else ())
    }
    return [tuple(Constant(key, text, types[key]) for key, text in found) for found in keys]


def with_constants(
    batch: pa.RecordBatch, names: Sequence[str], constants: Sequence[Constant], file: str
) -> pa.RecordBatch:
    """Return these columns of a file's rows; those in the names of its directories are added.

    For a column that is in the file as well, the file's values count; they must equal the directory's.
    """
    arrays = []
    by_name = {constant.name: constant for constant in constants}
    for name in names:
        index = batch.schema.get_field_index(name)
        if index < 0:
            arrays.append(by_name[name].array(batch.num_rows, file))
            continue
        arrays.append(batch.column(index))
        if name in by_name:
            _require_alike(batch.column(index), by_name[name], file)
    return pa.RecordBatch.from_arrays(arrays, names=list(names)) if names else batch


def keep_types(schema: pa.Schema, columns: Sequence[str]) -> dict[bytes, bytes]:
    """Return the metadata that keeps the types of the columns in the names of directories."""
    kept = pa.schema([schema.field(name) for name in columns]).remove_metadata()
    return {KEPT_TYPES: base64.b64encode(kept.serialize().to_pybytes())}


def kept_types(metadata: Mapping[bytes, bytes] | None) -> dict[str, pa.DataType]:
    """Return what `keep_types` kept; nothing for files that dray did not write."""
    kept = (metadata or {}).get(KEPT_TYPES)
    if kept is None:
        return {}
    try:
        return {field.name: field.type for field in pa.ipc.read_schema(pa.py_buffer(base64.b64decode(kept)))}
    except (pa.ArrowException, ValueError, OSError, EOFError):
        return {}


def _require_alike(column: pa.Array, constant: Constant, file: str) -> None:
    values = column.dictionary_decode() if pt.is_dictionary(column.type) else column
    if pt.is_time(values.type) or pt.is_duration(values.type) or pt.is_nested(values.type):
        return  # its values have no single text to compare with
    expected = constant.value(values.type, file)
    if constant.text is None:
        alike = values.null_count == len(values)
    else:
        equal = pc.equal(values, expected)
        if pt.is_floating(values.type) and pc.is_nan(expected).as_py():
            equal = pc.is_nan(values)
        alike = pc.all(pc.fill_null(equal, False), min_count=0).as_py()
    if not alike:
        unlike = next(value for value in values.to_pylist() if value != expected.as_py())
        said = "that it is missing" if constant.text is None else constant.text
        raise DataError(
            f'Column "{constant.name}" of {file} holds {unlike!r}, but its directory says {said}.',
            fix="Correct the one that is wrong, or rename the directory; "
            f"--ignore {quote(constant.name)} trains without it.",
        )


def _type(texts: Sequence[str | None]) -> pa.DataType:
    there = {text for text in texts if text is not None}
    whole = bool(there) and all(_WHOLE.fullmatch(text) and int(text) in _INT64 for text in there)
    return pa.int64() if whole and len({int(text) for text in there}) == len(there) else pa.string()


def _keys_of(file: str, base: str) -> DirectoryKeys:
    folders = file[len(base) :].strip("/").split("/")[:-1]
    found: dict[str, str | None] = {}
    for folder in folders:
        key, sign, text = folder.partition("=")
        if not sign or not key:
            continue
        key = unquote(key)
        if key in found:
            raise DataError(
                f'Two directories of {file} give a value for "{key}".', fix="Rename one of them, or name the inner one."
            )
        found[key] = None if text == NO_VALUE else unquote(text)
    return tuple(found.items())


def _base(location: str, files: Sequence[str]) -> str:
    """Return the directory below which names of directories count."""
    named = location.rstrip("/") if is_s3(location) else absolute(location)
    if named in files:
        return named.rpartition("/")[0]
    if any(file.startswith(f"{named}/") for file in files):
        return named
    wildcard = re.search(r"[*?\[]", named)
    return named[: wildcard.start()].rpartition("/")[0] if wildcard else named


def _common(bases: Sequence[str]) -> str | None:
    """Return the directory that contains all of them, if there is one."""
    if len({is_s3(base) for base in bases}) > 1:
        return None
    common = os.path.commonpath([base.removeprefix("s3://") for base in bases])
    return f"s3://{common}" if is_s3(bases[0]) else common


def _own(file: str, bases: Sequence[str]) -> str:
    """Return the nearest of the named directories that holds a file."""
    own = [base for base in bases if file.startswith(f"{base.rstrip('/')}/")]
    return max(own, key=len, default=file.rpartition("/")[0])
