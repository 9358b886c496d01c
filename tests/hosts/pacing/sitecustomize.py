"""Holds a training to a pace. Python imports it at its start where this folder is on PYTHONPATH.

DRAY_PACE names a folder, as `hosts.pace.Pace` makes it: `seconds` is how long a round takes at least, `rounds` is where
the first member of every ring notes the rounds it begins. Only that member waits: the others wait for it in the ring.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
import time
from pathlib import Path
from typing import Any

MODULE = "dray.learners.xgboost.boosting"


def _hold(module: Any, folder: Path) -> None:
    booster, collective = module.xgboost.Booster, module.xgboost.collective
    update = booster.update

    def paced(self: Any, rows: Any, iteration: int) -> Any:
        if collective.get_rank() == 0:
            with (folder / "rounds").open("a") as file:
                file.write(f"{iteration + 1}\n")
            begun = time.monotonic()
            while time.monotonic() - begun < float((folder / "seconds").read_text()):
                time.sleep(0.01)
        return update(self, rows, iteration)

    booster.update = paced


class _Patching(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module as Python does, and changes it once it is executed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loader: Any = None

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != MODULE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: Any) -> Any:
        return None

    def exec_module(self, module: Any) -> None:
        self._loader.exec_module(module)
        _hold(module, self._folder)


if _location := os.environ.get("DRAY_PACE"):
    sys.meta_path.insert(0, _Patching(Path(_location)))
