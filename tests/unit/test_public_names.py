from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import dray

SOURCE = Path(dray.__file__).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", dray.__all__)
def test_every_public_name_loads(name: str) -> None:
    assert getattr(dray, name) is not None


def test_the_public_names_are_sorted_and_each_stands_once() -> None:
    assert dray.__all__ == sorted(set(dray.__all__))


def test_the_public_names_are_complete() -> None:
    """What type checkers see, what loads lazily and what `__all__` says are the same names."""
    lazy = next(node for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, ast.If))
    seen = {
        (alias.name, node.module) for node in ast.walk(lazy) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert {name for name, _ in seen} | {"__version__"} == set(dray.__all__)
    for name, module in seen:
        assert getattr(dray, name) is getattr(sys.modules[str(module)], name)


def test_all_errors_of_the_tree_and_all_results_are_public() -> None:
    from dray import errors

    tree = {name for name, found in vars(errors).items() if isinstance(found, type) and issubclass(found, Exception)}
    assert tree <= set(dray.__all__)
    assert {"TrainResult", "FactorResult"} <= set(dray.__all__)


def test_public_functions_and_classes_have_docstrings() -> None:
    for name in set(dray.__all__) - {"__version__"}:
        assert inspect.getdoc(getattr(dray, name)), name


def test_other_names_are_refused_as_python_does() -> None:
    with pytest.raises(AttributeError, match="module 'dray' has no attribute 'trane'"):
        dray.trane  # noqa: B018
    assert dir(dray) == dray.__all__


def loaded_after(statement: str) -> set[str]:
    program = f"import sys; {statement}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


HEAVY = {"numpy", "pyarrow", "ray", "xgboost", "pydantic", "rich", "psutil", "yaml", "click"}


def test_importing_dray_loads_nothing_else() -> None:
    assert not loaded_after("import dray; dray.__version__; dray.DrayError") & HEAVY


def test_the_api_does_not_load_ray() -> None:
    assert "ray" not in loaded_after("import dray; dray.train; dray.predict; dray.load")
