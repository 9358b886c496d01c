"""The options of every format, each with its type; and how their text on the command line is parsed.

A value of another type is refused; the error shows the value and how to write it. Where text is wanted, it arrives as
it was typed: `NO` is not a boolean, `1e3` not a number and `null` not None.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dray.data.sources.csv_format import WHITESPACE
from dray.data.sources.csv_separators import MARKS
from dray.data.sources.csv_text import known_encoding
from dray.errors import ConfigError, nearest

_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")
_WORDS = {"\\t": "\t", "tab": "\t"}
"""A tab is hard to type."""
_COMMA = re.compile(r",(?![^\[(]*[\])])")
"""A comma outside brackets."""
_PAIR = re.compile(r"""(.*?):\s*(["']?timestamp\s*\(.*|[^:]*)""", re.DOTALL)
"""A column and its type. The form of a time may hold colons, and so may a column's name."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of an option."""

    wanted: str
    example: str
    """An example in Python."""
    typed: str
    """An example on the command line."""
    convert: Callable[[Any], Any]
    """Returns the value with the right type; raises ValueError if that is not possible."""
    parse: Callable[[str], Any]
    """Parses a text of the command line."""


def as_options(format: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a format, each of its type; refuse an unknown one and a value of another type."""
    known = OPTIONS[format]
    found = {}
    for name, value in options.items():
        if name not in known:
            fix = f"Its options are {', '.join(known)}." if known else "It has no options: leave --read out."
            raise ConfigError(f'The format {format} has no option "{name}".{nearest(name, list(known))}', fix=fix)
        kind = known[name]
        if value is None and kind not in (_FLAG, _QUOTE):
            continue  # as if it were not given
        try:
            found[name] = kind.convert(value)
        except ValueError as error:
            said = f": {error}" if str(error) else ""
            raise ConfigError(
                f"The option {name} is {value!r}, which is not {kind.wanted}{said}.",
                fix=f"Write --read '{name}={kind.typed}'.",
            ) from None
    return found


def parse_option(name: str, text: str) -> Any:
    """Parse a text of the command line for an option of any format; for an unknown option, return the text itself.

    Raises yaml.YAMLError where a bracket is not closed.
    """
    kind = next((options[name] for options in OPTIONS.values() if name in options), None)
    return text if kind is None else kind.parse(text)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # -999 in a YAML file
    raise ValueError(f"{value!r} is not text; write it in quotes, exactly as in the data")


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = _split(value)  # not the characters of a text
    if isinstance(value, list | tuple):
        return tuple(_text(item) for item in value)
    if isinstance(value, set | frozenset | Mapping):
        raise ValueError
    return (_text(value),)


def _split(text: str) -> list[Any]:
    import yaml

    try:
        return _parse_texts(text)
    except yaml.YAMLError:
        raise ValueError("a bracket or a quote is not closed") from None


def _names(value: Any) -> tuple[str, ...]:
    names = _texts(value)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice!r} occurs twice")
    if not all(names):
        raise ValueError("one is empty")
    return names


def _character(value: Any) -> str:
    if isinstance(value, int):
        raise ValueError  # 0 might be false
    text = _text(value)
    text = _WORDS.get(text, text)
    if len(text) != 1 or not text.isascii() or text in "\r\n":
        raise ValueError
    return text


def _delimiter(value: Any) -> str:
    return WHITESPACE if value == WHITESPACE else _character(value)


def _decimal(value: Any) -> str:
    if value not in (".", ","):
        raise ValueError
    return str(value)


def _thousands(value: Any) -> str:
    if value not in MARKS:
        raise ValueError
    return str(value)


def _encoding(value: Any) -> str:
    name = _text(value)
    known_encoding(name)
    return name


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = value.lower() if isinstance(value, str) else ""
    if word not in _TRUE + _FALSE:
        raise ValueError
    return word in _TRUE


def _one_of(value: Any, *words: str) -> str:
    if value not in words:
        raise ValueError
    return str(value)


def _whole(value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"[0-9]+", value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError
    return value


def _types(value: Any) -> dict[str, str | pa.DataType]:
    if not isinstance(value, Mapping):
        raise ValueError
    for type_ in value.values():
        if not isinstance(type_, str | pa.DataType) or not type_:
            raise ValueError(f"{type_!r} is not the name of a type")
    return {_text(name): type_ for name, type_ in value.items()}


def _yaml(text: str) -> Any:
    """Return lists, mappings and quoted texts; every value in them is the text that was typed."""
    import yaml

    return yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506  (builds nothing but text, lists and dicts)


def _parse_text(text: str) -> str:
    """Return the text, without the quotes around all of it."""
    import yaml

    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        try:
            value = _yaml(text)
        except yaml.YAMLError:
            return text  # "a"."b" is the name of a table
        return value if isinstance(value, str) else text
    return text


def _parse_texts(text: str) -> list[Any]:
    """Return the texts between commas; in brackets, as YAML has them."""
    if text.startswith("["):
        value = _yaml(text)
        return value if isinstance(value, list) else [value]
    unquoted = _parse_text(text)
    if unquoted != text:
        return [unquoted]
    return [item.strip() for row in csv.reader([text], skipinitialspace=True) for item in row]


def _parse_quote(text: str) -> str | None:
    return None if text in ("", "none", "None", "null") else _parse_text(text)


def _parse_types(text: str) -> Any:
    """Return a mapping, in YAML or in short form: without brackets, without a space after the colon."""
    import yaml

    try:
        value = _yaml(text) if text.startswith("{") else None
    except yaml.YAMLError:
        if not text.endswith("}"):
            raise
        value = None  # timestamp[us] has brackets of its own
    if isinstance(value, dict) and all(value.values()):
        return value
    pairs = [_PAIR.fullmatch(item) for item in _COMMA.split(text.strip("{} "))]
    if not all(pairs):
        return text
    found = {_parse_text(pair[1].strip()): _parse_text(pair[2].strip()) for pair in pairs if pair}
    return found if all(found) and all(found.values()) else text


_TEXT = Kind("text", '"..."', "...", _text, _parse_text)
_NULLS = Kind("a list of texts", '["NA", "-999"]', "NA,-999", _texts, _parse_texts)
_NAMES = Kind("a list of distinct names", '["x", "y"]', "x,y", _names, _parse_texts)
_DELIMITER = Kind(f"one ASCII character, or {WHITESPACE}", '";"', ";", _delimiter, _parse_text)
_COMMENT = Kind("one ASCII character", '"#"', "#", _character, _parse_text)
_DECIMAL = Kind("a point or a comma", '","', ",", _decimal, _parse_text)
_THOUSANDS = Kind("a point, a comma, a blank, an apostrophe or _", '"."', ".", _thousands, _parse_text)
_ENCODING = Kind("the name of an encoding", '"cp1252"', "cp1252", _encoding, _parse_text)
_QUOTE = Kind(
    "one ASCII character or None", '"\'"', "", lambda value: None if value is None else _character(value), _parse_quote
)
_FLAG = Kind("true or false", "False", "false", _flag, _parse_text)
_COLUMNS = Kind('"union" or "same"', '"same"', "same", lambda value: _one_of(value, "union", "same"), _parse_text)
_WHOLE = Kind("a whole number", "3", "3", _whole, _parse_text)
_TYPES = Kind(
    "a type for each column by its name", '{"zip": "string"}', "{zip: string, price: double}", _types, _parse_types
)

OPTIONS: dict[str, dict[str, Kind]] = {
    "csv": {
        "delimiter": _DELIMITER,
        "quote": _QUOTE,
        "header": _FLAG,
        "names": _NAMES,
        "nulls": _NULLS,
        "encoding": _ENCODING,
        "skip": _WHOLE,
        "comment": _COMMENT,
        "decimal": _DECIMAL,
        "thousands": _THOUSANDS,
        "strip": _FLAG,
        "types": _TYPES,
        "columns": _COLUMNS,
    },
    "json": {"types": _TYPES, "extra_fields": _TEXT},
    "delta": {"version": _WHOLE},
    "sql": {"query": _TEXT, "table": _TEXT, "key": _TEXT, "types": _TYPES},
    "parquet": {"columns": _COLUMNS},
    "arrow": {"columns": _COLUMNS},
    "table": {},
}
