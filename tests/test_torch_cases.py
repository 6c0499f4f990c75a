"""132 models exported from PyTorch: each gradient is right or refused, never wrong, and so is the second order."""

import warnings
import zlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from torch_cases import Arrays, TorchCase, differences, load_cases

import gradgen
from gradgen.differences import promote_initializers
from gradgen.evaluate import evaluator, to_float64

CASES = load_cases()
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def vjp(model: onnx.ModelProto | Path, wrt: list[str], of: list[str], refusal: str) -> onnx.ModelProto:
    """gradgen.vjp, without its warning that an output does not depend on a wrt; skips where a refusal is expected."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return gradgen.vjp(model, wrt=wrt, of=of)
    except gradgen.GradientError:
        if refusal:
            pytest.skip(refusal)
        raise


@every_case
def test_gradients_are_right_or_refused(case: TorchCase) -> None:
    model = vjp(case.path, list(case.gradients), list(case.cotangents), case.refused)
    onnx.checker.check_model(model, full_check=True)
    run = evaluator(model, strict=True)
    added = run.input_names[len(run.input_names) - len(case.cotangents) :]
    results = list(run({**case.inputs, **dict(zip(added, case.cotangents.values(), strict=True))}).values())
    names = [output.name for output in onnx.load(case.path).graph.output]
    assert not differences(dict(zip(names, results, strict=False)), case.outputs)
    assert not differences(dict(zip(case.gradients, results[len(names) :], strict=True)), case.gradients)


@every_case
def test_second_order_is_right_or_refused(case: TorchCase) -> None:
    """The gradient of S = sum of <u, gradient> by weights, inputs and cotangents, against S's quotient in float64."""
    first = vjp(case.path, list(case.gradients), list(case.cotangents), case.refused)
    # By position, not by name: the order of inputs and outputs is what gradgen promises.
    cotangents = [value.name for value in first.graph.input][len(first.graph.input) - len(case.cotangents) :]
    gradients = [value.name for value in first.graph.output][len(first.graph.output) - len(case.gradients) :]
    wrt = [*case.gradients, *cotangents]
    second = vjp(first, wrt, gradients, case.second_refused)

    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    point: Arrays = {t.name: numpy_helper.to_array(t) for t in first.graph.initializer if t.name in case.gradients}
    point |= case.inputs | dict(zip(cotangents, case.cotangents.values(), strict=True))
    if case.has_kink:  # step off it, towards positive values, where roots and logarithms are defined too
        for name in case.gradients:
            point[name] = point[name] + rng.uniform(0.1, 0.3, point[name].shape).astype(point[name].dtype)
    u = {
        name: rng.standard_normal(case.gradients[of].shape) for name, of in zip(gradients, case.gradients, strict=True)
    }
    v = {name: rng.standard_normal(point[name].shape) for name in wrt}

    run = evaluator(promote_initializers(second, list(case.gradients)), strict=True)
    added = [value.name for value in second.graph.input][len(second.graph.input) - len(gradients) :]
    seeds = {name: u[gradient].astype(np.float32) for name, gradient in zip(added, gradients, strict=True)}
    results = list(run({**point, **seeds}).values())[-len(wrt) :]
    terms = np.array([np.vdot(result, v[name]) for name, result in zip(wrt, results, strict=True)])

    double = evaluator(to_float64(promote_initializers(first, list(case.gradients))))
    wide = {name: value.astype(np.float64) if value.dtype.kind == "f" else value for name, value in point.items()}

    def quotient(name: str, step: float = 1e-5) -> float:
        ends = [double({**wide, name: wide[name] + sign * step * v[name]}) for sign in (1, -1)]
        return sum(float(np.vdot(u[g], ends[0][g] - ends[1][g])) for g in gradients) / (2 * step)

    sizes = np.array([np.linalg.norm(result * v[name]) for name, result in zip(wrt, results, strict=True)])
    numeric = np.array([quotient(name) for name in wrt])
    close = np.abs(terms - numeric) <= 2e-3 * np.abs(numeric) + 2e-4 * sizes + 1e-5
    assert close.all(), dict(zip(wrt, zip(terms, numeric, strict=True), strict=True))


def test_enough_cases_are_right() -> None:
    """The marks in cases.json are what the tests above hold each case to, so counting marks counts results."""
    right = [case for case in CASES if not case.refused]
    assert len(CASES) == 132 and len(right) >= 106
    assert sum(not case.second_refused for case in right) >= 0.9 * len(right)
