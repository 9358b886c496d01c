"""Where predictions go, and which columns they have. Pure."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from dray.batch.input_files import InputFile
from dray.batch.predict_file import OutputFile
from dray.batch.table_files import kind_of_file
from dray.data.features import plain_field
from dray.data.open_source import ENDINGS
from dray.data.partitions import partitions_of
from dray.data.sources.files import plain_name
from dray.errors import ConfigError, DataError, nearest
from dray.storage import absolute, is_s3, join

REJECTS = "_rejects"
"""Of a directory: for each file with rows that cannot be read a list of them. Readers of Parquet pass it over."""
REJECTS_ENDING = ".rejects.jsonl"
_PARQUET = ".parquet"


def output_files(inputs: Sequence[InputFile], out: str, *, parquet: bool, files: bool) -> list[OutputFile]:
    """Return the files to write: one by the name of `out`, or one for each input below it.

    `parquet`: the inputs are Parquet, and keep their names; `files`: they are files, and not a table or a query.
    """
    place = absolute(out)
    if kind_of_file(out) is not None:
        return [OutputFile(tuple(inputs), place, place + REJECTS_ENDING)]
    names = _names([file.name for file in inputs], parquet=parquet) if files else ["predictions" + _PARQUET]
    _require_below(names)
    return [
        OutputFile((file,), join(place, name), join(place, REJECTS, name + ".jsonl"))
        for file, name in zip(inputs, names, strict=True)
    ]


def rejects_of(out: str) -> str:
    """Return where rows that cannot be read are listed: a file, or a directory of files."""
    place = absolute(out)
    return place + REJECTS_ENDING if kind_of_file(out) is not None else join(place, REJECTS)


def _names(files: Sequence[str], *, parquet: bool) -> list[str]:
    """Return the names of the outputs, below the directory that all inputs have in common."""
    paths = ["/" + file.removeprefix("s3://").lstrip("/") for file in files]
    root = os.path.commonpath([os.path.dirname(path) for path in paths])  # noqa: PTH120  (of a bucket too)
    below = [path[len(root) :].lstrip("/") for path in paths]
    if parquet:
        return below
    stems = [_stem(name) for name in below]
    times = Counter(stems)  # a.csv and a.csv.gz keep their endings
    names = [stem if times[stem] == 1 else name for stem, name in zip(stems, below, strict=True)]
    # Of a.csv, a.csv.gz and a.csv.csv, the last has the stem that the first is named by.
    return [name + _PARQUET for name in (names if len({*names}) == len(names) else below)]


def _require_below(names: Sequence[str]) -> None:
    """Refuse names that lead out of the output: a store's keys may be any text."""
    for name in names:
        if ".." in name.split("/"):
            raise DataError(
                f"The predictions for an input would be written to {name!r}, outside the output.",
                fix="Rename that input, or write one file: predictions.parquet.",
            )


def _stem(name: str) -> str:
    """Return a name without the endings that say its format."""
    directory, slash, last = name.rpartition("/")
    plain = last[: len(plain_name(last))]
    ending = next((end for end in ENDINGS if plain.lower().endswith(end)), "")
    return directory + slash + plain[: len(plain) - len(ending)]


def kept_fields(
    keys: Sequence[str], keep: Sequence[str], read: pa.Schema, shown: pa.Schema, files: Sequence[OutputFile], out: str
) -> tuple[pa.Field, ...]:
    """Return the columns that are copied. One in the names of the output's directories is there already.

    `read`: the types that they are read with, in which keys are written; `shown`: those that the data itself shows.
    """
    for flag, names in (("--key", keys), ("--keep", keep)):
        for name in names:
            if name not in shown.names:
                raise DataError(
                    f'There is no column "{name}" ({flag}) in the data.{nearest(name, shown.names)}',
                    fix=f"Columns: {', '.join(shown.names[:12])}.",
                )
    told: set[str] = set()
    if kind_of_file(out) is None:
        told = {key for key, _ in partitions_of([out], [file.destination for file in files])[0]}
    fields = [read.field(name) for name in keys] + [shown.field(name) for name in keep]
    return tuple(plain_field(field) for field in fields if field.name not in told)


def output_schema(fields: Sequence[pa.Field]) -> pa.Schema:
    schema = pa.schema(fields)
    name, times = Counter(schema.names).most_common(1)[0]
    if times > 1:
        raise ConfigError(
            f'The output would have two columns "{name}".', fix="Keep fewer columns, or rename it in the data."
        )
    return schema


def local_files(inputs: Sequence[InputFile]) -> list[str]:
    return [file.name for file in inputs if not is_s3(file.name)]
