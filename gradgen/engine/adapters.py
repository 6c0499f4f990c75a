"""Adapters that raise one node's form: attributes that became inputs, and operators whose meaning changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from gradgen.engine.knowledge import CONSTANT_MARK


@dataclass(frozen=True)
class Adapter:
    """How a node gets from the version before a change to the version of the change.

    Attributes:
        apply: rewrites the node in place; returns the version whose form the node has now where that is
            another one than the change's.
        refuse: the reason why this very node cannot be raised, or None; asked before anything is rewritten.
        types: whether element types and shapes of the node's inputs decide what is written.
    """

    apply: Callable[[Edit], int | None]
    refuse: Callable[[Edit], str | None] | None = None
    types: bool = False


def adapter(refuse: Callable[[Edit], str | None] | None = None, types: bool = False):
    """Make an `Adapter` of a function that rewrites a node."""
    return lambda apply: Adapter(apply, refuse, types)


class Edit:
    """One node of an old model, with what its adapter may read and write around it.

    `taken` holds every name in the model; `overridable` says whether initializers that are also graph inputs
    may be overridden, in which case their content is no knowledge.
    """

    def __init__(self, node: ir.Node, taken: set[str], overridable: bool):
        assert node.graph is not None
        self.node = node
        self.graph: Any = node.graph
        self.taken = taken
        self.overridable = overridable

    # Reading

    def input(self, index: int) -> ir.Value | None:
        """The node's input, or None where it is absent."""
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def output(self, index: int) -> ir.Value | None:
        """The node's output, or None where it is absent or left out by an empty name."""
        value = self.node.outputs[index] if index < len(self.node.outputs) else None
        return value if value is not None and value.name else None

    def attr(self, name: str, default: Any = None) -> Any:
        """The attribute's Python value, or the default where it is absent."""
        found = self.node.attributes.get(name)
        return default if found is None else found.value

    def pop(self, name: str, default: Any = None) -> Any:
        """The attribute's Python value, which the node loses."""
        value = self.attr(name, default)
        self.node.attributes.pop(name, None)
        return value

    def dtype(self, index: int) -> ir.DataType | None:
        """The element type of an input, where it is known."""
        value = self.input(index)
        if value is None or value.dtype is not None or value.const_value is None:
            return None if value is None else value.dtype
        return value.const_value.dtype

    def shape(self, index: int) -> list[int | None] | None:
        """The sizes of an input, None for those that are unknown; None altogether if the rank is unknown."""
        value = self.input(index)
        if value is None or value.shape is None:
            return None
        return [dim if isinstance(dim, int) else None for dim in value.shape]

    def static(self, index: int) -> np.ndarray | None:
        """The content of an input that is the same in every run, else None."""
        value = self.input(index)
        if value is None or (self.overridable and value.is_graph_input()):
            return None
        tensor = ir.convenience.get_const_tensor(value)
        return None if tensor is None else tensor.numpy()

    # Writing

    def fresh(self, hint: str) -> str:
        """A name that nothing in the model has, subgraphs included."""
        owner = self.node.name or next((value.name for value in self.node.outputs if value.name), self.node.op_type)
        name = base = f"{owner}_{hint}"
        count = 1
        while name in self.taken:
            count += 1
            name = f"{base}_{count}"
        self.taken.add(name)
        return name

    def constant(self, array: Any, hint: str, dtype: ir.DataType | None = None) -> ir.Value:
        """A new initializer of the graph in which the node lies; integers are int64 by default."""
        dtype = dtype or ir.DataType.INT64
        name = self.fresh(hint)
        with np.errstate(over="ignore"):  # a bound beyond the type's range is infinite there: it bounds nothing
            tensor = ir.Tensor(np.asarray(array).astype(dtype.numpy()), dtype=dtype, name=name)
        tensor.metadata_props[CONSTANT_MARK] = "1"  # no parameter of the model
        value = ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(tensor.shape), const_value=tensor)
        self.graph.register_initializer(value)
        return value

    def set_input(self, index: int, value: ir.Value | None) -> None:
        """Replace an input, growing the list where needed; absent inputs at the end are dropped."""
        if index >= len(self.node.inputs):
            self.node.resize_inputs(index + 1)
        self.node.replace_input_with(index, value)
        last = max((i + 1 for i, given in enumerate(self.node.inputs) if given is not None), default=0)
        self.node.resize_inputs(last)

    def set_attr(self, name: str, value: Any) -> None:
        """Set an attribute."""
        self.node.attributes[name] = ir.convenience.convert_attribute(name, value)

    def before(self, op: str, inputs: Sequence[ir.Value | None], hint: str, **attributes: Any) -> ir.Value:
        """A new node in front of this one; returns its output."""
        name = self.fresh(hint)
        attrs = ir.convenience.convert_attributes(attributes)
        new = ir.Node("", op, inputs, attrs, outputs=[ir.Value(name=name)], name=name)
        self.graph.insert_before(self.node, [new])
        return new.outputs[0]

    def after(self, op: str, more: Iterable[ir.Value | None], hint: str, index: int = 0, **attributes: Any) -> None:
        """A new node behind an output, which takes over its name and its uses."""
        inner = self.node.outputs[index]
        attrs = ir.convenience.convert_attributes(attributes)
        outer = ir.Value()
        self.take_over(inner, outer, hint)
        new = ir.Node("", op, [inner, *more], attrs, outputs=[outer], name=self.fresh(hint))
        self.graph.insert_after(self.node, [new])

    def take_over(self, old: ir.Value, new: ir.Value, hint: str) -> None:
        """Give an output's public name, type and uses to another value."""
        new.name, new.type, new.shape, new.doc_string = old.name, old.type, old.shape, old.doc_string
        new.metadata_props.update(old.metadata_props)
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        old.name = self.fresh(hint)
        old.type = old.shape = None

    def shape_of(self, index: int, hint: str = "shape") -> ir.Value:
        """The shape of an input, for `reshape_output`: a constant where at most one size is unknown."""
        sizes = self.shape(index)
        if sizes is not None and sizes.count(None) <= (0 not in sizes):
            return self.constant([-1 if size is None else size for size in sizes], hint)
        return self.before("Shape", [self.input(index)], hint)

    def reshape_output(self, shape: ir.Value) -> None:
        """Give the output the shape of what was an input before; a size of 0 in it means 0."""
        zeros = shape.const_value is None or 0 in shape.const_value.numpy()
        self.after("Reshape", [shape], "flat_output", **({"allowzero": 1} if zeros else {}))


def attribute_to_input(name: str, index: int, empty: bool = False) -> Adapter:
    """The attribute (integers) becomes an int64 input; an empty one is left out unless `empty`."""

    def apply(edit: Edit) -> None:
        value = edit.pop(name)
        if value is not None and (empty or len(value)):
            edit.set_input(index, edit.constant(list(value), name))

    return Adapter(apply)


@adapter()
def slice_bounds(edit: Edit) -> None:
    """Slice 10: starts, ends and axes become inputs."""
    for index, name in enumerate(("starts", "ends", "axes"), 1):
        value = edit.pop(name)
        if value is not None:
            edit.set_input(index, edit.constant(list(value), name))


@adapter()
def topk_k(edit: Edit) -> None:
    """TopK 10: k becomes an input."""
    edit.set_input(1, edit.constant([edit.pop("k")], "k"))


def _typed_scalar(edit: Edit, value: float, hint: str) -> ir.Value:
    """A scalar of the first input's element type."""
    dtype = edit.dtype(0)
    if dtype is not None:
        return edit.constant(value, hint, dtype)
    untyped = edit.constant(value, hint, ir.DataType.FLOAT)
    return edit.before("CastLike", [untyped, edit.input(0)], f"{hint}_cast")


@adapter(types=True)
def clip_bounds(edit: Edit) -> None:
    """Clip 11: the bounds become inputs. Absent ones stay absent: both versions then bound by the finite range."""
    for index, name in enumerate(("min", "max"), 1):
        bound = edit.pop(name)
        if bound is not None:
            edit.set_input(index, _typed_scalar(edit, bound, name))


@adapter(types=True)
def pad_amounts(edit: Edit) -> None:
    """Pad 11: pads and value become inputs; only the constant mode reads the value, whose default is 0."""
    edit.set_input(1, edit.constant(list(edit.pop("pads")), "pads"))
    value = edit.pop("value", 0.0)
    if value and edit.attr("mode", "constant") == "constant":
        edit.set_input(2, _typed_scalar(edit, value, "value"))


@adapter()
def split_count(edit: Edit) -> None:
    """Split 18: equal parts are asked for by their number."""
    if edit.input(1) is None:
        edit.set_attr("num_outputs", len(edit.node.outputs))


@adapter(types=True)
def dropout_bool_mask(edit: Edit) -> None:
    """Dropout 10: the mask is bool; before, it had the type of the data."""
    if edit.output(1) is None:
        return
    dtype = edit.dtype(0)
    if dtype is None:
        edit.after("CastLike", [edit.input(0)], "mask", index=1)
    else:
        edit.after("Cast", [], "mask", index=1, to=int(dtype))
    edit.node.outputs[1].dtype = ir.DataType.BOOL


@adapter()
def dropout_ratio(edit: Edit) -> None:
    """Dropout 12: the ratio becomes an input.

    From 7 to 11 the node drops nothing, and onnxruntime's mask is false throughout; from 12 on a node that does
    not train has a mask that is true throughout, hence the Not.
    """
    edit.set_input(1, edit.constant(edit.pop("ratio", 0.5), "ratio", ir.DataType.FLOAT))
    if edit.output(1) is not None:
        edit.after("Not", [], "mask", index=1)
        edit.node.outputs[1].dtype = ir.DataType.BOOL


@adapter(types=True)
def softmax_axis(edit: Edit) -> None:
    """Softmax, LogSoftmax and Hardmax 13: one axis is normalised; before, all from `axis` to the last together."""
    axis = edit.attr("axis", 1)
    sizes = edit.shape(0)
    if sizes is not None:
        axis += len(sizes) if axis < 0 else 0
        if all(size == 1 for size in sizes[axis + 1 :]):
            edit.set_attr("axis", axis)
            return
    target = edit.shape_of(0)
    edit.set_input(0, edit.before("Flatten", [edit.input(0)], "flat", axis=axis))
    edit.set_attr("axis", 1)
    edit.reshape_output(target)


@adapter()
def scatter_renamed(edit: Edit) -> None:
    """Scatter 11: it is called ScatterElements."""
    edit.node.op_type = "ScatterElements"


@adapter()
def dft_axis(edit: Edit) -> None:
    """DFT 20: the axis becomes an input, whose default is another one."""
    edit.set_input(2, edit.constant(edit.pop("axis", 1), "axis"))


def _erf_of_integers(edit: Edit) -> str | None:
    dtype = edit.dtype(0)
    return f"Erf of {dtype.name} is undefined from 13 on: cast to a float" if dtype and dtype.is_integer() else None


@adapter(refuse=_erf_of_integers, types=True)
def erf_of_floats(edit: Edit) -> None:
    """Erf 13: only floats."""


def _scan_lengths(edit: Edit) -> str | None:
    given = edit.input(0) is not None
    return "Scan 8 with sequence_lens has no counterpart: pad the sequences and leave it out" if given else None


@adapter(refuse=_scan_lengths)
def scan_batch(edit: Edit) -> None:
    """Scan 9: there is no batch axis any more; an outer Scan runs over it, the old one over the sequence."""
    node = edit.node
    inputs, body = list(node.inputs[1:]), edit.pop("body")
    attributes: dict[str, Any] = {"num_scan_inputs": edit.attr("num_scan_inputs"), "body": body}
    directions = edit.pop("directions")
    if directions is not None:
        attributes["scan_input_directions"] = directions
    formals = [
        ir.Value(
            name=edit.fresh(f"batch_{i}"),
            type=None if given is None else given.type,
            shape=None if given is None or given.shape is None else ir.Shape(list(given.shape)[1:]),
        )
        for i, given in enumerate(inputs)
    ]
    results = [ir.Value(name=edit.fresh(f"result_{i}"), type=value.type) for i, value in enumerate(body.outputs)]
    for result, old in zip(results, node.outputs, strict=True):
        result.shape = None if old.shape is None else ir.Shape(list(old.shape)[1:])
        result.type = result.type or old.type
    name = edit.fresh("sequence")
    attrs = ir.convenience.convert_attributes(attributes)
    inner = ir.Node("", "Scan", formals, attrs, outputs=results, name=name)
    batch = ir.Graph(formals, results, nodes=[inner], name=edit.fresh("batch"))
    node.resize_inputs(len(inputs))
    for index, given in enumerate(inputs):
        node.replace_input_with(index, given)
    edit.set_attr("body", batch)
    edit.set_attr("num_scan_inputs", len(inputs))
