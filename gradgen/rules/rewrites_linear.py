"""Rewrites of products with a matrix: sums that Gemm adds, and batches of rows kept as matrices from layer to layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from gradgen.engine.contract import ir_shape
from gradgen.engine.knowledge import is_constant
from gradgen.engine.surgery import is_linked, remove_node
from gradgen.rules.lang import same_shape
from gradgen.rules.rewriting import own_producer, pattern
from gradgen.rules.row_regions import turns
from gradgen.rules.rows import is_small, stored_rows

WHOLE = "gradgen.whole"  # marks a Gemm whose addend is known to be as large as its result
SUMMED = 16  # products of one sum that are looked through for the first
SCALED = (ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE)  # what a Gemm may multiply by a constant
NORMAL = np.finfo(np.float32)
MULTIPLIED = 8  # products, one of the other, through which a batch of rows is followed


@pattern("Add", reads=("Gemm", "Reshape"))
def addend_of_product(node: ir.Node, linker: Any) -> ir.Value | None:
    """What is added to a matrix product, and is there before it, is the addend of its Gemm.

    What comes later is not: the product would wait for it, and hold its factors until then, as those of a weight's
    gradient in all layers that share it.
    """
    result = ir_shape(node.outputs[0])
    for product, other in (node.inputs[::-1], node.inputs):
        if product is None or other is None or other is product or not same_shape(ir_shape(product), result):
            continue
        view = own_producer(product, ("Reshape",))
        gemm = _without_addend(product if view is None else view.inputs[0])
        if gemm is None or not linker.precedes(other, gemm):
            continue
        addend: ir.Value | None = other
        if view is not None:
            alike = _is_rows(view) and same_shape(ir_shape(other), result)
            addend = _matrix(other, gemm, linker) if alike else None
        elif not _spreads(ir_shape(other), result):
            addend = None
        if addend is None:
            continue
        gemm.attributes.pop("beta", None)
        gemm.resize_inputs(3)
        gemm.replace_input_with(2, addend)
        gemm.meta[WHOLE] = view is not None or same_shape(ir_shape(other), result)
        return product
    return None


def _without_addend(value: ir.Value | None) -> ir.Node | None:
    """The Gemm without addend that a sum of products begins with, each as large as the sum, and read by the next alone."""
    shape = None if value is None else ir_shape(value)
    for _ in range(SUMMED):
        gemm = own_producer(value, ("Gemm",))
        if gemm is None:
            return None
        value = gemm.inputs[2] if len(gemm.inputs) > 2 else None
        if value is None:
            return gemm
        beta = gemm.attributes.get("beta")
        whole = gemm.meta.get(WHOLE) or same_shape(ir_shape(value), shape)
        if not whole or (beta is not None and beta.as_float() != 1):
            return None
    return None


def _spreads(shape: Any, result: Any) -> bool:
    """Whether a shape is known to be broadcast to another one, and not the other way round."""
    if shape is None or result is None or len(shape) > len(result):
        return False
    return all(d == 1 or same_shape((d,), (r,)) for d, r in zip(shape[::-1], result[::-1], strict=False))


def _is_rows(view: ir.Node) -> bool:
    """Whether a Reshape gives the rows of a matrix batch axes."""
    source, result = (None if v is None else ir_shape(v) for v in (view.inputs[0], view.outputs[0]))
    if source is None or result is None or len(source) != 2 or not same_shape(source[1:], result[-1:]):
        return False
    return source[1] != 0  # then there may be any number of rows


def _matrix(value: ir.Value, node: ir.Node, linker: Any) -> ir.Value:
    """The rows of a value as a matrix that is there before a node: what they were made of, or its one Flatten."""
    view = own_producer(value, ("Reshape",))
    if view is not None and view.inputs[0] is not None and _is_rows(view):
        return view.inputs[0]
    flats = _flattened(value, node.graph)
    for flat in flats:
        if linker.precedes(flat, node):
            return flat
    shape = ir_shape(value) or ()
    like = flats[0] if flats else ir.Value(type=value.type, shape=ir.Shape([None, shape[-1]]), name=value.name)
    with linker.before(node):
        matrix = linker.node("Flatten", [value], like, f"{value.name}/rows", axis=-1)
    for flat in flats:
        producer = flat.producer()
        if producer is not None and not flat.is_graph_output():
            flat.replace_all_uses_with(matrix)
            remove_node(producer)
    return matrix


def _flattened(value: ir.Value, graph: ir.Graph | None) -> list[ir.Value]:
    """The matrices of a value's rows that nodes of a graph make, not those of the graphs within it."""
    return [u.node.outputs[0] for u in value.uses() if u.node.graph is graph and _flattens(u.node)]


@pattern("ReduceSum")
def sum_of_rows(node: ir.Node, linker: Any) -> ir.Value | None:
    """A sum over all axes but the last of what is also read as a matrix is that of the matrix."""
    source, result = node.inputs[0], node.outputs[0]
    shape = ir_shape(source)
    if source is None or shape is None or len(shape) < 3 or not _flattened(source, node.graph):
        return None
    axes = linker.knowledge.constant(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] is not None else None
    keepdims = node.attributes.get("keepdims")
    if axes is None or keepdims is None or keepdims.as_int():
        return None
    if sorted(int(a) % len(shape) for a in axes.reshape(-1)) != list(range(len(shape) - 1)):
        return None
    inputs = [_matrix(source, node, linker), linker.constants.get(np.asarray([0]))]
    return linker.node("ReduceSum", inputs, result, f"{result.name}/rows", keepdims=0)


@pattern("Mul", reads=("Gemm",))
def factor_of_product(node: ir.Node, linker: Any) -> ir.Value | None:
    """A matrix product times a constant is one Gemm, which multiplies by it: its alpha, and the beta of its addend.

    A constant of a rule's alone, as with the mean of a sum: a model's own scalar stays. In portable models so does the
    product, whose form is changed if nothing is multiplied in it.
    """
    result = node.outputs[0]
    if "portable" in linker.knowledge.purposes or result.dtype not in SCALED:
        return None
    for product, factor in (node.inputs, node.inputs[::-1]):
        gemm = own_producer(product, ("Gemm",))
        scale = linker.knowledge.constant(factor) if factor is not None and is_constant(factor) else None
        if gemm is None or scale is None or scale.size != 1 or not same_shape(ir_shape(product), ir_shape(result)):
            continue
        attributes: dict[str, Any] = {name: a.value for name, a in gemm.attributes.items()}
        for name in ("alpha", "beta")[: 1 if len(gemm.inputs) < 3 or gemm.inputs[2] is None else 2]:
            value = attributes.get(name, 1.0) * float(scale.reshape(()))
            if not _is_attribute(value, result.dtype):
                return None
            attributes[name] = float(np.float32(value))
        return linker.node("Gemm", gemm.inputs, result, f"{result.name}/product", **attributes)
    return None


def _is_attribute(value: float, dtype: ir.DataType | None) -> bool:
    """Whether an attribute, which is float32, holds a factor of values of this type: in float64 to the last bit."""
    if not NORMAL.tiny <= abs(value) <= NORMAL.max:  # zero, infinite, not a number, or with few bits
        return False
    return dtype != ir.DataType.DOUBLE or float(np.float32(value)) == value


@pattern("Mul", reads=("Reshape",))
def product_of_rows(node: ir.Node, linker: Any) -> ir.Value | None:
    """What a matrix given batch axes is multiplied by has its rows, where the product is read as a matrix alone."""
    result = node.outputs[0]
    shape = ir_shape(result)
    for k in (0, 1):
        view, other = own_producer(node.inputs[k], ("Reshape",)), node.inputs[1 - k]
        if view is None or other is None or not _is_rows(view) or not _read_as_matrix(result):
            continue
        matrix = view.inputs[0]
        if not same_shape(ir_shape(view.outputs[0]), shape) or not same_shape(ir_shape(other), shape):
            continue
        inputs = [matrix, _matrix(other, node, linker)]
        product = linker.node("Mul", inputs if k == 0 else inputs[::-1], matrix, f"{result.name}/rows")
        return linker.node("Reshape", [product, view.inputs[1]], result, f"{result.name}/view")
    return None


def _read_as_matrix(value: ir.Value) -> bool:
    """Whether all that reads a value makes a matrix of its rows, products by others that are so read between them."""
    for _ in range(MULTIPLIED):
        if value.is_graph_output():
            return False
        readers = [u.node for u in value.uses()]
        graph = value.graph
        if any(reader.graph is not graph for reader in readers):
            return False
        if len(readers) != 1 or readers[0].op_type != "Mul" or readers[0].domain or not is_linked(readers[0]):
            return bool(readers) and all(map(_flattens, readers))
        shape, value = ir_shape(value), readers[0].outputs[0]
        if not same_shape(shape, ir_shape(value)):
            return False
    return False


@pattern("Flatten")
def needless_flatten(node: ir.Node, linker: Any) -> ir.Value | None:
    """The rows of a matrix are that matrix, and so are those of a matrix given batch axes, whoever else reads it so.

    Those of a small constant are another constant.
    """
    source = node.inputs[0]
    if source is None or not _flattens(node):
        return None
    if len(ir_shape(source) or ()) == 2:
        return source
    if is_small(source) and ir_shape(source):
        return stored_rows(source, linker)
    view = source.producer()
    rows = view is not None and view.op_type == "Reshape" and not view.domain and is_linked(view) and _is_rows(view)
    return view.inputs[0] if view is not None and rows else None


@pattern("Gemm", reads=("Transpose",))
def transposed_operand(node: ir.Node, linker: Any) -> ir.Value | None:
    """A product with a transposed matrix, a forward node's too, is one with the matrix."""
    for k, flag in enumerate(("transA", "transB")):
        turned = node.inputs[k]
        transpose = turned.producer() if turned is not None else None
        if transpose is None or not turns(transpose):
            continue
        was = node.attributes.get(flag)
        attributes: dict[str, Any] = {name: a.value for name, a in node.attributes.items() if name != flag}
        if was is None or not was.as_int():
            attributes[flag] = 1
        inputs = [transpose.inputs[0] if i == k else v for i, v in enumerate(node.inputs)]
        result = node.outputs[0]
        return linker.node("Gemm", inputs, result, f"{result.name}/product", **attributes)
    return None


@pattern("Transpose", reads=("MatMul",))
def transposed_batches(node: ir.Node, linker: Any) -> ir.Value | None:
    """The transpose of a product with a transposed left factor turns the other one alone: (AᵀB)ᵀ = BᵀA."""
    swap = _swap(node)
    product = own_producer(node.inputs[0], ("MatMul",))
    left = own_producer(product.inputs[0], ("Transpose",)) if product is not None else None
    if swap is None or product is None or left is None or _swap(left) != swap:
        return None
    one, other, result = left.inputs[0], product.inputs[1], node.outputs[0]
    sizes = ir_shape(other)
    if one is None or other is None or sizes is None or len(sizes) != len(swap):
        return None
    like = ir.Value(type=other.type, shape=ir.Shape([sizes[a] for a in swap]), name=result.name)
    turned = linker.node("Transpose", [other], like, f"{result.name}/turned", perm=swap)
    return linker.node("MatMul", [turned, one], result, f"{result.name}/product")


def _swap(node: ir.Node) -> list[int] | None:
    """The permutation of a Transpose that swaps the last two axes."""
    perm = node.attributes.get("perm")
    order = [] if perm is None else list(perm.as_ints())
    swap = [*range(len(order) - 2), len(order) - 1, len(order) - 2]
    return order if len(order) > 1 and order == swap else None


def _flattens(node: ir.Node) -> bool:
    """Whether a node makes a matrix of the rows of its operand."""
    if node.op_type != "Flatten" or node.domain or not is_linked(node):
        return False
    axis = node.attributes.get("axis")
    return axis is not None and axis.as_int() == -1
