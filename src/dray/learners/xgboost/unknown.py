"""Model files without a known digest: copied from elsewhere, damaged, or of a run that kept no digest.

XGBoost believes what it reads: a changed byte can end the process while the file is loaded, or later, while a tree is
followed. So such a file is loaded and saved by a process of its own first, and what that saved is looked through: every
tree must be one, within its own arrays.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from xgboost.libpath import find_lib_path

from dray.errors import ModelError
from dray.learners.xgboost import child as xgboost_child
from dray.learners.xgboost.trees import NO_TREES, problem_of
from dray.learners.xgboost.ubjson import is_whole
from dray.runs.directory import RunDirectory

MODEL = "model.ubj"
_LIMIT_S = 60.0
_BYTES_PER_S = 1 << 20
"""How much longer a large model may take; XGBoost reads a hundred times as fast."""


def read_model(run: RunDirectory) -> bytes:
    """Return the model of a run, as it was written or as `rewritten`."""
    content, known = run.read_result(MODEL)
    return content if known else rewritten(content, run.path(MODEL))


def rewritten(content: bytes, origin: str) -> bytes:
    """Return a model, UBJSON or JSON, as XGBoost writes it, sound enough to be loaded here; or a ModelError."""
    # What is text is looked at by XGBoost's reader of JSON, which takes nothing for granted.
    if not (is_whole(content) or content.startswith((b'{"', b"{ ", b"{\n"))):
        raise _refused(origin)
    saved = _saved_apart(content)
    if saved is None or not is_whole(saved):
        raise _refused(origin)
    problem = problem_of(saved)
    if problem == NO_TREES:
        raise ModelError(
            f"{origin} was not trained by dray: {problem}.", fix="Train with dray train, or use xgboost to predict."
        )
    if problem is not None:
        raise _refused(origin)
    return saved


def _saved_apart(content: bytes) -> bytes | None:
    program = [sys.executable, "-I", "-S", str(Path(xgboost_child.__file__)), find_lib_path()[0]]
    try:
        done = subprocess.run(  # noqa: S603  (a list, no shell)
            program, input=content, capture_output=True, timeout=_LIMIT_S + len(content) / _BYTES_PER_S, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout if done.returncode == 0 else None


def _refused(origin: str) -> ModelError:
    return ModelError(f"{origin} is not an XGBoost model.", fix="Name a run directory or its model.ubj.")
