"""Barriers: a value that is not there before others are, though it holds what it held before, bit by bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradgen.engine.contract import ir_shape
from gradgen.engine.subgraphs import operands

MARK, AGAIN, HOLD = "gradgen.checkpoint", "again", "barrier"
"""The metadata key of nodes that compute values anew, and of those that hold them back, and what it says of them."""

# Types that every runtime casts to bool.
PLAIN = {getattr(ir.DataType, name) for name in (
    "FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32",
    "UINT64",
)}  # fmt: skip


class Barriers:
    """Barriers behind the nodes of a block: values that exist once the block's results do.

    A runtime runs a node when its inputs are there, so only a data dependency delays it. One element of each of the
    block's results becomes a bool, and the sum of their halves as integers is a zero that is known at run time alone:
    no rule of arithmetic folds it, and NaN cannot spread. It is added to the shape that a value is reshaped to, and a
    Reshape to the value's own shape is a view: it costs no memory and no pass over the data.

    Args:
        linker: puts nodes in front of the next block.
        block: the nodes of the block.
    """

    def __init__(self, linker: Any, block: Sequence[ir.Node]):
        self.linker = linker
        self._block = block
        self._zero: ir.Value | None = None
        self._after: dict[ir.Value, ir.Value] = {}

    def after(self, value: ir.Value) -> ir.Value:
        """The same value, behind the block; sequences and optional values have no barrier."""
        if not isinstance(value.type, ir.TensorType):
            return value
        if value not in self._after:
            self._after[value] = self._held(value)
        return self._after[value]

    def trigger(self) -> ir.Value | None:
        """The zero that is known when the block's results are; None where there is no result that can be read."""
        if self._zero is None:
            pieces: dict[ir.DataType, list[ir.Value]] = {}
            for value in _results(self._block):
                if isinstance(value.type, ir.TensorType) and value.dtype is not None and value.dtype in PLAIN:
                    pieces.setdefault(value.dtype, []).append(self._first(value))
            if pieces:
                self._zero = self._sum([self._truth(v) for v in pieces.values()])
        return self._zero

    def _held(self, value: ir.Value) -> ir.Value:
        base = f"{value.name}/held"
        shape = ir_shape(value)
        rank = None if shape is None else len(shape)
        if shape is not None and all(isinstance(d, int) for d in shape):
            sizes = self.linker.constants.get(np.asarray(shape, np.int64))
        else:
            sizes = self._node("Shape", [value], f"{base}/shape", ir.DataType.INT64, [rank])
        target = self._node("Add", [sizes, self.trigger()], f"{base}/target", ir.DataType.INT64, [rank])
        held = self._node("Reshape", [value, target], base, None, None, allowzero=1)
        held.type, held.shape = value.type, value.shape
        return held

    def _first(self, value: ir.Value) -> ir.Value:
        """The first element of a tensor, of shape [1]; [0] where it has none."""
        base, ints = f"{value.name}/first", self.linker.constants
        minus, zero, one = (ints.get(np.asarray([n], np.int64)) for n in (-1, 0, 1))
        flat = self._node("Reshape", [value, minus], f"{base}/flat", value.dtype, [None])
        return self._node("Slice", [flat, zero, one], base, value.dtype, [None])

    def _truth(self, pieces: list[ir.Value]) -> ir.Value:
        base = f"{pieces[0].name}/truth"
        joined = pieces[0]
        if len(pieces) > 1:
            joined = self._node("Concat", pieces, f"{base}/joined", pieces[0].dtype, [None], axis=0)
        if joined.dtype == ir.DataType.BOOL:
            return joined
        return self._node("Cast", [joined], base, ir.DataType.BOOL, [None], to=ir.DataType.BOOL)

    def _sum(self, truths: list[ir.Value]) -> ir.Value:
        base = f"{truths[0].name}/zero"
        joined = truths[0]
        if len(truths) > 1:
            joined = self._node("Concat", truths, f"{base}/joined", ir.DataType.BOOL, [None], axis=0)
        bits = self._node("Cast", [joined], f"{base}/bits", ir.DataType.INT64, [None], to=ir.DataType.INT64)
        two = self.linker.constants.get(np.asarray(2, np.int64))
        halves = self._node("Div", [bits, two], f"{base}/halves", ir.DataType.INT64, [None])
        return self._node("ReduceSum", [halves], base, ir.DataType.INT64, [], keepdims=0)

    def _node(
        self, op_type: str, inputs: Sequence[Any], base: str, dtype: Any, shape: Any, **attributes: Any
    ) -> ir.Value:
        """A node that no rewrite takes for one of the backward pass."""
        names = self.linker.names
        out = ir.Value(
            name=names.unique(base),
            type=None if dtype is None else ir.TensorType(dtype),
            shape=None if shape is None or shape == [None] and op_type in ("Shape", "Add") else ir.Shape(shape),
        )
        node = ir.Node(
            "", op_type, inputs, ir.convenience.convert_attributes(attributes), outputs=[out],
            name=names.unique(f"{base}/{op_type}"), metadata_props={MARK: HOLD},
        )  # fmt: skip
        self.linker.append(node)
        return out


class Unheld:
    """What stands in for barriers where nothing has to be waited for: values are read as they are."""

    def __init__(self, linker: Any):
        self.linker = linker

    def after(self, value: ir.Value) -> ir.Value:
        """The value itself."""
        return value


def _results(block: Sequence[ir.Node]) -> list[ir.Value]:
    """What a block computes for others: outputs of the graph, and values that nodes outside it read."""
    inside = set(block)
    read = {v for node in block for v in operands(node)}
    found = []
    for node in block:
        for value in node.outputs:
            outside = any(use.node not in inside for use in value.uses())
            if value.name and (value.is_graph_output() or (outside and value not in read)):
                found.append(value)
    return found
