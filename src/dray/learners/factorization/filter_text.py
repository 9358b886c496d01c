"""Columns and values as `dray data ingest --filter` reads them, for the fix of an error. Pure."""

import json
from keyword import iskeyword


def column_in_filter(column: str) -> str:
    plain = column.isascii() and column.isidentifier() and not iskeyword(column)  # Python folds names like "ﬁt"
    return column if plain else f"col({value_in_filter(column)})"


def value_in_filter(value: str | int) -> str:
    return json.dumps(value, ensure_ascii=False)
