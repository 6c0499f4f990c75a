# Verifies the gradients of a model: finite differences in float64, and the gradient model as a user runs it.
"""`gradgen.verify`: a verdict for each value with respect to which a model is differentiated."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from gradgen.api import vjp
from gradgen.differences import GradientCheck, Verdict, check_gradients
from gradgen.engine.custom import runnable
from gradgen.engine.external import BASE_KEY, settle_external
from gradgen.engine.protos import imports
from gradgen.engine.reading import Model, read
from gradgen.engine.registry import Registry, Rules, registry_of
from gradgen.errors import GradientError, only_gradient_errors
from gradgen.feeds import line_of, make_feeds
from gradgen.pinning import draw, free_draws, number_draws, pin
from gradgen.request import roles_of

# By how much, relative to the derivative, the gradient that onnxruntime computes in the model's own precision may be
# off before it is remarked, and before it is wrong.
REMARKED, REFUSED = 1e-2, 1e-1


@dataclass(frozen=True)
class Verification:
    """How the gradient with respect to one value compares with finite differences, in one random direction.

    Attributes:
        name: the value's.
        shape: the value's, at the point.
        error_float64: the relative error of the gradient in float64; NaN where the model has no float64 copy that runs.
        error_float32: that of the gradient model as it is, on onnxruntime and in the model's own precision (float32, as
            a rule); NaN where onnxruntime does not run it.
        verdict: "ok"; "wrong" (the gradient differs by more than the differences are uncertain, or is right in float64
            and off by a tenth as onnxruntime computes it); "kink" (there is no derivative at this point);
            "unresolved" (the differences are too uncertain here to judge).
        reason: what the verdict rests on where it is not "ok", and what else was noticed; may be empty.
        note: the part of `reason` that speaks of the run and not of this value, such as what had to run in float32.
    """

    name: str
    shape: tuple[int, ...]
    error_float64: float
    error_float32: float
    verdict: Verdict
    reason: str
    note: str = ""


def verify(
    model: Model,
    wrt: Sequence[str] | str | None = None,
    of: Sequence[str] | str | None = None,
    *,
    feeds: Mapping[str, np.ndarray] | Path | None = None,
    straight_through: bool = False,
    portable: bool = False,
    registry: Registry | None = None,
    seed: int = 0,
    each: Callable[[Verification, int], None] | None = None,
) -> list[Verification]:
    """Differentiate a model and compare its gradients with central differences at one point.

    The derivative of the outputs' contraction with random cotangents, along one random direction for each of `wrt`, is
    measured in float64 and compared with what `vjp`'s model says, once in float64 and once as onnxruntime computes it
    in the model's own precision. What the model draws at random is drawn once, and is the same everywhere.

    Args:
        model: a path, an onnx.ModelProto or an onnx_ir.Model. It is not changed.
        wrt, of, registry: as in `vjp`.
        feeds: arrays by input name, or an .npz that holds them. What is missing is made up: random floats, integers 0
            and 1, free dimensions of 2.
        straight_through: as in `vjp`. A gradient that goes straight through quantisation is an estimate and no
            derivative: where it differs from that, its verdict is "unresolved".
        portable: verify the model that `vjp` gives with it.
        seed: of what is made up, of cotangents and of directions.
        each: is called with each record when it is made, and with how many there will be.

    Returns:
        One record for each of `wrt`, in the order asked.

    Raises:
        GradientError: what `vjp` raises; a seed that is no whole number from 0 on; feeds that do not fit; a
            model that no engine runs at this point.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise GradientError(f"seed is a whole number from 0 on, not {seed!r}")
    with only_gradient_errors():
        return _verify(model, wrt, of, feeds, straight_through, portable, registry, seed, each)


def _verify(
    model: Model,
    wrt: Any,
    of: Any,
    feeds: Any,
    straight_through: bool,
    portable: bool,
    registry: Registry | None,
    seed: int,
    each: Any,
) -> list[Verification]:
    primal, point = make_feeds(_read(model), feeds, seed)
    primal = runnable(primal, registry_of(registry))
    rules = Rules(registry_of(registry), imports(primal))
    primal = number_draws(primal, lambda f: rules.find(f.domain, f.name) is not None)
    make = functools.partial(vjp, primal, wrt, of, portable=portable, registry=registry)
    gradient = make(straight_through=straight_through)
    _refuse_compounds(gradient)
    primal = _with_outputs(primal, gradient)
    count = sum(role["role"] == "gradient" for role in roles_of(gradient).values())
    records: list[Verification] = []
    try:
        drawn = draw(primal, point)
        pinned = pin(primal, drawn)
        note = "draws in subgraphs are held by their seeds, on the reference evaluator alone"
        note = note if free_draws(pinned) else ""

        def check(model: onnx.ModelProto, each: Callable[[GradientCheck], None] | None) -> list[GradientCheck]:
            return check_gradients(pinned, pin(model, drawn), point, seed=seed, each=each, registry=registry)

        true = {r.name: r.verdict for r in check(make(), None)} if straight_through else {}

        def judge(found: GradientCheck) -> None:
            estimate = found.verdict != "ok" and true.get(found.name) == "ok"
            records.append(_judged(found, estimate, note))
            if each is not None:
                each(records[-1], count)

        order = [found.name for found in check(gradient, judge)]
    except GradientError:
        raise
    except Exception as error:  # the engines that run a model raise many kinds, with no common base
        raise GradientError(f"the model does not run at this point: {line_of(error)}") from error
    return sorted(records, key=lambda record: order.index(record.name))


def _read(model: Model) -> onnx.ModelProto:
    """The model with all of its weights in memory."""
    proto, _ = read(model)
    base = next((p.value for p in proto.metadata_props if p.key == BASE_KEY), "")
    settle_external(proto, Path(base), "the model", keep=False)
    onnx.helper.set_model_props(proto, {p.key: p.value for p in proto.metadata_props if p.key != BASE_KEY})
    return proto


def _refuse_compounds(gradient: onnx.ModelProto) -> None:
    """Refuse gradients and cotangents that are sequences or optionals: differences are those of tensors."""
    roles = roles_of(gradient)
    for info in (*gradient.graph.input, *gradient.graph.output):
        if info.name in roles and not info.type.HasField("tensor_type"):
            kind = str(info.type.WhichOneof("value")).removesuffix("_type")
            raise GradientError(f"'{roles[info.name]['source']}' is of type {kind}: only tensors can be verified")


def _with_outputs(primal: onnx.ModelProto, gradient: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the intermediate values that are differentiated among its outputs, as its gradient model has it."""
    own = {o.name for o in primal.graph.output}
    targets = {r["source"] for r in roles_of(gradient).values() if r["role"] == "cotangent"} - own
    if not targets:
        return primal
    copy = onnx.ModelProto()
    copy.CopyFrom(primal)
    copy.graph.output.extend(o for o in gradient.graph.output if o.name in targets)
    return copy


def _judged(found: GradientCheck, estimate: bool, note: str) -> Verification:
    """The verdict of the differences, with what onnxruntime's own run adds."""
    verdict, reason = found.verdict, found.reason.removesuffix(found.note).removesuffix("; ")
    note = "; ".join(part for part in (found.note, note) if part)
    off = found.runtime_error
    if estimate:
        verdict, reason = "unresolved", "straight through quantisation: an estimate, and no derivative"
    elif verdict == "ok" and found.exact and off > REMARKED:
        verdict = "wrong" if off > REFUSED else "ok"
        reason = f"right in float64, and off by {off:.1%} as onnxruntime computes it in the model's precision"
    reason = "; ".join(part for part in (reason, note) if part)
    wide = found.error if found.exact else math.nan
    return Verification(found.name, found.shape, wide, off, verdict, reason, note)
