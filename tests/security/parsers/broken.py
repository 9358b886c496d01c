"""Readers with a fault each, to see that it is noticed."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from dray.errors import ModelError
from security.attack import Parser

_REAL = b'{"length": 3, "name": "x"}'


def _reading(fault: Callable[[], object], *, limit_s: float = 60.0) -> Parser:
    """Return a reader that handles everything but a length that is gone."""

    def parse(content: bytes) -> Any:
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            raise ModelError("It is not JSON.", fix="") from None
        if isinstance(document, dict) and "length" not in document:
            fault()
        return document

    return Parser(lambda: [_REAL], parse, lambda read: read["length"] == 3, True, cpu_s=limit_s, real_s=limit_s)


def _spin() -> None:
    while True:
        pass


def _grow() -> None:
    assert len(bytearray(b"x") * (1 << 29))


def _seal(content: bytes) -> bytes:
    return hashlib.sha256(content[64:]).hexdigest().encode() + content[64:]


def _unsealed(content: bytes) -> Any:
    if _seal(content) != content:
        raise ModelError("It is damaged.", fix="")
    return json.loads(content[64:])["length"]


PARSERS = {
    "raises": _reading(lambda: {}["length"]),
    "dies": _reading(lambda: os.kill(os.getpid(), signal.SIGSEGV)),
    "hangs": _reading(_spin, limit_s=1.0),
    "waits": _reading(lambda: time.sleep(3600), limit_s=2.0),
    "grows": _reading(_grow),
    "discards": Parser(lambda: [_REAL], lambda _content: None, lambda read: read is not None, structured=True),
    "behind_a_seal": Parser(
        lambda: [_seal(bytes(64) + _REAL)], _unsealed, lambda read: read == 3, structured=True, seal=_seal
    ),
}
