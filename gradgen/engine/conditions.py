"""Conditions of forms: a checked expression over attributes, dtypes, ranks, shapes and constants; unknown is false.

    rank(B) == 2 and all_eq(pads, 0) and dim(W, 1) <= 4 and const(Y) == 2

Names are attributes. `rank(X)`, `dim(X, i)`, `size(X)`, `dtype(X)`, `const(X)` read what is known of a formal,
`known(X)` tells whether it has a constant content, `given(X)` whether it is there (or an attribute is), `static(X)`
whether all its sizes are known, `same(X, Y)` whether two shapes are known to be equal, `all_eq(list, n)` whether every
element of a list or a content equals n, `selected(Y)` whether a later node may leave out elements of an output (a Where
with a constant, say), so that its cotangent is exactly zero where the output is NaN, `transposed` whether the form is
applied in order to be transposed, to derive tangents, `pushed` whether the call derives tangents and no gradient, which
may compute the same, `portable` whether the model is to run on other engines than onnxruntime too.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from gradgen.engine.values import Value
from gradgen.errors import GradientError
from gradgen.rules.lang import same_shape

_NODES = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.Eq, ast.NotEq, ast.Lt,
    ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Call, ast.Name, ast.Load, ast.Constant, ast.List, ast.Tuple,
    ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Mod, ast.Subscript,
)  # fmt: skip
FUNCTIONS = ("rank", "dim", "size", "dtype", "const", "known", "given", "static", "same", "all_eq", "len", "selected")

PURPOSES = ("transposed", "pushed", "portable")

UNKNOWN = object()  # stands for the content of an attribute that is a reference to one of a function's


class _UnknownError(Exception):
    pass


@cache
def parse(text: str) -> ast.Expression:
    """Parse a condition; raises GradientError where it uses anything but the language above."""
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError as error:
        raise GradientError(f"condition '{text}': {error.msg}") from error
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            raise GradientError(f"condition '{text}': {type(node).__name__} is not allowed")
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS):
            raise GradientError(f"condition '{text}': only {', '.join(FUNCTIONS)} can be called")
    return tree


def names(text: str) -> tuple[set[str], set[str], set[str]]:
    """The formals and the attributes that a condition mentions, and what it asks with `given` alone: either."""
    formals: set[str] = set()
    given: set[str] = set()
    every: set[str] = set()
    for node in ast.walk(parse(text)):
        if isinstance(node, ast.Name) and node.id not in (*FUNCTIONS, *PURPOSES):
            every.add(node.id)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in ("all_eq", "len"):
            asked = given if node.func.id == "given" else formals
            asked.update(a.id for a in node.args if isinstance(a, ast.Name))
    return formals, every - formals - given, given - formals


def holds(
    text: str | None, values: Mapping[str, Any], attributes: Mapping[str, Any], purposes: Collection[str] = ()
) -> bool:
    """Whether a condition is known to hold for these values (by formal name), plain attributes, and PURPOSES."""
    if text is None:
        return True
    attributes = {**attributes, **{name: name in purposes for name in PURPOSES}}
    try:
        found = bool(_evaluate(parse(text).body, values, attributes))
    except _UnknownError:
        return False
    if found:
        for name in _contents(text):
            value = values.get(name)
            if isinstance(value, Value):
                value.touched = True
    return found


@cache
def asks_selection(text: str) -> bool:
    """Whether a condition calls `selected`."""
    return any(isinstance(n, ast.Name) and n.id == "selected" for n in ast.walk(parse(text)))


@cache
def _contents(text: str) -> tuple[str, ...]:
    """The formals whose content a condition reads."""
    calls = [n for n in ast.walk(parse(text)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    return tuple(
        a.id
        for c in calls
        if isinstance(c.func, ast.Name) and c.func.id == "const"
        for a in c.args
        if isinstance(a, ast.Name)
    )


def _evaluate(node: ast.expr, values: Mapping[str, Any], attributes: Mapping[str, Any]) -> Any:
    def sub(n: ast.expr) -> Any:
        return _evaluate(n, values, attributes)

    match node:
        case ast.BoolOp(op=ast.And()):
            return all(sub(v) for v in node.values)
        case ast.BoolOp():
            return _any(node.values, sub)
        case ast.UnaryOp(op=ast.Not()):
            return not sub(node.operand)
        case ast.Compare():
            left = sub(node.left)
            for comparison, right in zip(node.ops, map(sub, node.comparators), strict=True):
                if not _compare(comparison, left, right):
                    return False
                left = right
            return True
        case ast.Call(func=ast.Name(id=name)):
            return _call(name, node.args, sub, values, attributes)
        case ast.Name():
            value = attributes.get(node.id)
            if value is None or value is UNKNOWN:
                raise _UnknownError
            return value.decode() if isinstance(value, bytes) else value
        case ast.Constant():
            return node.value
        case ast.List() | ast.Tuple():
            return [sub(v) for v in node.elts]
        case ast.UnaryOp(op=ast.USub()):
            return -sub(node.operand)
        case ast.BinOp():
            return _arithmetic(node.op, sub(node.left), sub(node.right))
        case ast.Subscript():
            items, index = sub(node.value), sub(node.slice)
            if not -len(items) <= index < len(items):
                raise _UnknownError
            return items[index]
    raise _UnknownError


def _arithmetic(operator: ast.operator, left: Any, right: Any) -> Any:
    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
    if right == 0:
        raise _UnknownError
    return left % right


def _any(nodes: list[ast.expr], sub: Any) -> bool:
    unknown = False
    for node in nodes:
        try:
            if sub(node):
                return True
        except _UnknownError:
            unknown = True
    if unknown:
        raise _UnknownError
    return False


def _compare(comparison: ast.cmpop, left: Any, right: Any) -> bool:
    match comparison:
        case ast.Eq():
            return left == right
        case ast.NotEq():
            return left != right
        case ast.In():
            return left in right
        case ast.NotIn():
            return left not in right
    if isinstance(left, str) != isinstance(right, str):
        raise _UnknownError
    match comparison:
        case ast.Lt():
            return left < right
        case ast.LtE():
            return left <= right
        case ast.Gt():
            return left > right
        case _:
            return left >= right


def _call(name: str, args: list[ast.expr], sub: Any, values: Mapping[str, Any], attributes: Mapping[str, Any]) -> Any:
    if name == "len":
        return len(sub(args[0]))
    if name == "all_eq":
        items = sub(args[0])
        return all(item == sub(args[1]) for item in (items if isinstance(items, list | tuple) else [items]))
    value = values.get(args[0].id) if isinstance(args[0], ast.Name) else None
    if name == "given":
        attribute = attributes.get(args[0].id) if isinstance(args[0], ast.Name) else None
        if attribute is UNKNOWN:
            raise _UnknownError
        return value is not None or attribute is not None
    if not isinstance(value, Value):
        raise _UnknownError
    if name == "known":
        return value.peek is not None
    if name == "static":
        return value.static
    if name == "selected":
        return bool(value.selected)
    if name == "same":
        other = values.get(args[1].id) if isinstance(args[1], ast.Name) else None
        return isinstance(other, Value) and same_shape(value.shape, other.shape)
    found: Any = None
    if name == "rank":
        found = None if value.shape is None else len(value.shape)
    elif name == "dim":
        index = sub(args[1])
        found = (
            value.shape[index] if value.shape is not None and -len(value.shape) <= index < len(value.shape) else None
        )
        found = found if isinstance(found, int) else None
    elif name == "size":
        found = value.size
    elif name == "dtype":
        found = None if value.dtype is None else value.dtype.name.lower()
    elif name == "const" and value.peek is not None:
        found = value.peek.reshape(-1)[0].item() if value.peek.size == 1 else value.peek.tolist()
    if found is None:
        raise _UnknownError
    return found
