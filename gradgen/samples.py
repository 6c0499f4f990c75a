"""Samples of the rule tables: a model of one node, with inputs that stay away from kinks."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnx_ir as ir

from gradgen.engine.expand import expand_where
from gradgen.engine.knowledge import Constants, Knowledge
from gradgen.engine.link import Linker
from gradgen.engine.names import Names
from gradgen.engine.prepare import infer, learn_constants, prepare
from gradgen.engine.registry import Registry, registered
from gradgen.engine.rows import Row
from gradgen.engine.simplify import remove_unused
from gradgen.errors import GradientError
from gradgen.evaluate import to_float64
from gradgen.generator.schemas import FLOAT_TYPES, SnippetSchema, schema_of

RANGE = (-2.0, 2.0)
MARGIN = 0.05


@dataclass(frozen=True)
class Sample:
    """One sample of a row.

    Attributes:
        domain, op_type, since: the row.
        index: its place in the row.
        spec: what the table says. An input is a shape (for one that admits floats), its content (for one that does
            not), or a table with `shape` or `values` and `low`, `high`, `avoid`, `dtype`; a variadic input is a list
            of these. An input that takes no float64 is a float32 constant; with `constant = false` it is an input like
            the others, which in float64 only the reference evaluator reads. Other names are attributes. `@outputs`
            lists the outputs that the node has, `@of` those that are differentiated; `@wrt` the inputs; `@opset` the
            opset; `@single` says that the op knows float32 alone; `@selected` puts a 0 where an output is NaN, so that
            forms for outputs of which elements are left out hold; `@portable` asks for a portable gradient.
        settings: the row's `range`, `avoid`, `tolerance`, `second_order`.
    """

    domain: str
    op_type: str
    since: int
    index: int
    spec: dict[str, Any]
    settings: dict[str, Any]

    def __str__(self) -> str:
        parts = [f"{k.lstrip('@')}={v}" for k, v in self.spec.items()]
        return f"{self.index}-" + ",".join(parts).replace(" ", "")[:80]

    @property
    def tolerance(self) -> float:
        """Relative tolerance of the float64 comparison."""
        return float(self.settings.get("tolerance", 1e-6))

    @property
    def version(self) -> int:
        """The version of the operator set that the op is in."""
        return self.since if self.domain else self.opset

    @property
    def opset(self) -> int:
        """The opset of the sample's model."""
        return int(self.spec.get("@opset", max(21, self.since)))


@dataclass
class Built:
    """A sample as a model.

    Attributes:
        model: one node; float inputs are graph inputs, the others initializers.
        feeds: the float inputs' content.
        wrt: names of the inputs to differentiate.
        of: names of the outputs that are differentiated.
        primal: the model as engines run it: a node that has a rule beside its forward body as that body.
        portable: whether the gradient is asked to be portable.
    """

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    wrt: list[str]
    of: list[str]
    primal: onnx.ModelProto
    portable: bool = False


def build(sample: Sample, dtype: Any = np.float64, dynamic: bool = False, rules: Registry | None = None) -> Built:
    """The model and the inputs of a sample.

    Args:
        sample: the sample.
        dtype: the element type of its float inputs.
        dynamic: whether all dimensions of the float inputs are names; integer inputs stay known.
        rules: where the op's row is; by default the registry that every call uses.
    """
    rules = rules or registered()
    row = rules.find(sample.domain, sample.op_type, sample.version)
    body = None if row is None else row.forward
    through_body = row is not None and row.through_body
    if dtype == np.float64 and (through_body or sample.spec.get("@single")):
        return _widened(build(sample, np.float32, dynamic, rules), rules)
    schema: Any = schema_of(sample.domain, sample.op_type, sample.since if sample.since > 1 else None)
    if schema is None:
        if body is None:
            raise GradientError(f"there is no op {sample.op_type}")
        schema = SnippetSchema(sample.domain, sample.op_type, body)
    rng = np.random.default_rng(zlib.crc32(f"{sample.op_type}/{sample.index}".encode()))
    names: list[str] = []
    feeds: dict[str, np.ndarray] = {}
    fixed: list[onnx.TensorProto] = []
    declared: list[onnx.ValueInfoProto] = []
    for formal in schema.inputs:
        spec = sample.spec.get(formal.name)
        variadic = formal.option == onnx.defs.OpSchema.FormalParameterOption.Variadic
        items = spec if variadic and spec is not None else [spec]
        for k, item in enumerate(items):
            name = f"{formal.name}_{k}" if variadic else formal.name
            if item is None:
                names.append("")
                continue
            array, constant = _content(item, formal, sample, rng, dtype)
            names.append(name)
            if constant:
                fixed.append(onnx.numpy_helper.from_array(array, name))
            else:
                feeds[name] = array
                dims = [f"{name}_{i}" for i in range(array.ndim)] if dynamic else list(array.shape)
                kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
                declared.append(onnx.helper.make_tensor_value_info(name, kind, dims))
    while names and not names[-1]:
        names.pop()
    outputs = _outputs(schema, sample)
    attributes = {k: v for k, v in sample.spec.items() if k in schema.attributes}
    node = onnx.helper.make_node(sample.op_type, names, outputs, name="node", domain=sample.domain, **attributes)
    opsets = [onnx.helper.make_opsetid("", sample.opset)]
    if sample.domain:
        opsets.append(onnx.helper.make_opsetid(sample.domain, sample.since))
    nodes = [node]
    if sample.spec.get("@selected"):
        nodes += _leave_out_nan(node)
    graph = onnx.helper.make_graph(nodes, "sample", declared, [], fixed)
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    types = _output_types(model, outputs, rules)
    if dynamic and not all(t.type.tensor_type.HasField("shape") for t in types.values()):
        _add_ranks(types, build(sample, dtype, rules=rules).model)
    asked = sample.spec.get("@of", outputs)
    model.graph.output.extend(
        kind for o, kind in types.items() if o in asked or kind.type.tensor_type.HasField("shape")
    )
    floats = {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16}
    of = [o for o in asked if o and types[o].type.tensor_type.elem_type in floats]
    primal = model if body is None or through_body else expand_bodies(model, rules)
    return Built(model, feeds, list(sample.spec.get("@wrt", feeds)), of, primal, bool(sample.spec.get("@portable")))


def _leave_out_nan(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Nodes that put 0 where the outputs of a node are NaN, under the outputs' names."""
    added = []
    for k, output in enumerate(node.output):
        raw = node.output[k] = f"{output}/raw"
        added += [
            onnx.helper.make_node("IsNaN", [raw], [f"{output}/nan"]),
            onnx.helper.make_node("Constant", [], [f"{output}/none"], value_float=0.0),
            onnx.helper.make_node("CastLike", [f"{output}/none", raw], [f"{output}/zero"]),
            onnx.helper.make_node("Where", [f"{output}/nan", f"{output}/zero", raw], [output]),
        ]
    return added


def expand_bodies(
    model: onnx.ModelProto, registry: Registry, chosen: Callable[[ir.Node], bool] = lambda node: True
) -> onnx.ModelProto:
    """The model with every node whose op has a forward body replaced by it, of those that are `chosen`."""
    prepared = prepare(model, registry)
    graph, opset = prepared.model.graph, prepared.opset
    names = Names.of(graph)
    knowledge = Knowledge(set(graph.inputs))
    learn_constants(graph, knowledge, opset)
    linker = Linker(graph, registry, opset, knowledge, names, Constants(graph, names))
    remove_unused(graph)
    expand_where(graph, linker, lambda n: chosen(n) and _has_body(n, linker.rules.of(n)), {})
    remove_unused(graph)
    return ir.to_proto(prepared.model)


def _has_body(node: ir.Node, row: Row | None) -> bool:
    """Whether something reads an output of a node that its op's forward body computes."""
    if row is None or row.forward is None:
        return False
    read = [k for k, v in enumerate(node.outputs) if v.uses() or v.is_graph_output()]
    return any(row.output_name(k) in row.forward.returns for k in read)


def _widened(built: Built, rules: Registry) -> Built:
    """A float32 sample in float64: an op with a forward body as its body, since kernels of such ops are float32."""
    model = to_float64(expand_bodies(built.model, rules))
    feeds = {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in built.feeds.items()}
    return Built(model, feeds, built.wrt, built.of, model, built.portable)


def _outputs(schema: Any, sample: Sample) -> list[str]:
    if "@outputs" in sample.spec:
        return list(sample.spec["@outputs"])
    required = [f for f in schema.outputs if f.option != onnx.defs.OpSchema.FormalParameterOption.Optional]
    return [f.name for f in required] or [schema.outputs[0].name]


def _output_types(model: onnx.ModelProto, outputs: list[str], rules: Registry) -> dict[str, onnx.ValueInfoProto]:
    inferred = infer(model, rules)
    known = {v.name: v for v in inferred.graph.value_info}
    first = model.graph.input[0].type.tensor_type.elem_type if model.graph.input else onnx.TensorProto.FLOAT
    return {o: known.get(o) or onnx.helper.make_tensor_value_info(o, first, None) for o in outputs if o}


def _add_ranks(types: dict[str, onnx.ValueInfoProto], static: onnx.ModelProto) -> None:
    """Give outputs whose rank inference does not find the rank that they have in the static model."""
    for output in static.graph.output:
        tensor = types[output.name].type.tensor_type
        if not tensor.HasField("shape"):
            for axis in range(len(output.type.tensor_type.shape.dim)):
                tensor.shape.dim.add().dim_param = f"{output.name}_{axis}"


def _content(item: Any, formal: Any, sample: Sample, rng: np.random.Generator, dtype: Any) -> tuple[np.ndarray, bool]:
    """The content of an input and whether it is a constant of the model."""
    floats = any(t in FLOAT_TYPES for t in formal.types)
    only_single = floats and "tensor(double)" not in formal.types
    if isinstance(item, list | int | float | bool) and not floats:
        array = np.asarray(item)
        return (
            array.astype(np.int64)
            if array.dtype.kind in "if" and "tensor(int64)" in formal.types
            else (array.astype(np.int32) if array.dtype.kind in "if" else array)
        ), True
    table = item if isinstance(item, dict) else {"shape": item}
    if "values" in table:
        kind, single = table.get("dtype"), only_single and table.get("constant", True)
        numpy_type = np.dtype(kind) if kind else (np.float32 if single else dtype) if floats else np.int64
        array = np.asarray(table["values"], numpy_type)
        return array.reshape(table.get("shape", array.shape)), bool(table.get("constant", not floats or only_single))
    low, high = _setting(sample, "range", formal.name, RANGE)
    low, high = table.get("low", low), table.get("high", high)
    avoid = table.get("avoid", _setting(sample, "avoid", formal.name, []))
    single = only_single and table.get("constant", True)
    numpy_type = np.dtype(table["dtype"]) if "dtype" in table else np.dtype(np.float32 if single else dtype)
    array = draw(rng, tuple(table["shape"]), low, high, avoid)
    return array.astype(numpy_type), bool(table.get("constant", only_single))


def _setting(sample: Sample, key: str, name: str, default: Any) -> Any:
    setting = sample.settings.get(key, default)
    return setting.get(name, default) if isinstance(setting, dict) else setting


def draw(rng: np.random.Generator, shape: tuple[int, ...], low: float, high: float, avoid: Any = ()) -> np.ndarray:
    """Distinct numbers of a range, float32 exact, spread evenly and shuffled, none near a point to avoid.

    No two are close, so that maxima and sorts have no ties, and all are away from the kinks in `avoid`.
    """
    size = int(np.prod(shape, dtype=np.int64))
    if size == 0:
        return np.zeros(shape)
    cells = (np.arange(size) + 0.5 + rng.uniform(-0.3, 0.3, size)) / size
    values = low + (high - low) * cells
    gap = min(MARGIN, (high - low) / (4 * size) if avoid else MARGIN)
    for point in avoid:
        near = np.abs(values - point) < gap
        values = np.where(
            near, point + np.where(values >= point, gap, -gap) * (1 + np.abs(values - point) / gap), values
        )
    rng.shuffle(values)
    return values.astype(np.float32).astype(np.float64).reshape(shape)
