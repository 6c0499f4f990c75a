"""The typed symbolic value that rules and lowerings compute with while a rule is specialised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from gradgen.errors import GradientError

Dim = int | str | None
Shape = tuple[Dim, ...]

FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})


class UnknownTypeError(GradientError):
    """A rule needs the rank or the element type of a value that has none."""


class Value:
    """A tensor inside a rule that is being specialised.

    Attributes:
        dtype: element type, or None if unknown.
        shape: a tuple of sizes, dimension names and None (unknown), or None if the rank is unknown.
        const: the content as a numpy array where it is known. Reading it marks the value: the specialised body holds for
            this content alone.
        peek: the content without the mark, for a decision after which the body holds for every content.
        touched: whether `const` was read.
        elements: for an integer tensor of rank 0 or 1 computed from shapes, its elements as dimensions.
        zero: known to be zero everywhere.
        selected: whether a later node may leave out elements of it, where a condition asks.
    """

    __slots__ = ("_ir_shape", "dtype", "elements", "label", "peek", "producer", "selected", "shape", "touched", "zero")

    def __init__(self, dtype=None, shape=None, const=None, elements=None, producer=None, label="", zero=False):
        self.dtype: ir.DataType | None = dtype
        self.shape: Shape | None = shape
        self.peek: np.ndarray | None = const
        self.touched: bool = False
        self.elements: tuple[Dim, ...] | None = elements
        self.producer: Any = producer
        self.label: str = label
        self.zero: bool = zero
        self.selected: bool | None = None
        self._ir_shape: ir.Shape | None = None

    @property
    def const(self) -> np.ndarray | None:
        """The known content; the body then depends on it."""
        self.touched = True
        return self.peek

    @property
    def rank(self) -> int:
        """The number of dimensions; refuses the rule where it is unknown."""
        if self.shape is None:
            raise UnknownTypeError(
                f"it needs types, and the rank of '{self.label or 'a value'}' is unknown; give it with types= or value_info, "
                "or let shape inference reach the value"
            )
        return len(self.shape)

    @property
    def static(self) -> bool:
        """Whether every dimension is a known size."""
        return self.shape is not None and all(isinstance(d, int) for d in self.shape)

    @property
    def size(self) -> int | None:
        """The number of elements where every dimension is known."""
        if self.shape is None or not all(isinstance(d, int) for d in self.shape):
            return None
        return int(np.prod([d for d in self.shape if isinstance(d, int)], dtype=np.int64))

    def ir_shape(self, names: Mapping[str, str]) -> ir.Shape | None:
        """The shape as onnx_ir has it, with dimension names translated; a static one is shared."""
        if self.shape is None:
            return None
        if self._ir_shape is None:
            shape = ir.Shape([names.get(d, d) if isinstance(d, str) else d for d in self.shape])
            if not self.static:
                return shape
            self._ir_shape = shape
        return self._ir_shape

    def __repr__(self) -> str:
        return f"Value({self.label!r}, {self.dtype}, {self.shape}{', const' if self.peek is not None else ''})"

    def _binary(self, op_type: str, left: Any, right: Any) -> Value:
        from gradgen.rules.lang import current_builder

        return current_builder().node(op_type, (left, right), {}, 1)

    def __add__(self, other):
        return self._binary("Add", self, other)

    def __radd__(self, other):
        return self._binary("Add", other, self)

    def __sub__(self, other):
        return self._binary("Sub", self, other)

    def __rsub__(self, other):
        return self._binary("Sub", other, self)

    def __mul__(self, other):
        return self._binary("Mul", self, other)

    def __rmul__(self, other):
        return self._binary("Mul", other, self)

    def __truediv__(self, other):
        return self._binary("Div", self, other)

    def __rtruediv__(self, other):
        return self._binary("Div", other, self)

    def __pow__(self, other):
        return self._binary("Pow", self, other)

    def __matmul__(self, other):
        return self._binary("MatMul", self, other)

    def __neg__(self):
        from gradgen.rules.lang import current_builder

        return current_builder().node("Neg", (self,), {}, 1)


def is_float(dtype: ir.DataType | None) -> bool:
    """Whether values of this type carry a derivative; an unknown type may."""
    return dtype is None or dtype in FLOATS


class AttributeParameter:
    """An attribute whose value the caller of the function gives: a rule may hand it on, and nothing else.

    Any look at its value refuses the rule by name.
    """

    def __init__(self, attr: ir.Attr):
        self.attr = attr

    def _refuse(self, *_: Any) -> Any:
        raise UnknownTypeError(
            f"it looks at attribute '{self.attr.name}', a parameter of the function, and its value is not known here; give "
            "the attribute a value in the function"
        )

    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse  # type: ignore[assignment]
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __neg__ = _refuse
    __bool__ = __len__ = __iter__ = __getitem__ = __int__ = __float__ = __index__ = __array__ = _refuse
    __hash__ = object.__hash__
