"""Builds the body of a specialised rule: emits nodes with folding, inferred types and common subexpressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from gradgen.engine.bodies import Subgraph, make_graph
from gradgen.engine.contract import MisfitError, contradict, merge_shapes
from gradgen.engine.inference import evaluate, infer_graphs, infer_types
from gradgen.engine.keys import attribute_key
from gradgen.engine.subgraphs import graphs_of
from gradgen.engine.values import AttributeParameter, Value
from gradgen.errors import GradientError
from gradgen.rules import peephole
from gradgen.rules.elements import shape_elements
from gradgen.rules.lang import DOMAIN, OPSET, RuleFunction, building

FOLD_LIMIT = 4096

Callee = tuple[ir.Function, bool]
"""The body of an op that a body calls, and whether the op has a rule of its own."""


@dataclass(eq=False)
class BodyNode:
    """One node of a specialised body; `captures` pairs a subgraph's outer values with values of this body."""

    domain: str
    op_type: str
    inputs: list[Value | None]
    outputs: list[Value]
    attributes: dict[str, ir.Attr]
    captures: list[tuple[ir.Value, Value]] = field(default_factory=list)


class Builder:
    """A list of nodes over typed values.

    Args:
        bodies: resolves a library function's name to its compiled body (an onnx_ir Function).
        opset: the ai.onnx opset that nodes are emitted for.
        lenient: for bodies of the standard, which are read for one use. Gives float constants the element type of
            their peers: some bodies (that of MeanVarianceNormalization) hold float32 constants beside inputs of any
            float type. Gives the values in their graphs types.
    """

    def __init__(
        self,
        bodies: Callable[[str], ir.Function] | None = None,
        opset: int = OPSET,
        lenient: bool = False,
        callee: Callable[[str, str], Callee | None] | None = None,
    ):
        self.nodes: list[BodyNode] = []
        self.opset = opset
        self.lenient = lenient
        self._bodies = bodies
        self._callee = callee
        self._seen: dict[tuple, list[Value]] = {}
        self._constants: dict[tuple, Value] = {}

    def constant(self, array: Any, dtype: ir.DataType | None = None) -> Value:
        """A known tensor; equal constants are one value."""
        if isinstance(array, int | float) and not isinstance(array, np.generic):
            array = np.asarray(array, np.float32 if isinstance(array, float) and dtype is None else None)
        array = np.asarray(array)
        dtype = dtype or ir.DataType.from_numpy(array.dtype)
        if array.dtype != dtype.numpy():
            array = array.astype(dtype.numpy())
        key = (dtype, array.shape, array.tobytes())
        value = self._constants.get(key)
        if value is None:
            value = Value(dtype, array.shape, const=array)
            if array.dtype == np.int64 and array.ndim <= 1 and array.size <= 64:
                value.elements = tuple(int(i) for i in array.reshape(-1))
            value.zero = array.size > 0 and not np.any(array) and array.dtype.kind not in "iub"
            self._constants[key] = value
        return value

    def node(
        self,
        op_type: str,
        inputs: Sequence[Any],
        attributes: Mapping[str, Any],
        outputs: int = 1,
        domain: str = "",
        captures: Sequence[tuple[ir.Value, Value]] = (),
        fold: bool = True,
    ) -> Any:
        """Emit a node, or what is equal to it and cheaper; returns its value (a list of them unless outputs is 1)."""
        schema = find_schema(op_type, domain, self.opset)
        traced = [v for v in attributes.values() if isinstance(v, Subgraph)]
        captures = [*captures, *(pair for graph in traced for pair in graph.captures)]
        values = self._coerce(schema, inputs)
        if self.lenient and schema is not None:
            values = self._agree(schema, values)
        attrs = {k: _attribute(k, v) for k, v in attributes.items() if v is not None}
        open_attributes = any(a.ref_attr_name is not None for a in attrs.values())
        if outputs == 1 and not captures and not traced and domain == "" and not open_attributes:
            with building(self):
                simpler = peephole.simplify(op_type, values, attrs)
            if simpler is not None:
                return simpler
        keys = tuple(sorted((k, attribute_key(a)) for k, a in attrs.items()))
        key = (domain, op_type, tuple(map(id, values)), outputs, keys)
        deterministic = not captures and not traced and (schema is None or not _is_random(op_type))
        if deterministic and key in self._seen:
            results = self._seen[key]
            return results[0] if outputs == 1 else list(results)
        results = [Value() for _ in range(outputs)]
        node = BodyNode(domain, op_type, values, results, attrs, list(captures))
        infer_types(node, schema, self.opset)
        if outputs == 1 and domain == "" and not open_attributes:
            results[0].elements = shape_elements(node)
            folded = self._fold(node) if deterministic and fold else None
            if folded is not None:
                return folded
        for result in results:
            result.producer = node
        self.nodes.append(node)
        if deterministic:
            self._seen[key] = results
        return results[0] if outputs == 1 else list(results)

    def call(self, function: RuleFunction, args: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        """Apply a library function: its lowering where that knows enough, else its general body."""
        values = [self._value(a) for a in args]
        if function.lowering is not None:
            with building(self):
                result = function.lowering(*values, **attributes)
            if result is not None:
                return _shaped(function, result, values)
        if self._bodies is None:
            raise GradientError(f"the library function '{function.name}' has no compiled body here")
        results = self.inline(self._bodies(function.name), values, {k: _attribute(k, v) for k, v in attributes.items()})
        return _shaped(function, results[0], values) if len(results) == 1 else results

    def subgraph(self, parameters: Sequence[Value], fn: Callable[..., Any]) -> Subgraph:
        """Trace a Python function into a graph for an attribute; it may read values of this builder, which it captures.

        Args:
            parameters: the types of the graph's inputs.
            fn: called with one value per parameter; emits nodes and returns the graph's results.
        """
        from gradgen.engine.specialise import needed

        inner = Builder(self._bodies, self.opset, self.lenient, self._callee)
        inputs = [Value(p.dtype, p.shape, label=p.label) for p in parameters]
        with building(inner):
            results = fn(*inputs)
        listed = [inner._value(r) for r in (results if isinstance(results, list | tuple) else [results])]
        return make_graph(inputs, listed, needed(inner.nodes, listed))

    def inline(
        self, function: ir.Function, args: Sequence[Value | None], attributes: Mapping[str, ir.Attr]
    ) -> list[Value | None]:
        """Interpret a function's body node by node, with its attributes bound."""
        env: dict[ir.Value, Value | None] = dict(zip(function.inputs, args, strict=False))
        bound = {name: a for name, a in function.attributes.items() if a.value is not None}
        bound.update({k: v for k, v in attributes.items() if v is not None})
        for node in function:
            values = [None if v is None else env.get(v) for v in node.inputs]
            attrs = _bind(node, bound)
            known = all(a.ref_attr_name is None for a in attrs.values())
            if node.domain in ("", "ai.onnx") and node.op_type == "Constant" and known:
                env[node.outputs[0]] = self.constant(_constant_array(attrs))
                continue
            if node.domain == DOMAIN:
                results = self._library_call(node.op_type, values, attrs)
            elif (callee := self._called(node)) is not None:
                results = self._op_call(node, callee, values, attrs)
            else:
                captures = _captures(node, attrs, env)
                if self.lenient and graphs_of(attrs):
                    infer_graphs(node, values, captures, self.opset)
                wanted = len(node.outputs)
                domain = "" if node.domain == "ai.onnx" else node.domain
                result = self.node(node.op_type, values, attrs, wanted, domain, captures)
                results = [result] if wanted == 1 else result
            env.update(zip(node.outputs, results, strict=False))
        return [env.get(v) for v in function.outputs]

    def _library_call(self, name: str, values: list[Value | None], attrs: dict[str, ir.Attr]) -> list[Any]:
        from gradgen.rules import library

        function = getattr(library, name, None)
        if isinstance(function, RuleFunction):
            while values and values[-1] is None:
                values.pop()
            result = self.call(function, values, {k: a.value for k, a in attrs.items()})
            return result if isinstance(result, list) else [result]
        if self._bodies is None:
            raise GradientError(f"the function '{DOMAIN}::{name}' is not in the library")
        return self.inline(self._bodies(name), values, attrs)

    def _called(self, node: ir.Node) -> Callee | None:
        """The body of an op of somebody's own that a body calls."""
        if node.domain in ("", "ai.onnx") or self._callee is None:
            return None
        return self._callee(node.domain, node.op_type)

    def _op_call(
        self, node: ir.Node, callee: Callee, values: list[Value | None], attrs: dict[str, ir.Attr]
    ) -> list[Value | None]:
        """What a body computes that calls an op: the op's own body, or the op where it has a rule of its own."""
        function, ruled = callee
        if not ruled:
            return self.inline(function, values, attrs)[: len(node.outputs)]
        scratch = Builder(self._bodies, self.opset, self.lenient, self._callee)
        typed = scratch.inline(function, values, attrs)
        found = self.node(node.op_type, values, attrs, len(node.outputs), node.domain)
        results = found if isinstance(found, list) else [found]
        for result, like in zip(results, typed, strict=False):
            if like is not None:
                result.dtype, result.shape = like.dtype, like.shape
        return results

    def _value(self, item: Any) -> Any:
        return item if item is None or isinstance(item, Value) else self.constant(item)

    def _coerce(self, schema: onnx.defs.OpSchema | None, inputs: Iterable[Any]) -> list[Value | None]:
        """Turn Python numbers into constants of the element type that the op's other inputs have."""
        items = list(inputs)
        while items and items[-1] is None:
            items.pop()
        if all(i is None or isinstance(i, Value) for i in items):
            return items
        names = _type_names(schema, len(items))
        result: list[Value | None] = []
        for position, item in enumerate(items):
            if item is None or isinstance(item, Value):
                result.append(item)
                continue
            peers = [v for k, v in enumerate(items) if isinstance(v, Value) and names[k] == names[position]]
            if isinstance(item, np.ndarray) or not peers:
                result.append(self.constant(item))
            elif peers[0].dtype is not None:
                result.append(self.constant(np.asarray(item), peers[0].dtype))
            else:
                result.append(self.node("CastLike", (self.constant(np.asarray(item)), peers[0]), {}))
        return result

    def _agree(self, schema: onnx.defs.OpSchema, values: list[Value | None]) -> list[Value | None]:
        """Give float constants the element type of the inputs that they share one with."""
        names = _type_names(schema, len(values))
        computed = {names[k]: v.dtype for k, v in enumerate(values) if v is not None and v.peek is None and v.dtype}
        return [
            self.constant(v.const, computed[names[k]])
            if v is not None
            and v.peek is not None
            and v.peek.dtype.kind == "f"
            and computed.get(names[k], v.dtype) != v.dtype
            else v
            for k, v in enumerate(values)
        ]

    def _fold(self, node: BodyNode) -> Value | None:
        """The constant that a node computes, where all it reads is known and the result is small."""
        result = node.outputs[0]
        if (
            result.elements is not None
            and all(isinstance(e, int) for e in result.elements)
            and result.shape is not None
        ):
            return self.constant(np.asarray(result.elements, np.int64).reshape(() if not result.shape else (-1,)))
        if not node.inputs or any(v is not None and v.peek is None for v in node.inputs):
            return None
        if result.size is None or result.size > FOLD_LIMIT:
            return None
        array = evaluate(node, self.opset)
        return None if array is None else self.constant(array, result.dtype)


def _shaped(function: RuleFunction, result: Any, args: Sequence[Any]) -> Any:
    """By contract `sum_to` and every `*_like` have the shape of their last argument; what they give is checked."""
    last = args[-1] if args else None
    if function.shaped_as_last and isinstance(last, Value) and last.shape is not None and isinstance(result, Value):
        if contradict(result.shape, last.shape):
            raise MisfitError(
                f"'{function.name}' gives the shape {result.shape} where its last argument has {last.shape}"
            )
        result.shape = merge_shapes(result.shape, last.shape)
    return result


def _captures(node: ir.Node, attrs: Mapping[str, ir.Attr], env: Mapping[ir.Value, Any]) -> list[tuple[ir.Value, Value]]:
    captures: dict[ir.Value, Value] = {}
    for graph in graphs_of(attrs):
        for inner in ir.traversal.RecursiveGraphIterator(graph):
            for value in inner.inputs:
                if value is not None and env.get(value) is not None:
                    captures[value] = env[value]
        for value in graph.outputs:
            if env.get(value) is not None:
                captures[value] = env[value]
    return list(captures.items())


def _bind(node: ir.Node, bound: Mapping[str, ir.Attr]) -> dict[str, ir.Attr]:
    attrs = {}
    for name, attr in node.attributes.items():
        if attr.ref_attr_name is None:
            attrs[name] = attr
        elif attr.ref_attr_name in bound:
            source = bound[attr.ref_attr_name]
            attrs[name] = ir.Attr(name, source.type, source.value, ref_attr_name=source.ref_attr_name)
    return attrs


def _constant_array(attrs: Mapping[str, ir.Attr]) -> np.ndarray:
    for name, attr in attrs.items():
        if name == "value":
            return attr.value.numpy()
        if name in ("value_int", "value_ints"):
            return np.asarray(attr.value, np.int64)
        if name in ("value_float", "value_floats"):
            return np.asarray(attr.value, np.float32)
    raise GradientError("a Constant of a rule's body holds no numeric value")


def _attribute(name: str, value: Any) -> ir.Attr:
    if isinstance(value, AttributeParameter):
        return ir.Attr(name, value.attr.type, None, ref_attr_name=value.attr.ref_attr_name)
    if isinstance(value, ir.Attr):
        return value
    if isinstance(value, Subgraph):
        return ir.AttrGraph(name, value.graph)
    if isinstance(value, ir.DataType):
        return ir.AttrInt64(name, int(value))
    if isinstance(value, list | tuple):
        return (
            ir.AttrInt64s(name, value)
            if all(isinstance(v, int | np.integer) for v in value)
            else (
                ir.AttrFloat32s(name, value)
                if all(isinstance(v, int | float) for v in value)
                else ir.AttrStrings(name, value)
            )
        )
    return ir.convenience.convert_attribute(name, value)


def _is_random(op_type: str) -> bool:
    from gradgen.engine.registry import is_random

    return is_random("", op_type)


_SCHEMAS: dict[tuple[str, str, int], onnx.defs.OpSchema | None] = {}


def find_schema(op_type: str, domain: str, opset: int) -> onnx.defs.OpSchema | None:
    """The schema of an op that a rule emits, None for one of another domain that has none.

    Raises:
        GradientError: the standard has no such op at this opset.
    """
    key = (op_type, domain, opset)
    if key not in _SCHEMAS:
        try:
            _SCHEMAS[key] = onnx.defs.get_schema(op_type, opset if domain == "" else 1, domain)
        except onnx.defs.SchemaError:
            if domain == "":
                raise GradientError(f"a rule emits '{op_type}', which opset {opset} does not have") from None
            _SCHEMAS[key] = None
    return _SCHEMAS[key]


def _type_names(schema: onnx.defs.OpSchema | None, count: int) -> list[str]:
    """For each operand the type parameter of its formal; operands of a heterogeneous variadic one share none."""
    if schema is None:
        return ["T"] * count
    formals = [schema.inputs[min(i, len(schema.inputs) - 1)] for i in range(count)]
    return [f.type_str if f.is_homogeneous else f"{f.type_str}/{i}" for i, f in enumerate(formals)]
