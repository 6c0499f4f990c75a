"""Compares the gradients that a derivative model gives with difference quotients of its primal, for real_models.py."""

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from gradgen.evaluate import evaluator, to_float64

Feeds = dict[str, np.ndarray]
STEPS = {"float64": (1e-5, 1e-6, 1e-7), "float32": (1e-1, 3e-2, 1e-2, 3e-3)}


@dataclass
class Check:
    """The largest error over all directions, where it was, and the precision of the difference quotients."""

    precision: str
    directions: int
    worst_error: float
    worst_at: str


def weights_as_inputs(model: onnx.ModelProto, names: list[str]) -> tuple[onnx.ModelProto, Feeds]:
    """A copy of `model` that takes the named initializers as inputs, and their values."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    tensors = {t.name: t for t in model.graph.initializer if t.name in set(names)}
    kept = [t for t in model.graph.initializer if t.name not in tensors]
    del copy.graph.initializer[:]
    copy.graph.initializer.extend(kept)
    already = {v.name for v in copy.graph.input}
    for name, tensor in tensors.items():
        if name not in already:
            copy.graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))
    return copy, {name: numpy_helper.to_array(tensor) for name, tensor in tensors.items()}


def widened(feeds: Feeds) -> Feeds:
    return {k: v.astype(np.float64) if v.dtype.kind == "f" else v for k, v in feeds.items()}


def compare(
    primal: onnx.ModelProto, derivative: onnx.ModelProto, inputs: Feeds, wrt: list[str], checked: list[str], each: int
) -> Check:
    """Run `derivative` in its own precision on onnxruntime and compare it with the primal along random directions.

    Args:
        primal: the model, its weights as initializers.
        derivative: what gradgen.vjp gave for it, wrt=`wrt`, of=all outputs.
        inputs: the primal's inputs.
        checked: the members of `wrt` to move: all at once, and `each` of them, spread evenly, one by one.
    """
    rng = np.random.default_rng(1)
    function, weights = weights_as_inputs(primal, wrt)
    outputs = [output.name for output in primal.graph.output]
    values = evaluator(primal, strict=True)(inputs)
    cotangents = {name: rng.standard_normal(values[name].shape).astype(values[name].dtype) for name in outputs}

    reverse = evaluator(derivative, strict=True)
    added = reverse.input_names[len(reverse.input_names) - len(outputs) :]
    results = reverse({**inputs, **dict(zip(added, cotangents.values(), strict=True))})
    gradients = dict(zip(wrt, list(results.values())[len(outputs) :], strict=True))
    for name in outputs:
        scale = np.abs(values[name]).max()
        if not np.allclose(results[name], values[name], rtol=1e-4, atol=1e-5 * scale):
            raise AssertionError(f"the derivative model changes the primal output {name!r}")

    double = evaluator(to_float64(function))
    point = {**inputs, **weights}
    wide = double(widened(point))
    faithful = all(np.allclose(wide[n], values[n], rtol=1e-3, atol=1e-3 * np.abs(values[n]).max()) for n in outputs)
    precision = "float64" if faithful else "float32"
    run = double if faithful else evaluator(function, strict=True)
    dtype = np.dtype(precision)

    moves = {}
    for name in checked:
        size = np.sqrt(np.mean(np.square(point[name], dtype=np.float64))) if point[name].size else 0.0
        moves[name] = rng.standard_normal(point[name].shape) * (size or 1e-2)
    base = {k: v.astype(dtype) if v.dtype.kind == "f" else v for k, v in point.items()}

    def quotient(names: list[str], step: float) -> float:
        ends = []
        for sign in (1, -1):
            moved = run({**base, **{n: (base[n] + sign * step * moves[n]).astype(dtype) for n in names}})
            ends.append(sum(np.vdot(cotangents[n].astype(np.float64), moved[n].astype(np.float64)) for n in outputs))
        return float(ends[0] - ends[1]) / (2 * step)

    def spread(names: list[str]) -> float:
        """The size that the derivative along such a direction has on average."""
        return float(np.sqrt(sum(np.sum(np.square(gradients[n] * moves[n], dtype=np.float64)) for n in names)))

    floor = 1e-5 * spread(checked)
    chosen = [checked[i] for i in np.unique(np.linspace(0, len(checked) - 1, min(each, len(checked))).astype(int))]
    worst, where = -1.0, ""
    groups = [checked, *([name] for name in chosen)]
    for names in groups:
        analytic = float(sum(np.vdot(gradients[n].astype(np.float64), moves[n]) for n in names))
        numeric = converged([quotient(names, step) for step in STEPS[precision]])
        error = abs(analytic - numeric) / max(abs(numeric), spread(names), floor, 1e-300)
        if not error <= worst:  # a NaN is the worst of all
            worst, where = error, names[0] if len(names) == 1 else "all at once"
    return Check(precision, len(groups), worst, where)


def converged(quotients: list[float]) -> float:
    """The quotient that its neighbour with the larger step confirms best."""
    gaps = [abs(a - b) for a, b in zip(quotients, quotients[1:], strict=False)]
    return quotients[int(np.argmin(gaps)) + 1]
