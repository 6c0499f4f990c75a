"""Rules of padding: a constant border, and borders that repeat the content."""

from __future__ import annotations

import functools

import numpy as np

from gradgen.rules.lang import op, traced
from gradgen.rules.library import expand_like, reshape_like, zeros_like
from gradgen.rules.window import FAR, positions_of, put_back

MOST_RUNS = 8


@traced("ddata", "dconstant_value")
def pad_vjp(doutput, data, pads, constant_value, axes, *, mode):
    """dx = dy without the border (constant), or with it added where it was copied from; dvalue = Σ of the border."""
    known = _known_pads(data, pads, axes)
    if mode in (None, "constant"):
        border = None
        if constant_value is not None:
            # Summed under a mask: the difference of two sums would cancel.
            zero, one = op.CastLike(np.float32(0), doutput), op.CastLike(np.float32(1), doutput)
            outside = op.Pad(expand_like(zero, data), pads, one, axes)
            border = reshape_like(op.ReduceSum(doutput * outside, keepdims=0), constant_value)
        return _without_border(doutput, known, pads, axes), border
    ddata = None if known is None else _fold_back(doutput, data, known, mode)
    if ddata is None:
        source = op.Pad(positions_of(data), pads, None, axes, mode=mode)
        ddata = put_back(doutput, source, data, repeated=True)
    return ddata, None if constant_value is None else zeros_like(constant_value)


def _known_pads(data, pads, axes):
    """{axis: (before, after)} of the axes that are padded or cropped, or None where that is not known."""
    if data.shape is None or pads.const is None or (axes is not None and axes.const is None):
        return None
    rank = len(data.shape)
    padded = range(rank) if axes is None else [int(a) % rank for a in axes.const]
    befores, afters = pads.const[: len(padded)].tolist(), pads.const[len(padded) :].tolist()
    return {a: (b, e) for a, b, e in zip(padded, befores, afters, strict=True) if b or e}


def _without_border(ct, known, pads, axes):
    """ct without what was added, and with zeros where something was cut."""
    if known is None:
        return op.Pad(ct, op.Neg(pads), None, axes)
    if not known:
        return op.Identity(ct)
    befores, afters = [b for b, _ in known.values()], [e for _, e in known.values()]
    if min(befores + afters) < 0:
        return op.Pad(ct, [-p for p in befores + afters], None, list(known))
    return op.Slice(ct, befores, [-e if e else FAR for e in afters], list(known))


def _fold_back(ct, data, known, mode):
    """ct folded onto the elements that its border was copied from, or None where sizes are unknown."""
    if not all(isinstance(data.shape[a], int) for a in known):
        return None
    plans = [(axis, data.shape[axis], _runs(data.shape[axis], sides, mode)) for axis, sides in known.items()]
    if any(runs is None for _, _, runs in plans):
        return None
    for axis, size, runs in plans:
        ct = functools.reduce(lambda a, b: a + b, [_run_back(ct, axis, size, run) for run in runs])
    return op.Identity(ct)


def _runs(size, sides, mode):
    """(position, length, source, step) of the stretches of a padded axis that were copied from adjoining elements.

    Step 0 repeats one element. None where there are too many stretches, or where the runtime is the one to tell.
    """
    # As the runtime does it, negative pads cut first, and what is left is repeated.
    kept = np.arange(max(0, -sides[0]), size - max(0, -sides[1]))
    before, after = max(0, sides[0]), max(0, sides[1])
    if not kept.size or (mode == "reflect" and max(before, after) >= kept.size):
        return None
    source = np.pad(kept, (before, after), mode=mode)
    runs = [(before, kept.size, int(kept[0]), 1)]
    for first, last in ((0, before), (before + kept.size, source.size)):
        while first < last:
            step = int(source[first + 1] - source[first]) if first + 1 < last else 1
            step = step if step in (-1, 0, 1) else 1
            length = 1
            while first + length < last and source[first + length] - source[first + length - 1] == step:
                length += 1
            runs.append((first, length, int(source[first]), step))
            first += length
    return runs if len(runs) <= MOST_RUNS else None


def _run_back(ct, axis, size, run):
    """One stretch of ct at the elements that it was copied from, zeros at the others."""
    position, length, source, step = run
    if step < 0:
        start, end = position + length - 1, position - 1 if position else -FAR
        piece, low = op.Slice(ct, [start], [end], [axis], [-1]), source - length + 1
    else:
        piece, low = op.Slice(ct, [position], [position + length], [axis]), source
    if step == 0:
        piece, length = op.ReduceSum(piece, [axis], keepdims=1), 1
    above = size - low - length
    return op.Pad(piece, [low, above], None, [axis]) if low or above else piece
