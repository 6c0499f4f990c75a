"""Shows that a rule is not linear in its cotangents, or tangents, by running it on numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir

from gradgen.engine.defaults import default_attributes
from gradgen.engine.knowledge import Constants, Knowledge
from gradgen.engine.link import Linker
from gradgen.engine.names import Names
from gradgen.engine.registry import Registry, form_body
from gradgen.engine.rows import Form, Row
from gradgen.evaluate import Evaluator
from gradgen.rules.lang import OPSET

# Many ops take operands of one shape; where an op takes others, the rule does not run on these, and nothing is said.
SHAPES = ((3,), (3, 3), (2, 3, 4), (1, 2, 5, 5), ())
TOLERANCE = 1e-3
ROUNDING = 1e-5  # what float32 may leave of a difference between terms of about 1
COPIES = 2  # operands of a variadic formal


def nonlinear_results(row: Row, registry: Registry) -> list[str]:
    """The results of a row's rule that are shown to be no linear functions of its cotangents, or of its tangents.

    The rule runs in float32 on random operands of a few shapes. Linear means f(0) = 0, f(a + b) = f(a) + f(b) and
    f(2a) = 2 f(a); a rule that does not run on any of the operands passes.
    """
    found: dict[str, None] = {}
    for seed, shape in enumerate(SHAPES):
        try:
            found.update(dict.fromkeys(_probe(row, registry, shape, np.random.default_rng(seed))))
        except Exception:  # a rule of somebody's own may raise anything on operands that do not fit
            continue
    return list(found)


def _probe(row: Row, registry: Registry, shape: tuple[int, ...], rng: np.random.Generator) -> list[str]:
    form = row.forms[0]
    varied = [f"d{n.rstrip('*')}" for n in row.outputs] + [f"t{n.rstrip('*')}" for n in row.inputs]
    inputs: list[ir.Value] = []
    arguments: dict[str, ir.Value | list[ir.Value]] = {}
    for name in form.reads:
        bare = name[1:] if name in varied else name
        kind = _element_type(row, bare)
        count = COPIES if row.is_variadic(bare) else 1
        values = [ir.Value(name=f"{name}/{k}", type=ir.TensorType(kind), shape=ir.Shape(shape)) for k in range(count)]
        inputs += values
        arguments[name] = values if row.is_variadic(bare) else values[0]
    graph = ir.Graph(inputs, [], nodes=[], opset_imports={"": OPSET}, name="probe")
    names = Names.of(graph)
    linker = Linker(graph, registry, OPSET, Knowledge(set(inputs)), names, Constants(graph, names))
    wanted = {n: list(range(COPIES)) if row.is_variadic(n.removeprefix("d")) else True for n in form.returns}
    attributes = {**default_attributes(row.domain, row.op_type, OPSET), **required_attributes(form, registry)}
    results = linker.vjp(form, arguments, attributes, wanted, {}, "probe")
    public: dict[str, str] = {}
    for name, result in results.items():
        for k, value in enumerate(result if isinstance(result, list) else [result]):
            if value is not None:
                copy = linker.node("Identity", [value], value, f"{name}/{k}/result")
                graph.outputs.append(copy)
                public[copy.name or ""] = name
    model = ir.to_proto(ir.Model(graph, ir_version=10))
    cotangents = [v.name or "" for n in form.reads if n in varied for v in _listed(arguments[n])]
    point = {v.name or "": _content(v.dtype, shape, rng) for v in inputs if v.name not in cotangents}
    return _violations(model, public, point, {n: shape for n in cotangents}, rng)


def _content(kind: ir.DataType | None, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if kind == ir.DataType.FLOAT:
        return np.asarray(rng.uniform(0.3, 0.9, shape), np.float32)
    assert kind is not None
    return np.asarray(rng.integers(0, 2, shape), kind.numpy())


def _listed(values: ir.Value | list[ir.Value]) -> list[ir.Value]:
    return values if isinstance(values, list) else [values]


def _element_type(row: Row, formal: str) -> ir.DataType:
    """Float where the op's schema admits it; else an integer, or what it does admit."""
    try:
        schema = onnx.defs.get_schema(row.op_type, OPSET, row.domain)
    except onnx.defs.SchemaError:
        return ir.DataType.FLOAT
    types = next((f.types for f in (*schema.inputs, *schema.outputs) if f.name == formal), {"tensor(float)"})
    kinds = {"tensor(float)": ir.DataType.FLOAT, "tensor(int64)": ir.DataType.INT64, "tensor(int32)": ir.DataType.INT32}
    return next((kind for name, kind in kinds.items() if name in types), ir.DataType.BOOL)


def required_attributes(form: Form, registry: Registry) -> dict[str, ir.Attr]:
    """A value for each number that a compiled rule takes as an attribute without a default."""
    if form.kind != "compiled":
        return {}
    function, found = form_body(form, registry), {}
    given = {n for n, a in function.attributes.items() if a.value is not None}
    values = {ir.AttributeType.FLOAT: 0.5, ir.AttributeType.INT: 1}
    for node in function.all_nodes():
        for attr in node.attributes.values():
            name = attr.ref_attr_name
            if name is not None and name not in given and attr.type in values:
                found[name] = ir.Attr(name, attr.type, values[attr.type])
    return found


def _violations(
    model: onnx.ModelProto,
    public: Mapping[str, str],
    point: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
    rng: np.random.Generator,
) -> list[str]:
    """The results that break one of the laws, at random operands."""
    run = Evaluator(model, prefer="reference")

    def at(scale: float, *parts: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        cts = {n: np.asarray(scale * sum(p[n] for p in parts), np.float32) for n in shapes}
        return {n: np.asarray(v, np.float64) for n, v in run({**point, **cts}).items()}

    a, b = ({n: np.asarray(rng.standard_normal(s), np.float32) for n, s in shapes.items()} for _ in range(2))
    with np.errstate(all="ignore"):
        nothing, first, again, second, both, twice = at(0, a), at(1, a), at(1, a), at(1, b), at(1, a, b), at(2, a)
    broken = []
    for name, formal in public.items():
        values = [r[name] for r in (nothing, first, again, second, both, twice)]
        if not all(np.isfinite(v).all() for v in values) or not np.array_equal(first[name], again[name]):
            continue
        scale = max(float(np.abs(v).max(initial=0)) for v in values)
        laws = (nothing[name], both[name] - first[name] - second[name], twice[name] - 2 * first[name])
        if any(float(np.abs(law).max(initial=0)) > TOLERANCE * scale + ROUNDING for law in laws):
            broken.append(formal)
    return broken
