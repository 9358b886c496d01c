"""Who may import whom: layers point down, and a vendor library has one home."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dray
from source_imports import Import, imports_in

ROOT = Path(dray.__file__).parent

LAYERS = [
    {"__main__"},
    {"cli"},
    {"api"},
    {"jobs"},
    {"training", "predicting"},
    {"recommending"},
    {"ingesting"},
    {"mapping"},
    {"batch"},
    {"elastic"},
    {"clusters"},
    {"learners"},
    {"data"},
    {"runs"},
    {"threads", "events", "rings"},
    {"storage", "retry", "s3", "durable"},
    {"config", "functions"},
    {"hints"},
    {"errors", "masking", "dray"},
]
"""From the top down. `dray` is the package's own file: it loads names lazily and imports nothing."""

NEIGHBOURS = {("storage", "s3"), ("storage", "durable"), ("storage", "retry"), ("retry", "s3"), ("errors", "masking")}
"""S3 and its retries are parts of storage, in files of their own; an error shows no password."""


def all_imports() -> list[Import]:
    return [
        found
        for path in sorted(ROOT.rglob("*.py"))
        for found in imports_in(ast.parse(path.read_text(encoding="utf-8")), path.relative_to(ROOT).as_posix())
    ]


def part_of(file: str) -> str:
    part = file.partition("/")[0].removesuffix(".py")
    return "dray" if part == "__init__" else part


def level(part: str) -> int:
    return next(index for index, layer in enumerate(LAYERS) if part in layer)


IMPORTS = all_imports()


def test_every_part_has_a_layer() -> None:
    known = set().union(*LAYERS)
    assert {part_of(path.relative_to(ROOT).as_posix()) for path in ROOT.rglob("*.py")} <= known


def test_imports_point_down() -> None:
    wrong = []
    for found in IMPORTS:
        if not found.module.startswith("dray.") or found.file == "__init__.py":
            continue
        here, there = part_of(found.file), found.module.split(".")[1]
        if here != there and level(there) <= level(here) and (here, there) not in NEIGHBOURS:
            wrong.append(str(found))
    assert not wrong


def test_the_package_itself_imports_nothing_when_it_is_loaded() -> None:
    eager = [found for found in IMPORTS if found.file == "__init__.py" and not found.for_types_only]
    assert {found.module for found in eager} <= {"__future__", "typing", "importlib"}


def users_of(library: str) -> list[Import]:
    return [found for found in IMPORTS if found.module.partition(".")[0] == library]


def test_ray_is_imported_only_by_the_cluster_and_its_group_of_workers() -> None:
    wrong = [
        str(found)
        for found in users_of("ray")
        if not found.file.startswith(("clusters/", "jobs/"))
        and found.file not in ("elastic/ray_group.py", "elastic/actor.py", "batch/ray_tasks.py", "ingesting/moving.py")
    ]
    assert not wrong
    assert users_of("ray")


def test_xgboost_is_imported_only_by_its_learner() -> None:
    wrong = [
        str(found)
        for found in users_of("xgboost")
        if not found.file.startswith("learners/xgboost/") and not found.for_types_only
    ]
    assert not wrong
    assert users_of("xgboost")


def test_numba_is_imported_in_one_place() -> None:
    assert {found.file for found in users_of("numba")} == {"learners/factorization/compiling.py"}
    assert users_of("numba")


@pytest.mark.parametrize(
    "pure",
    [
        *("data/shards.py", "data/split.py", "data/cuts.py", "learners/labels.py", "elastic/policy.py"),
        *("batch/sizing.py", "batch/blame.py", "batch/ordering.py", "batch/verdict.py"),
        *("ingesting/recipe.py", "ingesting/limits.py", "ingesting/plan.py"),
    ],
)
def test_decisions_need_no_files_and_no_vendor(pure: str) -> None:
    vendors = {"pyarrow", "xgboost", "ray", "os", "pathlib", "psutil"}
    assert not [str(found) for found in IMPORTS if found.file == pure and found.module.partition(".")[0] in vendors]


def test_the_files_of_packages_are_empty() -> None:
    for path in ROOT.rglob("*/__init__.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        assert len(body) <= 1 and all(isinstance(node, ast.Expr) for node in body), path


@pytest.mark.parametrize(("learner", "foreign"), [("factorization", "xgboost"), ("xgboost", "numba")])
def test_a_worker_loads_only_the_library_that_it_trains_with(learner: str, foreign: str) -> None:
    code = (
        "import sys, dray.elastic.actor, dray.elastic.watch; from dray.learners.registry import find; "
        f"find({learner!r}).worker_side(0, 1); print({foreign!r} in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
