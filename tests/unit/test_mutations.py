"""The changes that `make mutants` makes, and the tests it runs on them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

pytest.importorskip("libcst", reason="mutmut is not installed")

import mutations  # noqa: E402

CODE = """
LIMIT = 5

def f(x: int | None, most: int = 3) -> bool | None:
    assert x is not None
    if x < LIMIT:
        return x and not most
    return x in (1,)
"""


def changes(code: str) -> list[str]:
    return [mutations.mutate(code, index).change for index in range(mutations.count(code))]


def test_what_functions_do_is_changed_and_not_what_is_said_of_them() -> None:
    assert changes(CODE) == [
        "x < LIMIT -> (x < LIMIT) and False",
        "< LIMIT -> <= LIMIT",
        "x and not most -> x or not most",
        "not most -> most",
        "in -> not in",
        "1 -> 2",
    ]


def test_a_mutant_is_the_module_with_one_change_at_its_line() -> None:
    moved = mutations.mutate(CODE, 1)
    assert moved.line == 6
    assert moved.code == CODE.replace("x < LIMIT", "x <= LIMIT")
    dropped = mutations.mutate(CODE, 0)
    assert dropped.code == CODE.replace("if x < LIMIT:", "if (x < LIMIT) and False:")


def test_a_long_change_is_shown_where_it_is() -> None:
    long = " or ".join(f"name_{i}" for i in range(50))
    [*_, last] = changes(f"def f():\n    return {long} or (a < b)\n")
    assert last == "< b -> <= b"
    assert max(map(len, changes(f"def f():\n    return {long}\n"))) < 250


def test_the_tests_of_a_module_are_its_mirror_and_those_beside_it_that_import_it(tmp_path: Path) -> None:
    source, tests = tmp_path / "src" / "p", tmp_path / "unit"
    files = {
        source / "a" / "one.py": "",
        source / "a" / "two.py": "",
        source / "a" / "three.py": "",
        source / "a" / "four.py": "from p.a.five import x",
        source / "a" / "five.py": "",
        source / "b" / "six.py": "from p.a import three",
        tests / "a" / "test_four.py": "",
        source / "top.py": "",
        tests / "a" / "test_one.py": "import p.a.two",
        tests / "a" / "deep" / "test_more.py": "from p.a import one",
        tests / "b" / "test_other.py": "from p.a.one import x\nfrom p.top import y\nfrom p.a import three",
        tests / "test_all.py": "import p.top",
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = {
        str(module.relative_to(source)): [str(test.relative_to(tests)) for test in near]
        for module, near in mutations.nearest_tests(source, tests).items()
    }
    assert found == {
        "a/five.py": ["a/test_four.py"],
        "a/four.py": ["a/test_four.py"],
        "a/one.py": ["a/test_one.py", "a/deep/test_more.py"],
        "a/two.py": ["a/test_one.py"],
        "top.py": ["test_all.py"],
    }


def test_pure_modules_are_those_that_say_so(tmp_path: Path) -> None:
    module = tmp_path / "m.py"
    for text, pure in (('"""What is decided. Pure."""', True), ('"""Purely for show."""', False), ("", False)):
        module.write_text(text)
        assert mutations.is_pure(module) is pure


@pytest.mark.parametrize("module", ["batch/sizing.py", "elastic/policy.py"])
def test_every_change_to_a_module_of_ours_is_one_that_python_compiles(module: str) -> None:
    code = (ROOT / "src" / "dray" / module).read_text()
    every = mutations.count(code)
    assert every > 30
    for index in range(0, every, 9):
        assert mutations.mutate(code, index).code != code
