"""How these modules get to a machine: as text, over the stdin of a Python there, which then has them as here."""

from __future__ import annotations

import inspect
import json
from importlib import import_module

MARK = "\x1edray "
"""Begins every line that is an answer: whatever else a login or a library prints is none."""

BOOT = """
import json, sys, types
def load(line):
    sources = json.loads(line)
    for name in sources:
        for end in range(1, len(name.split(".")) + 1):
            package = ".".join(name.split(".")[:end])
            sys.modules.setdefault(package, types.ModuleType(package)).__path__ = []
    for name, source in sources.items():
        exec(compile(source, name, "exec"), sys.modules[name].__dict__)
load(sys.stdin.buffer.readline())
sys.modules["dray.clusters.fleet.host.%s"].main()
"""
_PACKAGE = "dray.clusters.fleet.host"
# In the order in which they need each other.
_MODULES = {
    "agent": ("sending", "processes", "own_files", "place", "network", "ray_process", "look", "nodes", "logs", "agent"),
    "launcher": ("sending", "launcher"),
}
_BESIDE = {"agent": ("dray.threads.cgroups",), "launcher": ()}


def boot(what: str) -> str:
    """Return the program (for `python -c`) that takes modules from its stdin and runs `main` of one of them."""
    return f"exec({BOOT % what!r})"  # one line: not every login shell takes more in quotes


def modules(what: str) -> str:
    """Return those modules: the first line for that program."""
    names = [*_BESIDE[what], *(f"{_PACKAGE}.{name}" for name in _MODULES[what])]
    return json.dumps({name: inspect.getsource(import_module(name)) for name in names})
