# Verifies the derivatives of a model: finite differences in float64, and the gradient or jvp model as a user runs it.
"""`gradgen.verify`: a verdict for each value with respect to which a model is differentiated, in reverse or forward."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from gradgen.api import vjp
from gradgen.comparison import GradientCheck, Verdict
from gradgen.differences import check_gradients
from gradgen.engine.custom import runnable
from gradgen.engine.external import BASE_KEY, settle_external
from gradgen.engine.protos import imports
from gradgen.engine.reading import Model, read
from gradgen.engine.registry import Registry, Rules, registry_of
from gradgen.errors import GradientError, only_gradient_errors
from gradgen.feeds import Stored, line_of, make_feeds
from gradgen.limits import refuse_costly
from gradgen.pinning import draw, free_draws, number_draws, pin
from gradgen.request import roles_of
from gradgen.tangents import check_tangents
from gradgen.transforms.forward_mode import jvp

# By how much, relative to the derivative, the gradient that onnxruntime computes in the model's own precision may be
# off before it is remarked, and before it is wrong.
REMARKED, REFUSED = 1e-2, 1e-1
MODES = {"vjp": ("vjp",), "jvp": ("jvp",), "both": ("vjp", "jvp")}


@dataclass(frozen=True)
class _Kind:
    """One kind of derivative: what makes its model, what compares that, and the role of what it has for each of `wrt`."""

    transform: Callable[..., onnx.ModelProto]
    check: Callable[..., list[GradientCheck]]
    role: str


KINDS = {"vjp": _Kind(vjp, check_gradients, "gradient"), "jvp": _Kind(jvp, check_tangents, "tangent in")}


@dataclass(frozen=True)
class Verification:
    """How the derivative with respect to one value compares with finite differences, in one random direction.

    Attributes:
        name: the value's.
        shape: the value's, at the point.
        error_float64: the relative error of the derivative in float64: that of the gradient's product with the direction,
            or that of the tangents' product with the cotangents. NaN where the model has no float64 copy that runs.
        error_float32: that of the gradient or jvp model as it is, on onnxruntime and in the model's own precision
            (float32, as a rule); NaN where onnxruntime does not run it.
        verdict: "ok"; "wrong" (the derivative differs by more than the differences are uncertain, or is right in float64
            and off by a tenth as onnxruntime computes it); "kink" (there is no derivative at this point);
            "unresolved" (the differences are too uncertain here to judge); "refused" (the model has a gradient and no
            jvp, for the reason that is given).
        reason: what the verdict rests on where it is not "ok", and what else was noticed; may be empty.
        note: the part of `reason` that speaks of the run and not of this value, such as what had to run in float32.
        mode: whose derivative it is: "vjp" or "jvp".
    """

    name: str
    shape: tuple[int, ...]
    error_float64: float
    error_float32: float
    verdict: Verdict
    reason: str
    note: str = ""
    mode: str = "vjp"


def verify(
    model: Model,
    wrt: Sequence[str] | str | None = None,
    of: Sequence[str] | str | None = None,
    *,
    mode: str = "vjp",
    feeds: Stored = None,
    straight_through: bool = False,
    portable: bool = False,
    registry: Registry | None = None,
    seed: int = 0,
    each: Callable[[Verification, int], None] | None = None,
) -> list[Verification]:
    """Differentiate a model and compare its gradients, or its tangents, with central differences at one point.

    The derivative of the outputs' contraction with random cotangents, along one random direction for each of `wrt`, is
    measured in float64 and compared with what the model of `vjp` or `jvp` says, once in float64 and once as onnxruntime
    computes it in the model's own precision. What the model draws at random is drawn once, and is the same everywhere.

    Args:
        model: a path, an onnx.ModelProto or an onnx_ir.Model. It is not changed.
        wrt, of, registry: as in `vjp`.
        mode: "vjp" verifies gradients: ⟨gradient, direction⟩. "jvp" verifies tangents: ⟨tangents, cotangents⟩, as one
            value after the other moves. "both" does both, in the same directions.
        feeds: arrays by input name, or the path of an .npz that holds them. What is missing is made up: random floats, integers 0
            and 1, free dimensions of 2.
        straight_through: as in `vjp`. A gradient that goes straight through quantisation is an estimate and no
            derivative: where it differs from that, its verdict is "unresolved".
        portable: verify the model that `vjp` or `jvp` gives with it.
        seed: of what is made up, of cotangents and of directions.
        each: is called with each record when it is made, and with how many there will be.

    Returns:
        One record for each of `wrt`, in the order asked; with "both" those of `vjp`, then those of `jvp`. A model that
        has gradients and no jvp, for whatever reason, has records that give that reason there ("refused").

    Raises:
        GradientError: what `vjp` raises, or what `jvp` raises if `mode` is "jvp"; another `mode`; a seed that is no whole
            number from 0 on; feeds that do not fit; a model that no engine runs at this point; one with a loop that is
            known to run more than 10,000,000 times, or a value known to have more than 2^30 elements.
    """
    if not isinstance(mode, str) or mode not in MODES:
        raise GradientError(f"mode is 'vjp', 'jvp' or 'both', not {mode!r}")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise GradientError(f"seed is a whole number from 0 on, not {seed!r}")
    with only_gradient_errors():
        primal, point = make_feeds(_read(model), feeds, seed)
        primal = runnable(primal, registry_of(registry))
        rules = Rules(registry_of(registry), imports(primal))
        primal = number_draws(primal, lambda f: rules.find(f.domain, f.name) is not None)
        records: dict[str, list[Verification]] = {}

        def told(record: Verification, count: int) -> None:
            if each is not None:
                each(record, count * len(MODES[mode]))

        for kind in MODES[mode]:
            make = functools.partial(KINDS[kind].transform, primal, wrt, of, portable=portable, registry=registry)
            try:
                derivative = make(straight_through=straight_through)
            except GradientError as error:
                if not records:
                    raise
                records[kind] = [_refused(r, str(error)) for r in records["vjp"]]
                for record in records[kind]:
                    told(record, len(records[kind]))
                continue
            true = make() if straight_through else None
            records[kind] = _verify(kind, primal, point, derivative, true, registry, seed, told)
        return [record for kind in MODES[mode] for record in records[kind]]


def _refused(other: Verification, message: str) -> Verification:
    """The record that says why a model that has a gradient has no tangents."""
    reason = " ".join(message.split())
    return Verification(other.name, other.shape, math.nan, math.nan, "refused", reason, reason, "jvp")


def _verify(
    kind: str,
    primal: onnx.ModelProto,
    point: Mapping[str, np.ndarray],
    derivative: onnx.ModelProto,
    true: onnx.ModelProto | None,
    registry: Registry | None,
    seed: int,
    told: Callable[[Verification, int], None],
) -> list[Verification]:
    """The records of one kind of derivative; `true` is the model that does not go straight through quantisation."""
    _refuse_compounds(derivative)
    refuse_costly(primal, derivative, point)
    primal = _with_outputs(primal, derivative)
    count = sum(role["role"] == KINDS[kind].role for role in roles_of(derivative).values())
    records: list[Verification] = []
    try:
        drawn = draw(primal, point)
        pinned = pin(primal, drawn)
        note = "draws in subgraphs are held by their seeds, on the reference evaluator alone"
        note = note if free_draws(pinned) else ""

        def check(model: onnx.ModelProto, each: Callable[[GradientCheck], None] | None) -> list[GradientCheck]:
            return KINDS[kind].check(pinned, pin(model, drawn), point, seed=seed, each=each, registry=registry)

        known = {} if true is None else {r.name: r.verdict for r in check(true, None)}

        def judge(found: GradientCheck) -> None:
            estimate = found.verdict != "ok" and known.get(found.name) == "ok"
            records.append(_judged(found, estimate, note, kind))
            told(records[-1], count)

        order = [found.name for found in check(derivative, judge)]
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
    """Refuse derivatives and cotangents that are sequences or optionals: differences are those of tensors."""
    roles = roles_of(gradient)
    for info in (*gradient.graph.input, *gradient.graph.output):
        if info.name in roles and not info.type.HasField("tensor_type"):
            kind = str(info.type.WhichOneof("value")).removesuffix("_type")
            raise GradientError(f"'{roles[info.name]['source']}' is of type {kind}: only tensors can be verified")


def _with_outputs(primal: onnx.ModelProto, gradient: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the intermediate values that are differentiated among its outputs, as its gradient model has it."""
    own = {o.name for o in primal.graph.output}
    targets = {r["source"] for r in roles_of(gradient).values() if r["role"] in ("cotangent", "tangent out")} - own
    if not targets:
        return primal
    copy = onnx.ModelProto()
    copy.CopyFrom(primal)
    copy.graph.output.extend(o for o in gradient.graph.output if o.name in targets)
    return copy


def _judged(found: GradientCheck, estimate: bool, note: str, mode: str) -> Verification:
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
    return Verification(found.name, found.shape, wide, off, verdict, reason, note, mode)
