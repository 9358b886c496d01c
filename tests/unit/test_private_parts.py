"""Private parts of a vendor's library are used in one file a library."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import dray

ROOT = Path(dray.__file__).parent
LIBRARIES = ("ray", "kubernetes", "xgboost", "pyarrow", "click", "rich", "pydantic", "pyspark")
OF_OBJECTS = dict.fromkeys(("_jsc", "_jvm", "_jsparkSession", "_jconf"), "pyspark")
"""Private names of objects that a library hands out: they are known by the name alone."""
HOMES = {
    "clusters/ray_private.py": "ray",
    "clusters/spark/spark_private.py": "pyspark",
    "clusters/fleet/host/launcher.py": "ray",  # runs on a host of the fleet, by itself
}


def private_uses(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield each private name of a library that a module uses, as library.name, with its line."""
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.partition(".")[0]
                bound[alias.asname or root] = alias.name if alias.asname else root
                if is_private(alias.name):
                    yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                bound[alias.asname or alias.name] = name
                if is_private(name):
                    yield name, node.lineno
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            chain = re.match(r"[\w.]+", ast.unparse(node))
            words = chain[0].split(".") if chain else [""]
            name = ".".join([bound.get(words[0], ""), *words[1:]])
            if is_private(name):
                yield name, node.lineno
            elif node.attr in OF_OBJECTS:
                yield f"{OF_OBJECTS[node.attr]}.{node.attr}", node.lineno
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and is_private(node.value.partition(" ")[0])
        ):
            yield node.value, node.lineno


def is_private(name: str) -> bool:
    first, *rest = name.split(".")
    return first in LIBRARIES and any(word.startswith("_") and not word.startswith("__") for word in rest)


def test_private_parts_are_used_in_their_homes_only() -> None:
    found = {}
    for file in sorted(ROOT.rglob("*.py")):
        name = file.relative_to(ROOT).as_posix()
        uses = list(private_uses(ast.parse(file.read_text(encoding="utf-8"))))
        found |= {f"{name}:{line}": used for used, line in uses if HOMES.get(name) != used.partition(".")[0]}
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "import ray._private.node",
        "from ray._raylet import GcsClient",
        "from ray._private.state import state",
        "import ray\nray._private.worker",
        "import ray.util.spark.cluster_init as init\ninit._active_ray_cluster",
        "import_module('ray._common.utils')",
        "from kubernetes import client\nclient._x()",
        "session.sparkContext._jsc.sc()",
    ],
)
def test_a_private_use_is_found_however_it_is_written(source: str) -> None:
    assert list(private_uses(ast.parse(source)))


def test_public_uses_are_not_found() -> None:
    assert not list(private_uses(ast.parse("import ray\nray.init(_temp='x')\nself._ray\nfrom ray.util import state")))
