"""The imports of a module, as its text has them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

import dray


@dataclass(frozen=True)
class Import:
    file: str
    line: int
    module: str
    for_types_only: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def imports_in(tree: ast.Module, file: str) -> Iterator[Import]:
    typed = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno} is a relative import"
            modules = [str(node.module)]
            if (
                node.module == "dray"
            ):  # `from dray import s3` is the module; a public name is not, and is for types only
                public = {"__version__", *(dray.__all__ if id(node) in typed else ())}
                modules = [f"dray.{alias.name}" for alias in node.names if alias.name not in public]
        else:
            continue
        yield from (Import(file, node.lineno, module, id(node) in typed) for module in modules)
