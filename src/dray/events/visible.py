r"""Text from data and from the network as a terminal may show it: characters that steer it are made visible. Pure.

A column's name may hold escape sequences that clear the screen, change its title or overwrite what is above, and
marks that turn the reading direction around. They are shown as Python writes them: \x1b, \u202e.
"""

from __future__ import annotations

import re

# C0 but tab and newline, DEL, C1 (0x9b alone begins a sequence), marks of direction, invisible characters, lone
# surrogates (which no stream can encode). The joiners of scripts and emoji, U+200C and U+200D, stay.
_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_COLOUR = re.compile("\x1b\\[[0-9;]*m")


def visible(text: str) -> str:
    """Return the text with control characters written out; tabs and ends of lines stay."""
    return _STEERING.sub(lambda found: _written(ord(found[0])), text)


def visible_log(line: str) -> str:
    """Return a line of a log: without its colours, which are most of what logs have, and all else visible."""
    return visible(_COLOUR.sub("", line).rstrip("\r\n"))


def escaped(json_text: str) -> str:
    """Return a JSON document that is the same when parsed, without such characters: JSON itself escapes only C0."""
    return _STEERING.sub(lambda found: _as_json(ord(found[0])), json_text)


def _written(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _as_json(code: int) -> str:
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
