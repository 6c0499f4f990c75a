"""Rules of operators that read or write elements by index."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gradgen.errors import GradientError
from gradgen.rules.lang import op, picked, traced
from gradgen.rules.library import expand_like, mask, reshape_like, zeros_like
from gradgen.rules.ranks import axes_from, ones_behind

HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def ones_like(x):
    """Ones of the shape and type of x."""
    return expand_like(op.CastLike(1.0, x), x)


def scatter(x, indices, updates, axis, reduction):
    """ScatterElements with a reduction; the half types, which onnxruntime cannot scatter, go through float32."""
    if x.dtype not in HALVES:
        return op.ScatterElements(x, indices, updates, axis=axis, reduction=reduction)
    wide = [op.Cast(v, to=int(ir.DataType.FLOAT)) for v in (x, updates)]
    return op.Cast(op.ScatterElements(wide[0], indices, wide[1], axis=axis, reduction=reduction), to=int(x.dtype))


def positions(like):
    """The numbers 0, 1, … in the shape of `like`."""
    return reshape_like(op.Range(np.int64(0), op.Size(like), np.int64(1)), like)


def distinct(indices, axis, shape):
    """Whether the indices are known to name every element at most once."""
    if shape is not None and indices.shape is not None and indices.shape[axis] in (0, 1):
        return True
    if indices.const is None or shape is None or not isinstance(shape[axis], int):
        return False
    ordered = np.sort(indices.const % max(shape[axis], 1), axis=axis)
    return not np.any(np.diff(ordered, axis=axis) == 0)


def kept(data, indices, updates, axis):
    """Which updates a scatter without reduction leaves in the result: for each element the last in index order."""
    order = positions(updates)
    nothing = op.Expand(np.int64(-1), op.Shape(data))
    last = op.ScatterElements(nothing, indices, order, axis=axis, reduction="max")
    return op.Equal(op.GatherElements(last, indices, axis=axis), order)


def tail(x, axis):
    """The dimensions of x behind an axis."""
    return np.zeros(0, np.int64) if axis == -1 else op.Shape(x, start=axis + 1)


def gathered(doutput, data, indices, axis):
    """The cotangent of what was gathered along an axis, added up where indices repeat."""
    count = op.Reshape(op.Size(indices), [1])
    spread = op.Concat(op.Shape(data, end=axis), count, tail(data, axis), axis=0)
    index = op.Reshape(indices, op.Concat(count, ones_behind(axis, data), axis=0), allowzero=1)
    updates = op.Reshape(doutput, spread, allowzero=1)
    return scatter(zeros_like(data), op.Expand(index, spread), updates, axis, "add")


@traced("ddata")
def gather_vjp(doutput, data, indices, *, axis: int = 0):
    """dx = Σ over the places that were read, by a scatter along the axis."""
    return gathered(doutput, data, indices, axis)


@traced("ddata")
def gather_vjp__known(doutput, data, indices, *, axis: int = 0):
    """dx = dy padded with zeros, where one index or a run of consecutive ones is read."""
    flat = indices.const.reshape(-1)
    if flat.size == 0 or np.any(np.diff(flat) != 1) or (flat[0] < 0 <= flat[-1]):
        return gathered(doutput, data, indices, axis)
    run = np.asarray([flat.size], np.int64)
    window = op.Reshape(doutput, op.Concat(op.Shape(data, end=axis), run, tail(data, axis), axis=0), allowzero=1)
    size = op.Gather(op.Shape(data), [axis])
    first, last = (np.asarray([i], np.int64) for i in (flat[0], flat[-1]))
    pads = (first, size - 1 - last) if first >= 0 else (size + first, -1 - last)
    return op.Pad(window, op.Concat(*pads, axis=0), None, [axis])


@traced("ddata")
def gather_vjp__few(doutput, data, indices, *, axis: int = 0):
    """dx = (one-hot of i)ᵀ·dy for a matrix of few rows: a product is faster than a scatter."""
    rows = np.arange(data.shape[0])
    read = op.Mod(indices, op.CastLike(rows.size, indices))
    picks = op.Equal(op.CastLike(rows[:, None], indices), op.Reshape(read, [1, -1]))
    return mask(picks, data) @ op.Reshape(doutput, op.Concat([-1], op.Shape(data, start=1), axis=0))


def rows_added(doutput, data, indices):
    """Rows of dy added up at rows of a matrix, as a scatter along one axis: onnxruntime finds each place faster."""
    columns = data.shape[1]
    first = op.Reshape(indices, [-1, 1]) * columns
    places = op.Reshape(first + op.CastLike(np.arange(columns), indices), [-1])
    empty = op.Expand(op.CastLike(0.0, data), [data.size])
    return reshape_like(scatter(empty, places, op.Reshape(doutput, [-1]), 0, "add"), data)


@traced("ddata")
def gather_vjp__flat(doutput, data, indices):
    """dx = dy added up at the rows that were read, element by element."""
    return rows_added(doutput, data, indices)


@traced("ddata")
def gather_elements_vjp(doutput, data, indices, *, axis: int = 0):
    """dx = dy added up at the indices."""
    return scatter(zeros_like(data), indices, doutput, axis, "add")


@traced("ddata", "dupdates")
def scatter_elements_vjp(doutput, data, indices, updates, output, *, axis: int = 0, reduction: str = "none"):
    """dx = dy where nothing was written; du = dy[i]. Reductions: see `scattered`."""
    return scattered(doutput, data, indices, updates, output, axis, reduction)


def scattered(doutput, data, indices, updates, output, axis, reduction):
    """Cotangents of the data and of the updates of a scatter.

    none: an element keeps the last update in index order. add: dx = dy, du = dy[i]. max, min: split evenly among the
    data and the updates that tie. mul: the products of the other factors.
    """
    read = op.GatherElements(doutput, indices, axis=axis)
    if reduction == "add":
        return op.Identity(doutput), read
    if reduction in ("max", "min"):
        return _scattered_extremum(doutput, data, indices, updates, output, axis)
    if reduction == "mul":
        return _scattered_product(doutput, data, indices, updates, axis)
    ddata = op.ScatterElements(doutput, indices, zeros_like(updates), axis=axis)
    if not distinct(indices, axis, data.shape):
        read = read * op.CastLike(kept(data, indices, updates, axis), read)
    return ddata, read


def _scattered_extremum(doutput, data, indices, updates, output, axis):
    """du = dy[i]·[u = y[i]] / n[i], where n counts what ties."""
    own = op.CastLike(picked(data, output), data)
    theirs = op.CastLike(picked(updates, op.GatherElements(output, indices, axis=axis)), data)
    share = doutput / scatter(own, indices, theirs, axis, "add")
    return own * share, theirs * op.GatherElements(share, indices, axis=axis)


def _scattered_product(doutput, data, indices, updates, axis):
    """du = dy[i] · the other factors at i, right where factors are zero: P / u, P of the factors that are not zero.

    With one other zero factor the product is that factor, times P; with two it is theirs: see `product_of_zeros`.
    """
    zeros = [op.Equal(x, 0.0) for x in (data, updates)]
    own, theirs = (op.CastLike(zero, data) for zero in zeros)
    safe = [op.Where(zero, 1.0, x) for zero, x in zip(zeros, (data, updates), strict=True)]
    ddata = doutput * scatter(ones_like(data), indices, updates, axis, "mul")
    others = scatter(safe[0], indices, safe[1], axis, "mul")
    count = scatter(own, indices, theirs, axis, "add")
    blank = [own * data, theirs * updates]
    total = scatter(blank[0], indices, blank[1], axis, "add")
    squares = scatter(blank[0] * data, indices, blank[1] * updates, axis, "add")
    others, count, total, squares, read = (
        op.GatherElements(x, indices, axis=axis) for x in (others, count, total, squares, doutput)
    )
    left = product_of_zeros(count - theirs, total - blank[1], squares - blank[1] * updates)
    return ddata, read * (others / safe[1]) * left


def product_of_zeros(count, total, squares):
    """The product of `count` zero factors, from their sum and that of their squares: 1, the factor, a·b, or 0.

    All but the first are 0, but have the derivatives of the product: with a·b = ((a + b)² − a² − b²) / 2 those that two
    further derivatives ask for. With three factors and more they are 0 as far as that.
    """
    none, one, two = (op.CastLike(op.Equal(count, n), count) for n in (0.0, 1.0, 2.0))
    return none + one * total + two * (total * total - squares) * 0.5


def flattened(data, indices, batch_dims=0):
    """How an op on tuples of indices acts on the data as a matrix: rows that a tuple names × what lies behind.

    Returns the number of the row for each tuple, the shape of the matrix, and the shape [tuples, behind].
    """
    named = op.Shape(indices, start=-1) + batch_dims
    lead, behind = op.Slice(op.Shape(data), [0], named), op.Slice(op.Shape(data), named, [2**31 - 1])
    rows, columns = op.ReduceProd(lead, keepdims=1), op.ReduceProd(behind, keepdims=1)
    numbers = op.Reshape(op.Range(np.int64(0), op.Squeeze(rows, [0]), np.int64(1)), lead, allowzero=1)
    row = op.GatherND(numbers, indices, batch_dims=batch_dims)
    tuples = op.Reshape(op.Size(row), [1])
    return op.Reshape(row, tuples, allowzero=1), op.Concat(rows, columns, axis=0), op.Concat(tuples, columns, axis=0)


@traced("ddata")
def gather_nd_vjp__flat(doutput, data, indices):
    """dx = dy added up at the rows that were read, element by element."""
    return rows_added(doutput, data, indices)


@traced("ddata")
def gather_nd_vjp(doutput, data, indices, *, batch_dims: int = 0):
    """dx = dy added up at the indices; through a matrix, because ScatterND with repeated indices races."""
    row, table, spread = flattened(data, indices, batch_dims)
    index = op.Expand(op.Unsqueeze(row, [1]), spread)
    empty = op.Expand(op.CastLike(0.0, data), table)
    return reshape_like(scatter(empty, index, op.Reshape(doutput, spread, allowzero=1), 0, "add"), data)


@traced("ddata", "dupdates")
def scatter_nd_vjp(doutput, data, indices, updates, output, *, reduction: str = "none"):
    """dx = dy where nothing was written; du = dy[i]. Reductions: as `scattered`, through a matrix."""
    named = indices.shape[-1] if indices.shape else None
    if isinstance(named, int) and data.shape is not None and named > data.rank:
        raise GradientError(f"each of the indices names {named} dimensions of data, which has {data.rank}")
    if reduction == "add":
        return op.Identity(doutput), op.GatherND(doutput, indices)
    row, table, spread = flattened(data, indices)
    if reduction != "none":
        index = op.Expand(op.Unsqueeze(row, [1]), spread)
        flat = [
            op.Reshape(x, shape, allowzero=1)
            for x, shape in ((doutput, table), (data, table), (updates, spread), (output, table))
        ]
        results = scattered(flat[0], flat[1], index, flat[2], flat[3], 0, reduction)
        return tuple(reshape_like(x, like) for x, like in zip(results, (data, updates), strict=True))
    read = op.GatherND(doutput, indices)
    if not distinct(row, 0, (table.elements or (None,))[:1]):
        wins = op.CastLike(kept(op.Expand(np.int64(0), op.Slice(table, [0], [1])), row, row, 0), read)
        read = reshape_like(op.Reshape(read, spread, allowzero=1) * op.Unsqueeze(wins, [1]), updates)
    return op.ScatterND(doutput, indices, zeros_like(updates)), read


@traced("dX")
def unique_vjp(dY, X, indices, *, axis: int | None = None):
    """dX = dY at the first of the elements, or slices, that are equal."""
    if axis is None:
        flat = op.Reshape(X, [-1])
        return reshape_like(scatter(zeros_like(flat), indices, dY, 0, "add"), X)
    return gathered(dY, X, indices, axis)


@traced("dpast_cache", "dupdate")
def tensor_scatter_vjp(dpresent_cache, past_cache, update, write_indices, *, axis: int = -2, mode: str = "linear"):
    """du = dy where u was written, and dx = dy elsewhere; a batch entry b is written from write_indices[b] on."""
    steps = op.Range(np.int64(0), op.Squeeze(op.Gather(op.Shape(update), [axis]), [0]), np.int64(1))
    size = op.Shape(steps)
    place = op.Reshape(steps, op.Concat(size, ones_behind(axis, update), axis=0), allowzero=1)
    if write_indices is not None:
        place = op.Unsqueeze(write_indices, axes_from(1, update)) + place
    if mode == "circular":
        place = op.Mod(place, op.Gather(op.Shape(past_cache), [axis]))
    index = op.Expand(place, op.Shape(update))
    dpast = op.ScatterElements(dpresent_cache, index, zeros_like(update), axis=axis)
    return dpast, op.GatherElements(dpresent_cache, index, axis=axis)
