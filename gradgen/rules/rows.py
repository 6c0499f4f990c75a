"""Batches of rows as matrices: where nodes treat each row of a batch alone, their values are given one axis of rows.

Between linear layers a model has batches of rows, [batch, tokens, width], and the products of the backward pass want
matrices. A region is a connected part of the graph, forward nodes included, whose nodes compute each row of their
results from the same row of their operands. Its values become matrices [rows, width] if that saves nodes: views between
its nodes go, and a product and what is added to it are one Gemm.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from gradgen.engine.contract import ir_shape
from gradgen.engine.knowledge import is_constant
from gradgen.engine.rewriter import Rewriter
from gradgen.engine.surgery import Outputs, count_uses, is_linked, is_read, remove_node
from gradgen.rules.row_regions import (
    ALONG,
    ELEMENTWISE,
    NAMED,
    REDUCTIONS,
    VIEWS,
    Region,
    reduces,
    regions,
    turns,
    width,
)

SMALL = 1024  # elements of a constant
MULTIPLIED = (ir.DataType.FLOAT, ir.DataType.DOUBLE)  # in half precision a Gemm rounds once where two nodes round twice


def as_matrices(graph: ir.Graph, place: Rewriter, outputs: Outputs) -> bool:
    """Make matrices of the values of each region in which that saves nodes; whether there was one.

    Args:
        graph: the graph.
        place: what puts nodes into it.
        outputs: the places of its outputs.
    """
    changed = False
    for region in regions(graph, place):
        change = _Change(region, graph, place, outputs)
        if change.saved() >= (0 if change.products else 1):  # onnxruntime makes Gemms itself, and views for each
            change.apply()
            changed = True
    return changed


def forget_open_rows(graph: ir.Graph) -> None:
    """Let no value between a graph's inputs and outputs say that it has an open number of rows.

    onnxruntime plans memory ahead for values whose sizes it is told, and knows only those of inputs by name: it would
    plan after a first run, and hold what that run took beside what it has planned (1.5 times as much for a transformer).
    """
    if all(v.shape is not None and v.shape.is_static() for v in graph.inputs):
        return
    for node in graph:
        for value in node.outputs:
            shape = value.shape
            if shape is None or len(shape) != 2 or isinstance(shape[0], int) or value.is_graph_output():
                continue
            if (shape[0].value or "").startswith(NAMED):
                value.shape = None


class _Change:
    """What making matrices of a region's values does to its graph."""

    def __init__(self, region: Region, graph: ir.Graph, place: Rewriter, outputs: Outputs):
        self.region, self.graph, self.place, self.outputs = region, graph, place, outputs
        self.constants = place.constants
        self.members = set(region.nodes)
        self.shapes: dict[Any, ir.Shape] = {}  # by width: values share them, and none is changed in place
        self.products = {n: p for n in region.nodes if (p := self._product(n)) is not None}

    def saved(self) -> int:
        """How many nodes fewer there are."""
        saved = len(self.products)
        for value in self.region.values:
            flats, outside = 0, value.is_graph_output()
            for use in value.uses():
                if use.node in self.members:
                    continue
                if self._flattens(use.node, value):
                    flats += 1
                elif not self._leaves(use.node, use.idx):
                    outside = True
            saved += flats
            if self._inner(value):
                saved -= outside
            elif not is_small(value) and (self._view(value) is None or outside):
                saved -= 1
            elif self._matrix(value) is not None:
                saved += 1
        return saved

    def apply(self) -> None:
        """Change the graph."""
        for value in list(self.region.values):
            if not self._inner(value):
                self._enter(value)
        for value in self.region.values:
            if self._inner(value):
                self._leave(value)
        for node in self.region.nodes:
            if node.op_type not in ELEMENTWISE:
                self._settle(node)
        for node, vectors in self.region.vectors.items():
            for index, vector in vectors.items():
                node.replace_input_with(index, vector)
        for add, product in self.products.items():
            self._multiply(add, product)

    def _inner(self, value: ir.Value) -> bool:
        return value.producer() in self.members

    def _product(self, node: ir.Node) -> ir.Node | None:
        """The product with a matrix to which a node of the region adds a vector, and which nothing else reads."""
        if node.op_type != "Add" or node.outputs[0].dtype not in MULTIPLIED:
            return None
        for value, other in (node.inputs, node.inputs[::-1]):
            product = None if value is None else value.producer()
            if product is None or product.op_type != "MatMul" or product not in self.members or value is None:
                continue
            if len(ir_shape(other) or ()) != 1 or count_uses(value) != 1 or value.is_graph_output():
                continue
            if value in self.place.knowledge.kept:
                continue
            widths = [width(v) for v in (value, node.outputs[0])]
            if widths[0] == widths[1]:
                return product
        return None

    def _flattens(self, node: ir.Node, value: ir.Value) -> bool:
        """Whether a node makes a matrix of the rows of a value, and is no output."""
        if node.op_type not in VIEWS or node.domain or node.graph is not self.graph:
            return False
        if node.outputs[0].is_graph_output() or node.outputs[0] in self.place.knowledge.kept:
            return False
        axis = node.attributes.get("axis")
        if node.op_type == "Flatten" and axis is not None and axis.as_int() in (-1, len(self.region.batch)):
            return True
        shape = ir_shape(node.outputs[0])
        return node.inputs[0] is value and shape is not None and len(shape) == 2 and shape[1] == width(value)

    def _leaves(self, node: ir.Node, index: int) -> bool:
        """Whether a node outside of the region may read the matrix: it is another view, or reduces over all rows."""
        if node.domain or node.graph is not self.graph or index != 0:
            return False
        if node.op_type in VIEWS:
            return constant_shape(node.outputs[0]) is not None
        axes = list(range(len(self.region.batch)))
        return node.op_type in REDUCTIONS and reduces(node, axes, False, self.place)

    def _view(self, value: ir.Value) -> ir.Node | None:
        """The view that gives a value that comes into the region."""
        node = value.producer()
        if node is None or node.domain or node.op_type not in VIEWS or node.graph is not self.graph:
            return None
        if value in self.place.knowledge.kept:
            return None
        return node

    def _matrix(self, value: ir.Value) -> ir.Value | None:
        """The matrix of a value's rows of which it is a view."""
        view = self._view(value)
        source = view.inputs[0] if view is not None else None
        shape = ir_shape(source)
        if source is None or shape is None or len(shape) != 2:
            return None
        return source if shape[1] == width(value) else None

    def _enter(self, value: ir.Value) -> None:
        """Let nodes of the region read the rows of a value that comes from outside."""
        view, matrix = self._view(value), self._matrix(value)
        if matrix is None:
            matrix = self._rows(value, view)
        elif is_linked(matrix.producer()) and not matrix.is_graph_output() and (ir_shape(matrix) or (0,))[0] is None:
            matrix.shape = self._shape(value)  # with the name of the number of rows, by which sizes are compared
        made = matrix.producer()
        for use in tuple(value.uses()):
            if use.node in self.members:
                use.node.replace_input_with(use.idx, matrix)
            elif use.node is not made:
                self._redirect(use, value, matrix)
        if view is not None and not is_read(value):
            remove_node(view)

    def _rows(self, value: ir.Value, view: ir.Node | None) -> ir.Value:
        """The rows of a value that comes from outside, as a matrix of what it is a view of if it is one."""
        if is_small(value):
            return stored_rows(value, self.place)
        like = ir.Value(type=value.type, shape=self._shape(value), name=value.name)
        # In front of the first that reads it: the rows of an input are a copy, which need not be there before.
        readers = [
            u.node for u in value.uses()
            if u.node in self.members or self._flattens(u.node, value) or self._leaves(u.node, u.idx)
        ]  # fmt: skip
        with self.place.before(min(readers, key=self.place.places.__getitem__)):
            if view is None:
                return self.place.node("Flatten", [value], like, f"{value.name}/rows", axis=-1)
            return self.place.node("Reshape", [view.inputs[0], self._sizes(like)], like, f"{value.name}/rows")

    def _leave(self, value: ir.Value) -> None:
        """Make a value of the region a matrix; what is outside of it reads a view."""
        shape, name = value.shape, value.name
        outside = [
            use for use in tuple(value.uses())
            if use.node not in self.members and not self._redirect(use, value, value)
        ]  # fmt: skip
        value.shape = self._shape(value)
        leaves = bool(outside) or value.is_graph_output()
        if leaves or not is_linked(value.producer()):
            value.name = self.place.names.unique(f"{name}/rows")
        if not leaves:
            return
        like = ir.Value(type=value.type, shape=shape, name=name)
        producer = value.producer()
        assert producer is not None
        with self.place.behind(producer):
            view = self.place.node("Reshape", [value, self._sizes(like)], like, f"{name}/view")
        for use in outside:
            use.node.replace_input_with(use.idx, view)
        if value.is_graph_output():
            self.outputs.replace(value, view)
        view.name = name

    def _redirect(self, use: Any, value: ir.Value, matrix: ir.Value) -> bool:
        """Let a node outside of the region read a value's rows if it can; whether it does."""
        node = use.node
        if self._flattens(node, value):
            node.outputs[0].replace_all_uses_with(matrix)
            remove_node(node)
            return True
        if not self._leaves(node, use.idx):
            return False
        if node.op_type in VIEWS:
            self._reshape(node)
        else:
            node.replace_input_with(1, self.constants.get(np.asarray([0])))
        node.replace_input_with(0, matrix)
        return True

    def _reshape(self, view: ir.Node) -> None:
        """Make a view of a batch one of its matrix."""
        view.op_type = "Reshape"
        view.attributes.clear()
        view.resize_inputs(2)
        view.replace_input_with(1, self._sizes(view.outputs[0]))

    def _sizes(self, like: ir.Value) -> ir.Value:
        """The constant that makes a Reshape give the shape of a value."""
        sizes = constant_shape(like)
        assert sizes is not None
        return self.constants.get(sizes)

    def _shape(self, value: ir.Value) -> ir.Shape:
        size = width(value)
        if size not in self.shapes:
            self.shapes[size] = ir.Shape([self.region.rows, size])
        return self.shapes[size]

    def _settle(self, node: ir.Node) -> None:
        """Let attributes and axes say the last axis of a matrix."""
        if node.op_type in ALONG and "axis" in node.attributes:
            node.attributes.add(ir.AttrInt64("axis", -1))
        elif node.op_type in REDUCTIONS:
            node.replace_input_with(1, self.constants.get(np.asarray([-1])))
        elif node.op_type == "Expand":
            node.replace_input_with(1, self.constants.get(np.asarray([1, width(node.outputs[0])])))

    def _multiply(self, add: ir.Node, product: ir.Node) -> None:
        """Make an addition the Gemm of the product and what is added, which keeps its name."""
        summed = product.outputs[0]
        addend = add.inputs[0] if add.inputs[1] is summed else add.inputs[1]
        rows, matrix = product.inputs
        transpose = None if matrix is None else matrix.producer()
        if transpose is not None and turns(transpose) and transpose.inputs[0] is not None:
            matrix = transpose.inputs[0]
            add.attributes.add(ir.AttrInt64("transB", 1))
        add.op_type = "Gemm"
        add.resize_inputs(3)
        for index, value in enumerate((rows, matrix, addend)):
            add.replace_input_with(index, value)
        remove_node(product)


def is_small(value: ir.Value) -> bool:
    """Whether a value is a constant of gradgen's that may be there in two shapes."""
    return is_constant(value) and value.const_value is not None and value.const_value.size <= SMALL


def stored_rows(value: ir.Value, linker: Any) -> ir.Value:
    """The rows of a constant, as another constant."""
    assert value.const_value is not None
    content = value.const_value.numpy()
    return linker.constants.get(content.reshape(math.prod(content.shape[:-1]), content.shape[-1]))


def constant_shape(value: ir.Value) -> np.ndarray | None:
    """A constant shape that makes a Reshape give the value's shape: at most one size is open."""
    if value.shape is None:
        return None
    sizes = [d if isinstance(d, int) else -1 for d in value.shape.dims]
    return None if sizes.count(-1) > 1 or 0 in sizes else np.asarray(sizes, np.int64)
