"""Checks at registration that a rule fits the body of its op: attributes, arity, element types and shapes."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir

from gradgen.engine.registry import Registry
from gradgen.engine.rows import Form, Row
from gradgen.engine.specialise import Template, specialise
from gradgen.engine.values import Value
from gradgen.errors import GradientError
from gradgen.functions import gradient_of_function
from gradgen.linearity import SHAPES, required_attributes
from gradgen.rules.elements import TYPE_ONLY
from gradgen.rules.lang import OPSET

KINDS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


def check_contract(row: Row, registry: Registry) -> None:
    """Refuse a rule that does not fit the forward body of its op.

    Its attributes are the op's; it differentiates every input on which the body's results depend; for operands of one
    shape, in float32 and float64, its results have the types and shapes of the inputs that they are named after.

    Raises:
        GradientError: lists all that is wrong.
    """
    form, body = row.forms[-1], row.forward
    assert body is not None
    problems = []
    if strange := [a for a in form.attributes if a not in body.attributes]:
        problems.append(f"it takes {strange}, which are no attribute of the op: {list(body.attributes)}")
    if isinstance(body.function, onnx.FunctionProto):
        missing = [n for n in row.inputs if f"d{n}" not in form.returns and _depends(body.function, n, registry)]
        problems += [
            f"it returns no 'd{n}', though the op's body depends on '{n}'; return zeros of its shape where that is meant"
            for n in missing
        ]
    problems += _misfits(row, form, body, registry)
    if problems:
        raise GradientError(f"rule of {row.domain or 'ai.onnx'}::{row.op_type}: " + "; ".join(problems))


def _depends(body: onnx.FunctionProto, name: str, registry: Registry) -> bool:
    """Whether a derivative flows through the body from an input to one of its outputs."""
    others = [n for n in body.input if n != name]
    for output in body.output:
        try:
            gradient = gradient_of_function(body, [name], output, others, registry=registry)
        except GradientError:
            continue  # without types, some rules cannot be applied: nothing can be said
        if depends_on(gradient, gradient.input[-1]):
            return True
    return False


def depends_on(function: onnx.FunctionProto, name: str) -> bool:
    """Whether an output of a function depends on the value of an input."""
    reached = {name}
    for node in function.node:
        if any(i in reached and (node.op_type, k) not in TYPE_ONLY for k, i in enumerate(node.input)):
            reached.update(node.output)
    return not reached.isdisjoint(function.output)


def _misfits(row: Row, form: Form, body: Form, registry: Registry) -> list[str]:
    """What results have other types or shapes than they should, on the first operands that the body takes."""
    scratch = Registry([row], {form.rule: form.function} if form.kind == "compiled" else {}, parent=registry)
    for shape in SHAPES:
        problems: list[str] = []
        right: list[ir.DataType] = []
        for kind in KINDS:
            inputs: dict[str, Value | None] = {n: Value(kind, shape) for n in row.inputs}
            forward = _typed(body, inputs, scratch)
            if not isinstance(forward, Template) or not all(_known(v) for v in forward.outputs.values()):
                break  # the op takes other operands
            outputs = {n: Value(v.dtype, v.shape) for n, v in forward.outputs.items()}
            cotangents = {f"d{n}": Value(v.dtype, v.shape) for n, v in outputs.items()}
            found = _typed(form, {**cotangents, **outputs, **inputs}, scratch)
            if not isinstance(found, Template):
                if right:
                    problems.append(f"it holds for {_written(right[0])} alone, not for {_written(kind)}: {found}")
                continue
            right.append(kind)
            for name, result in found.outputs.items():
                if isinstance(result, Value) and (wrong := _wrong(name, result, kind, shape)):
                    problems.append(wrong)
        if right or problems:
            return list(dict.fromkeys(problems))
    return []


def _typed(form: Form, given: dict[str, Value | None], registry: Registry) -> Template | str:
    """The body of a form on typed operands, or why there is none."""
    wanted: dict[str, Any] = dict.fromkeys(form.returns, True)
    arguments = {n: given.get(n) for n in form.reads}
    try:
        return specialise(
            form.rule, form.reads, form.returns, form, arguments, required_attributes(form, registry), wanted, registry,
            OPSET,
        )  # fmt: skip
    except Exception as error:  # a rule of somebody's own may raise anything on operands that do not fit
        return " ".join(str(error).split())[:200]


def _known(value: Any) -> bool:
    return isinstance(value, Value) and value.dtype is not None and value.shape is not None


def _wrong(name: str, result: Value, kind: ir.DataType, shape: tuple[int, ...]) -> str | None:
    source = name[1:]
    if result.dtype is not None and result.dtype != kind:
        return f"'{name}' is {_written(result.dtype)} where '{source}' is {_written(kind)}"
    other = result.shape is not None and (
        len(result.shape) != len(shape)
        or any(isinstance(d, int) and d != s for d, s in zip(result.shape, shape, strict=True))
    )
    return f"'{name}' has shape {list(result.shape or ())} where '{source}' has {list(shape)}" if other else None


def _written(kind: ir.DataType) -> str:
    return {"FLOAT": "float32", "DOUBLE": "float64"}.get(kind.name, kind.name.lower())
