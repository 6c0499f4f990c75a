"""Checks of rules: finite differences in float64, float32 on onnxruntime, dynamic shapes, second order, every form."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from gradgen.api import vjp
from gradgen.authoring import place, registered_as
from gradgen.differences import directional, jacobian_fd
from gradgen.engine.forward import STRAY
from gradgen.engine.reading import checkable, rankless
from gradgen.engine.registry import NEWEST, Registry, registered, registry_of
from gradgen.engine.rows import Form, Row
from gradgen.errors import GradientError, GradientWarning
from gradgen.evaluate import Evaluator
from gradgen.generator.schemas import schema_of
from gradgen.rules.lang import OPSET
from gradgen.samples import Built, Sample, build, expand_bodies

__all__ = [
    "Sample",
    "check_dynamic",
    "check_first_order",
    "check_float32",
    "check_forward",
    "check_second_order",
    "check_vjp",
]

ELEMENTS = 48


def check_vjp(rule: Any, samples: Sequence[Mapping[str, Any]], *, registry: Registry | None = None) -> None:
    """Check the gradient of an op on samples, against finite differences of what the op computes.

    On each sample: first order in float64 against differences, for every form of the rule; float32 on onnxruntime;
    every dimension unknown, on onnxruntime; second order against differences of the gradient.

    Args:
        rule: what `gradgen.op` or `vjp_rule` decorated, or the op's name: `"my.domain::Swish2"`, `"Relu"`.
        samples: one dict each, as in a rule table. An input is a shape (`[3, 4]`, drawn between -2 and 2), an array (a
            float one is differentiated, any other is a constant), or a dict with `shape` or `values` and `low`, `high`,
            `avoid` (points to stay away from: kinks), `constant`; what is no input is an attribute. `@outputs`, `@of`,
            `@wrt` and `@opset` as in tables; `@tolerance` is the relative tolerance of float64, by default 1e-6.
        registry: where the rule is; by default the one it was registered in, or the one that every call uses.

    An op of a domain of your own needs a forward body (`gradgen.op`): that is what is run for the differences.

    Raises:
        AssertionError: names the op, the sample, the check, and the input whose gradient is wrong, with the values.
        GradientError: for a rule that is not registered, an op without schema and body, and samples that name no input
            or attribute of the op.
    """
    domain, op_type, since, rules = _registered(rule, registry)
    row = rules.find(domain, op_type, since)
    name = f"{domain or 'ai.onnx'}::{op_type}"
    if row is None:
        raise GradientError(f"{name} has no rule and no body: register one with gradgen.op or gradgen.vjp_rule")
    if row.forward is None and schema_of(domain, op_type, None) is None:
        raise GradientError(f"{name} has no schema and no forward body: register what it computes with gradgen.op")
    if not samples:
        raise GradientError(f"{name}: give at least one sample")
    for index, spec in enumerate(samples):
        sample = _sample(row, index, spec)
        for title, check in CHECKS.items():
            where = f"{name}, sample {sample}, {title}"
            try:
                check(sample, rules)
            except AssertionError as error:
                raise AssertionError(f"{where}: {str(error).strip()}") from error
            except (GradientError, ValueError) as error:
                raise AssertionError(f"{where}: {error}") from error


def _registered(rule: Any, registry: Registry | None) -> tuple[str, str, int, Registry]:
    """Domain, op type, version and registry of what `check_vjp` was given."""
    known = registered_as(rule)
    if known is not None:
        domain, op_type, version, own = known
        return domain, op_type, version, registry_of(registry) if registry is not None else own
    if isinstance(rule, onnx.FunctionProto):
        rule = f"{rule.domain}::{rule.name}"
    if not isinstance(rule, str):
        raise GradientError(
            f"{place(rule)} is not registered: decorate it with gradgen.op or gradgen.vjp_rule, or give the op's name"
        )
    domain, _, op_type = rule.rpartition("::")
    domain, rules = "" if domain == "ai.onnx" else domain, registry_of(registry)
    row = rules.find(domain, op_type, OPSET if not domain else NEWEST) or rules.find(domain, op_type, NEWEST)
    return domain, op_type, 1 if row is None else row.since, rules


def _sample(row: Row, index: int, spec: Mapping[str, Any]) -> Sample:
    """A sample as the tables have it, from a dict that may hold arrays."""
    form = row.forward
    attributes = {a for f in (*row.forms, *([form] if form else [])) for a in f.attributes} | set(row.ignores)
    schema: Any = schema_of(row.domain, row.op_type, row.since if row.since > 1 else None)
    attributes |= set(schema.attributes) if schema is not None else set()
    known = {n.rstrip("*") for n in (*row.inputs, *row.outputs)} | attributes
    if strangers := [k for k in spec if k not in known and not k.startswith("@")]:
        raise GradientError(
            f"{row.domain or 'ai.onnx'}::{row.op_type}, sample {index}: {strangers} are no input "
            f"{[n.rstrip('*') for n in row.inputs]} or attribute {sorted(attributes)}"
        )
    inputs = {n.rstrip("*") for n in row.inputs}
    plain = {k: _plain(v) if k in inputs else v for k, v in spec.items() if k != "@tolerance"}
    settings = {"tolerance": spec["@tolerance"]} if "@tolerance" in spec else {}
    return Sample(row.domain, row.op_type, row.since, index, plain, settings)


def _plain(value: Any) -> Any:
    """An input of a sample as a table has it: an array as its values."""
    if isinstance(value, list | tuple) and any(isinstance(v, np.ndarray) for v in value):
        return [_plain(v) for v in value]
    if not isinstance(value, np.ndarray | np.generic):
        return value
    array = np.asarray(value)
    if array.dtype.kind == "f":
        return {"values": array.tolist(), "shape": list(array.shape)}
    return {"values": array.tolist(), "shape": list(array.shape), "dtype": array.dtype.name, "constant": True}


def check_first_order(sample: Sample, rules: Registry | None = None) -> None:
    """Every form's gradients in float64 against finite differences, element by element where there are few."""
    built = build(sample, rules=rules)
    primal = Evaluator(built.primal)
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
    wide, narrow = build(sample, rules=rules), build(sample, np.float32, rules=rules)
    cotangents = _cotangents(wide, Evaluator(wide.primal))
    want = _gradients(wide, rules or registered(), wide.feeds, cotangents)
    for form, registry in forms(sample, rules, np.float32):
        model = _vjp(narrow.model, narrow, registry)
        _check_model(model)
        _compare(model, narrow, cotangents, want, f"{sample.op_type} {form.rule}")


def _check_model(model: onnx.ModelProto) -> None:
    """onnx's checker, with its inference where the ranks of all inputs and outputs are known, as it asks for."""
    whole = not any(rankless(i) for i in (*model.graph.input, *model.graph.output))
    onnx.checker.check_model(model if whole else checkable(model), full_check=whole)


def check_dynamic(sample: Sample, rules: Registry | None = None) -> None:
    """The gradients with every dimension unknown, in float32 on onnxruntime, against those with static shapes."""
    wide, narrow = build(sample, rules=rules), build(sample, np.float32, True, rules)
    cotangents = _cotangents(wide, Evaluator(wide.primal))
    want = _gradients(wide, rules or registered(), wide.feeds, cotangents)
    model = _vjp(narrow.model, narrow, rules or registered())
    _check_model(model)
    _compare(model, narrow, cotangents, want, sample.op_type)


def check_second_order(sample: Sample, rules: Registry | None = None) -> None:
    """The derivative of the gradient in float64 against finite differences of the gradient, in a random direction."""
    reason = sample.settings.get("second_order")
    if isinstance(reason, str):
        import pytest  # the checks need it for a skip alone

        pytest.skip(reason)
    built = build(sample, rules=rules)
    cotangents = _cotangents(built, Evaluator(built.primal))
    first = _vjp(built.model, built, rules or registered())
    seeds = {f"grad_{n}": ct for n, ct in cotangents.items()}
    feeds = {**built.feeds, **seeds}
    gradients = [f"grad_{n}" for n in built.wrt]
    rng = np.random.default_rng(7)
    wrt = [n for n in feeds if n in [*built.wrt, *seeds]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GradientWarning)
        second = vjp(first, wrt=wrt, of=gradients, registry=rules)
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
    built = build(sample, np.float32, rules=rules)
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


CHECKS = {
    "first order": check_first_order,
    "float32 on onnxruntime": check_float32,
    "unknown dimensions": check_dynamic,
    "second order": check_second_order,
}


def forms(sample: Sample, rules: Registry | None = None, dtype: Any = np.float64) -> Iterator[tuple[Form, Registry]]:
    """Every form of the sample's row that applies to it in this type, each with a registry that has no other."""
    rules = rules or registered()
    row = rules.find(sample.domain, sample.op_type, sample.version)
    assert row is not None, f"{sample.op_type} has no row"
    if row.through_body:
        assert row.forward is not None
        yield row.forward, rules
    for form in row.forms:
        registry = Registry([replace(row, forms=(form,))], parent=rules)
        if form is not row.forms[-1]:
            built = build(sample, dtype, rules=rules)
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
