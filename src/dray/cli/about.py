"""What `dray --version --verbose` prints: what a bug report should say of a machine, and nothing that is private."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator
from importlib import metadata

from dray import __version__

VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "RAY_ADDRESS", "DRAY_RING_PORTS")
"""What changes how dray runs; tokens and keys are never among them."""


def about() -> str:
    """Return lines of a name and a value each."""
    lines = list(_lines())
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines)


def _lines() -> Iterator[tuple[str, str]]:
    from dray.threads.limits import cpus_of_this_process

    yield "dray", __version__
    yield "python", f"{platform.python_version()} ({sys.executable})"
    yield "system", f"{platform.platform()}, {cpus_of_this_process()} of {os.cpu_count()} CPUs"
    for name, extras in _required().items():
        yield name, _installed(name, extras)
    for name in VARIABLES:
        if name in os.environ:
            yield name, os.environ[name]


def _required() -> dict[str, list[str]]:
    """Return the packages that dray needs, without extras, then those of its extras; its developers' are left out."""
    needed: dict[str, list[str]] = {}
    optional: dict[str, list[str]] = {}
    for line in metadata.requires("dray") or ():
        need, _, marker = line.partition(";")
        found = re.match(r"[A-Za-z0-9._-]+", need)
        extra = marker.partition("extra ==")[2].strip(" '\"")
        if found is None or found[0] == "dray" or extra.startswith("bench") or extra in ("test", "dev"):
            continue
        if extra:
            optional.setdefault(found[0], []).append(extra)
        else:
            needed[found[0]] = []
    return dict(sorted(needed.items())) | {name: optional[name] for name in sorted(set(optional) - set(needed))}


def _installed(name: str, extras: list[str]) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"not installed (extra: {', '.join(extras)})" if extras else "not installed"
