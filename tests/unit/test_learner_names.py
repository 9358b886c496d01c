"""Nothing outside a learner's folder names the learner: everything else asks the registry."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import dray
from dray.learners import registry
from source_imports import imports_in

ROOT = Path(dray.__file__).parent
NAMES = sorted(path.name for path in (ROOT / "learners").iterdir() if (path / "learner.py").exists())
WORDS = re.compile(rf"\b({'|'.join(NAMES)})\b")

EXEMPT = {
    "__init__.py": "where each public name is loaded from",
    "learners/registry.py": "the one place that names learners",
    "runs/migrations.py": "says what runs of earlier versions hold",
}


def named_in(text: str, file: str) -> Iterator[str]:
    """Yield where a module names a learner: in its imports, and in literals that are not docstrings."""
    tree = ast.parse(text)
    for found in imports_in(tree, file):
        if found.module.startswith("dray.") and WORDS.search(found.module):
            yield str(found)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "dray.learners":
            yield from (f"{file}:{node.lineno} imports {alias.name}" for alias in node.names if alias.name in NAMES)
    # A string that is a statement documents what is above it: a module, a class, a function, a field.
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield from (f"{file}:{node.lineno} says {name!r}" for name in WORDS.findall(node.value))


def all_named() -> dict[str, list[str]]:
    """Return every place outside the learners' folders and the exempt files that names a learner, by file."""
    files = {path.relative_to(ROOT).as_posix(): path for path in sorted(ROOT.rglob("*.py"))}
    own = tuple(f"learners/{name}/" for name in NAMES)
    found = {
        file: list(named_in(path.read_text(encoding="utf-8"), file))
        for file, path in files.items()
        if not file.startswith(own) and file not in EXEMPT
    }
    return {file: where for file, where in found.items() if where}


NAMED = all_named()


def test_the_learners_are_those_of_the_registry() -> None:
    assert sorted(name for name in registry.names() if (ROOT / "learners" / name).exists()) == NAMES
    assert len(NAMES) >= 2


def test_nothing_outside_its_folder_names_a_learner() -> None:
    assert not [where for found in NAMED.values() for where in found]


@pytest.mark.parametrize(
    "code",
    [
        "from dray.learners.xgboost.model import Model",
        "from dray.learners import xgboost",
        "import dray.learners.factorization.model",
        "def later():\n    from dray.learners.factorization.model import FactorModel",
        "if TYPE_CHECKING:\n    from dray.training.factorization.result import FactorResult",
        'trees = model == "xgboost"',
        'home = {"FactorModel": "dray.learners.factorization.model"}',
        'print(f"Name a run of model factorization, not {run}.")',
        'def train(model: Literal["factorization"]) -> None: ...',
    ],
)
def test_a_name_is_found_wherever_it_is(code: str) -> None:
    assert list(named_in(code, "some.py"))


@pytest.mark.parametrize(
    "code",
    [
        '"""Trees by xgboost, or a factorization."""',
        'def load() -> None:\n    """Return a model of xgboost."""',
        'class Run:\n    model: str\n    """xgboost or factorization."""',
        "from dray.learners.registry import find",
        'print("an XGBoost objective")  # of xgboost',
    ],
)
def test_documentation_may_name_learners(code: str) -> None:
    assert not list(named_in(code, "some.py"))
