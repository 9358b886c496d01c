"""Functions of the user's, by their names."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from dray.errors import ConfigError, nearest


def load_function(name: str) -> Callable[..., Any]:
    """Import module:function, from the working directory too; a wrong name is told with the nearest right one."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise ConfigError(
            f'"{name}" is not the name of a function.', fix="Write module:function, such as features:clean."
        )
    here = os.getcwd()  # noqa: PTH109
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.partition(".")[0]:
            raise
        raise ConfigError(
            f'There is no module "{module_name}" here or installed.', fix=f"Run in the directory of {module_name}.py."
        ) from error
    found = getattr(module, attribute, None)
    if not callable(found):
        functions = [key for key, value in vars(module).items() if callable(value)]
        raise ConfigError(
            f'The module "{module_name}" has no function "{attribute}".{nearest(attribute, functions)}',
            fix=f"It has: {', '.join(sorted(functions)[:12])}.",
        )
    return found  # type: ignore[no-any-return]
