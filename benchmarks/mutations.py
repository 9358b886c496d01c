"""The small changes that can be made to a module: a comparison moved, a condition turned, a guard dropped.

By mutmut's operators, except those whose changes say little of tests: other words in a message, another number than 0
and 1, and values and arguments replaced by None, at which nearly any test fails. Beside them one of our own, the guard
that is never taken. Only what is inside functions is changed, without annotations, defaults and assertions.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation import mutators

_SHOWN = 24
"""Characters shown on either side of a change."""


def _step(node: cst.Integer | cst.Float) -> Iterable[cst.BaseNumber]:
    """Move 0 and 1, as in an index or a first value. Others are measures that were chosen: a wait, a limit, a unit."""
    if node.evaluated_value in (0, 1):
        yield from mutators.operator_number(node)


def _drop_guard(node: cst.If) -> Iterable[cst.If]:
    """Take the branch never; the condition is still asked, as in mutmut's operator for `x if y else z`."""
    asked = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    yield node.with_changes(test=cst.BooleanOperation(left=asked, operator=cst.And(), right=cst.Name("False")))


OPERATORS: mutators.OPERATORS_TYPE = [
    (kind, operator)
    for kind, operator in mutators.mutation_operators
    if operator
    not in (
        mutators.operator_number,
        mutators.operator_string,
        mutators.operator_assignment,
        mutators.operator_arg_removal,
        mutators.operator_dict_arguments,
        mutators.operator_lambda,
    )
] + [(cst.Integer, _step), (cst.Float, _step), (cst.If, _drop_guard)]


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change to a module."""

    line: int
    change: str
    """As it is shown: what was there, an arrow, and what is there now."""
    code: str
    """The whole module with the change."""


def count(code: str) -> int:
    """Return how many changes there are."""
    return len(_changes(cst.parse_module(code)))


def mutate(code: str, index: int) -> Mutation:
    """Make one of them."""
    wrapper = MetadataWrapper(cst.parse_module(code))
    node, changed = _changes(wrapper.module)[index]
    mutated = wrapper.module.deep_replace(node, changed)
    assert isinstance(mutated, cst.Module)
    compile(mutated.code, "mutant", "exec")
    line = wrapper.resolve(PositionProvider)[node].start.line
    return Mutation(line, _shown(*_code(wrapper.module, node, changed)), mutated.code)


class _Collector(cst.CSTVisitor):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[cst.CSTNode, cst.CSTNode]] = []
        self._depth = 0

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Annotation | cst.Parameters | cst.Decorator | cst.Assert):
            return False
        if isinstance(node, cst.FunctionDef):
            self._depth += 1
        elif self._depth:
            for kind, operator in OPERATORS:
                if isinstance(node, kind):
                    self.found += [(node, changed) for changed in operator(node)]
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if isinstance(original_node, cst.FunctionDef):
            self._depth -= 1


def _changes(module: cst.Module) -> list[tuple[cst.CSTNode, cst.CSTNode]]:
    collector = _Collector()
    module.visit(collector)
    return collector.found


def _code(module: cst.Module, before: cst.CSTNode, after: cst.CSTNode) -> tuple[str, str]:
    if isinstance(before, cst.If) and isinstance(after, cst.If):  # the condition says it; a branch may be long
        before, after = before.test, after.test
    return module.code_for_node(before), module.code_for_node(after)


def _shown(before: str, after: str) -> str:
    """Return where they differ, with a little of what stands around it."""
    before, after = (" ".join(text.split()) for text in (before, after))
    first = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
    last = next(
        (i for i, (a, b) in enumerate(zip(before[first:][::-1], after[first:][::-1], strict=False)) if a != b), 0
    )

    def around(text: str) -> str:
        start, stop = max(0, first - _SHOWN), len(text) - max(0, last - _SHOWN)
        return text[start:stop] if stop - start <= 4 * _SHOWN else f"{text[start : start + 4 * _SHOWN]}..."

    return f"{around(before)} -> {around(after)}"


def is_pure(module: Path) -> bool:
    """Return whether a module says of itself that it is pure: plain values in, plain values out."""
    said = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return re.search(r"\b[Pp]ure\b", said) is not None


def nearest_tests(source: Path, tests: Path) -> dict[Path, Sequence[Path]]:
    """Return the modules of a package that tests know, each with those tests: of its own name first.

    A module's tests are the file that mirrors its path (`data/cuts.py`, `unit/data/test_cuts.py`) and those of the same
    top folder that import it; without any, those of the modules there that import it.
    """
    names = {module: ".".join((source.name, *_parts(module, source))) for module in sorted(source.rglob("*.py"))}
    imported = {test: _imports(test) for test in sorted(tests.rglob("test_*.py"))}
    found: dict[Path, list[Path]] = {}
    for module, name in names.items():
        path = module.relative_to(source)
        mirror = tests / path.parent / f"test_{path.stem}.py"
        near = [
            test
            for test, known in imported.items()
            if name in known and test != mirror and _top_folder(test.relative_to(tests)) == _top_folder(path)
        ]
        found[module] = [mirror, *near] if mirror in imported else near
    users = {module: _imports(module) for module in names}
    for module in [module for module, near in found.items() if not near]:
        top = _top_folder(module.relative_to(source))
        near = [
            test
            for user, known in users.items()
            if names[module] in known and _top_folder(user.relative_to(source)) == top
            for test in found[user]
        ]
        found[module] = list(dict.fromkeys(near))
    return {module: near for module, near in found.items() if near}


def _parts(module: Path, source: Path) -> tuple[str, ...]:
    return module.relative_to(source).with_suffix("").parts


def _top_folder(path: Path) -> str | None:
    return path.parts[0] if len(path.parts) > 1 else None


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found
