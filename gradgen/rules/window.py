"""Rules of operators that join, cut and repeat tensors along their axes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gradgen.rules.lang import op, traced
from gradgen.rules.library import reshape_like

FAR = 2**31 - 1  # from here on a bound of a Slice means "to the end"


def extent(x, axis):
    """The size of one axis as a one-element tensor; a constant where it is known."""
    return op.Shape(x, start=axis, end=axis + 1 if axis != -1 else None)


@traced("dinputs")
def concat_vjp(dconcat_result, inputs, *, axis):
    """Each input's cotangent is its stretch of dy along the axis."""
    if len(inputs) == 1:
        return [op.Identity(dconcat_result)]
    sizes = op.Concat(*[extent(x, axis) for x in inputs], axis=0)
    return op.Split(dconcat_result, sizes, axis=axis, _outputs=len(inputs))


@traced("dinput")
def split_vjp(doutputs, input, split, *, axis, num_outputs):
    """dx = the parts' cotangents joined along the axis, zeros for a part that has none."""
    sizes = _part_sizes(len(doutputs), input, split, axis, num_outputs)
    used = [k for k, ct in enumerate(doutputs) if ct is not None]
    first, last = 0, len(doutputs) - 1
    if all(isinstance(s, int) for s in sizes):
        first, last = used[0], used[-1]
    parts = [_zero_part(input, s, axis) if ct is None else ct for ct, s in zip(doutputs, sizes, strict=True)]
    joined = op.Concat(*parts[first : last + 1], axis=axis)
    around = [sum(sizes[:first]), sum(sizes[last + 1 :])] if (first, last) != (0, len(sizes) - 1) else [0, 0]
    return op.Pad(joined, np.asarray(around, np.int64), None, np.asarray([axis], np.int64)) if any(around) else joined


def _part_sizes(count, input, split, axis, num_outputs):
    """The size of each part of a Split along its axis: integers where all are known, else one-element tensors."""
    if split is not None:
        if split.const is not None:
            return [int(s) for s in split.const]
        return [op.Slice(split, np.asarray([k]), np.asarray([k + 1])) for k in range(count)]
    size = input.shape[axis] if input.shape is not None else None
    parts = num_outputs or count
    if isinstance(size, int):
        chunk = -(-size // parts)
        return [max(0, min(chunk, size - k * chunk)) for k in range(count)]
    whole = extent(input, axis)
    chunk = op.Div(whole + (parts - 1), parts)
    return [chunk] * (parts - 1) + [whole - chunk * (parts - 1)]


def _zero_part(input, size, axis):
    """Zeros of the shape of `input` with another size along one axis."""
    size = np.asarray([size], np.int64) if isinstance(size, int) else size
    after = [op.Shape(input, start=axis + 1)] if axis != -1 else []
    return op.Expand(op.CastLike(np.float32(0), input), op.Concat(op.Shape(input, end=axis), size, *after, axis=0))


def positions_of(like):
    """The flat position of every element of a tensor, in its shape: what a view of it carries back."""
    count = op.Reshape(op.Size(like), np.asarray([], np.int64))
    flat = op.Range(np.asarray(0, np.int64), count, np.asarray(1, np.int64))
    return op.Reshape(flat, op.Shape(like), allowzero=1)


def put_back(ct, positions, like, repeated=False):
    """A tensor of the shape of `like` that holds ct at the given flat positions, summed where one is `repeated`."""
    flat = np.asarray([-1], np.int64)
    # onnxruntime has no half-precision kernel that adds while it scatters.
    narrow = repeated and ct.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    source = op.Cast(ct, to=ir.DataType.FLOAT) if narrow else ct
    zeros = op.Expand(op.CastLike(np.float32(0), source), op.Reshape(op.Size(like), flat))
    reduction = "add" if repeated else "none"
    index = op.Reshape(positions, flat)
    placed = op.ScatterElements(zeros, index, op.Reshape(source, flat), axis=0, reduction=reduction)
    return reshape_like(op.CastLike(placed, ct), like)


@traced("ddata")
def slice_vjp(doutput, data, starts, ends, axes, steps):
    """dx = dy at the positions that were taken, zeros elsewhere."""
    static = _static_slices(data, starts, ends, axes, steps)
    if static is not None:
        return _unslice(doutput, data, static)
    if steps is None or (steps.const is not None and (steps.const == 1).all()):
        return _unslice_contiguous(doutput, data, starts, ends, axes)
    return put_back(doutput, op.Slice(positions_of(data), starts, ends, axes, steps), data)


def _static_slices(data, starts, ends, axes, steps):
    """(axis, first, count, step, size) of every axis that is really cut, or None where something is not known.

    An axis that is reversed as a whole is (axis, 0, None, -1, None) whatever its size.
    """
    if data.shape is None or any(v is not None and v.const is None for v in (starts, ends, axes, steps)):
        return None
    rank = len(data.shape)
    slices: list[tuple[int, int, int | None, int, int | None]] = []
    for k, (start, end) in enumerate(zip(starts.const.tolist(), ends.const.tolist(), strict=True)):
        axis = k if axes is None else int(axes.const[k]) % rank
        step = 1 if steps is None else int(steps.const[k])
        size = data.shape[axis]
        if step == 1 and start == 0 and end >= FAR:
            continue
        if step == -1 and (start == -1 or start >= FAR) and end <= -FAR:
            slices.append((axis, 0, None, -1, None))
            continue
        if not isinstance(size, int):
            return None
        # ONNX takes a start in front of the first element for the first, Python only where the step is positive.
        taken = range(size)[slice(max(start, -size), end, step)]
        if taken != range(size):
            slices.append((axis, taken.start, len(taken), step, size))
    return slices


def _unslice(ct, data, slices):
    """The cotangent of a tensor of which known stretches were taken: reversed, spread by the step, then padded."""
    backward = [s[0] for s in slices if s[3] < 0]
    if backward:
        ct = op.Slice(ct, [-1] * len(backward), [-FAR] * len(backward), backward, [-1] * len(backward))
    cut = [(a, f + (n - 1) * min(s, 0) if n else 0, n, abs(s), d) for a, f, n, s, d in slices if n is not None]
    spread = {a: (n, s) for a, _, n, s, _ in cut if s > 1 and n > 1}
    if spread:
        ct = _spread(ct, data, cut, spread)
    before = [f for _, f, _, _, _ in cut]
    after = [d - f - (spread[a][0] * spread[a][1] if a in spread else n) for a, f, n, _, d in cut]
    if not any(before) and not any(after):
        return op.Identity(ct)
    return op.Pad(ct, np.asarray(before + after, np.int64), None, np.asarray([c[0] for c in cut], np.int64))


def _spread(ct, data, cut, spread):
    """ct with s - 1 zeros behind each of its n elements along each axis of `spread`."""
    sizes = {axis: np.asarray([n], np.int64) for axis, _, n, _, _ in cut}
    # Each spread axis gets an axis of size 1 behind it, which is padded to the step and merged.
    behind = [axis + 1 + k for k, axis in enumerate(sorted(spread))]
    gaps = [0] * len(behind) + [spread[axis][1] - 1 for axis in sorted(spread)]
    padded = op.Pad(op.Unsqueeze(ct, behind), gaps, None, behind)
    merged = [sizes.get(a, op.Shape(data, start=a, end=a + 1)) for a in range(data.rank)]
    for axis, (n, step) in spread.items():
        merged[axis] = np.asarray([n * step], np.int64)
    return op.Reshape(padded, op.Concat(*merged, axis=0), allowzero=1)


def _unslice_contiguous(ct, data, starts, ends, axes):
    """The cotangent of a tensor of which one stretch per axis was taken, by bounds known at run time: one Pad."""
    starts, ends = op.Cast(starts, to=ir.DataType.INT64), op.Cast(ends, to=ir.DataType.INT64)
    if axes is None:
        axes = op.Range(np.asarray(0, np.int64), op.Size(starts), np.asarray(1, np.int64))
    single = axes.const is not None and axes.const.size == 1
    sizes = extent(data, int(axes.const.item())) if single else op.Gather(op.Shape(data), axes)
    first, past = _clamp(starts, sizes), _clamp(ends, sizes)
    behind = sizes - (past if past is sizes or first.const is not None else op.Max(first, past))
    return op.Pad(ct, op.Concat(first, behind, axis=0), None, axes)


def _clamp(bound, size):
    """A bound of a Slice as a position between 0 and the size of its axis."""
    if bound.const is not None and (bound.const >= FAR).all():
        return size
    if bound.const is not None and (bound.const == 0).all():
        return bound
    if bound.const is not None and (bound.const < 0).all():
        return op.Max(size + bound, 0)
    if bound.const is None or (bound.const < 0).any():
        bound = op.Max(op.Where(op.Less(bound, 0), bound + size, bound), 0)
    return op.Min(bound, size)


@traced("dinput")
def tile_vjp(doutput, input, repeats):
    """dx = Σ dy over the copies."""
    if repeats.const is None or input.shape is None:
        # One axis for the copies in front of each axis: [r0, d0, r1, d1, …].
        pairs = op.Concat(op.Unsqueeze(repeats, [1]), op.Unsqueeze(op.Shape(input), [1]), axis=1)
        apart = op.Reshape(doutput, op.Reshape(pairs, [-1]), allowzero=1)
        copies = op.Range(np.asarray(0, np.int64), op.Size(pairs), np.asarray(2, np.int64))
        return op.ReduceSum(apart, copies, keepdims=0)
    counts = [int(r) for r in repeats.const]
    tiled = [a for a, r in enumerate(counts) if r != 1]
    if not tiled:
        return op.Identity(doutput)
    if all(input.shape[a] == 1 for a in tiled):
        return op.ReduceSum(doutput, tiled, keepdims=1)
    dims = []
    for axis, count in enumerate(counts):
        dims += [np.asarray([count], np.int64)] * (count != 1) + [op.Shape(input, start=axis, end=axis + 1)]
    copies = [axis + k for k, axis in enumerate(tiled)]
    return op.ReduceSum(op.Reshape(doutput, op.Concat(*dims, axis=0), allowzero=1), copies, keepdims=0)


@traced("dinput")
def compress_vjp(doutput, input, condition, *, axis):
    """dx = dy at the positions that were kept, zeros elsewhere."""
    return put_back(doutput, op.Compress(positions_of(input), condition, axis=axis), input)
