"""Patterns of a .gitignore, with git's meaning. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_WITHOUT_SPACES = re.compile(r"((?:\\.|[^\\])*?) *", re.DOTALL)
"""A line without the spaces at its end, but one behind a backslash."""
_NOTHING = "(?!)"
_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": r"\x21-\x7e",
    "lower": "a-z",
    "print": r"\x20-\x7e",
    "punct": r"!-/:-@\[-`{-~",
    "space": r" \t\n\r",
    "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}


class Ignore:
    """A list of patterns: the last one that fits decides, `!` takes in again, a slash at the end means a directory,
    one elsewhere the whole path."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._rules = [rule for pattern in patterns if (rule := _rule(pattern)) is not None]

    def verdict(self, name: str, directory: bool) -> bool | None:
        """Whether a path is ignored; None where no pattern fits."""
        for rule in reversed(self._rules):
            if (directory or not rule.directories_only) and rule.expression.fullmatch(name):
                return not rule.again
        return None


@dataclass(frozen=True, slots=True)
class Layer:
    """The patterns of one file, for paths below a root: the file is in, below or above that root."""

    patterns: Ignore
    below: str = ""
    """Its directory below the root, with a slash at the end."""
    above: str = ""
    """The root below its directory, with a slash at the end."""

    def verdict(self, name: str, directory: bool) -> bool | None:
        return self.patterns.verdict(self.above + name.removeprefix(self.below), directory)


@dataclass(frozen=True, slots=True)
class _Rule:
    expression: re.Pattern[str]
    directories_only: bool
    again: bool


def _rule(line: str) -> _Rule | None:
    match = _WITHOUT_SPACES.fullmatch(line)
    pattern = match[1] if match else line
    if not pattern or pattern.startswith("#"):
        return None
    again = pattern.startswith("!")
    pattern = pattern[again:]
    directories_only = pattern.endswith("/")
    pattern = pattern.removesuffix("/")
    if not pattern:
        return None
    anywhere = "" if "/" in pattern else "(?:.*/)?"
    expression = anywhere + _expression(pattern.removeprefix("/"))
    return _Rule(re.compile(expression, re.DOTALL), directories_only, again)


def _expression(pattern: str) -> str:
    """Translate as git's wildmatch.c reads it; what it cannot read fits nothing."""
    expression, at = "", 0
    while at < len(pattern):
        match pattern[at]:
            case "\\":
                expression += re.escape(pattern[at + 1]) if at + 1 < len(pattern) else _NOTHING
                at += 2
            case "?":
                expression += "[^/]"
                at += 1
            case "*":
                piece, at = _stars(pattern, at)
                expression += piece
            case "[":
                piece, at = _bracket(pattern, at + 1)
                expression += piece
            case other:
                expression += re.escape(other)
                at += 1
    return expression


def _stars(pattern: str, at: int) -> tuple[str, int]:
    """Translate one or more stars; return where the rest begins. Two, alone between slashes, are directories."""
    end = at
    while pattern[end : end + 1] == "*":
        end += 1
    alone = pattern[at - 1 : at] in ("", "/") and (end == len(pattern) or pattern.startswith(("/", "\\/"), end))
    if end - at == 1 or not alone:
        return "[^/]*", end
    return ("(?:.*/)?", end + 1) if pattern.startswith("/", end) else (".*", end)


def _bracket(pattern: str, at: int) -> tuple[str, int]:
    """Translate a set of characters from behind its bracket on; return where the rest begins."""
    negated = pattern[at : at + 1] in ("!", "^")
    at += negated
    items, before, first = "", "", True
    while first or pattern[at : at + 1] != "]":
        first = False
        one, ends_range = pattern[at : at + 1], pattern[at + 1 : at + 2] not in ("", "]")
        if one == "-" and before and ends_range:
            one, at = _character(pattern, at + 1)
            items += f"{re.escape(before)}-{re.escape(one)}" if before <= one else ""
            before = ""
        elif one == "[" and (found := re.compile(r"\[:([^\]]*):\]").match(pattern, at)):
            if found[1] not in _CLASSES:
                return _NOTHING, len(pattern)
            items += _CLASSES[found[1]]
            before, at = "", found.end()
        else:
            one, at = _character(pattern, at)
            items += re.escape(one)
            before = one
        if at >= len(pattern):  # it does not end
            return _NOTHING, at
    if not items:
        return ("[^/]" if negated else _NOTHING), at + 1
    return f"(?!/)[{'^' if negated else ''}{items}]", at + 1


def _character(pattern: str, at: int) -> tuple[str, int]:
    """Return a character, which may follow a backslash, and where the next one is."""
    at += pattern[at : at + 1] == "\\"
    return pattern[at : at + 1], at + 1
