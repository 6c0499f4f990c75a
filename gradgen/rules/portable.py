"""Other standard forms of nodes that engines beside onnxruntime lack or compute wrongly, for `portable=True`.

docs/portability.md says which engine needs which. Forms of rules ask for the same with `portable` in their conditions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from gradgen.engine.subgraphs import free_values, graphs
from gradgen.engine.surgery import remove_node

FORMS: dict[str, Callable[[ir.Node, Any], None]] = {}
LAST = np.asarray([-1], np.int64)
BEYOND = np.asarray([np.iinfo(np.int64).min + 1], np.int64)


def make_portable(graph: ir.Graph, linker: Any) -> None:
    """Give the nodes of a graph and of its subgraphs their portable forms."""
    for node in list(graph):
        for inner in graphs(node):
            make_portable(inner, linker.within(inner))
        form = FORMS.get(node.op_type)
        if form is not None and node.domain in ("", "ai.onnx"):
            form(node, linker.anchored(node))


def _portable(op_type: str) -> Callable[[Any], Any]:
    def register(form: Any) -> Any:
        FORMS[op_type] = form
        return form

    return register


@_portable("Scan")
def scan(node: ir.Node, linker: Any) -> None:
    """A Scan that runs forward and captures nothing that is computed.

    IREE takes no notice of the directions, OpenVINO refuses captured values: what runs backwards is turned around
    outside, and a captured value is a state that stays what it is.
    """
    body = node.attributes["body"].as_graph()
    scanned = node.attributes["num_scan_inputs"].as_int()
    states = len(node.inputs) - scanned
    ins, outs = _numbers(node, "scan_input_directions", scanned), _numbers(node, "scan_output_directions", len(
        node.outputs) - states)  # fmt: skip
    held = [v for v in free_values(body) if v.const_value is None]
    if not any(ins) and not any(outs) and not held:
        return
    in_axes, out_axes = _numbers(node, "scan_input_axes", scanned), _numbers(node, "scan_output_axes", len(outs))
    sources = [
        _turned(value, axis, linker) if backwards and value is not None else value
        for value, axis, backwards in zip(node.inputs[states:], in_axes, ins, strict=True)
    ]
    _hold(body, held, states, linker)
    results = [linker.value(f"{v.name}/portable", v) for v in node.outputs]
    spare = [linker.value(f"{v.name}/held", v) for v in held]
    given = {k: a for k, a in node.attributes.items() if not k.endswith("_directions")}
    fresh = ir.Node(
        "", "Scan", [*node.inputs[:states], *held, *sources], given.values(),
        outputs=[*results[:states], *spare, *results[states:]], name=linker.names.unique(f"{node.name}/portable"),
        metadata_props=dict(node.metadata_props),
    )  # fmt: skip
    linker.append(fresh)
    turned = [
        _turned(value, axis, linker) if backwards else value
        for value, axis, backwards in zip(results[states:], out_axes, outs, strict=True)
    ]
    for old, new in zip(node.outputs, [*results[:states], *turned], strict=True):
        new.name, old.name = old.name, None
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    assert node.graph is not None
    remove_node(node)


def _transposed(value: ir.Value, perm: list[int], base: str, linker: Any) -> ir.Value:
    return linker.node("Transpose", [value], _permuted(value, perm), base, perm=perm)


def _permuted(value: ir.Value, perm: list[int]) -> ir.Value:
    """A value that has the type of another and its shape with the axes permuted."""
    shape = None if value.shape is None else ir.Shape([value.shape[k] for k in perm])
    return ir.Value(name=value.name, type=value.type, shape=shape)


def _numbers(node: ir.Node, name: str, count: int) -> list[int]:
    """A list attribute with a number for each scanned value, 0 by default."""
    return list(node.attributes[name].as_ints()) if name in node.attributes else [0] * count


def _turned(value: ir.Value, axis: int, linker: Any) -> ir.Value:
    """A value in reverse order along an axis."""
    ends = [linker.constants.get(array) for array in (LAST, BEYOND, np.asarray([axis], np.int64), LAST)]
    return linker.node("Slice", [value, *ends], value, f"{value.name}/turned")


def _hold(body: ir.Graph, held: list[ir.Value], position: int, linker: Any) -> None:
    """Let a body read captured values from states of its own, from a position on, which it hands on as they are."""
    inside = linker.within(body)
    for k, value in enumerate(held):
        state = linker.value(f"{value.name}/state", value)
        for reader in ir.traversal.RecursiveGraphIterator(body):
            for index, read in enumerate(reader.inputs):
                if read is value:
                    reader.replace_input_with(index, state)
        body.inputs.insert(position + k, state)
        body.outputs.insert(position + k, inside.node("Identity", [state], state, f"{value.name}/kept"))


@_portable("MatMul")
@_portable("Gemm")
def product(node: ir.Node, linker: Any) -> None:
    """A product with a square constant on its left: x·W as (Wᵀ·xᵀ)ᵀ; what a Gemm adds is added behind it.

    OpenVINO keeps one copy of a square constant on the right that is used both as it is and transposed.
    """
    if "gradgen.node" not in node.metadata_props:
        return
    x, right, *others = node.inputs
    added = others[0] if others else None
    given = {name: attr.value for name, attr in node.attributes.items()}
    scaled = any(given.get(name, 1.0) != 1.0 for name in ("alpha", "beta"))
    if x is None or right is None or x.shape is None or len(x.shape) < 2 or scaled:
        return
    turned = bool(given.get("transB", 0))
    producer = right.producer()
    if producer is not None and producer.op_type == "Transpose" and producer.inputs[0] is not None:
        right, turned = producer.inputs[0], not turned
    sizes = None if right.const_value is None or right.shape is None else list(right.shape)
    if sizes is None or len(sizes) != 2 or sizes[0] != sizes[1]:
        return
    swap = [*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2]
    base, like = node.name or node.op_type, node.outputs[0]
    if not given.get("transA", 0):
        x = _transposed(x, swap, f"{base}/turned", linker)
    left = right if turned else _transposed(right, [1, 0], f"{base}/weight", linker)
    result = linker.node("MatMul", [left, x], _permuted(like, swap), f"{base}/left")
    back = linker.node("Transpose", [result], like, f"{base}/back", perm=swap)
    if added is not None:
        back = linker.node("Add", [back, added], like, f"{base}/added")
    back.name, like.name = like.name, None
    ir.convenience.replace_all_uses_with(like, back, replace_graph_outputs=True)
    assert node.graph is not None
    remove_node(node)
