# Finite differences: what a gradient model is compared with, and a verdict for each value that it differentiates.
"""Central differences with Richardson extrapolation, in float64 where the model can run in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
import onnx

from gradgen.comparison import Arrays, Function, GradientCheck, Run, Side, judge, prepare
from gradgen.engine.registry import Registry
from gradgen.evaluate import Evaluator
from gradgen.promote import cut_values, intermediate_values, promote_initializers
from gradgen.request import roles_of

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
    wrt = _default_wrt(primal, gradient) if wrt is None else wrt
    channels = {**_default_channels(primal, gradient), **(cotangent_inputs or {})}

    def seeds(weights: Arrays, values: Arrays) -> Arrays:
        return {channels[n]: np.asarray(v) for n, v in weights.items() if n in channels}

    def side(run: Run, name: str, direction: np.ndarray) -> Side:
        found = np.asarray(run.results[wrt[name]], np.float64)
        problem = "" if found.shape == direction.shape else f"the gradient has shape {list(found.shape)}"
        return Side(found, direction, None if run.runtime is None else run.runtime[wrt[name]], problem)

    return compare(
        primal, gradient, feeds, list(wrt), cotangents, set(channels), seeds, side, rtol=rtol, seed=seed, each=each,
        registry=registry,
    )  # fmt: skip


def compare(
    primal: onnx.ModelProto,
    derivative: onnx.ModelProto,
    feeds: Arrays,
    wrt: Sequence[str],
    cotangents: Arrays | None,
    shown: AbstractSet[str],
    more: Callable[[Arrays, Arrays], Arrays],
    side: Callable[[Run, str, np.ndarray], Side],
    *,
    rtol: float,
    seed: int,
    each: Callable[[GradientCheck], None] | None,
    registry: Registry | None,
    noun: str = "gradient",
) -> list[GradientCheck]:
    """Compare a derivative model with finite differences of its primal, each value in one random direction.

    Args:
        primal, feeds, cotangents, rtol, seed, each, registry: as for `check_gradients`.
        derivative: the model of gradients or tangents.
        wrt: names of inputs, initializers or intermediate values.
        shown: the outputs for which cotangents are drawn where none are given.
        more: what `derivative` is fed beside the primal's inputs, by cotangents, and values by name: the inputs, and
            what `wrt` names.
        side: what `derivative` says in a direction of a value.
        noun: what its results are called.

    Returns:
        One record for each value, in the order of `wrt`.

    Raises:
        ValueError: as `check_gradients`.
    """
    # Not the stream of the inputs of gradgen.feeds: along the point itself an op may not depend on the size of its input.
    rng = np.random.default_rng([seed, 1])
    intermediates = [n for n in wrt if n not in _named_values(primal)]
    stored = promote_initializers(primal, [n for n in wrt if n not in intermediates])
    point = {**_stored_values(stored, wrt), **{k: np.asarray(v) for k, v in feeds.items()}}
    if cotangents is None:
        outputs = Evaluator(stored)(point)
        drawn = {n: outputs[n] for n in outputs if n in shown}
        cotangents = {n: rng.standard_normal(y.shape).astype(y.dtype) for n, y in drawn.items()}
    if not cotangents:
        raise ValueError("give the cotangents: the gradient model has no input for any")
    unknown = sorted(set(cotangents) - {value.name for value in primal.graph.output})
    if unknown:
        raise ValueError(f"no output {unknown[0]!r} in graph {primal.graph.name!r}")
    values = intermediate_values(stored, intermediates, point)
    fed = {**point, **more(cotangents, {**point, **values})}
    run = prepare(stored, derivative, point, fed, cotangents, registry, noun)
    records: dict[str, GradientCheck] = {}

    def check(run: Run, name: str) -> None:
        direction = _direction(run.point[name], rng)
        steps = STEPS[run.precision]
        found = directional(run.fn, run.point, {name: direction}, run.cotangents, steps=steps, base=run.base)
        records[name] = judge(run, name, found, side(run, name, direction), rtol, noun)
        if each is not None:
            each(records[name])

    for name in [n for n in wrt if n not in intermediates]:
        check(run, name)
    for name in intermediates:  # each cut alone: a cut value hides all that lies before it
        before = cut_values(stored, [name])
        check(prepare(before, derivative, {**point, name: values[name]}, fed, cotangents, registry, noun), name)
    return [records[name] for name in wrt]


def _direction(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random direction, as large as the value."""
    scale = float(np.sqrt(np.mean(value.astype(np.float64) ** 2))) if value.size else 1.0
    return rng.standard_normal(value.shape) * (scale if np.isfinite(scale) and scale > 0 else 1.0)


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


def _stored_values(model: onnx.ModelProto, names: Sequence[str]) -> dict[str, np.ndarray]:
    return {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer if t.name in names}
