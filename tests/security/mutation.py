"""Changed copies of real inputs, the same for the same seed: bytes that flip, go, come and repeat; numbers that are
extreme; JSON whose keys are gone or of another type. Pure."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

_NUMBER = re.compile(rb"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_EXTREME_TEXTS = (
    *(b"0", b"-1", b"1", b"255", b"65536", b"2147483648", b"-2147483649", b"9223372036854775808", b"1e308", b"1e999"),
    *(b"-1e999", b"NaN", b"Infinity", b"1" + b"0" * 400, b"9" * 5000, b"0.1", b"null", b'"x"', b"true", b"[]", b"{}"),
)
_EXTREME_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**400, 1e308, -0.5, "", "x", "1", "\ud800", "\x00"),
    *("../../etc/passwd", "s3://", "\x1b[31m", "9" * 50, [], [None], [[1, 2], [3]], {}, {"": None}, {"x": {"y": 1}}),
)
_EXTREME_NUMBERS = (
    0,
    1,
    127,
    128,
    255,
    256,
    32767,
    65535,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
_LENGTHS = b"LliIU$#[{S"
"""Where a length, a type or a container begins in UBJSON; they are common enough elsewhere to do no harm."""

Change = Callable[[bytes, Sequence[bytes], random.Random], bytes]


def mutant(inputs: Sequence[bytes], seed: int, name: str, index: int, *, structured: bool = False) -> bytes:
    """Return the `index`th changed input of a parser. `structured`: the inputs are JSON or lines of JSON."""
    draw = random.Random(f"{seed} {name} {index}")
    content = draw.choice(inputs)
    changes = (*_BYTES, *((_json_value,) * len(_BYTES) if structured else ()))
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        content = draw.choice(changes)(content, inputs, draw)
    return content


def _flip(content: bytes, _inputs: Sequence[bytes], draw: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8)) if changed else 0):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _set(content: bytes, _inputs: Sequence[bytes], draw: random.Random) -> bytes:
    changed = bytearray(content)
    if changed:
        changed[draw.randrange(len(changed))] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
    return bytes(changed)


def _cut_off(content: bytes, _inputs: Sequence[bytes], draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content) + 1)]


def _take_out(content: bytes, _inputs: Sequence[bytes], draw: random.Random) -> bytes:
    start, stop = _span(content, draw)
    return content[:start] + content[stop:]


def _repeat(content: bytes, _inputs: Sequence[bytes], draw: random.Random) -> bytes:
    start, stop = _span(content, draw)
    times = draw.choice((1, 1, 2, 20, 300)) if stop - start < 64 else 1
    return content[:stop] + content[start:stop] * times + content[stop:]


def _insert(content: bytes, _inputs: Sequence[bytes], draw: random.Random) -> bytes:
    at = draw.randrange(len(content) + 1)
    new = draw.choice((draw.randbytes(draw.randrange(1, 16)), b"\x00" * 8, b"\xff" * 8, b"[" * 5000, b'{"a":' * 3000))
    return content[:at] + new + content[at:]


def _splice(content: bytes, inputs: Sequence[bytes], draw: random.Random) -> bytes:
    other = draw.choice(inputs)
    return content[: draw.randrange(len(content) + 1)] + other[draw.randrange(len(other) + 1) :]


def _move(content: bytes, inputs: Sequence[bytes], draw: random.Random) -> bytes:
    """Overwrite one stretch with another, of this input or of one like it."""
    other = draw.choice(inputs)
    start, stop = _span(other, draw)
    at = draw.randrange(len(content) + 1)
    return content[:at] + other[start:stop] + content[at + stop - start :]


def _binary_number(content: bytes, _inputs: Sequence[bytes], draw: random.Random) -> bytes:
    width = draw.choice((1, 2, 4, 4, 8))
    at = draw.randrange(len(content) + 1)
    if draw.random() < 0.5 and (marked := content.find(bytes([draw.choice(_LENGTHS)]), at)) >= 0:
        at = marked + 1
    new = (draw.choice(_EXTREME_NUMBERS) % (1 << 8 * width)).to_bytes(width, draw.choice(("little", "big")))
    return content[:at] + new + content[at + width :]


def _nudge(content: bytes, _inputs: Sequence[bytes], draw: random.Random) -> bytes:
    """Make a length, a count or an offset a little larger or smaller."""
    width = draw.choice((1, 2, 4, 8))
    at = draw.randrange(len(content) + 1)
    order = draw.choice(("little", "big"))
    value = int.from_bytes(content[at : at + width], order) + draw.choice((-16, -4, -1, 1, 2, 8, 1000))
    return content[:at] + (value % (1 << 8 * width)).to_bytes(width, order) + content[at + width :]


def _written_number(content: bytes, _inputs: Sequence[bytes], draw: random.Random) -> bytes:
    found = list(_NUMBER.finditer(content, draw.randrange(len(content) + 1)))[:50]
    if not found:
        return _binary_number(content, _inputs, draw)
    place = draw.choice(found)
    return content[: place.start()] + draw.choice(_EXTREME_TEXTS) + content[place.end() :]


def _json_value(content: bytes, inputs: Sequence[bytes], draw: random.Random) -> bytes:
    """Drop, retype, nest or repeat a value of a JSON document, or of one in a line among several."""
    lines = content.split(b"\n")
    able = [number for number, line in enumerate(lines) if b"{" in line and b"}" in line]
    try:
        return json.dumps(_changed(json.loads(content), draw)).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        pass
    if not able:
        return _written_number(content, inputs, draw)
    number = draw.choice(able)
    before, brace, rest = lines[number].partition(b"{")
    try:
        document = json.loads(brace + rest)
    except (ValueError, RecursionError):
        return _written_number(content, inputs, draw)
    lines[number] = before + json.dumps(_changed(document, draw)).encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def _changed(value: Any, draw: random.Random) -> Any:
    """Walk down a random way, and change what is there."""
    if isinstance(value, dict) and value and draw.random() < 0.85:
        key = draw.choice(list(value))
        rest = {name: item for name, item in value.items() if name != key}
        match draw.randrange(8):
            case 0:
                return rest
            case 1:
                return rest | {f"{key}x": value[key]}
            case _:
                return value | {key: _changed(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.85:
        at = draw.randrange(len(value))
        match draw.randrange(8):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return value + value[at : at + 1] * draw.choice((1, 50))
            case _:
                return [*value[:at], _changed(value[at], draw), *value[at + 1 :]]
    match draw.randrange(6):
        case 0:
            return [value]
        case 1:
            return {"x": value}
        case 2:
            return str(value)
    return draw.choice(_EXTREME_VALUES)


def _span(content: bytes, draw: random.Random) -> tuple[int, int]:
    start = draw.randrange(len(content) + 1)
    return start, min(len(content), start + draw.choice((1, 2, 4, 8, 16, 100, 1000)))


_BYTES: tuple[Change, ...] = (
    *(_flip, _set, _cut_off, _take_out, _repeat, _insert, _splice, _move, _binary_number, _nudge, _written_number),
)
