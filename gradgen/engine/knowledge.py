"""What is known of a graph's values while rules are linked into it, and the pool of constants that these share."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gradgen.engine.contract import ir_shape
from gradgen.engine.names import Names
from gradgen.engine.values import Value, is_float

CONSTANT_MARK = "gradgen.constant"
CONST_LIMIT = {"i": 256, "u": 256, "b": 256, "f": 16}


def small(array: np.ndarray) -> np.ndarray | None:
    """The array if it is small enough to be static knowledge, which is part of a signature."""
    return array if array.size <= CONST_LIMIT.get(array.dtype.kind, 0) else None


class Knowledge:
    """What is known of the values of a graph: types, and contents where they are constants.

    Args:
        variable: values that are never static knowledge (the wrt and the overridable initializers).

    Attributes:
        fixed: the float constants on whose content the linked nodes rely.
        purposes: what rules are linked for beside the gradient, as conditions name it (gradgen.engine.conditions).
        nonlinear: what was linked of rules that are declared not to be linear in their cotangents: op, node, rule.
        kept: the computed values that a caller has named: rewriting leaves each to a node of its own.
    """

    def __init__(self, variable: set[ir.Value] | None = None):
        self.variable = variable or set()
        self.fixed: set[ir.Value] = set()
        self.purposes: set[str] = set()
        self.nonlinear: list[str] = []
        self.kept: set[ir.Value] = set()
        self._constants: dict[ir.Value, np.ndarray | None] = {}

    def constant(self, value: ir.Value) -> np.ndarray | None:
        """The content of a small constant, or None."""
        if value not in self._constants:
            self._constants[value] = self._read(value)
        return self._constants[value]

    def fix(self, value: ir.Value) -> None:
        """Record that the backward pass holds for this content of a float constant alone."""
        if is_float(value.dtype):
            self.fixed.add(value)

    def learn(self, value: ir.Value, content: np.ndarray) -> None:
        """Record the content of a value that was computed from constants and static shapes."""
        self._constants[value] = content

    def _read(self, value: ir.Value) -> np.ndarray | None:
        tensor = None if value in self.variable else value.const_value
        if tensor is None:
            return None
        return small(tensor.numpy()) if tensor.dtype != ir.DataType.STRING and tensor.size <= 256 else None

    def describe(self, value: ir.Value, names: dict[str, str]) -> Value:
        """A typed value for a rule; dimension names become d0, d1, … so that signatures agree."""
        shape = ir_shape(value)
        if shape is not None and not all([isinstance(d, int) for d in shape]):
            shape = tuple(
                [d if isinstance(d, int) else (names.setdefault(d, f"d{len(names)}") if d else None) for d in shape]
            )
        const = self.constant(value)
        described = Value(value.dtype, shape, const, label=value.name or "")
        if const is not None:
            if const.ndim <= 1 and const.dtype == np.int64:
                described.elements = tuple(int(i) for i in const.reshape(-1))
            described.shape = const.shape
        return described


class Constants:
    """The pool of constants that linked bodies share, as marked initializers of the root graph."""

    def __init__(self, graph: ir.Graph, names: Names):
        self._graph = graph
        self._names = names
        self._pool: dict[tuple, ir.Value] = {}
        self.imports = graph.opset_imports

    def get(self, array: np.ndarray) -> ir.Value:
        """The initializer that holds this array."""
        key = (array.dtype, array.shape, array.tobytes())
        value = self._pool.get(key)
        if value is None:
            name = self._names.unique("constant")
            tensor = ir.Tensor(array, name=name, metadata_props={CONSTANT_MARK: "1"})
            value = ir.Value(
                name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor
            )
            self._graph.register_initializer(value)
            self._pool[key] = value
        return value


def is_constant(value: ir.Value) -> bool:
    """Whether gradgen has added this initializer as a constant."""
    tensor = value.const_value
    return tensor is not None and CONSTANT_MARK in getattr(tensor, "metadata_props", {})
