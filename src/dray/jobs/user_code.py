"""Functions of the user's, by their names, and the directory of code that goes along with a job that needs them."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from dray.errors import ConfigError
from dray.jobs.shared import is_local
from dray.storage import absolute


@dataclass(frozen=True, slots=True)
class Code:
    """A directory that goes along with a job; its processes work in it and import from it."""

    root: Path
    excludes: tuple[str, ...] = ()
    """Patterns of what is left out, as in a .gitignore."""


def importable_name(function: Callable[..., Any], url: str) -> str:
    """Return module:function of a function that a process at `url` can import; refuse one that lives here only."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    found = getattr(sys.modules.get(str(module)), str(name), None)
    if module == "__main__" or found is not function:
        raise ConfigError(
            f"The function {name or type(function).__name__} exists in this process only, and the command runs at "
            f"{url}.",
            fix="Define it at the top of a module, such as clean in features.py, and give that: features.clean "
            "(features:clean on the command line).",
        )
    return f"{module}:{name}"


def code_of(
    function: str, locations: Sequence[str], working_dir: str | None = None, excludes: Sequence[str] = ()
) -> Code | None:
    """Return the directory from which a function (module:function) is imported; None if its module is installed.

    `locations` of data and results in that directory do not go along: they are read where they are.
    """
    root = _directory_of(function.partition(":")[0])
    if working_dir is not None:
        given = Path(os.path.realpath(absolute(working_dir)))
        if not given.is_dir():
            raise ConfigError(f"There is no directory {working_dir}.", fix="Name a directory with --working-dir.")
        if root is not None and root != given:
            raise ConfigError(
                f"The function {function} is imported from {root}, which is not the working directory {working_dir}.",
                fix=f"Use --working-dir {root}.",
            )
        root = given
    if root is None:
        return None
    inside = [Path(os.path.realpath(absolute(location))) for location in locations if is_local(location)]
    mine = [f"/{path.relative_to(root).as_posix()}" for path in inside if root in path.parents]
    return Code(root, (*mine, *excludes))


def _directory_of(module_name: str) -> Path | None:
    """Return the directory that the module's first package lies in, unless Python's own directories hold it."""
    file = getattr(import_module(module_name), "__file__", None)
    if file is None:
        return None
    path = Path(os.path.realpath(file))
    depth = module_name.count(".") + (path.name == "__init__.py")
    root = path.parents[depth]
    places = sysconfig.get_paths()
    installed = {Path(os.path.realpath(places[name])) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return None if installed & {root, *root.parents} else root
