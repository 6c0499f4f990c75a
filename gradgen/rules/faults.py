"""Nodes that onnxruntime computes wrongly where a derivative stands beside them, in a form that it computes rightly."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from gradgen.engine.contract import ir_shape
from gradgen.engine.expand import replace_value
from gradgen.engine.subgraphs import every_node
from gradgen.engine.surgery import remove_node


def avoid_faults(graph: ir.Graph, linker: Any) -> None:
    """Give products with a vector a column in its place, in a graph that transposes anything, subgraphs included.

    onnxruntime 1.32 makes one node of a Transpose and a product, and takes the matrix as it is stored where the other
    factor is a vector. It moves Transposes on its way: behind other ops, and more so where a value has several readers,
    as the backward pass makes them. So a primal that is computed rightly may not be in its derivative.
    """
    nodes = [node for node in every_node(graph) if node.op_type in ("MatMul", "Transpose") and not node.domain]
    products = [node for node in nodes if node.op_type == "MatMul" and _by_vector(node)]
    if not products or all(node.op_type == "MatMul" for node in nodes):
        return
    axis = linker.constants.get(np.asarray([-1]))
    for node in products:
        matrix, vector = node.inputs
        owner, result = node.graph, node.outputs[0]
        if vector is None or owner is None:
            continue
        place = linker.within(owner).anchored(node)
        column = place.node("Unsqueeze", [vector, axis], _with_axis(vector), f"{result.name}/column")
        product = place.node("MatMul", [matrix, column], _with_axis(result), f"{result.name}/product")
        replace_value(result, place.node("Squeeze", [product, axis], result, f"{result.name}/flat"), place, owner)
        remove_node(node)


def _by_vector(node: ir.Node) -> bool:
    """Whether a MatMul multiplies matrices by a vector on its right.

    A Transpose without `perm`, behind which the rank may be lost, is fused by nobody.
    """
    left, right = (ir_shape(value) for value in node.inputs)
    return left is not None and right is not None and len(left) > 1 and len(right) == 1


def _with_axis(value: ir.Value) -> ir.Value:
    """What a value is like with a last axis of size 1."""
    shape = ir_shape(value)
    return ir.Value(name=value.name, type=value.type, shape=None if shape is None else ir.Shape([*shape, 1]))
