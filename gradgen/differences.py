# Finite differences: what a gradient model is compared with, and a verdict for each value that it differentiates.
"""Central differences with Richardson extrapolation, in float64 where the model can run in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx

from gradgen.engine.registry import Registry
from gradgen.evaluate import Evaluator
from gradgen.promote import cut_values, intermediate_values, promote_initializers
from gradgen.request import roles_of
from gradgen.widening import double, narrow_note, widen

Arrays = Mapping[str, np.ndarray]
Function = Callable[[Arrays], Arrays]
Verdict = Literal["ok", "wrong", "kink", "unresolved"]

# Step sizes, from large to small, relative to the direction. A kink that lies beside the point leaves the interval when
# the steps shrink, and rounding (eps / step) stays below 1e-9 in the one list, 1e-3 in the other.
STEPS = {"float64": [2.0**-k for k in range(7, 23, 2)], "float32": [2.0**-k for k in range(3, 11)]}


@dataclass(frozen=True)
class Quotient:
    """A directional derivative, measured.

    Attributes:
        value: the derivative of the contraction of the outputs with the cotangents.
        error: an estimate of its error, rounding included.
        step: the smallest step that it rests on.
        kink: True where the one-sided quotients keep apart as the step shrinks: there is no derivative.
        jump: by how much they differ at the smallest step.
        finite: False where the outputs are not finite at the point itself, or at every step on one side of it (or
            change their shape there).
    """

    value: float
    error: float
    step: float
    kink: bool
    jump: float
    finite: bool


@dataclass(frozen=True)
class GradientCheck:
    """One value that was differentiated, and how its gradient compares with finite differences.

    Attributes:
        name, shape: the value's.
        norm: the Euclidean norm of its gradient.
        numeric, analytic: the two derivatives in the one random direction.
        error: their difference relative to the larger of them, or to a tenth of what is typical of a direction.
        verdict: "ok", "wrong", "kink" (the function has no derivative there) or "unresolved" (differences in float32
            never say "wrong").
        reason: what the verdict rests on where it is not "ok", and what else was noticed.
        precision: "float64" or "float32", of the differences.
        runtime_error: the error of the gradient that onnxruntime computes in the model's own precision; NaN where it
            does not run the gradient model.
        exact: whether the gradient that `error` speaks of was computed in float64.
        note: the part of `reason` that says why something ran in float32; the same for all values compared in one run.
    """

    name: str
    shape: tuple[int, ...]
    norm: float
    numeric: float
    analytic: float
    error: float
    verdict: Verdict
    reason: str
    precision: str
    runtime_error: float = np.nan
    exact: bool = True
    note: str = ""


def directional(
    fn: Function,
    feeds: Arrays,
    direction: Arrays,
    cotangents: Arrays,
    *,
    steps: Sequence[float] = STEPS["float64"],
    base: Arrays | None = None,
) -> Quotient:
    """The derivative of <cotangents, fn(feeds)> at `feeds` along `direction`.

    Args:
        fn: from arrays by name to arrays by name.
        feeds: the point.
        direction: the names that move, each with an array of its shape.
        cotangents: weights for some of the outputs.
        steps: factors of the direction, falling, in a constant ratio.
        base: `fn(feeds)`, where the caller has it already.

    Raises:
        KeyError: a name of `direction` is not fed, or one of `cotangents` is no output.
    """
    origin = fn(feeds) if base is None else base
    weights = {name: np.asarray(weight, np.float64) for name, weight in cotangents.items()}
    start = {name: np.asarray(origin[name], np.float64) for name in weights}
    if not all(np.isfinite(y[weights[name] != 0]).all() for name, y in start.items()):
        return Quotient(np.nan, np.inf, steps[0], False, np.nan, False)
    size = sum(float(np.abs(weights[name] * np.where(weights[name] != 0, y, 0)).sum()) for name, y in start.items())
    dtype = next((origin[name].dtype for name in weights), np.dtype(np.float64))
    rounding = 4 * float(np.finfo(dtype).eps) * size

    def moved(factor: float) -> float:
        point = dict(feeds)
        for name, array in direction.items():
            point[name] = (feeds[name] + factor * array).astype(feeds[name].dtype)
        after = fn(point)
        if any(after[n].shape != start[n].shape for n in weights):
            return np.nan
        return sum(float((w * np.where(w != 0, after[n] - start[n], 0)).sum()) for n, w in weights.items())

    ratio = (steps[0] / steps[1]) ** 2
    best = Quotient(np.nan, np.inf, steps[0], False, np.nan, False)
    row: list[float] = []
    jumps: list[tuple[float, float]] = []
    for step in steps:
        ahead, behind = moved(step) / step, -moved(-step) / step
        if not (np.isfinite(ahead) and np.isfinite(behind)):
            row = []
            continue
        jumps.append((abs(ahead - behind), rounding / step))
        previous, row = row, [(ahead + behind) / 2]
        for order, coarse in enumerate(previous, start=1):
            row.append((ratio**order * row[-1] - coarse) / (ratio**order - 1))
            error = max(abs(row[-1] - row[-2]), abs(row[-1] - coarse)) + rounding / step
            if error < best.error:
                best = Quotient(row[-1], error, step, False, jumps[-1][0], True)
        if len(row) >= 3 and best.error <= max(1e-10 * abs(best.value), 2 * rounding / step):
            break
    return _with_kink(best, jumps)


def _with_kink(found: Quotient, jumps: list[tuple[float, float]]) -> Quotient:
    """A smooth function's jump shrinks with the step; one that stays is a kink at the point."""
    if len(jumps) < 2:
        return found
    (before, _), (last, noise) = jumps[-2:]
    kink = last > 0.7 * before and last > 20 * noise + 1e-9 * abs(found.value)
    return Quotient(found.value, found.error, found.step, kink, last, found.finite)


def jacobian_fd(
    fn: Function, feeds: Arrays, name: str, cotangents: Arrays, *, steps: Sequence[float] = STEPS["float64"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The gradient of <cotangents, fn(feeds)> with respect to `feeds[name]`, one element at a time.

    Returns:
        Three arrays of the value's shape: the gradient, its error estimates (float64), and where there is a kink
        (bool). An element whose difference is not finite is NaN.
    """
    base, value = fn(feeds), feeds[name]
    gradient = np.full(value.shape, np.nan)
    errors = np.full(value.shape, np.inf)
    kinks = np.zeros(value.shape, bool)
    for index in np.ndindex(value.shape):
        unit = np.zeros(value.shape)
        unit[index] = max(abs(float(value[index])), 0.1)
        found = directional(fn, feeds, {name: unit}, cotangents, steps=steps, base=base)
        gradient[index], errors[index] = found.value / unit[index], found.error / unit[index]
        kinks[index] = found.kink
    return gradient, errors, kinks


def check_gradients(
    primal: onnx.ModelProto,
    gradient: onnx.ModelProto,
    feeds: Arrays,
    cotangents: Arrays | None = None,
    wrt: Mapping[str, str] | None = None,
    *,
    cotangent_inputs: Mapping[str, str] | None = None,
    rtol: float = 1e-5,
    seed: int = 0,
    each: Callable[[GradientCheck], None] | None = None,
    registry: Registry | None = None,
) -> list[GradientCheck]:
    """Compare a gradient model with finite differences of its primal, each value in one random direction.

    Args:
        primal: the model that was differentiated.
        gradient: inputs of the primal and cotangents to gradients.
        feeds: the primal's inputs, in its dtypes.
        cotangents: an array for each differentiated output; by default a seeded random one for each input of
            `gradient` that takes a cotangent. Outputs that `gradient` seeds itself are given as ones.
        wrt: from the name of an input, initializer or intermediate value of `primal` to the output of `gradient` that
            holds its gradient; by default what the metadata, or names `grad_<name>`, say.
        cotangent_inputs: from an output of `primal` to the input of `gradient` that takes its cotangent, where the
            metadata and the name do not say it.
        rtol: what error is "ok" where both run in float64; in float32 it is at least 1e-2.
        seed: of cotangents and directions.
        each: is called with each record when it is made.
        registry: where forward bodies come from, for ops that no engine has in float64.

    Returns:
        One record for each value, in the order of `wrt`.

    Raises:
        ValueError: no cotangents are given and `gradient` takes none, or a name is unknown.
    """
    # Not the stream of the inputs of gradgen.feeds: along the point itself an op may not depend on the size of its input.
    rng = np.random.default_rng([seed, 1])
    wrt = _default_wrt(primal, gradient) if wrt is None else wrt
    intermediates = [n for n in wrt if n not in _named_values(primal)]
    stored = promote_initializers(primal, [n for n in wrt if n not in intermediates])
    point = {**_stored_values(stored, wrt), **{k: np.asarray(v) for k, v in feeds.items()}}
    channels = {**_default_channels(primal, gradient), **(cotangent_inputs or {})}
    if cotangents is None:
        outputs = Evaluator(stored)(point)
        shown = {n: outputs[n] for n in outputs if n in channels}
        cotangents = {n: rng.standard_normal(y.shape).astype(y.dtype) for n, y in shown.items()}
    if not cotangents:
        raise ValueError("give the cotangents: the gradient model has no input for any")
    unknown = sorted(set(cotangents) - {value.name for value in primal.graph.output})
    if unknown:
        raise ValueError(f"no output {unknown[0]!r} in graph {primal.graph.name!r}")
    seeds = {channels[n]: np.asarray(v) for n, v in cotangents.items() if n in channels}
    run = _prepare(stored, gradient, point, {**point, **seeds}, cotangents, wrt, registry)
    records: dict[str, GradientCheck] = {}

    def check(run: _Run, name: str) -> None:
        records[name] = _check_one(run, name, wrt[name], rng, rtol)
        if each is not None:
            each(records[name])

    for name in [n for n in wrt if n not in intermediates]:
        check(run, name)
    values = intermediate_values(stored, intermediates, point)
    for name in intermediates:  # each cut alone: a cut value hides all that lies before it
        fed = {**point, name: values[name]}
        before = cut_values(stored, [name])
        check(_prepare(before, gradient, fed, {**point, **seeds}, cotangents, {name: wrt[name]}, registry), name)
    return [records[name] for name in wrt]


@dataclass
class _Run:
    """What the comparisons of one model share: the primal to move, its point, and the gradients there."""

    fn: Function
    point: dict[str, np.ndarray]
    base: Arrays
    cotangents: Arrays
    gradients: Arrays
    runtime: Arrays | None
    precision: str
    exact: bool
    note: str


def _prepare(
    primal: onnx.ModelProto,
    gradient: onnx.ModelProto,
    point: Arrays,
    feeds: Arrays,
    cotangents: Arrays,
    wrt: Mapping[str, str],
    registry: Registry | None,
) -> _Run:
    """Float64 where a double copy runs and reproduces the forward pass, else float32."""
    narrow = Evaluator(primal)
    moved = {k: v for k, v in point.items() if k in narrow.input_names}
    outputs = narrow(moved)
    native = Evaluator(gradient)
    own = native({k: v for k, v in feeds.items() if k in native.input_names})
    runtime: Arrays | None = {n: own[n] for n in wrt.values()} if native.engine == "onnxruntime" else None
    try:
        wide = double(primal, registry)
        wide_point = {k: widen(v) for k, v in moved.items()}
        base = wide(wide_point)
        gap = max(_gap(base[n], outputs[n]) for n in cotangents)
        if gap > 1e-2:
            raise ValueError(f"a float64 copy differs from the forward pass by {gap:.1e}")
    except Exception as error:  # whatever an engine raises, float32 is what remains
        note = narrow_note("differences", error)
        return _Run(narrow, moved, outputs, cotangents, own, runtime, "float32", False, note)
    weights = {n: widen(np.asarray(v)) for n, v in cotangents.items()}
    try:
        copy = double(gradient, registry)
        exact: Arrays = copy({k: widen(v) for k, v in feeds.items() if k in copy.input_names})
    except Exception as error:
        note = narrow_note("gradient", error)
        return _Run(wide, wide_point, base, weights, own, runtime, "float64", False, note)
    return _Run(wide, wide_point, base, weights, exact, runtime, "float64", True, "")


def _check_one(run: _Run, name: str, output: str, rng: np.random.Generator, rtol: float) -> GradientCheck:
    value = run.point[name]
    wide = value.astype(np.float64)
    scale = float(np.sqrt(np.mean(wide**2))) if value.size else 1.0
    direction = rng.standard_normal(value.shape) * (scale if np.isfinite(scale) and scale > 0 else 1.0)
    gradient = np.asarray(run.gradients[output], np.float64)
    norm = float(np.linalg.norm(gradient))
    own_error = np.nan

    def record(numeric: float, analytic: float, error: float, verdict: Verdict, reason: str) -> GradientCheck:
        reason = "; ".join(part for part in (reason, run.note) if part)
        measured = (name, value.shape, norm, numeric, analytic, error)
        return GradientCheck(*measured, verdict, reason, run.precision, own_error, run.exact, run.note)

    if gradient.shape != value.shape:
        return record(np.nan, np.nan, np.inf, "wrong", f"the gradient has shape {list(gradient.shape)}")
    with np.errstate(invalid="ignore"):
        analytic = float((gradient * direction).sum())
    found = directional(run.fn, run.point, {name: direction}, run.cotangents, steps=STEPS[run.precision], base=run.base)
    if not found.finite:
        return record(found.value, analytic, np.inf, "unresolved", "the primal is not finite at or around the point")
    if not np.isfinite(gradient).all():
        return record(found.value, analytic, np.inf, "wrong", "the gradient is not finite where the primal is")
    gap = abs(found.value - analytic)
    typical = norm * float(np.linalg.norm(direction)) / np.sqrt(max(value.size, 1))
    scale = max(abs(found.value), abs(analytic), 0.1 * typical, np.finfo(np.float64).tiny)
    error = gap / scale
    limit = rtol if run.exact else max(rtol, 1e-2)
    vanishing = gap <= found.error and max(abs(found.value), typical) <= 10 * found.error
    if run.runtime is not None:
        with np.errstate(invalid="ignore"):
            own_gap = abs(found.value - float((np.asarray(run.runtime[output], np.float64) * direction).sum()))
        # Where the derivative is zero, rounding is measured by the size of what is differentiated.
        size = sum(float(np.abs(w * np.where(w != 0, run.base[n], 0)).sum()) for n, w in run.cotangents.items())
        own_error = own_gap / (max(scale, size) if vanishing else scale)
    if error <= limit or vanishing:
        reason = "zero to within rounding" if vanishing else ""
        error = 0.0 if vanishing else error
        if run.exact and run.runtime is not None and not np.isfinite(run.runtime[output]).all():
            reason = "the gradient is not finite in the model's own precision, and is in float64"
            return record(found.value, analytic, error, "wrong", reason)
        if found.kink:
            reason = f"at a kink: one-sided quotients differ by {found.jump:.2e}"
        elif run.exact and run.runtime is not None and not vanishing:
            drift = _gap(np.asarray(run.runtime[output], np.float64), gradient)
            if drift > 1e-2:
                reason = f"the gradient in the model's own precision differs from float64 by {drift:.1e}"
        return record(found.value, analytic, error, "ok", reason)
    if found.kink and gap <= 10 * found.jump:
        return record(found.value, analytic, error, "kink", f"one-sided quotients differ by {found.jump:.2e}")
    if run.precision == "float32":  # a step across kinks may mislead by more than any estimate says
        reason = f"differs by {gap:.2e}, and differences in float32 do not show that it is wrong"
        return record(found.value, analytic, error, "unresolved", reason)
    if found.error > 0.1 * gap:
        return record(found.value, analytic, error, "unresolved", f"differences are only good to {found.error:.1e}")
    return record(
        found.value, analytic, error, "wrong", f"differs by {gap:.2e}, differences are good to {found.error:.1e}"
    )


def _gap(one: np.ndarray, other: np.ndarray) -> float:
    if not np.issubdtype(np.asarray(other).dtype, np.floating):
        return 0.0
    both = np.isfinite(one) & np.isfinite(other)
    if not both.any():
        return 0.0
    apart = np.linalg.norm(one[both].astype(np.float64) - other[both])
    return float(apart / max(np.linalg.norm(np.asarray(other, np.float64)[both]), np.finfo(np.float32).tiny))


def _named_values(model: onnx.ModelProto) -> set[str]:
    return {v.name for v in model.graph.input} | {t.name for t in model.graph.initializer}


def _sources(model: onnx.ModelProto) -> Callable[[str], str]:
    """From a public name of a gradient model to the value that it belongs to: by its metadata, else by its prefix."""
    roles = roles_of(model)
    return lambda name: roles[name]["source"] if name in roles else re.sub(r"^grad\d*_", "", name)


def _default_wrt(primal: onnx.ModelProto, gradient: onnx.ModelProto) -> dict[str, str]:
    """The outputs that the gradient model has on top of the primal's, by the value that each belongs to."""
    source = _sources(gradient)
    known = _named_values(primal) | {output for node in primal.graph.node for output in node.output}
    own = {value.name for value in primal.graph.output}
    names = [value.name for value in gradient.graph.output if value.name not in own]
    return {source(name): name for name in names if source(name) in known}


def _default_channels(primal: onnx.ModelProto, gradient: onnx.ModelProto) -> dict[str, str]:
    """The inputs that the gradient model has on top of the primal's, by the output that each is the cotangent of."""
    source = _sources(gradient)
    own = {value.name for value in primal.graph.input}
    outputs = {value.name for value in primal.graph.output}
    # A cotangent is of floats; the index that chooses an element is not.
    index = onnx.TensorProto.INT64
    added = [value for value in gradient.graph.input if value.name not in own]
    names = [value.name for value in added if value.type.tensor_type.elem_type != index]
    return {source(name): name for name in names if source(name) in outputs}


def _stored_values(model: onnx.ModelProto, names: Mapping[str, str]) -> dict[str, np.ndarray]:
    return {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer if t.name in names}
