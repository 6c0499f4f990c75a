"""Checks of rules: finite differences in float64, float32 on onnxruntime, dynamic shapes, second order, every form."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx

from gradgen.api import vjp
from gradgen.differences import directional, jacobian_fd
from gradgen.engine.forward import STRAY
from gradgen.engine.registry import Registry, registered
from gradgen.engine.rows import Form, Row
from gradgen.errors import GradientError, GradientWarning
from gradgen.evaluate import Evaluator
from gradgen.samples import Built, Sample, build, expand_bodies

__all__ = ["Sample", "check_dynamic", "check_first_order", "check_float32", "check_forward", "check_second_order"]

ELEMENTS = 48


def check_first_order(sample: Sample, rules: Registry | None = None) -> None:
    """Every form's gradients in float64 against finite differences, element by element where there are few."""
    built = build(sample)
    primal = Evaluator(built.model)
    cotangents = _cotangents(built, primal)
    numeric = {name: _numeric(primal, built, name, cotangents) for name in built.wrt}
    for form, registry in forms(sample, rules):
        analytic = _gradients(built, registry, built.feeds, cotangents)
        for name in built.wrt:
            got, value = analytic[name], built.feeds[name]
            label = f"{sample.op_type} {form.rule}: gradient of {name}"
            assert got.shape == value.shape, f"{label} has shape {got.shape}, not {value.shape}"
            assert got.dtype == value.dtype, f"{label} is {got.dtype}, not {value.dtype}"
            want, direction = numeric[name]
            found = got if direction is None else np.sum(got * direction)
            scale = np.abs(want).max(initial=1e-3)
            np.testing.assert_allclose(found, want, rtol=sample.tolerance, atol=sample.tolerance * scale, err_msg=label)


def check_float32(sample: Sample, rules: Registry | None = None) -> None:
    """Every form's gradients in float32 on onnxruntime against those in float64; the model passes the checker."""
    wide, narrow = build(sample), build(sample, np.float32)
    cotangents = _cotangents(wide, Evaluator(wide.model))
    want = _gradients(wide, rules or registered(), wide.feeds, cotangents)
    for form, registry in forms(sample, rules, np.float32):
        model = _vjp(narrow.model, narrow, registry)
        onnx.checker.check_model(model, full_check=True)
        _compare(model, narrow, cotangents, want, f"{sample.op_type} {form.rule}")


def check_dynamic(sample: Sample, rules: Registry | None = None) -> None:
    """The gradients with every dimension unknown, in float32 on onnxruntime, against those with static shapes."""
    wide, narrow = build(sample), build(sample, np.float32, dynamic=True)
    cotangents = _cotangents(wide, Evaluator(wide.model))
    want = _gradients(wide, rules or registered(), wide.feeds, cotangents)
    model = _vjp(narrow.model, narrow, rules or registered())
    onnx.checker.check_model(model, full_check=True)
    _compare(model, narrow, cotangents, want, sample.op_type)


def check_second_order(sample: Sample, rules: Registry | None = None) -> None:
    """The derivative of the gradient in float64 against finite differences of the gradient, in a random direction."""
    reason = sample.settings.get("second_order")
    if isinstance(reason, str):
        import pytest  # the checks need it for a skip alone

        pytest.skip(reason)
    built = build(sample)
    cotangents = _cotangents(built, Evaluator(built.model))
    first = _vjp(built.model, built, rules or registered())
    seeds = {f"grad_{n}": ct for n, ct in cotangents.items()}
    feeds = {**built.feeds, **seeds}
    gradients = [f"grad_{n}" for n in built.wrt]
    rng = np.random.default_rng(7)
    wrt = [n for n in feeds if n in [*built.wrt, *seeds]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GradientWarning)
        second = vjp(first, wrt=wrt, of=gradients)
    names = [o.name for o in second.graph.output][-len(wrt) :]
    inputs = [i.name for i in second.graph.input][-len(gradients) :]
    weights = {n: rng.standard_normal(built.feeds[n.removeprefix("grad_")].shape) for n in gradients}
    fed = {**feeds, **dict(zip(inputs, weights.values(), strict=True))}
    run = Evaluator(first)
    analytic = Evaluator(second)(fed)
    for name, output in zip(wrt, names, strict=True):
        direction = rng.standard_normal(feeds[name].shape)
        want = directional(run, feeds, {name: direction}, weights)
        found = float(np.sum(analytic[output] * direction))
        scale = max(abs(want.value), float(np.abs(analytic[output]).sum()) * 1e-2, 1e-3)
        tolerance = max(10 * sample.tolerance, 3 * want.error / scale)
        assert abs(found - want.value) <= tolerance * scale, (
            f"{sample.op_type}: second derivative with respect to {name}: {found}, by differences {want.value}"
        )


def check_forward(sample: Sample, rules: Registry | None = None) -> None:
    """What an op's forward body computes in float32 against the op's own kernel on onnxruntime, to a few ulp."""
    reason = sample.settings.get("kernel")
    if isinstance(reason, str):
        import pytest  # as above

        pytest.skip(reason)
    built = build(sample, np.float32)
    own = onnx.ModelProto()
    own.CopyFrom(built.model)
    for node in own.graph.node:
        node.domain = "" if node.domain == STRAY else node.domain
    kernel = Evaluator(own, strict=True)(built.feeds)
    body = Evaluator(expand_bodies(built.model, rules or registered()), strict=True)(built.feeds)
    for name, want in kernel.items():
        scale = np.abs(want).max(initial=1e-3)
        np.testing.assert_allclose(
            body[name], want, rtol=4e-6, atol=1e-6 * scale, err_msg=f"{sample.op_type}: output {name}"
        )
        assert body[name].shape == want.shape and body[name].dtype == want.dtype


def forms(sample: Sample, rules: Registry | None = None, dtype: Any = np.float64) -> Iterator[tuple[Form, Registry]]:
    """Every form of the sample's row that applies to it in this type, each with a registry that has no other."""
    rules = rules or registered()
    row = rules.find(sample.domain, sample.op_type, sample.version)
    assert row is not None, f"{sample.op_type} has no row"
    if row.forward is not None:
        yield row.forward, rules
    for form in row.forms:
        registry = Registry([Row(**{**vars(row), "forms": (form,)})], parent=rules)
        if form is not row.forms[-1]:
            built = build(sample, dtype)
            try:
                _vjp(built.model, built, registry)
            except GradientError as error:
                # The form takes other cotangents, or returns less than the sample asks for.
                if "no form of its rule" in str(error) or "the rule does not differentiate it" in str(error):
                    continue
                raise
        yield form, registry


def _vjp(model: onnx.ModelProto, built: Built, registry: Registry) -> onnx.ModelProto:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GradientWarning)
        return vjp(model, wrt=built.wrt, of=built.of, portable=built.portable, registry=registry)


def _cotangents(built: Built, primal: Evaluator) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    outputs = primal(built.feeds)
    return {n: rng.uniform(0.3, 1.5, outputs[n].shape) * rng.choice([-1, 1], outputs[n].shape) for n in built.of}


def _gradients(built: Built, registry: Registry, feeds: dict, cotangents: dict) -> dict[str, np.ndarray]:
    model = _vjp(built.model, built, registry)
    results = Evaluator(model)({**feeds, **_seeds(model, cotangents)})
    return {n: results[f"grad_{n}"] for n in built.wrt}


def _seeds(model: onnx.ModelProto, cotangents: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The cotangents under their input names and in the types that the model declares: those of its outputs."""
    kinds = {i.name: onnx.helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type) for i in model.graph.input}
    return {f"grad_{n}": np.asarray(ct, kinds[f"grad_{n}"]) for n, ct in cotangents.items()}


def _numeric(primal: Evaluator, built: Built, name: str, cotangents: dict) -> tuple[np.ndarray, np.ndarray | None]:
    """Differences for each element, or along one random direction where there are many."""
    if built.feeds[name].size <= ELEMENTS:
        gradient, _, kinks = jacobian_fd(primal, built.feeds, name, cotangents)
        assert not kinks.any(), f"the sample sits on a kink of {name}"
        return gradient, None
    direction = np.random.default_rng(5).standard_normal(built.feeds[name].shape)
    found = directional(primal, built.feeds, {name: direction}, cotangents)
    assert not found.kink, f"the sample sits on a kink of {name}"
    return np.asarray(found.value), direction


def _compare(model: onnx.ModelProto, built: Built, cotangents: dict, want: dict[str, np.ndarray], label: str) -> None:
    run = Evaluator(model, strict=True)
    results = run({**built.feeds, **_seeds(model, cotangents)})
    for name in built.wrt:
        got = results[f"grad_{name}"]
        assert got.shape == want[name].shape, (
            f"{label}: gradient of {name} has shape {got.shape}, not {want[name].shape}"
        )
        assert got.dtype == built.feeds[name].dtype
        scale = np.abs(want[name]).max(initial=1e-3)
        np.testing.assert_allclose(
            got, want[name], rtol=1e-4, atol=2e-5 * scale, err_msg=f"{label}: gradient of {name}"
        )
