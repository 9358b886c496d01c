"""Strikes a process of a run at an exact moment. Python imports it at its start where this folder is on PYTHONPATH.

DRAY_FAULTS names a file, as `chaos.scene.Faults` writes it: constants to change, and what shall happen where, to
which worker, in which round, how often. Every strike leaves a file with the pid and the time, which is also how the
processes agree on how often it has happened. Without the variable nothing is changed.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

_WAIT_LIMIT_S = 120.0
_HOG_BYTES = 3 << 29
_number: int | None = None
"""Of the worker that lives in this process."""
_hoard: list[bytearray] = []

# A moment: where the function is that begins then, and how its arguments tell the round.
_MOMENTS: dict[str, tuple[str, str, Callable[..., int | None]]] = {
    "start": ("dray.learners.xgboost.worker", "Worker.__init__", lambda *_: None),
    "load": ("dray.learners.xgboost.worker", "Worker.on_rows", lambda *_: None),
    "restore": ("dray.learners.xgboost.worker", "Worker.restore", lambda *_: None),
    "join": ("dray.rings.mesh", "Mesh.join", lambda *_: None),
    "round": (
        "dray.learners.xgboost.boosting",
        "xgboost.Booster.update",
        lambda _booster, _rows, iteration: iteration + 1,
    ),
    "evaluate": (
        "dray.learners.xgboost.evaluation",
        "Evaluation._margins",
        lambda _self, booster: booster.num_boosted_rounds(),
    ),
    "copy": ("dray.learners.xgboost.worker", "Worker._take_copy", lambda _self, task, learner: learner.done(task)),
    "hand over": ("dray.learners.xgboost.worker", "Worker.latest", lambda *_: None),
    "checkpoint": ("dray.learners.xgboost.worker", "Worker.checkpoint", lambda *_: None),
}


def _strike(fault: dict[str, Any], place: Path) -> None:
    what = fault["do"]
    if what in ("kill", "stop"):
        os.kill(os.getpid(), signal.SIGKILL if what == "kill" else signal.SIGSTOP)
        time.sleep(0.1)  # the signal is there within microseconds
    elif what == "raise":
        raise RuntimeError("a fault of the test")
    elif what == "hog":
        _hoard.append(bytearray(os.urandom(1 << 20) * (_HOG_BYTES >> 20)))
        time.sleep(_WAIT_LIMIT_S)
    elif what == "wait":
        deadline = time.monotonic() + _WAIT_LIMIT_S
        while not place.with_suffix(".released").exists() and time.monotonic() < deadline:
            time.sleep(0.01)


def _meet(moment: str, number: int | None, round_: int | None, plan: dict[str, Any], folder: Path) -> None:
    for index, fault in enumerate(plan["faults"]):
        if fault["at"] != moment or fault["worker"] not in (None, number) or fault["round"] not in (None, round_):
            continue
        place = folder / str(index)
        if _count(place, fault["times"], number):
            _strike(fault, place)


def _count(place: Path, times: int, number: int | None) -> bool:
    """Note a strike; return False if there have been enough, whichever processes they were in."""
    for strike in range(times):
        try:
            with place.with_suffix(f".{strike}").open("x") as file:
                file.write(json.dumps({"pid": os.getpid(), "worker": number, "time": time.time()}))
                return True
        except FileExistsError:
            continue
    return False


def _patch(module: Any, path: str, moment: str, round_of: Callable[..., int | None], plan: Any, folder: Path) -> None:
    *owners, name = path.split(".")
    owner = module
    for step in owners:
        owner = getattr(owner, step)
    function = getattr(owner, name)

    @wraps(function)
    def struck(*arguments: Any, **named: Any) -> Any:
        global _number
        if moment == "start":
            _number = arguments[1]
        if moment == "hand over" and sys._getframe(1).f_code.co_name == "status":
            return function(*arguments, **named)  # the worker looks itself; the driver has not asked
        # Before its shard is loaded a worker is asked for things as well: what cannot tell a round has none.
        _meet(moment, _number, round_of(*arguments, **named), plan, folder)
        return function(*arguments, **named)

    setattr(owner, name, struck)


class _Patching(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules as Python does, and changes them once they are executed."""

    def __init__(self, plan: dict[str, Any], folder: Path) -> None:
        self._plan = plan
        self._folder = folder
        self._loaders: dict[str, Any] = {}
        self._moments = {fault["at"] for fault in plan["faults"]} | {"start"}
        self._modules = {_MOMENTS[moment][0] for moment in self._moments}
        self._modules |= {name.partition(":")[0] for name in plan["constants"]}

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in self._modules:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            self._loaders[name], spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: Any) -> Any:
        return None

    def exec_module(self, module: Any) -> None:
        self._loaders[module.__name__].exec_module(module)
        for moment in self._moments:
            name, path, round_of = _MOMENTS[moment]
            if name == module.__name__:
                _patch(module, path, moment, round_of, self._plan, self._folder)
        for name, value in self._plan["constants"].items():
            owner, _, constant = name.partition(":")
            if owner == module.__name__:
                assert hasattr(module, constant), name
                setattr(module, constant, value)


_location = os.environ.get("DRAY_FAULTS")
if _location and Path(_location).exists():
    sys.meta_path.insert(0, _Patching(json.loads(Path(_location).read_text()), Path(_location).parent))
