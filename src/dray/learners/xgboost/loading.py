"""Load pyarrow and XGBoost without the companions that they look for.

Where they are installed, pyarrow imports pandas at its first array (0.35 s) and XGBoost imports scikit-learn (1.3 s);
dray uses neither, and every worker would pay for both. Only for processes of our own, the command line and the
workers: in a process that loaded them so, `Table.to_pandas` and XGBoost's scikit-learn classes do not work.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_COMPANIONS = ("pandas", "sklearn")


def load_lean() -> None:
    with _hidden(_COMPANIONS):
        import pyarrow

        pyarrow.array([0])  # asks for pandas, and remembers the answer
        import xgboost  # noqa: F401


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
