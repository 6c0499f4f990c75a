# The node tests of the onnx package as gradient cases: which of them belong, and how one is compared with differences.
from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import onnx
import onnx.shape_inference

import gradgen
from gradgen.differences import GradientCheck, check_gradients
from gradgen.evaluate import Evaluator

# The operators of the first release, and beside them the zero and the none operators that models carry.
_DIFFERENTIABLE = """
    Add Sub Mul Div Pow Neg Abs Sum Mean Max Min Where Sqrt Reciprocal Exp Log
    Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Erf
    Relu LeakyRelu PRelu Elu Selu Celu Softplus Softsign HardSigmoid HardSwish Mish Gelu Sigmoid Clip ThresholdedRelu
    Shrink Softmax LogSoftmax
    MatMul Gemm Conv ConvTranspose MaxPool AveragePool GlobalAveragePool GlobalMaxPool GlobalLpPool MaxUnpool Col2Im
    BatchNormalization LayerNormalization GroupNormalization InstanceNormalization
    ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare
    Identity Cast CastLike Reshape Flatten Transpose Squeeze Unsqueeze Expand Concat Split Slice Pad Tile Range Gather
    GatherElements GatherND ScatterElements ScatterND
    Resize SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss Dropout If
"""
_FLAT = """
    Shape Size Floor Ceil Round Sign Equal Greater GreaterOrEqual Less LessOrEqual And Or Not Xor IsNaN IsInf ArgMax
    ArgMin NonZero Constant ConstantOfShape EyeLike
"""
DIFFERENTIABLE, FLAT = set(_DIFFERENTIABLE.split()), set(_FLAT.split())
# Float inputs that say how to compute, not what: they have no gradient by the standard.
SETTINGS = {("Resize", 1), ("Resize", 2), ("Upsample", 1), ("Dropout", 1)}
# How far the inputs are moved, relative to their size, when the data of a case sits where there is no derivative.
MOVES = (0.0, 0.01, 0.1)


@dataclass(frozen=True)
class Case:
    """A node test with float inputs and outputs; `feeds` are its first data set."""

    name: str
    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    wrt: list[str]


@dataclass
class Outcome:
    """What a comparison found: the records at the last point tried, what was moved, and what is wrong beside them."""

    records: list[GradientCheck] = field(default_factory=list)
    moved: float = 0.0
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    skip: str = ""


def _is_float(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


@cache
def cases() -> dict[str, Case]:
    """All cases by name: float tensors among inputs and outputs, and no operator outside the two lists."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [_case(test) for test in collect_testcases(None)]
    return {case.name: case for case in found if case is not None}


def _case(test: object) -> Case | None:
    model, data = test.model, test.data_sets  # type: ignore[attr-defined]
    nodes = list(_nodes(model.graph)) if model else []
    known = DIFFERENTIABLE | FLAT
    if not nodes or model.functions or any(n.op_type not in known or n.domain for n in nodes):
        return None
    inputs, outputs = data[0]
    if not any(map(_is_float, outputs)) or not all(isinstance(v, np.ndarray) for v in [*inputs, *outputs]):
        return None
    feeds = {value.name: array for value, array in zip(model.graph.input, inputs, strict=True)}
    settings = {n.input[i] for n in nodes for i in range(len(n.input)) if (n.op_type, i) in SETTINGS}
    wrt = [name for name, array in feeds.items() if _is_float(array) and name not in settings]
    return Case(test.name, model, feeds, wrt) if wrt else None  # type: ignore[attr-defined]


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
    fixed = {name: array for name, array in case.feeds.items() if name not in case.wrt}
    if not fixed:
        return None
    kept = [value for value in model.graph.input if value.name not in fixed]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in fixed.items())
    return Case(case.name, model, {name: case.feeds[name] for name in case.wrt}, case.wrt)


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
    return Case(case.name, model, case.feeds, case.wrt)


def compare(case: Case) -> Outcome:
    """Differentiate a case and compare; the inputs are moved off a kink or an edge of the domain if they sit on one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gradgen.GradientWarning)
        try:
            gradient = gradgen.vjp(case.model, wrt=case.wrt)
        except gradgen.GradientError as error:
            if "rank of" in str(error) and _has_open_rank(case.model):
                return Outcome(skip=f"the model decides a rank when it runs, and gradgen refuses it: {error}")
            raise
    outcome = Outcome(problems=_at_the_data(case, gradient))
    for move in MOVES:
        outcome.moved = move
        feeds = _moved(case, move)
        try:
            outcome.records = check_gradients(case.model, gradient, feeds, wrt=None, rtol=1e-6)
        except Exception as error:  # an engine that cannot run the moved data, say
            outcome.problems.append(f"moved by {move}: {type(error).__name__}: {str(error)[:300]}")
            return outcome
        if all(record.verdict in ("ok", "wrong") for record in outcome.records):
            return outcome
        open_ = [f"{r.name} {r.verdict}: {r.reason}" for r in outcome.records if r.verdict not in ("ok", "wrong")]
        outcome.notes.append(f"at {move}: {'; '.join(open_)}")
    if all("not finite" in r.reason for r in outcome.records if r.verdict == "unresolved"):
        outcome.skip = f"the primal has no finite value at or near the data: {outcome.notes}"
    else:
        outcome.problems.append(f"no point with a derivative near the data: {outcome.notes}")
    return outcome


def _has_open_rank(model: onnx.ModelProto) -> bool:
    """Whether shape inference leaves the rank of some value open."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    known = {v.name for v in (*inferred.value_info, *inferred.output) if v.type.tensor_type.HasField("shape")}
    return any(name and name not in known for node in inferred.node for name in node.output)


def _moved(case: Case, move: float) -> dict[str, np.ndarray]:
    if not move:
        return case.feeds
    rng = np.random.default_rng(0)
    moved = dict(case.feeds)
    for name in case.wrt:
        value = moved[name]
        size = move * max(1.0, float(np.abs(value[np.isfinite(value)]).mean()) if np.isfinite(value).any() else 1.0)
        moved[name] = (value + size * rng.standard_normal(value.shape)).astype(value.dtype)
    return moved


def _at_the_data(case: Case, gradient: onnx.ModelProto) -> list[str]:
    """Shape, dtype and loading, at the case's own data."""
    problems = []
    primal, run = Evaluator(case.model), Evaluator(gradient)
    if primal.engine == "onnxruntime" != run.engine:
        problems.append(f"onnxruntime runs the primal, but not the gradient: {run.reason}")
    rng = np.random.default_rng(0)
    values = primal(case.feeds)
    seeds = {f"grad_{n}": rng.standard_normal(y.shape).astype(y.dtype) for n, y in values.items() if _is_float(y)}
    found = run({k: v for k, v in {**case.feeds, **seeds}.items() if k in run.input_names})
    for name in case.wrt:
        got, value = found[f"grad_{name}"], case.feeds[name]
        if (got.shape, got.dtype) != (value.shape, value.dtype):
            problems.append(f"grad_{name} is {got.dtype}{list(got.shape)}, its value {value.dtype}{list(value.shape)}")
    return problems
