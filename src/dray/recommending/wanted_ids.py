"""The ids that a command names: in a list, or in a file; as the model's own are, text or whole numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyarrow import fs as pafs

from dray.data.open_source import ENDINGS, open_source
from dray.data.source import ExtraField, Reject, Source
from dray.data.sources.files import plain_name
from dray.errors import DataError, nearest
from dray.learners.ids import as_ids, as_model_has
from dray.storage import StorageOptions, is_s3, open_storage, translate_errors

_LARGEST_TEXT = 1 << 30


def ids_of(given: Any, like: pa.Array, side: str, column: str, storage: StorageOptions) -> pa.Array:
    """Return ids in the order given, each once.

    A text is a file, or ids with commas between; anything else are ids themselves.
    `like`: the model's own ids; `column`: the one that holds them, where a file has several.
    """
    if isinstance(given, str):
        ids = _from_file(given, like, side, column, storage) if is_file(given, storage) else _split(given)
        found = as_model_has(as_ids(ids, f"{side} id"), like, side)
    else:
        found = as_ids(given, f"{side} id")
    if len(found) == 0:
        raise DataError(f"There are no {side}s in {_short(given)}.", fix=f"Give at least one {side} id.")
    return found.unique()


def is_file(given: str, storage: StorageOptions) -> bool:
    """Whether a text names a file of ids; else it is the ids themselves."""
    if is_s3(given) or plain_name(given).endswith((*ENDINGS, ".txt")) or given.endswith(("/", "*")):
        return True
    if not given or "\n" in given or len(given) > 4096:
        return False
    filesystem, path = open_storage(given, storage)
    try:
        return bool(filesystem.get_file_info(path).type != pafs.FileType.NotFound)
    except OSError:  # too long for a name
        return False


def _split(given: str) -> list[str]:
    return [name for part in given.split(",") if (name := part.strip())]


def _from_file(location: str, like: pa.Array, side: str, column: str, storage: StorageOptions) -> Any:
    if not plain_name(location).endswith(tuple(ENDINGS)):
        filesystem, path = open_storage(location, storage)
        with translate_errors(location):
            info = filesystem.get_file_info(path)
        if info.type == pafs.FileType.NotFound:
            raise DataError(f"There is no file {location} with {side} ids.", fix=f"Check the path in --{side}s.")
        if info.type == pafs.FileType.File:
            return _lines(location, side, storage)
    source = open_source(location, storage)
    name = _column_of(source, column, side, location)
    if source.format in ("csv", "json") and not pa.types.is_int64(like.type):
        source = open_source(location, storage, types={name: "string"})  # 007 is an id of its own
    batches: list[pa.Array] = []

    def refuse(reject: Reject | ExtraField) -> None:
        if isinstance(reject, ExtraField):
            return
        raise DataError(
            f"A {side} id of {location} cannot be read (line {reject.line}): {reject.reason}.", fix="Repair that line."
        )

    for piece in source.pieces():
        batches += [batch.column(0) for batch in source.read(piece, [name], refuse)]
    return pa.chunked_array(batches, type=source.schema.field(name).type) if batches else []


def _column_of(source: Source, column: str, side: str, location: str) -> str:
    names: Sequence[str] = source.schema.names
    if column in names:
        return column
    if len(names) == 1:
        return names[0]
    raise DataError(
        f'{location} has no column "{column}" with the {side}s.{nearest(column, names)}',
        fix=f'Name that column "{column}", or give a file with one column. Columns: {", ".join(names[:12])}.',
    )


def _lines(location: str, side: str, storage: StorageOptions) -> list[str]:
    filesystem, path = open_storage(location, storage)
    with translate_errors(location):
        if (filesystem.get_file_info(path).size or 0) > _LARGEST_TEXT:
            raise DataError(
                f"{location} has more than 1 GB of {side} ids as text.", fix=f"Write the {side} ids as Parquet."
            )
        with filesystem.open_input_stream(path) as stream:
            content = stream.read()
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{location} is not a text file with a {side} id on each line: {error}.",
            fix="Name a text file, or one that ends in .parquet, .csv or .json.",
        ) from error
    return [line.strip() for line in lines if line.strip()]


def _short(given: Any) -> str:
    text = str(given)
    return text if len(text) <= 80 else text[:77] + "..."
