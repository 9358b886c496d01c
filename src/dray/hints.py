"""One voice a surface: what to do is written with flags, and told in arguments where Python is spoken. Pure but for
`as_command` and the decorator, which are the two edges.

A fix is written once, where the error is raised, as it is typed: "Use a larger --eval-fraction." The command line shows
it as it is; a function of the Python API shows "Use a larger eval_fraction." A whole command ("dray runs lists them")
stays a command: it is typed in a shell on either side.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

from dray.errors import DrayError

P = ParamSpec("P")
R = TypeVar("R")

NAMES = {
    "param": "params",
    "event-weight": "event_weights",
    "heartbeat": "heartbeat_s",
    "wait": "wait_s",
    "type": "output",
}
"""Flags whose argument has another name than theirs, with underscores."""
PAIRS = frozenset({"param", "event-weight", "read", "time-form"})
"""Flags that take NAME=VALUE: a dictionary."""
LISTS = frozenset({"ignore", "eval", "eval-at", "keep", "key", "columns", "sort", "partition-by"})
NAMING = (LISTS - {"eval-at"}) | {"label", "group", "weight", "split-by", "eval-by", "user", "item", "rating", "time"}
"""Flags whose value is the name of something, also where it is written in digits."""
SWITCHES = frozenset({"contributions", "json", "overwrite", "quiet", "stratify"})
"""Flags without a value."""
PROSE = frozenset({
    "a", "again", "and", "as", "at", "below", "by", "ends", "fewer", "first", "for", "gives", "if", "in",
    "instead", "is", "it", "lists", "makes", "names", "needs", "of", "on", "once", "one", "or", "out",
    "shows", "so", "splits", "such", "takes", "tells", "than", "that", "the", "then", "there", "to", "where",
    "which", "with",
})  # fmt: skip
"""Words that follow a flag in a sentence and are not its value."""

_COMMANDS = "train|resume|predict|recommend|map|runs|cluster|job|data|cache|completion|doctor"
_COMMAND = rf"`[^`]*`|\bdray (?:{_COMMANDS})\b(?:(?!\)|[;,:](?:\s|$)|(?<!\.)\.(?:\s|$)).)*"
_QUOTED = r"'[^']*'|\"[^\"]*\""
_FLAG = rf"(?<![\w-])--(?P<name>[a-z][a-z-]*[a-z])(?:[ =](?P<value>(?:{_QUOTED})+|\S*[^\s.,;:)]))?"
_PART = re.compile(f"(?P<command>{_COMMAND})|{_FLAG}")
_BOTH = re.compile(r"\b(?P<key>[a-z_]+(?: (?P<of>[a-z]+)(?= \(--[a-z-]+ (?P=of)\)))?) \((?P<flag>--[a-z][^()]*)\)")
"""A key and its flag: "eval_fraction (--eval-fraction)", "eval_by time (--eval-by time)"."""
_AGAIN = re.compile(r"\b(\w+)=([\[{])([^\]}]*)[\]}] \1=\2")
"""A list or dictionary that goes on: of a flag that was repeated."""
_NUMBER = re.compile(r"-?\d+(\.\d+)?")

_commands: ContextVar[int] = ContextVar("commands", default=0)


@contextmanager
def as_command() -> Iterator[None]:
    """What is raised within speaks in flags: a command of the command line runs."""
    token = _commands.set(_commands.get() + 1)
    try:
        yield
    finally:
        _commands.reset(token)


def speaks_python(function: Callable[P, R]) -> Callable[P, R]:
    """Have a public function raise its errors in the words of Python, unless a command has called it."""

    @functools.wraps(function)
    def speaking(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return function(*arguments, **named)
        except DrayError as error:
            if not _commands.get():
                _told(error)
            raise

    return speaking


def _told(error: DrayError) -> None:
    error.args = (in_arguments(error.what), in_arguments(error.fix), *error.args[2:])


def in_flags(text: str) -> str:
    """Return a message for the command line: "eval_fraction (--eval-fraction)" becomes the flag alone."""
    return _BOTH.sub(lambda found: found["flag"] if _are_one(found) else found[0], text)


def in_arguments(text: str) -> str:
    """Return a message for Python: flags become arguments, whole commands stay."""
    text = _BOTH.sub(lambda found: found["key"] if _are_one(found) else found[0], text)
    text = _PART.sub(_argument, text)
    while (joined := _AGAIN.sub(r"\1=\2\3, ", text)) != text:
        text = joined
    return text


def _are_one(found: re.Match[str]) -> bool:
    """Whether a word and the flag behind it are the same key: not so in "no such column in the source (--sort)"."""
    flag = found["flag"].split()[0].removeprefix("--")
    return found["key"].split()[0] in (flag.replace("-", "_"), NAMES.get(flag))


def _argument(found: re.Match[str]) -> str:
    name, value = found["name"], found["value"]
    if name is None:
        return found[0]
    if name.startswith("no-") and (switch := name.removeprefix("no-")) in SWITCHES:
        return f"{switch}=False" + found[0].removeprefix(f"--{name}")
    argument = NAMES.get(name, name.replace("-", "_"))
    if value is None or name in SWITCHES or not is_value(value):
        return argument + found[0].removeprefix(f"--{name}")
    value = _unquoted(value)
    if name in PAIRS and value.isidentifier():
        return f"{argument}[{_text(value)}]"
    return f"{argument}={_in_python(name, value)}"


def _unquoted(word: str) -> str:
    """Return a word as a shell hands it on: 'it'"'"'s' is one word of three parts."""
    if not re.fullmatch(f"(?:{_QUOTED})+", word):
        return word
    return "".join(part[1:-1] for part in re.findall(_QUOTED, word))


def is_value(word: str) -> bool:
    """Whether the word after a flag is its value, and not the next one of the sentence."""
    return word not in PROSE


def _in_python(name: str, value: str) -> str:
    if name in PAIRS:
        key, equals, inner = value.partition("=")
        return f"{{{_text(key)}: {_literal(_unquoted(inner))}}}" if equals else _literal(value)
    literal = _text(value) if name in NAMING and not value.startswith("[") else _literal(value)
    return f"[{literal}]" if name in LISTS and not value.startswith("[") else literal


def _literal(value: str) -> str:
    """Return a value that was typed as Python writes it: 0.2, True, "ranking", {"x": "string"}."""
    if _NUMBER.fullmatch(value):
        return value
    if value.lower() in ("true", "false"):
        return value.capitalize()
    if value.startswith(("{", "[")):
        import yaml  # only where a hint holds such a value

        try:
            found = yaml.safe_load(value)
        except yaml.YAMLError:
            return value
        return _written(found)
    return _text(value)


def _written(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_written(key)}: {_written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    return _text(value) if isinstance(value, str) else repr(value)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
