# A derivative beside its measurement: what is run for it, in float64 where that can be, and the verdict.
"""The core of the checks: models at a point, and a verdict on one derivative in one direction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import onnx

from gradgen.engine.registry import Registry
from gradgen.evaluate import Evaluator
from gradgen.widening import double, narrow_note, widen

if TYPE_CHECKING:
    from gradgen.differences import Quotient

Arrays = Mapping[str, np.ndarray]
Function = Callable[[Arrays], Arrays]
Verdict = Literal["ok", "wrong", "kink", "unresolved", "refused"]


@dataclass(frozen=True)
class GradientCheck:
    """One value that was differentiated, and how its gradient compares with finite differences.

    A check of tangents has the same records: with the tangents of the outputs, as the value moves in the one random
    direction, in place of the gradient.

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


@dataclass
class Run:
    """What the comparisons of one model share: the primal to move, its point, and the derivative there.

    Attributes:
        fn, point, base, cotangents: the primal, where it is differentiated, its outputs there, and their weights.
        fed: what the derivative model is fed.
        model: that model in float64, or as it is where `exact` is not so.
        results: what it gives.
        native, runtime: the derivative model as it is, on onnxruntime, and what that gives; None where it does not run
            there.
        precision: "float64" or "float32", of the differences.
        exact: whether `model` runs in float64.
        note: why something runs in float32.
    """

    fn: Function
    point: dict[str, np.ndarray]
    base: Arrays
    cotangents: Arrays
    fed: Arrays
    model: Function
    results: Arrays
    native: Function | None
    runtime: Arrays | None
    precision: str
    exact: bool
    note: str

    def moved(self, feeds: Arrays) -> tuple[Arrays, Arrays | None]:
        """`results` and `runtime` with other feeds for some inputs, in float64; what runs in less gets them rounded."""
        fed = {**self.fed, **{k: v.astype(self.fed[k].dtype) for k, v in feeds.items()}}
        runtime = None if self.native is None else self.native(fed)
        if self.exact:
            return self.model({**{k: widen(v) for k, v in self.fed.items()}, **feeds}), runtime
        return self.model(fed) if runtime is None else runtime, runtime


@dataclass(frozen=True)
class Side:
    """A directional derivative as a derivative model has it: the product of a result and weights.

    Attributes:
        result, weights: of one shape: a gradient and the direction, or tangents and the cotangents.
        runtime: the result that onnxruntime gives in the model's own precision; None where it does not run there.
        problem: what is wrong with the result before it is compared; may be empty.
    """

    result: np.ndarray
    weights: np.ndarray
    runtime: np.ndarray | None
    problem: str = ""


def prepare(
    primal: onnx.ModelProto,
    derivative: onnx.ModelProto,
    point: Arrays,
    feeds: Arrays,
    cotangents: Arrays,
    registry: Registry | None,
    noun: str = "gradient",
) -> Run:
    """Float64 where a double copy runs and reproduces the forward pass, else float32; `noun` is the derivative's."""
    narrow = Evaluator(primal)
    moved = {k: v for k, v in point.items() if k in narrow.input_names}
    outputs = narrow(moved)
    native = Evaluator(derivative)
    fed = {k: v for k, v in feeds.items() if k in native.input_names}
    own = native(fed)
    runs, runtime = (native, own) if native.engine == "onnxruntime" else (None, None)
    try:
        wide = double(primal, registry)
        wide_point = {k: widen(v) for k, v in moved.items()}
        base = wide(wide_point)
        gap = max(drift(base[n], outputs[n]) for n in cotangents)
        if gap > 1e-2:
            raise ValueError(f"a float64 copy differs from the forward pass by {gap:.1e}")
    except Exception as error:  # whatever an engine raises, float32 is what remains
        note = narrow_note("differences", error)
        return Run(narrow, moved, outputs, cotangents, fed, native, own, runs, runtime, "float32", False, note)
    weights = {n: widen(np.asarray(v)) for n, v in cotangents.items()}
    try:
        copy = double(derivative, registry)
        exact: Arrays = copy({k: widen(v) for k, v in feeds.items() if k in copy.input_names})
    except Exception as error:
        note = narrow_note(noun, error)
        return Run(wide, wide_point, base, weights, fed, native, own, runs, runtime, "float64", False, note)
    return Run(wide, wide_point, base, weights, fed, copy, exact, runs, runtime, "float64", True, "")


def judge(run: Run, name: str, found: Quotient, side: Side, rtol: float, noun: str = "gradient") -> GradientCheck:
    """The verdict on a derivative, beside the quotients that were measured in the same direction.

    Args:
        run: what both rest on.
        name: of the value that moves.
        found: what was measured.
        side: what the derivative model has.
        rtol: what error is "ok" in float64; in float32 it is at least 1e-2.
        noun: what the result is called in a reason.
    """
    result = np.asarray(side.result, np.float64)
    norm = float(np.linalg.norm(result))
    own_error = np.nan

    def record(numeric: float, analytic: float, error: float, verdict: Verdict, reason: str) -> GradientCheck:
        reason = "; ".join(part for part in (reason, run.note) if part)
        measured = (name, run.point[name].shape, norm, numeric, analytic, error)
        return GradientCheck(*measured, verdict, reason, run.precision, own_error, run.exact, run.note)

    if side.problem:
        return record(np.nan, np.nan, np.inf, "wrong", side.problem)
    with np.errstate(invalid="ignore"):
        analytic = float((result * side.weights).sum())
    if not found.finite:
        return record(found.value, analytic, np.inf, "unresolved", "the primal is not finite at or around the point")
    if not np.isfinite(result).all():
        return record(found.value, analytic, np.inf, "wrong", f"the {noun} is not finite where the primal is")
    gap = abs(found.value - analytic)
    typical = norm * float(np.linalg.norm(side.weights)) / np.sqrt(max(side.weights.size, 1))
    scale = max(abs(found.value), abs(analytic), 0.1 * typical, np.finfo(np.float64).tiny)
    error = gap / scale
    limit = rtol if run.exact else max(rtol, 1e-2)
    vanishing = gap <= found.error and max(abs(found.value), typical) <= 10 * found.error
    if side.runtime is not None:
        with np.errstate(invalid="ignore"):
            own_gap = abs(found.value - float((np.asarray(side.runtime, np.float64) * side.weights).sum()))
        # Where the derivative is zero, rounding is measured by the size of what is differentiated.
        size = sum(float(np.abs(w * np.where(w != 0, run.base[n], 0)).sum()) for n, w in run.cotangents.items())
        own_error = own_gap / (max(scale, size) if vanishing else scale)
    if error <= limit or vanishing:
        reason = "zero to within rounding" if vanishing else ""
        error = 0.0 if vanishing else error
        if run.exact and side.runtime is not None and not np.isfinite(side.runtime).all():
            reason = f"the {noun} is not finite in the model's own precision, and is in float64"
            return record(found.value, analytic, error, "wrong", reason)
        if found.kink:
            reason = f"at a kink: one-sided quotients differ by {found.jump:.2e}"
        elif run.exact and side.runtime is not None and not vanishing:
            apart = drift(np.asarray(side.runtime, np.float64), result)
            if apart > 1e-2:
                reason = f"the {noun} in the model's own precision differs from float64 by {apart:.1e}"
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


def drift(one: np.ndarray, other: np.ndarray) -> float:
    """How far an array of floats is from another, relative to that one, where both are finite."""
    if not np.issubdtype(np.asarray(other).dtype, np.floating):
        return 0.0
    both = np.isfinite(one) & np.isfinite(other)
    if not both.any():
        return 0.0
    apart = np.linalg.norm(one[both].astype(np.float64) - other[both])
    return float(apart / max(np.linalg.norm(np.asarray(other, np.float64)[both]), np.finfo(np.float32).tiny))
