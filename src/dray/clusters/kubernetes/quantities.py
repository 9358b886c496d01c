"""CPUs and bytes as Kubernetes writes them. Pure."""

from __future__ import annotations

import math
import re

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)")
_MOST = 2.0**63
_SIZES = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_BYTES = {
    spelling: base**power
    for letter, power in _SIZES.items()
    for base, ending in ((1000, ""), (1000, "B"), (1024, "i"), (1024, "iB"))
    for spelling in {letter + ending, (letter + ending).replace("K", "k")}
    if letter or not ending
}
GIB = 2**30


def parse_bytes(quantity: str | int | float) -> int:
    """Return the bytes of 8Gi, 8G, 8GB or a number."""
    if isinstance(quantity, int | float) and not isinstance(quantity, bool):
        return int(quantity)
    found = _QUANTITY.fullmatch(str(quantity).strip())
    if found is None or found[2] not in _BYTES:
        raise ValueError(f'"{quantity}" is not an amount of memory: write 8Gi, say')
    return int(_finite(float(found[1]) * _BYTES[found[2]], quantity))


def parse_cpus(quantity: str | int | float) -> float:
    """Return the CPUs of 4, "4" or 500m."""
    if isinstance(quantity, int | float) and not isinstance(quantity, bool):
        return _finite(quantity, quantity)
    found = _QUANTITY.fullmatch(str(quantity).strip())
    if found is None or found[2] not in ("", "m"):
        raise ValueError(f'"{quantity}" is not a number of CPUs: write 4, or 500m for a half')
    return _finite(float(found[1]), quantity) / (1000 if found[2] else 1)


def _finite(number: float, quantity: object) -> float:
    if not abs(number) < _MOST:
        raise ValueError(f'"{str(quantity)[:40]}" is more than there is')
    return float(number)


def format_bytes(number: int) -> str:
    """Return whole Gi, else whole Mi, rounded down: less than asked fits, more may not."""
    return f"{number // GIB}Gi" if number % GIB == 0 else f"{number // 2**20}Mi"


def format_cpus(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{math.floor(number * 1000)}m"
