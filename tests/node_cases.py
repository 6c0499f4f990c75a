# The node tests of the onnx package as gradient cases: which of them belong, and how one is compared with differences.
from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
from one_sided import bounds

import gradgen
from gradgen.differences import GradientCheck, check_gradients
from gradgen.evaluate import Evaluator, to_float64
from gradgen.widening import double, widen

KINDS = ("simple", "pytorch-operator", "pytorch-converted")
# Float inputs that say how to compute, not what: they have no gradient by the standard.
SETTINGS = {("Resize", 1), ("Resize", 2), ("Upsample", 1), ("Dropout", 1), ("OneHot", 0), ("OneHot", 1)}
# How far the inputs are moved, relative to their size, when the data of a case sits where there is no derivative.
MOVES = (0.0, 0.01, 0.1)


@dataclass(frozen=True)
class Case:
    """A node test with float inputs and outputs; `feeds` are its first data set."""

    name: str
    model: onnx.ModelProto
    feeds: dict[str, Any]
    wrt: list[str]
    of: list[str]


@dataclass
class Outcome:
    """What a comparison found: the records at the last point tried, what was moved, and what is wrong beside them.

    `one_sided` lists the inputs that sit on a kink at the data and were compared there with one-sided quotients, and
    `unjudged` those for which even these do not exist; `refused` has, by input, the reason for which gradgen
    differentiates nothing with respect to it; `skip` says why nothing can be compared.
    """

    records: list[GradientCheck] = field(default_factory=list)
    moved: float = 0.0
    notes: list[str] = field(default_factory=list)
    one_sided: list[str] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    skip: str = ""


def _is_float(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


@cache
def cases() -> dict[str, Case]:
    """All cases by name: a float tensor among the inputs and among the outputs, and onnxruntime runs them."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [_case(test) for test in collect_testcases(None)]
    return {case.name: case for case in found if case is not None}


def _case(test: object) -> Case | None:
    model, data = test.model, test.data_sets  # type: ignore[attr-defined]
    if not model:
        return None
    inputs, outputs = ([_array(value) for value in side] for side in data[0])
    return _as_case(test.name, model, inputs, outputs)  # type: ignore[attr-defined]


def _as_case(name: str, model: onnx.ModelProto, inputs: list[Any], outputs: list[Any]) -> Case | None:
    if not any(map(_is_float, inputs)) or not any(map(_is_float, outputs)):
        return None
    stored = {t.name for t in model.graph.initializer}
    declared = [value.name for value in model.graph.input if value.name not in stored]
    feeds = dict(zip(declared, inputs, strict=True))
    of = [value.name for value, array in zip(model.graph.output, outputs, strict=True) if _is_float(array)]
    nodes = list(_nodes(model.graph))
    settings = {n.input[i] for n in nodes for i in range(len(n.input)) if (n.op_type, i) in SETTINGS}
    wrt = [name for name, array in feeds.items() if _is_float(array) and name not in settings]
    if not wrt or not runs(model, feeds):
        return None
    return Case(name, model, feeds, wrt, of)


@cache
def shipped() -> dict[str, Case]:
    """The models that the onnx package ships with data, from opset 7 on, that belong by the same measure."""
    root = Path(onnx.backend.test.__file__).parent / "data"
    found = {}
    for file in sorted(path for kind in KINDS for path in root.glob(f"{kind}/*/model.onnx")):
        model = onnx.load(file)
        if all(e.version < 7 for e in model.opset_import if not e.domain):
            continue
        data = file.parent / "test_data_set_0"
        sides = [[_read(data / f"{side}_{k}.pb", v) for k, v in enumerate(values)] for side, values in (
            ("input", [v for v in model.graph.input if v.name not in {t.name for t in model.graph.initializer}]),
            ("output", model.graph.output),
        )]  # fmt: skip
        name = f"{file.parent.parent.name}/{file.parent.name}"
        case = _as_case(name, model, *sides)
        if case is not None:
            found[name] = case
    return found


def _read(file: Path, value: onnx.ValueInfoProto) -> Any:
    """A stored value as an array, or as a list where it is a sequence."""
    if value.type.HasField("sequence_type"):
        sequence = onnx.SequenceProto()
        sequence.ParseFromString(file.read_bytes())
        return onnx.numpy_helper.to_list(sequence)
    return onnx.numpy_helper.to_array(onnx.load_tensor(file))


def _array(value: Any) -> Any:
    """A tensor of any kind as an array; sequences stay lists."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def runs(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> bool:
    """Whether onnxruntime loads and runs a model."""
    try:
        Evaluator(model, strict=True)(feeds)
    except Exception:  # onnxruntime raises types of its own
        return False
    return True


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)


def is_single(case: Case) -> bool:
    """Whether the case is about one node, and not about a body of the standard."""
    return len(case.model.graph.node) == 1


def frozen(case: Case) -> Case | None:
    """The case with its integer and boolean inputs as constants, as exporters write them; None where it has none."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    fixed = {n: a for n, a in case.feeds.items() if n not in case.wrt and isinstance(a, np.ndarray)}
    if not fixed:
        return None
    kept_names = [name for name in case.feeds if name not in fixed]
    kept = [value for value in model.graph.input if value.name not in fixed]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in fixed.items())
    model.ir_version = max(model.ir_version, 4)  # before, an initializer is an input as well
    return Case(case.name, model, {name: case.feeds[name] for name in kept_names}, case.wrt, case.of)


def dynamic(case: Case) -> Case:
    """The case with a name of its own for every dimension of its inputs, and none for those of its outputs."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    del model.graph.value_info[:]
    for value in model.graph.input:
        for i, dimension in enumerate(value.type.tensor_type.shape.dim):
            dimension.dim_param = f"{value.name}_{i}"
    for value in model.graph.output:
        for dimension in value.type.tensor_type.shape.dim:
            dimension.Clear()
    return Case(case.name, model, case.feeds, case.wrt, case.of)


def compare(case: Case) -> Outcome:
    """Differentiate a case and compare; the inputs are moved off a kink or an edge of the domain if they sit on one.

    A case in half precision is compared twice: its float64 copy is differentiated as sharply as all others, and its own
    gradient, whose constants are rounded to half precision and stay so in a float64 copy, to that rounding.
    """
    if not _computes_in_half(case.model):
        return _compare(case, 1e-6)
    wide = replace(case, model=to_float64(case.model), feeds=_widened(case.feeds))
    outcome = _compare(wide, 1e-6)
    if outcome.problems or outcome.refused or any(record.verdict == "wrong" for record in outcome.records):
        return outcome
    return _compare(case, float(np.finfo(np.float16).eps) / 2)


def _compare(case: Case, tolerance: float) -> Outcome:
    gradient, case, refused = _differentiate(case)
    if gradient is None:
        return Outcome(refused=refused)
    outcome = Outcome(problems=_at_the_data(case, gradient), refused=refused)
    for move in MOVES:
        outcome.moved = move
        feeds = _moved(case, move)
        try:
            cotangents = _cotangents(case, feeds)
            outcome.records = check_gradients(case.model, gradient, feeds, cotangents, rtol=tolerance)
        except Exception as error:  # an engine that cannot run the moved data, say
            outcome.problems.append(f"moved by {move}: {type(error).__name__}: {str(error)[:300]}")
            return outcome
        verdicts = {record.verdict for record in outcome.records}
        # Beside a kink the steps may cross several more, of a Mod by almost nothing say: what is wrong stays so further on.
        if verdicts <= {"ok"} or (verdicts <= {"ok", "wrong"} and move in (MOVES[0], MOVES[-1])):
            return outcome
        open_ = [f"{r.name} {r.verdict}: {r.reason}" for r in outcome.records if r.verdict != "ok"]
        outcome.notes.append(f"at {move}: {'; '.join(open_)}")
        if not move:
            _at_the_kink(case, gradient, outcome, cotangents, tolerance)
    if all("not finite" in r.reason for r in outcome.records if r.verdict != "ok"):
        outcome.skip = f"the primal has no finite value at or near the data: {outcome.notes}"
    else:
        outcome.problems.append(f"no point with a derivative near the data: {outcome.notes}")
    return outcome


def _at_the_kink(
    case: Case, gradient: onnx.ModelProto, outcome: Outcome, cotangents: dict[str, np.ndarray], tolerance: float
) -> None:
    """At the data itself, an element of a gradient lies between the one-sided derivatives."""
    seeds = {f"grad_{n}": widen(ct) for n, ct in cotangents.items()}
    run = double(gradient)
    found = run({k: v for k, v in {**_widened(case.feeds), **seeds}.items() if k in run.input_names})
    for name in [record.name for record in outcome.records if record.verdict != "ok"]:
        low, high = bounds(case.model, case.feeds, name, cotangents)
        if np.isnan(low).any():
            outcome.unjudged.append(name)
            continue
        outcome.one_sided.append(name)
        got, slack = found[f"grad_{name}"], tolerance * max(1.0, float(np.abs([low, high]).max(initial=0)))
        outside = ~((low - slack <= got) & (got <= high + slack))
        if outside.any():
            first = tuple(int(i) for i in np.argwhere(outside)[0])
            outcome.problems.append(
                f"at a kink grad_{name}{list(first)} is {got[first]:.6g}, not in {low[first]:.6g} … {high[first]:.6g}"
            )


def _widened(feeds: Mapping[str, Any]) -> dict[str, Any]:
    return {n: widen(a) if isinstance(a, np.ndarray) else a for n, a in feeds.items()}


def _cotangents(case: Case, feeds: dict[str, Any]) -> dict[str, np.ndarray]:
    """Random ones, zero where an output is not finite, or stands for that: there is nothing to compare."""
    rng = np.random.default_rng(0)
    outputs = Evaluator(case.model)(feeds)
    drawn = {n: rng.standard_normal(outputs[n].shape).astype(outputs[n].dtype) for n in case.of}
    return {n: np.where(np.abs(outputs[n]) < 1e30, ct, 0).astype(ct.dtype) for n, ct in drawn.items()}


def _computes_in_half(model: onnx.ModelProto) -> bool:
    half = onnx.TensorProto.FLOAT16
    if any(v.type.tensor_type.elem_type == half for v in (*model.graph.input, *model.graph.output)):
        return True
    return any(a.name in ("to", "softmax_precision") and a.i == half for n in _nodes(model.graph) for a in n.attribute)


def _differentiate(case: Case) -> tuple[onnx.ModelProto | None, Case, dict[str, str]]:
    """The gradient with respect to all inputs that are not refused, and why others are."""
    refused: dict[str, str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gradgen.GradientWarning)
        try:
            return gradgen.vjp(case.model, wrt=case.wrt, of=case.of), case, refused
        except gradgen.GradientError as error:
            refused = dict.fromkeys(case.wrt, str(error))
        for name in case.wrt if len(case.wrt) > 1 else []:
            try:
                gradgen.vjp(case.model, wrt=[name], of=case.of)
                del refused[name]
            except gradgen.GradientError as error:
                refused[name] = str(error)
        case = replace(case, wrt=[name for name in case.wrt if name not in refused])
        return (gradgen.vjp(case.model, wrt=case.wrt, of=case.of) if case.wrt else None), case, refused


def _moved(case: Case, move: float) -> dict[str, np.ndarray]:
    if not move:
        return case.feeds
    rng = np.random.default_rng(0)
    moved = dict(case.feeds)
    for name in case.wrt:
        value = np.where(np.isfinite(moved[name]), moved[name], rng.standard_normal(moved[name].shape))
        size = move * max(1.0, float(np.abs(value[np.isfinite(value)]).mean()) if np.isfinite(value).any() else 1.0)
        noise = rng.standard_normal(value.shape)
        # At last, away from where the value was: nothing stays close to zero that was zero.
        moved[name] = (value + size * (noise + np.sign(noise) if move == MOVES[-1] else noise)).astype(
            moved[name].dtype
        )
    return moved


def _at_the_data(case: Case, gradient: onnx.ModelProto) -> list[str]:
    """Shape, dtype and loading, at the case's own data."""
    problems = []
    primal, run = Evaluator(case.model), Evaluator(gradient)
    if primal.engine == "onnxruntime" != run.engine:
        problems.append(f"onnxruntime runs the primal, but not the gradient: {run.reason}")
    rng = np.random.default_rng(0)
    values = primal(case.feeds)
    seeds = {f"grad_{n}": rng.standard_normal(values[n].shape).astype(values[n].dtype) for n in case.of}
    found = run({k: v for k, v in {**case.feeds, **seeds}.items() if k in run.input_names})
    for name in case.wrt:
        got, value = found[f"grad_{name}"], case.feeds[name]
        if (got.shape, got.dtype) != (value.shape, value.dtype):
            problems.append(f"grad_{name} is {got.dtype}{list(got.shape)}, its value {value.dtype}{list(value.shape)}")
    return problems
