# The verdict on a random graph: its gradients against float64 differences, its gradient model against onnxruntime.
from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np
import onnx
from random_graphs import RandomGraph, reads

import gradgen
from gradgen.differences import Quotient, directional
from gradgen.engine.forward import STRAY
from gradgen.engine.registry import registered
from gradgen.evaluate import Evaluator, to_float64
from gradgen.promote import promote_initializers
from gradgen.samples import expand_bodies

# How far the leaves are moved when the graph sits on a kink, or where nothing can be measured.
MOVES = (0.0, 0.003, 0.02, 0.07)
TOLERANCE = 1e-5
# Differences that are not at least this good, relative to the gradient, decide nothing.
MEASURED = 1e-3
# Float32 against float64, where the graph is not ill-conditioned.
LOOSE = 1e-3
# What sums that cancel leave in float32 where a gradient is zero, and kernels that are exact to a rounding of one alone
# (Sigmoid's), relative to the largest gradient and to what is differentiated, per unit of the leaf.
ROUNDING = 1e-6
# Where rounding inside the graph errs by more than this share of these, float32 says nothing about the gradient.
COARSE = 1e-2
STEPS = [2.0**-k for k in range(8, 25, 2)]
# Beside a kink that is nearer than the last of them.
NEAR = [2.0**-k for k in (26, 28, 30, 32)]

Arrays = dict[str, np.ndarray]


@dataclass
class Verdict:
    """What was found.

    Attributes:
        kind: "right", "wrong", "refused" or "discarded".
        reason: why, where it is not "right".
        paths: the ops of nodes through which a derivative flows from a leaf to an output, once for each node.
    """

    kind: str
    reason: str = ""
    paths: list[str] = field(default_factory=list)


def judge(graph: RandomGraph) -> Verdict:
    """Differentiate a random graph and compare, at its own point or, where that is a kink, beside it."""
    if not graph.wrt or not graph.of:
        return Verdict("discarded", "nothing to differentiate")
    reasons = []
    for attempt, move in enumerate(MOVES):
        verdict = _judge_at(graph, graph.feeds(move, attempt))
        if verdict.kind != "discarded":
            verdict.paths = differentiated(graph)
            return verdict
        reasons.append(verdict.reason)
    return Verdict("discarded", "; ".join(dict.fromkeys(reasons)))


def _judge_at(graph: RandomGraph, feeds: Arrays) -> Verdict:
    model = graph.model(feeds)
    stored = {leaf.name for leaf in graph.leaves if leaf.stored}
    point = {n: a for n, a in feeds.items() if n not in stored}
    try:
        onnx.checker.check_model(model, full_check=True)
        own = Evaluator(model, strict=True)(point)
    except Exception as error:  # a size that is legal for each node alone, say
        return Verdict("discarded", f"the graph itself does not run: {error}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gradgen.GradientWarning)
        try:
            gradient = gradgen.vjp(model, wrt=graph.wrt, of=graph.of)
        except gradgen.GradientError as error:
            return Verdict("refused", str(error))
        except Exception as error:  # a crash is a defect, whatever its type
            return Verdict("wrong", f"vjp raises {type(error).__name__}: {error}")
    try:
        onnx.checker.check_model(gradient, full_check=True)
        narrow = Evaluator(gradient, strict=True)
    except Exception as error:
        return Verdict("wrong", f"the gradient does not load: {error}")
    rng = np.random.default_rng(1)
    seeds = {f"grad_{o}": rng.standard_normal(own[o].shape).astype(own[o].dtype) for o in graph.of}
    try:
        found = narrow({**point, **seeds})
    except Exception as error:
        return Verdict("wrong", f"the gradient does not run: {error}")
    moving = promote_initializers(model, [n for n in graph.wrt if n in stored])
    primal = _in_float64(moving)
    at = {n: _wide(a) for n, a in feeds.items() if n in point or n in graph.wrt}
    try:
        base, fn = _run(primal, at)
    except Exception as error:  # a shape that depends on data may be another one in float64
        return Verdict("discarded", f"the float64 copy does not run: {error}")
    base = {name: np.asarray(value) for name, value in base.items()}
    if any(base[o].shape != own[o].shape or not np.isfinite(base[o]).all() for o in graph.of):
        return Verdict("discarded", "in float64 the outputs have another shape, or are not finite")
    # What rounds or chooses otherwise in float64 (a quantiser at a tie, BatchNormalization whose bias onnxruntime
    # overwrites) computes something else, and so does its gradient: there is nothing to hold the float32 one against.
    if any(np.abs(base[o] - own[o]).max() > LOOSE * max(1, np.abs(own[o]).max()) for o in graph.of):
        return Verdict("discarded", "in float64 the outputs are others than in float32")
    try:
        wide, _ = _run(_in_float64(gradient), {n: _wide(a) for n, a in {**point, **seeds}.items()})
    except Exception as error:
        return Verdict("wrong", f"the gradient's float64 copy does not run: {error}")
    cotangents = {o: _wide(seeds[f"grad_{o}"]) for o in graph.of}
    for name in graph.wrt:
        verdict = _compare(name, wide[f"grad_{name}"], fn, base, at, cotangents, rng)
        if verdict is not None:
            return verdict
    return _narrow(graph, found, wide, gradient, {**point, **seeds}, base, narrow) or Verdict("right")


def _in_float64(model: onnx.ModelProto) -> onnx.ModelProto:
    """A float64 copy, in which ops that have no such kernel are the bodies that the table gives for them."""
    contributed = any(node.domain not in ("", "ai.onnx") for node in model.graph.node)
    return to_float64(expand_bodies(model, registered()) if contributed else model)


def _run(model: onnx.ModelProto, feeds: Arrays) -> tuple[Arrays, Evaluator]:
    """On onnxruntime where it has all kernels in float64, else on the reference evaluator."""
    call = Evaluator(model)
    try:
        return call(feeds), call
    except Exception:  # some kernels are found missing only when they run
        call = Evaluator(model, prefer="reference")
        return call(feeds), call


def _compare(
    name: str,
    gradient: np.ndarray,
    fn: Evaluator,
    base: Arrays,
    at: Arrays,
    cotangents: Arrays,
    rng: np.random.Generator,
) -> Verdict | None:
    """One gradient in one random direction; None where it is right."""
    value = at[name]
    if gradient.shape != value.shape:
        return Verdict("wrong", f"grad_{name} has shape {gradient.shape}, its value {value.shape}")
    direction = rng.standard_normal(value.shape)
    measured = directional(fn, at, {name: direction}, cotangents, steps=STEPS, base=base)
    if not measured.finite:
        return Verdict("discarded", f"{name}: no finite differences")
    if not np.isfinite(gradient).all():
        return Verdict("wrong", f"grad_{name} is not finite, and the outputs are")
    analytic = float((gradient * direction).sum())
    typical = float(np.linalg.norm(gradient))
    scale = max(abs(measured.value), abs(analytic), 0.1 * typical)
    gap = abs(measured.value - analytic)
    if gap <= TOLERANCE * scale or gap <= 3 * measured.error <= MEASURED * scale:
        return None
    if scale <= 1e-7 and gap <= 10 * measured.error:
        return None
    if _kinked(measured, gap) or measured.error > 0.1 * gap:
        return Verdict("discarded", f"{name}: a kink, or differences that are good to {measured.error:.1e} alone")
    beside = directional(fn, at, {name: direction}, cotangents, steps=NEAR, base=base)
    if _kinked(beside, gap) or abs(beside.value - analytic) <= MEASURED * scale:
        return Verdict("discarded", f"{name}: a kink that shows at very small steps alone")
    return Verdict("wrong", f"grad_{name}: {analytic:.9g}, by differences {measured.value:.9g} ± {measured.error:.1e}")


def _kinked(measured: Quotient, gap: float) -> bool:
    return measured.kink and gap <= 10 * measured.jump


def _narrow(
    graph: RandomGraph, found: Arrays, wide: Arrays, model: onnx.ModelProto, feeds: Arrays, base: Arrays, run: Evaluator
) -> Verdict | None:
    """Float32 against float64; what rounding of the leaves already changes is no fault of the gradient's."""
    rng = np.random.default_rng(2)
    beside, _ = _run(_in_float64(model), {n: _wide(a) for n, a in _jolted(feeds, 3e-6, rng).items()})
    largest = max(float(np.abs(wide[f"grad_{name}"]).max(initial=0)) for name in graph.wrt)
    total = sum(float(np.abs(feeds[f"grad_{o}"] * base[o]).sum()) for o in graph.of)
    leaves = {leaf.name: leaf.array for leaf in graph.leaves}
    for name in graph.wrt:
        one, two, near = found[f"grad_{name}"], wide[f"grad_{name}"], beside[f"grad_{name}"]
        if one.shape != two.shape or not np.isfinite(one).all():
            return Verdict("wrong", f"grad_{name} on onnxruntime is of shape {one.shape}, or not finite")
        scale = float(np.abs(two).max(initial=0))
        shift = float(np.abs(near - two).max(initial=0)) if near.shape == two.shape else np.inf
        gap = float(np.abs(one - two).max(initial=0))
        size = max(largest, total / max(float(np.abs(leaves[name]).max(initial=0)), 1e-3))
        allowed = LOOSE * scale + 10 * shift + ROUNDING * size
        if gap <= allowed:
            continue
        if gap > allowed + 3 * _noise(name, found, model, feeds, run):
            return Verdict("wrong", f"grad_{name} in float32 on onnxruntime is off by {gap:.2e} of {scale:.2e}")
        if gap > COARSE * size:
            return Verdict("discarded", f"rounding decides grad_{name} in float32")
    return None


def _jolted(feeds: Arrays, size: float, rng: np.random.Generator) -> Arrays:
    """The feeds with noise on all float32 ones, relative to each element."""
    return {
        n: (a * (1 + size * rng.standard_normal(a.shape))).astype(a.dtype) if a.dtype == np.float32 else a
        for n, a in feeds.items()
    }


def _noise(name: str, found: Arrays, model: onnx.ModelProto, feeds: Arrays, run: Evaluator) -> float:
    """How far the error in float32 scatters between points that lie close together.

    Rounding inside of an ill-conditioned graph (normalising what is nearly constant) scatters as widely as it errs; the
    error of a wrong gradient stays. One that scatters while the feeds stand still is no rounding.
    """
    if not np.array_equal(run(feeds)[f"grad_{name}"], found[f"grad_{name}"]):
        return 0.0
    rng = np.random.default_rng(3)
    errors = []
    for size in (1e-7, 1e-6, 1e-5, 1e-4, 1e-3):  # small ones may not show in a larger sum
        near = _jolted(feeds, size, rng)
        exact, _ = _run(_in_float64(model), {n: _wide(a) for n, a in near.items()})
        errors.append(run(near)[f"grad_{name}"] - exact[f"grad_{name}"])
    return float(np.ptp(np.stack(errors), axis=0).max(initial=0))


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def differentiated(graph: RandomGraph) -> list[str]:
    """The ops of the nodes between the leaves and the outputs, as the table's dispositions let derivatives through."""
    registry = registered()
    active, wanted = set(graph.wrt), set(graph.of)
    inward: list[onnx.NodeProto] = []
    for node in graph.nodes:
        if any(_passes(registry, node, graph, i) for i, n in enumerate(reads(node)) if n in active):
            active |= {o for o in node.output if o}
            inward.append(node)
    through = []
    for node in reversed(inward):
        if wanted & {o for o in node.output if o and _carries(graph, o)}:
            domain = node.domain or ("" if registry.find("", node.op_type, graph.opset) else STRAY)
            through.append(f"{domain}::{node.op_type}" if domain else node.op_type)
            wanted |= {n for i, n in enumerate(reads(node)) if n in active and _passes(registry, node, graph, i)}
    return through


def _carries(graph: RandomGraph, name: str) -> bool:
    """Whether a value is of floats; sequences and optionals are not listed, and always are."""
    return name not in graph.values or graph.values[name].dtype.kind == "f"


def _passes(registry: object, node: onnx.NodeProto, graph: RandomGraph, index: int) -> bool:
    find = registry.find  # type: ignore[attr-defined]
    row = find(node.domain, node.op_type, graph.opset) or find(STRAY, node.op_type, graph.opset)
    if row is None:
        return False
    if row.forward is not None:
        return row.input_name(index) not in (*row.zero, *row.none)
    return row.disposition(index) == "rule"
