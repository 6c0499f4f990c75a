"""The parts of a graph whose nodes compute each row of their results from the same row of their operands."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import onnx_ir as ir

from gradgen.engine.contract import ir_shape

Batch = tuple[int | str, ...]  # the sizes of all axes but the last
NAMED = "gradgen.rows"  # how the name of an open number of rows begins

# Each element of a result comes from those at its place, or at its place in a row: all ops of the standard of that kind
# with operands that are broadcast both ways. Identity is left out: it is a copy that somebody has put there.
# fmt: off
ELEMENTWISE = frozenset((
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift", "BitwiseAnd", "BitwiseNot",
    "BitwiseOr", "BitwiseXor", "Cast", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Div", "Elu", "Equal", "Erf", "Exp", "Floor",
    "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual",
    "Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or", "Pow", "Reciprocal", "Relu", "Round", "Selu",
    "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Swish", "Tan", "Tanh",
    "ThresholdedRelu", "Where", "Xor",
))
REDUCTIONS = frozenset((
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
))
# fmt: on
# That work along an axis, and which it is where a node does not say.
ALONG = {
    **dict.fromkeys(("Hardmax", "LayerNormalization", "LogSoftmax", "LpNormalization", "RMSNormalization"), -1),
    **{"Softmax": -1, "Concat": None, "Split": 0},
}
ONE_OPERAND = REDUCTIONS | {"MatMul", "Expand"}  # what they read beside the first has no rows
BY_ROW = ELEMENTWISE | ONE_OPERAND | ALONG.keys()
VIEWS = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")


@dataclass
class Region:
    """Values of one batch that nodes which treat each row alone connect.

    Attributes:
        batch: the sizes of the axes that become one.
        nodes: those that are to work on matrices, in the graph's order.
        values: what they read and compute.
        vectors: by node the places at which it reads a vector with leading axes of size 1, and that.
    """

    batch: Batch
    nodes: list[ir.Node] = field(default_factory=list)
    values: dict[ir.Value, None] = field(default_factory=dict)
    vectors: dict[ir.Node, dict[int, ir.Value]] = field(default_factory=dict)

    @property
    def rows(self) -> int | str:
        """The number of rows, or its name: none that a model has for another number, and one for each batch.

        onnxruntime takes sizes of one name for equal when it plans memory.
        """
        sizes = [d for d in self.batch if isinstance(d, int)]
        if len(sizes) == len(self.batch):
            return prod(sizes)
        written = [d if isinstance(d, str) and d.isidentifier() else repr(d) for d in self.batch]
        return f"{NAMED}({', '.join(written)})"


def regions(graph: ir.Graph, linker: Any) -> list[Region]:
    """The regions of a graph, in its order."""
    finder = _Finder(linker)
    parents: dict[ir.Value, ir.Value] = {}

    def root(value: ir.Value) -> ir.Value:
        while (parent := parents.setdefault(value, value)) is not value:
            parents[value] = value = parents[parent]
        return value

    found = []
    for node in graph:
        shape = node.outputs[0].shape if node.outputs else None
        if shape is None or len(shape) < 3 or node.op_type not in BY_ROW or node.domain:
            continue
        values = finder.rows_of(node)
        if values:
            found.append((node, values))
            first = root(values[0])
            for value in values[1:]:
                if parents.get(value) is not first:
                    parents[root(value)] = first
    made: dict[ir.Value, Region] = {}
    for node, values in found:
        key = root(values[0])
        region = made.get(key)
        if region is None:
            region = made[key] = Region(finder.batch(key) or ())
        region.nodes.append(node)
        region.values.update(dict.fromkeys(values))
        if node in finder.vectors:
            region.vectors[node] = finder.vectors[node]
    return list(made.values())


class _Finder:
    """Finds what treats rows alone.

    Attributes:
        vectors: by node the places at which it reads a vector with leading axes of size 1, and that.
    """

    def __init__(self, linker: Any):
        self.vectors: dict[ir.Node, dict[int, ir.Value]] = {}
        self._linker = linker
        self._batches: dict[ir.Value, Batch | None] = {}

    def batch(self, value: ir.Value) -> Batch | None:
        """The batch of a value."""
        if value not in self._batches:
            self._batches[value] = _batch(value)
        return self._batches[value]

    def rows_of(self, node: ir.Node) -> list[ir.Value]:
        """The operands and results whose rows a node takes and gives alone; none if it is not of that kind."""
        op_type, operands, found = node.op_type, node.inputs, []
        batch = self.batch(node.outputs[0])
        if batch is None or not _alone(node, len(batch), self._linker):
            return []
        vectors = {}
        for index, value in enumerate(operands[:1] if op_type in ONE_OPERAND else operands):
            if value is None:
                continue
            shape = value.shape
            if shape is None:
                return []
            if len(shape) < 2:
                continue
            if self.batch(value) == batch:
                found.append(value)
                continue
            vector = _unwidened(value) if op_type in ELEMENTWISE else None
            if vector is None:
                return []
            vectors[index] = vector
        for value in node.outputs:
            if value.name:
                if self.batch(value) != batch:
                    return []
                found.append(value)
        if vectors:
            self.vectors[node] = vectors
        return found if len(found) > 1 else []


def _batch(value: ir.Value) -> Batch | None:
    """All sizes of a value but the last, where there are several and one at most is open; none of all is 0."""
    if value.shape is None or len(value.shape) < 3:
        return None
    *batch, width = ir_shape(value) or ()
    if not isinstance(width, int) or 0 in (*batch, width) or None in batch or "" in batch:
        return None
    return tuple(batch) if sum(isinstance(d, str) for d in batch) < 2 else None  # type: ignore[arg-type]


def _alone(node: ir.Node, last: int, linker: Any) -> bool:
    """Whether a node with a result of which this is the last axis treats each row alone, for all that its op says."""
    if node.op_type == "MatMul":
        matrix = node.inputs[1]
        return matrix is not None and matrix.shape is not None and len(matrix.shape) == 2
    if node.op_type in ALONG:
        axis = node.attributes.get("axis")
        return (ALONG[node.op_type] if axis is None else axis.as_int()) in (-1, last)
    return node.op_type not in REDUCTIONS or reduces(node, [last], True, linker)


def _unwidened(value: ir.Value) -> ir.Value | None:
    """The vector, or scalar, that a value is with leading axes of size 1."""
    view = value.producer()
    if view is None or view.op_type not in ("Unsqueeze", "Reshape") or view.domain:
        return None
    source, shape = view.inputs[0], ir_shape(value) or ()
    if source is None or source.shape is None or len(source.shape) > 1 or any(d != 1 for d in shape[:-1]):
        return None
    return source


def reduces(node: ir.Node, axes: list[int], keepdims: bool, linker: Any) -> bool:
    """Whether a reduction is one over these axes."""
    kept = node.attributes.get("keepdims")
    if (kept is None or bool(kept.as_int())) != keepdims or len(node.inputs) < 2 or node.inputs[1] is None:
        return False
    given = linker.knowledge.constant(node.inputs[1])
    rank = len(ir_shape(node.inputs[0]) or ())
    return given is not None and rank > 0 and sorted(int(a) % rank for a in given.reshape(-1)) == axes


def turns(node: ir.Node) -> bool:
    """Whether a node is the Transpose of a matrix."""
    if node.op_type != "Transpose" or node.domain or len(node.inputs) != 1:
        return False
    perm = node.attributes.get("perm")
    return len(ir_shape(node.outputs[0]) or ()) == 2 if perm is None else list(perm.as_ints()) == [1, 0]


def width(value: ir.Value) -> int | str | None:
    """The last size of a value that has one."""
    if value.shape is None or not len(value.shape):
        return None
    size = value.shape[-1]
    return size if isinstance(size, int) else size.value
