"""How much memory a process has of its own. Cheap enough to ask four times a second."""

from __future__ import annotations

import os
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def own_bytes(pid: int) -> int:
    """Return the resident memory of a process without what it shares (mapped arrays, libraries); 0 if unknown."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * _PAGE
