"""Load libraries without the companions that they look for, in processes of dray's own.

Where they are installed, pyarrow imports pandas at its first array (0.35 s) and XGBoost imports scikit-learn (1.3 s);
dray uses neither, and every worker would pay for both. Only for processes of dray's own, the command line and the
workers: in a process that loaded them so, `Table.to_pandas` and XGBoost's scikit-learn classes do not work.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Protocol, runtime_checkable

from dray.learners import registry

_COMPANIONS = ("pandas", "sklearn")


@runtime_checkable
class Preloading(Protocol):
    """What a learner may have beside the contract `Learner`: how its library loads in a process of dray's own."""

    def preload(self) -> None:
        """Load what most commands need of its library, by `load_lean`. Called before anything else loads it."""
        ...


def preload() -> None:
    """Load pyarrow, and what the learners ask for. For a process of dray's own that may meet any model."""
    load_lean()
    for learner in registry.available():
        if isinstance(learner, Preloading):
            learner.preload()


def load_lean(*libraries: str) -> None:
    """Load pyarrow and these libraries without their companions."""
    with _hidden(_COMPANIONS):
        import pyarrow

        pyarrow.array([0])  # asks for pandas, and remembers the answer
        for name in libraries:
            import_module(name)


@contextmanager
def _hidden(packages: tuple[str, ...]) -> Iterator[None]:
    """Let imports of the packages fail, unless they are loaded already."""

    class Hiding:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name in packages:
                raise ModuleNotFoundError(f"No module named {name!r} (hidden while others load)", name=name)

    sys.meta_path.insert(0, Hiding)
    try:
        yield
    finally:
        sys.meta_path.remove(Hiding)
