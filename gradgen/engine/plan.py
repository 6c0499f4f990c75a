"""Plans the reverse pass: binds the nodes of the path to forms, and applies what forms ask of the forward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from gradgen.engine.activity import Activity
from gradgen.engine.conditions import UNKNOWN, asks_selection, holds
from gradgen.engine.defaults import default_attributes
from gradgen.engine.expand import replace_value
from gradgen.engine.labels import node_label
from gradgen.engine.link import Linker
from gradgen.engine.registry import Registry, form_body, form_function, rule_function
from gradgen.engine.rows import Form, Row
from gradgen.engine.specialise import keywords, plain
from gradgen.engine.surgery import remove_node
from gradgen.engine.values import Value, is_float
from gradgen.errors import GradientError


@dataclass(eq=False)
class Step:
    """One node of the path, bound to the form that reverses it.

    Attributes:
        node: the forward node (no longer in the graph where a pair stands in for it).
        row, form: its rule.
        inputs, outputs: its operands and results; those of the pair where one stands in.
        attributes: its attributes with every default bound.
        wanted: results `d<input>` to compute; for a variadic formal the positions.
        residuals: what the pair computes beside the node's outputs, by name.
        active: the values of the graph that carry a derivative.
        sources: those whose cotangents are the result.
    """

    node: ir.Node
    row: Row
    form: Form
    inputs: list[ir.Value | None]
    outputs: list[ir.Value]
    attributes: dict[str, ir.Attr]
    wanted: dict[str, Any]
    residuals: dict[str, ir.Value] = field(default_factory=dict)
    active: set[ir.Value] = field(default_factory=set)
    sources: set[ir.Value] = field(default_factory=set)

    @property
    def origin(self) -> str:
        """The forward node's name, for names, metadata and messages."""
        return node_label(self.node)

    def operand(self, name: str) -> Any:
        """The input or output with a formal name: a value, None if absent, a list for a variadic formal."""
        found = operand(self.row, name, self.inputs, self.outputs)
        return self.residuals.get(name) if found is None else found


def operand(row: Row, name: str, inputs: Sequence[ir.Value | None], outputs: Sequence[ir.Value]) -> Any:
    """What a node gives for a formal name: a value, None if absent, a list for a variadic formal."""
    variadic = f"{name}*"
    for formals, values in ((row.inputs, inputs), (row.outputs, outputs)):
        for index, formal in enumerate(formals):
            if formal == variadic:
                return list(values[index:])
            if formal == name:
                return values[index] if index < len(values) and _exists(values[index]) else None
    return None


def _exists(value: ir.Value | None) -> bool:
    return value is not None and value.name != ""


def bind_attributes(node: ir.Node, row: Row, linker: Linker) -> dict[str, ir.Attr]:
    """The node's attributes with the schema's defaults, and those that depend on the node (strides, pads, …)."""
    defaults = {
        **default_attributes(node.domain, node.op_type, linker.version(node)),
        **body_defaults(row, linker.registry),
    }
    attributes = {**defaults, **node.attributes.data}
    if row.defaults:
        names: dict[str, str] = {}
        known = {
            row.input_name(i): linker.knowledge.describe(v, names) for i, v in enumerate(node.inputs) if v is not None
        }
        for i, v in enumerate(node.outputs):
            known.setdefault(row.output_name(i), linker.knowledge.describe(v, names))
        function = rule_function(row.module, row.defaults)
        resolve = getattr(function, "fn", function)
        try:
            resolved = resolve({k: plain(a) for k, a in attributes.items()}, known)
        except Exception as error:  # attributes that no such node can have
            place = f"{node.op_type} '{node.name or node.outputs[0].name}'"
            raise GradientError(f"{place}: {' '.join(str(error).split()) or type(error).__name__}") from error
        attributes.update(ir_attributes(resolved))
    return attributes


def body_defaults(row: Row, registry: Registry) -> dict[str, ir.Attr]:
    """The defaults of an op that has no schema: those of its forward body, which its rule gets too."""
    form = row.forward
    if form is None or not row.forms:
        return {}
    if form.kind == "traced":
        return ir_attributes(keywords(form_function(form)))
    return {n: a for n, a in form_body(form, registry).attributes.items() if a.value is not None}


def ir_attributes(values: Mapping[str, Any]) -> dict[str, ir.Attr]:
    """Plain Python values as attributes; None is left out, and what is empty is integers: a size for each of no axes."""
    empty = {k: ir.AttrInt64s(k, []) for k, v in values.items() if isinstance(v, list | tuple) and not v}
    given = {k: v for k, v in values.items() if v is not None and k not in empty}
    return {**{a.name: a for a in ir.convenience.convert_attributes(given)}, **empty}


def make_step(node: ir.Node, row: Row, activity: Activity, linker: Linker) -> Step:
    """Bind a node to the first form that applies; raises GradientError where none does."""
    attributes = {} if row.structural else bind_attributes(node, row, linker)
    wanted: dict[str, Any] = {}
    for index, value in enumerate(node.inputs):
        if activity.carries(value) and row.disposition(index) == "rule":
            name = row.input_name(index)
            if row.is_variadic(name):
                wanted.setdefault(f"d{name}", []).append(index - row.inputs.index(f"{name}*"))
            else:
                wanted[f"d{name}"] = True
    present = {f"d{row.output_name(i)}" for i, v in enumerate(node.outputs) if activity.receives(v)}
    step = Step(
        node,
        row,
        row.forms[-1],
        list(node.inputs),
        list(node.outputs),
        attributes,
        wanted,
        {},
        activity.active,
        activity.sources,
    )
    conditions = _Conditions(step, row.forms, linker)
    for form in row.forms:
        if form.kind == "structural" or (_applies(form, step, present) and conditions.hold(form)):
            step.form = form
            return step
    raise GradientError(
        f"{step.origin} ({node.op_type}): no form of its rule takes the cotangents {sorted(present)} "
        f"and returns {sorted(wanted)}"
    )


def tangent_form(step: Step, varying: Sequence[int], linker: Linker) -> Form | None:
    """The form that gives the tangents of a step's outputs, of which it asks the node for what it reads, or None."""
    needed = {f"t{step.row.input_name(k)}" for k in varying}
    conditions = _Conditions(step, step.row.tangents, linker)
    for form in step.row.tangents if step.form.fwd is None else ():
        if needed <= set(form.reads) and conditions.hold(form):
            _ask_outputs(step, form, linker)
            return form
    return None


class _Conditions:
    """What the conditions of forms ask of a step's operands and attributes."""

    def __init__(self, step: Step, forms: Sequence[Form], linker: Linker):
        self._step, self._linker = step, linker
        self._known: dict[str, Any] = {}
        self._attributes: dict[str, Any] = {}
        asked = [form.when for form in forms if form.when is not None]
        if not asked:
            return
        names: dict[str, str] = {}
        self._known = {n: _describe(step.operand(n), linker, names) for n in step.row.formals}
        if any(map(asks_selection, asked)):
            for name in step.row.output_names:
                if isinstance(self._known[name], Value):
                    self._known[name].selected = _left_out(step.operand(name), linker)
        self._attributes = {k: plain(a) if a.ref_attr_name is None else UNKNOWN for k, a in step.attributes.items()}

    def hold(self, form: Form) -> bool:
        """Whether a form's condition holds; the constants that have been looked at so far are fixed if so."""
        if not holds(form.when, self._known, self._attributes, self._linker.knowledge.purposes):
            return False
        for name, value in self._known.items():
            if isinstance(value, Value) and value.touched:
                self._linker.knowledge.fix(self._step.operand(name))
        return True


def _left_out(value: ir.Value, linker: Linker) -> bool:
    """Whether elements of a value may be left out later: by an op that selects, behind ops that read no other float."""
    seen, waiting = {value}, [value]
    while waiting:
        for node, index in waiting.pop().uses():
            row = linker.rules.of(node)
            if row is not None and row.input_name(index) in row.selects:
                return True
            if any(v is not None and k != index and is_float(v.dtype) for k, v in enumerate(node.inputs)):
                continue
            found = [v for v in node.outputs if is_float(v.dtype) and v not in seen]
            seen.update(found)
            waiting.extend(found)
    return False


def _describe(operand: Any, linker: Linker, names: dict[str, str]) -> Any:
    if isinstance(operand, list):
        return [None if v is None else linker.knowledge.describe(v, names) for v in operand]
    return None if operand is None else linker.knowledge.describe(operand, names)


def _applies(form: Form, step: Step, present: set[str]) -> bool:
    row = step.row
    if not present <= set(form.reads) or not set(step.wanted) <= set(form.returns):
        return False
    return all(n in row.cotangents or n in row.formals or n in form.fwd_returns for n in form.reads)


def apply_forward(steps: Sequence[Step], graph: ir.Graph, linker: Linker) -> dict[ir.Value, ir.Value]:
    """Ask nodes for outputs that forms read, and let pairs stand in; returns the values that were replaced."""
    replaced: dict[ir.Value, ir.Value] = {}
    for step in steps:
        step.inputs = [replaced.get(v, v) if v is not None else None for v in step.inputs]
        if step.form.kind == "structural":
            continue
        if step.form.fwd is not None:
            _stand_in(step, graph, linker, replaced)
        else:
            _ask_outputs(step, step.form, linker)
    return replaced


def _ask_outputs(step: Step, form: Form, linker: Linker) -> None:
    """Give the node the optional outputs that a form reads and it does not have yet."""
    row, node = step.row, step.node
    for index, formal in enumerate(row.outputs):
        if formal.endswith("*") or formal not in form.reads or step.operand(formal) is not None:
            continue
        if len(node.outputs) <= index:
            node.resize_outputs(index + 1)
            for skipped in node.outputs:
                skipped.name = skipped.name or ""
        value = node.outputs[index]
        value.name = linker.names.unique(f"{step.origin}/{formal}")
        value.type, value.shape = _output_type(node, index, linker)
        step.outputs = list(node.outputs)


def _output_type(node: ir.Node, index: int, linker: Linker) -> tuple[ir.TensorType | None, ir.Shape | None]:
    from gradgen.engine.builder import BodyNode, find_schema
    from gradgen.engine.inference import infer_types
    from gradgen.engine.values import Value

    names: dict[str, str] = {}
    inputs = [None if v is None else linker.knowledge.describe(v, names) for v in node.inputs]
    body = BodyNode("", node.op_type, inputs, [Value() for _ in node.outputs], dict(node.attributes))
    infer_types(body, find_schema(node.op_type, "", linker.opset), linker.opset)
    found, back = body.outputs[index], {short: name for name, short in names.items()}
    return (None if found.dtype is None else ir.TensorType(found.dtype)), found.ir_shape(back)


def _stand_in(step: Step, graph: ir.Graph, linker: Linker, replaced: dict[ir.Value, ir.Value]) -> None:
    """Compute the op's outputs and the residuals by the pair's forward function in place of the node."""
    form, node = step.form, step.node
    arguments = {n: step.operand(n) for n in form.fwd_reads}
    used = {
        n.rstrip("*") for n, v in zip(step.row.outputs, node.outputs, strict=False) if v.uses() or v.is_graph_output()
    }
    keep = {n: True for n in form.fwd_returns if n in used or n in form.reads}
    before = linker.anchored(node)
    results = before.forward(form, arguments, step.attributes, keep, step.origin)
    for index, formal in enumerate(step.row.outputs):
        if index < len(node.outputs) and _exists(node.outputs[index]) and formal in results:
            old = node.outputs[index]
            step.outputs[index] = replaced[old] = replace_value(old, results[formal], linker, graph)
            if old in step.active:  # one set for all steps
                step.active.add(replaced[old])
    step.residuals = {n: v for n, v in results.items() if step.operand(n) is None}
    remove_node(node)


def pull_back(step: Step, cotangents: Sequence[ir.Value | None], linker: Linker) -> list[tuple[ir.Value, ir.Value]]:
    """Link a step's rule; returns (input, contribution) pairs."""
    row, form = step.row, step.form
    if not form.linear:
        op = f"{row.domain or 'ai.onnx'}::{row.op_type}"
        linker.knowledge.nonlinear.append(f"{op}, node '{step.origin}': rule '{form.rule}'")
    arguments: dict[str, Any] = {}
    stand_ins: dict[str, ir.Value] = {}
    for name in form.reads:
        if name in row.cotangents and name not in row.formals:
            index = row.output_names.index(name[1:])
            if row.outputs[index].endswith("*"):
                arguments[name] = list(cotangents[index:])
            elif index < len(cotangents) and cotangents[index] is not None:
                arguments[name] = cotangents[index]
            elif form.kind == "compiled" and step.operand(name[1:]) is not None:
                stand_ins[name] = step.operand(name[1:])
        else:
            arguments[name] = step.operand(name)
    results = linker.vjp(form, arguments, step.attributes, step.wanted, stand_ins, step.origin)
    pairs: list[tuple[ir.Value, ir.Value]] = []
    for index, value in enumerate(step.inputs):
        name = row.input_name(index)
        result = results.get(f"d{name}")
        if isinstance(result, list):
            result = result[index - row.inputs.index(f"{name}*")]
        if value is not None and result is not None and is_float(value.dtype):
            pairs.append((value, result))
    return pairs
