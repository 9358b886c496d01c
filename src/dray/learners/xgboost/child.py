"""Reads a saved model and writes it anew, as a program of its own: `python -I -S xgboost_child.py LIBRARY < old > new`.

XGBoost trusts a model file, and one that is damaged can end the process. So a file without a known digest is read here
first, with a limit on memory. Only the standard library: starting takes 0.05 s, importing xgboost ten times as long.
"""

from __future__ import annotations

import ctypes
import resource
import sys

TYPE_CHECKING = False  # `typing` takes longer to load than all of this
if TYPE_CHECKING:
    from typing import BinaryIO

_ROOM_BYTES = 1 << 30
_ROOM_PER_BYTE = 30


def rewrite(old: BinaryIO, new: BinaryIO, library: str) -> None:
    """Read a model and write what XGBoost makes of it. Whatever is wrong ends this process."""
    content = old.read()
    xgboost = ctypes.CDLL(library)
    xgboost.XGBGetLastError.restype = ctypes.c_char_p
    _limit_memory(_ROOM_BYTES + _ROOM_PER_BYTE * len(content))
    booster, size, saved = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.POINTER(ctypes.c_char)()
    _require(xgboost, xgboost.XGBoosterCreate(None, ctypes.c_uint64(0), ctypes.byref(booster)))
    _require(xgboost, xgboost.XGBoosterLoadModelFromBuffer(booster, content, ctypes.c_uint64(len(content))))
    how = b'{"format": "ubj"}'
    _require(xgboost, xgboost.XGBoosterSaveModelToBuffer(booster, how, ctypes.byref(size), ctypes.byref(saved)))
    new.write(ctypes.string_at(saved, size.value))


def _require(xgboost: ctypes.CDLL, code: int) -> None:
    if code != 0:
        sys.exit(xgboost.XGBGetLastError().decode(errors="replace"))


def _limit_memory(more: int) -> None:
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123  (pathlib takes long to load)
        pages = int(file.read().split()[0])
    limit = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    rewrite(sys.stdin.buffer, sys.stdout.buffer, sys.argv[1])
