"""A filter as text, in Python's syntax: `price > 10 and country in ("DE", "FR") and deleted is None`.

| supported                                   |                                                             |
|---------------------------------------------|-------------------------------------------------------------|
| columns                                     | by name; `col("odd name")` for a name with other characters |
| literals                                    | numbers, text, True, False; dates and times are text        |
| `== != < <= > >=`, also chained             | of two numbers, two texts, two times                        |
| `in (...)`, `not in (...)`                  | a list of literals                                          |
| `is None`, `is not None`                    |                                                             |
| `and`, `or`, `not`, `+ - * /`, parentheses  |                                                             |

A comparison with a missing value is neither true nor false, and a row for which the filter is not true is dropped, as
in SQL. The text is parsed, never run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from dray.data.moments import as_moment, is_moment
from dray.errors import ConfigError, DataError, nearest

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: pc.equal,
    ast.NotEq: pc.not_equal,
    ast.Lt: pc.less,
    ast.LtE: pc.less_equal,
    ast.Gt: pc.greater,
    ast.GtE: pc.greater_equal,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: pc.add_checked,
    ast.Sub: pc.subtract_checked,
    ast.Mult: pc.multiply_checked,
    ast.Div: lambda one, other: pc.divide(one.cast(pa.float64()), other.cast(pa.float64())),
}
_KNOWN = "Use columns, literals, comparisons, and, or, not, in (...), is None, + - * / and parentheses."
_NUMBER, _TEXT, _MOMENT, _TRUTH, _OTHER = "a number", "text", "a date or time", "true or false", "a list or record"


@dataclass(frozen=True, slots=True)
class _Expression:
    """An expression within the filter: its kind, and its values for a batch."""

    text: str
    kind: str
    values: Callable[[pa.RecordBatch], Any]
    literal: Any = None
    """The Python value of a literal."""
    type: pa.DataType | None = None
    """Of a column."""
    column: str = ""

    @property
    def words(self) -> str:
        if self.type is not None:
            return f'column "{self.column}" ({self.type})'
        return f"{self.text} ({self.kind})"


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter for rows of one schema."""

    text: str
    _expression: _Expression

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        """Return true for rows to keep; false or null for others."""
        return self._expression.values(batch)


def columns_of(text: str) -> tuple[str, ...]:
    """Return the columns that a filter needs, in the order of the text."""
    return tuple(dict.fromkeys(name for node in _nodes(_parse(text)) if (name := _column(node, text)) is not None))


def compile_filter(text: str, schema: pa.Schema) -> Filter:
    """Return the filter for rows of this schema; refuse what cannot be computed before any row is read."""
    part = _Compiler(text, schema).part(_parse(text))
    if part.kind != _TRUTH:
        raise ConfigError(
            f"The filter {text!r} is {part.kind}, not a condition.", fix='Compare it with something, such as "> 0".'
        )
    if not columns_of(text):
        raise ConfigError(f"The filter {text!r} names no column.", fix="Name a column in it, or leave --filter out.")
    try:
        part.values(pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema))
    except pa.ArrowException as error:
        raise ConfigError(
            f"The filter {text!r} cannot be computed: {str(error).splitlines()[0]}",
            fix="Compare values of the same kind.",
        ) from error
    return Filter(text, part)


def _parse(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        hint = " Equality is written ==." if "==" in reason else ""
        raise ConfigError(
            f"The filter {text!r} is not an expression: {reason}.",
            fix=f'Write it as in Python: price > 10 and country == "DE". A column with an odd name is col("the name").'
            f"{hint}",
        ) from None


def _nodes(node: ast.expr) -> list[ast.AST]:
    """Return all nodes in the order of the text; col(...) counts as one node."""
    if isinstance(node, ast.Call):
        return [node]
    found: list[ast.AST] = [node]
    for child in ast.iter_child_nodes(node):
        found += _nodes(child)  # type: ignore[arg-type]
    return found


def _column(node: ast.AST, text: str) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Call):
        given = node.args[0] if len(node.args) == 1 and not node.keywords else None
        named = isinstance(node.func, ast.Name) and node.func.id == "col"
        if named and isinstance(given, ast.Constant) and isinstance(given.value, str):
            return given.value
        raise _unknown(node, text)
    return None


def _unknown(node: ast.AST, text: str) -> ConfigError:
    return ConfigError(f"The filter {text!r} has {ast.unparse(node)!r}, which a filter cannot hold.", fix=_KNOWN)


def _kind(type_: pa.DataType) -> str:
    if pt.is_boolean(type_):
        return _TRUTH
    if pt.is_integer(type_) or pt.is_floating(type_) or pt.is_decimal(type_):
        return _NUMBER
    if pt.is_string(type_) or pt.is_large_string(type_) or pt.is_string_view(type_):
        return _TEXT
    return _MOMENT if is_moment(type_) else _OTHER


@dataclass(frozen=True, slots=True)
class _Compiler:
    text: str
    schema: pa.Schema

    def part(self, node: ast.expr) -> _Expression:
        name = _column(node, self.text)
        if name is not None:
            return self._column(name)
        match node:
            case ast.Constant():
                return self._literal(node, node.value)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return self._literal(node, -value)
            case ast.UnaryOp(op=ast.USub()):
                inner = self._of_kind(node.operand, _NUMBER)
                return _Expression(ast.unparse(node), _NUMBER, lambda batch: pc.negate_checked(inner.values(batch)))
            case ast.UnaryOp(op=ast.Not()):
                inner = self._of_kind(node.operand, _TRUTH)
                return _Expression(ast.unparse(node), _TRUTH, lambda batch: pc.invert(inner.values(batch)))
            case ast.BinOp() if type(node.op) in _ARITHMETIC:
                return self._arithmetic(node)
            case ast.BoolOp():
                return self._all(node, [self._of_kind(value, _TRUTH) for value in node.values], node.op)
            case ast.Compare():
                return self._chain(node)
        raise _unknown(node, self.text)

    def _column(self, name: str) -> _Expression:
        index = self.schema.get_field_index(name)
        if index < 0:
            raise DataError(
                f'There is no column "{name}" (--filter).{nearest(name, self.schema.names)}',
                fix=f"The columns are {', '.join(self.schema.names[:20])}. Write text in quotes.",
            )
        type_ = self.schema.field(index).type
        if pt.is_dictionary(type_):
            plain = type_.value_type
            return _Expression(
                name, _kind(plain), lambda batch: batch.column(index).cast(plain), type=plain, column=name
            )
        return _Expression(name, _kind(type_), lambda batch: batch.column(index), type=type_, column=name)

    def _literal(self, node: ast.expr, value: Any) -> _Expression:
        kinds = {bool: _TRUTH, int: _NUMBER, float: _NUMBER, str: _TEXT}
        if type(value) not in kinds:
            raise _unknown(node, self.text)
        try:
            scalar = pa.scalar(value)
        except (OverflowError, pa.ArrowInvalid):
            raise ConfigError(f"The number {value} is too large for a filter.", fix="Write it as 1e20.") from None
        return _Expression(ast.unparse(node), kinds[type(value)], lambda _: scalar, literal=value)

    def _of_kind(self, node: ast.expr, kind: str) -> _Expression:
        part = self.part(node)
        if part.kind != kind:
            raise ConfigError(
                f"The filter {self.text!r} needs {kind} where it has {part.words}.",
                fix='Compare it with something, such as "> 0".' if kind == _TRUTH else "Use columns of numbers there.",
            )
        return part

    def _arithmetic(self, node: ast.BinOp) -> _Expression:
        one, other = self._of_kind(node.left, _NUMBER), self._of_kind(node.right, _NUMBER)
        compute = _ARITHMETIC[type(node.op)]
        return _Expression(ast.unparse(node), _NUMBER, lambda batch: compute(one.values(batch), other.values(batch)))

    def _all(self, node: ast.expr, parts: Sequence[_Expression], operator: ast.boolop) -> _Expression:
        compute = pc.and_kleene if isinstance(operator, ast.And) else pc.or_kleene

        def values(batch: pa.RecordBatch) -> Any:
            found = parts[0].values(batch)
            for part in parts[1:]:
                found = compute(found, part.values(batch))
            return found

        return _Expression(ast.unparse(node), _TRUTH, values)

    def _chain(self, node: ast.Compare) -> _Expression:
        parts = []
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            parts.append(self._compare(node, left, operator, right))
            left = right
        return parts[0] if len(parts) == 1 else self._all(node, parts, ast.And())

    def _compare(self, node: ast.Compare, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> _Expression:
        text = ast.unparse(node)
        if isinstance(operator, ast.Is | ast.IsNot):
            if not (isinstance(right, ast.Constant) and right.value is None):
                raise _unknown(node, self.text)
            part, ask = self.part(left), pc.is_null if isinstance(operator, ast.Is) else pc.is_valid
            return _Expression(text, _TRUTH, lambda batch: ask(part.values(batch)))
        if isinstance(operator, ast.In | ast.NotIn):
            return self._is_in(text, left, right, isinstance(operator, ast.NotIn))
        for side in (left, right):
            if isinstance(side, ast.Constant) and side.value is None:
                raise ConfigError(
                    f"The filter {self.text!r} compares with None.", fix='Write "is None" or "is not None".'
                )
        one, other = self._alike(self.part(left), self.part(right))
        compute = _COMPARISONS[type(operator)]
        return _Expression(text, _TRUTH, lambda batch: compute(one.values(batch), other.values(batch)))

    def _is_in(self, text: str, left: ast.expr, right: ast.expr, negated: bool) -> _Expression:
        if not isinstance(right, ast.Tuple | ast.List | ast.Set) or not right.elts:
            raise ConfigError(
                f"The filter {self.text!r} has {text!r}.", fix='Give a list of values, such as in ("DE", "FR").'
            )
        part = self.part(left)
        literals = [self._alike(part, self.part(element))[1] for element in right.elts]
        if any(literal.type is not None or (literal.literal is None and not literal.column) for literal in literals):
            raise ConfigError(f"The filter {self.text!r} has {text!r}.", fix="Use only literals in the list.")
        if part.kind == _MOMENT or (part.type is not None and pt.is_decimal(part.type)):
            return self._is_one_of(text, part, literals, negated)
        values = [literal.values(None).as_py() for literal in literals]
        type_ = literals[0].values(None).type
        if part.kind == _NUMBER:
            type_ = pa.int64() if all(isinstance(value, int) for value in values) else pa.float64()
        known = pa.array(values, type_)

        def found(batch: pa.RecordBatch) -> Any:
            tested = part.values(batch)
            if pt.is_integer(tested.type) and pt.is_integer(type_):
                tested = tested.cast(pa.int64())
            elif tested.type != type_:
                tested = tested.cast(type_)
            inside = pc.is_in(tested, value_set=known)
            inside = pc.invert(inside) if negated else inside
            return pc.if_else(pc.is_valid(tested), inside, pa.scalar(None, pa.bool_()))

        return _Expression(text, _TRUTH, found)

    def _is_one_of(self, text: str, part: _Expression, literals: Sequence[_Expression], negated: bool) -> _Expression:
        """Compare with one value at a time: a list of values would be rounded to the type of the column."""

        def found(batch: pa.RecordBatch) -> Any:
            tested = part.values(batch)
            inside = pc.equal(tested, literals[0].values(batch))
            for literal in literals[1:]:
                inside = pc.or_kleene(inside, pc.equal(tested, literal.values(batch)))
            return pc.invert(inside) if negated else inside

        return _Expression(text, _TRUTH, found)

    def _alike(self, one: _Expression, other: _Expression) -> tuple[_Expression, _Expression]:
        """Return both so that they can be compared: text that is compared with a date becomes a date."""
        if one.kind == _MOMENT and isinstance(other.literal, str):
            return one, self._moment(other, one)
        if other.kind == _MOMENT and isinstance(one.literal, str):
            return self._moment(one, other), other
        if one.kind != other.kind or one.kind == _OTHER:
            fix = "Write numbers without quotes, text in quotes, and booleans as True or False."
            if _TEXT in (one.kind, other.kind) and _NUMBER in (one.kind, other.kind):
                fix += " To read a text column as numbers, use --read types={name: double}."
            raise ConfigError(f"The filter {self.text!r} compares {one.words} with {other.words}.", fix=fix)
        return one, other

    def _moment(self, literal: _Expression, beside: _Expression) -> _Expression:
        if beside.type is None:
            raise ConfigError(f"The filter {self.text!r} compares with {literal.words}.", fix="Name a column there.")
        scalar = as_moment(literal.literal, beside.column, beside.type)
        return _Expression(literal.text, _MOMENT, lambda _: scalar, literal=literal.literal, column=beside.column)
