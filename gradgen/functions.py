"""Gradients of node lists and of functions, as FunctionProtos."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
import onnx.checker
import onnx_ir as ir

from gradgen.arguments import check_switches, name_list
from gradgen.engine.builder import BodyNode, find_schema
from gradgen.engine.compound import zeros
from gradgen.engine.derive import derive
from gradgen.engine.expand import expand_where
from gradgen.engine.given import remove_given, with_given
from gradgen.engine.inference import infer_types, set_type
from gradgen.engine.knowledge import Constants, Knowledge
from gradgen.engine.link import Linker
from gradgen.engine.names import Names, free_prefix
from gradgen.engine.opsets import raise_opset
from gradgen.engine.prepare import learn_constants
from gradgen.engine.protos import all_nodes
from gradgen.engine.registry import Registry, Rules, registry_of
from gradgen.engine.settling import rewrite_nodes
from gradgen.engine.simplify import merge_common, remove_unused
from gradgen.engine.subgraphs import free_values, graphs
from gradgen.engine.through import Through, pass_through, quantises
from gradgen.engine.values import Value, is_float
from gradgen.errors import GradientError
from gradgen.rules.lang import INTERNAL, OPSET
from gradgen.transforms.common import say_stops

Types = Mapping[str, onnx.TypeProto]


def gradient_of_nodes(
    nodes: Sequence[onnx.NodeProto],
    xs: Sequence[str],
    y: str,
    zs: Sequence[str] = (),
    *,
    stop: Sequence[str] = (),
    straight_through: bool = False,
    types: Types | None = None,
    opset: int | Mapping[str, int] | None = None,
    name: str = "gradient",
    domain: str = "gradgen",
    registry: Registry | None = None,
) -> onnx.FunctionProto:
    """The gradient of `y`, which the nodes compute, with respect to `xs`, as a function.

    Args:
        nodes: in topological order.
        xs: names of values; one that depends on another is refused (`vjp` gives total derivatives).
        y: the name of the value that is differentiated.
        zs: names of further values that the function takes: they are read instead of recomputed, and derivatives still
            flow through their producers to `xs`. Values that no node computes and that are needed must be in xs or zs.
        stop: names of values that are constants: no derivative flows through them.
        straight_through: pass derivatives through quantisation, as for `vjp`; by default a GradientWarning names what
            stops them.
        types: the types of values by name; without them a rule that needs a rank or an element type is refused by name.
        opset: the ai.onnx opset of the nodes, or the versions of the operator sets that they are of by domain, "" for
            ai.onnx; by default ai.onnx 21, or later where the nodes need it, and version 1 of any other.
        name, domain: of the function.
        registry: rules to use in place of the registered ones.

    Returns:
        A FunctionProto with inputs `[xs…, zs…, "dy"]` and outputs `grad_<x>`. It holds the forward nodes that the
        backward ones need, and no others. Where a name `grad_<x>` is taken, `grad2_`, `grad3_`, … is used throughout.
        Its opset is max(21, what its nodes need).

    Raises:
        GradientError: for unknown names, nodes without a rule, and a random node whose value is needed and not in zs.
    """
    given = opset if isinstance(opset, Mapping) else {} if opset is None else {"": opset}
    versions = {("" if d == "ai.onnx" else d): version for d, version in given.items()}
    domains = {"" if node.domain == "ai.onnx" else node.domain for node in all_nodes(nodes)}
    imports = {"": versions.get("") or _needed_opset(nodes), **{d: versions.get(d, 1) for d in sorted(domains - {""})}}
    opsets = [onnx.helper.make_opsetid(d, version) for d, version in imports.items()]
    function = onnx.helper.make_function(domain, name, [], [], list(nodes), opsets)
    return gradient_of_function(
        function, xs, y, zs, stop=stop, straight_through=straight_through, types=types, name=name, domain=domain,
        registry=registry,
    )  # fmt: skip


def gradient_of_function(
    function: onnx.FunctionProto,
    xs: Sequence[str],
    y: str,
    zs: Sequence[str] = (),
    *,
    stop: Sequence[str] = (),
    straight_through: bool = False,
    types: Types | None = None,
    name: str | None = None,
    domain: str | None = None,
    registry: Registry | None = None,
) -> onnx.FunctionProto:
    """The gradient of a value of a function, as a function with the same attribute parameters.

    As `gradient_of_nodes`, of the function's nodes; the function's value_info counts as types.
    """
    check_switches(straight_through=straight_through)
    registry = with_given(registry_of(registry))
    xs, zs, stop = name_list("xs", xs), name_list("zs", zs), name_list("stop", stop)
    graph, opset, imports = _graph(function, types or {})
    rewrite_nodes(graph, Rules(registry, imports))
    values = {v.name: v for v in [*graph.inputs, *(o for n in graph for o in n.outputs)] if v.name}
    _check_names(values, xs, y, zs, stop)
    names = Names.of(graph)
    prefix = free_prefix("grad", xs, names)
    _infer(graph, opset)
    sources = [_cut(values[x], graph) for x in xs]
    _check_independent(graph, xs, values)
    supplied = {z: _supply(values[z], graph, names) for z in zs}
    target = next((s for s, x in zip(sources, xs, strict=True) if x == y), None) or supplied.get(y) or values[y]
    _check_float([("y", y, target), *(("xs", x, source) for x, source in zip(xs, sources, strict=True))])
    knowledge = Knowledge({*sources, *supplied.values(), *graph.inputs})
    learn_constants(graph, knowledge, opset)
    linker = Linker(graph, registry, opset, knowledge, names, Constants(graph, names))
    seed = ir.Value(name=names.unique("dy"), type=target.type, shape=target.shape)
    supplying = [n for n in graph if n.domain == INTERNAL]
    graph.outputs.append(_active(target, graph))  # so that it is kept, and followed where it is replaced
    expanded: dict[ir.Value, ir.Value] = {}
    expand_where(graph, linker, lambda node: quantises(node, linker), expanded)
    through = pass_through(graph, sources, linker) if straight_through else Through()
    say_stops(graph, sources, graph.outputs, linker, through)
    constant = [through.replaced.get(v, v) for v in (expanded.get(values[n], values[n]) for n in stop)]
    found, _ = derive(graph, sources, {graph.outputs[0]: seed}, linker, constant)
    outputs = []
    for x, source, ct in zip(xs, sources, found, strict=True):
        value = zeros(linker, source) if ct is None else ct
        outputs.append(linker.publish(value, names.add(f"{prefix}{x}"), source))
    graph.outputs.clear()
    graph.outputs.extend(outputs)
    remove_given(graph, supplying)
    through.restore_names()
    remove_unused(graph)
    merge_common(graph, linker.draws)
    inputs = [*sources, *supplied.values(), seed]
    _check_closed(graph, inputs, linker)
    return _function(graph, inputs, function, domain or function.domain, name or f"{function.name}_gradient", imports)


def _needed_opset(nodes: Sequence[onnx.NodeProto]) -> int:
    """21, or the first later opset that has all ops and attributes of the nodes."""
    for version in range(OPSET, onnx.defs.onnx_opset_version() + 1):
        if all(n.domain not in ("", "ai.onnx") or _fits(n, version) for n in nodes):
            return version
    return OPSET


def _fits(node: onnx.NodeProto, version: int) -> bool:
    try:
        schema = onnx.defs.get_schema(node.op_type, version, "")
    except onnx.defs.SchemaError:
        return False
    return all(a.name in schema.attributes for a in node.attribute)


def _graph(function: onnx.FunctionProto, types: Types) -> tuple[ir.Graph, int, dict[str, int]]:
    """The function's nodes as a graph at opset 21 or later; names that no node computes are its inputs."""
    imports = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in function.opset_import}
    opset = imports.get("", OPSET)
    produced = {o for n in function.node for o in n.output if o}
    read: dict[str, None] = dict.fromkeys(function.input)
    for node in function.node:
        read.update(dict.fromkeys(i for i in [*node.input, *_outer_names(node)] if i))
    known = {**{v.name: v.type for v in function.value_info}, **types}
    inputs = [_info(n, known.get(n)) for n in read if n not in produced]
    proto = onnx.helper.make_graph(list(function.node), function.name, [], [])
    proto.input.extend(inputs)
    model = onnx.helper.make_model(
        proto, opset_imports=[onnx.helper.make_opsetid(d, v) for d, v in {**imports, "": opset}.items()]
    )
    model_ir = ir.from_proto(model)
    if opset < OPSET:
        raise_opset(model_ir, OPSET)
        opset = OPSET
    graph = model_ir.graph
    for node in graph:
        for value in node.outputs:
            if value.name in known:
                _apply_type(value, known[value.name])
    return graph, opset, {**imports, "": opset}


def _outer_names(node: onnx.NodeProto) -> list[str]:
    found: list[str] = []
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs]:
            defined = {i.name for i in graph.input} | {t.name for t in graph.initializer}
            for inner in graph.node:
                found.extend(i for i in [*inner.input, *_outer_names(inner)] if i and i not in defined)
                defined.update(inner.output)
            found.extend(o.name for o in graph.output if o.name not in defined)
    return found


def _info(name: str, known: onnx.TypeProto | None) -> onnx.ValueInfoProto:
    info = onnx.ValueInfoProto(name=name)
    if known is not None:
        info.type.CopyFrom(known)
    return info


def _apply_type(value: ir.Value, proto: onnx.TypeProto) -> None:
    found = Value()
    set_type(found, proto)
    if found.dtype is not None:
        value.type = ir.TensorType(found.dtype)
    if found.shape is not None:
        value.shape = ir.Shape(found.shape)


def _check_names(
    values: Mapping[str, ir.Value], xs: Sequence[str], y: str, zs: Sequence[str], stop: Sequence[str]
) -> None:
    problems = [
        f"{role}: there is no value '{n}'"
        for role, ns in (("xs", xs), ("y", [y]), ("zs", zs), ("stop", stop))
        for n in ns
        if n not in values
    ]
    if not xs:
        problems.append("xs is empty: name at least one value")
    problems += [f"'{n}' is in xs and in {role}" for role, ns in (("zs", zs), ("stop", stop)) for n in xs if n in ns]
    problems += [
        f"{role} names '{n}' twice"
        for role, ns in (("xs", xs), ("zs", zs))
        for n in dict.fromkeys(ns)
        if list(ns).count(n) > 1
    ]
    if problems:
        raise GradientError("; ".join(problems))


def _check_float(named: Sequence[tuple[str, str, ir.Value]]) -> None:
    problems = [
        f"{role}: '{name}' is of {value.dtype.name.lower()}, and only float tensors have a gradient"
        for role, name, value in named
        if value.dtype is not None and not is_float(value.dtype)
    ]
    if problems:
        raise GradientError("; ".join(problems))


def _cut(value: ir.Value, graph: ir.Graph) -> ir.Value:
    """The value as an input: what computes it is not run."""
    if value.producer() is None:
        return value
    fresh = ir.Value(name=value.name, type=value.type, shape=value.shape)
    value.replace_all_uses_with(fresh)
    value.name = f"{value.name}/computed"
    return fresh


def _check_independent(graph: ir.Graph, xs: Sequence[str], values: Mapping[str, ir.Value]) -> None:
    for x in xs:
        pending, seen = [values[x].producer()], set()
        while pending:
            node = pending.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            for value in node.inputs:
                if value is not None and value.producer() is None and value.name in xs:
                    raise GradientError(f"xs: '{x}' depends on '{value.name}'; use gradgen.vjp for total derivatives")
                pending.append(None if value is None else value.producer())


def _supply(value: ir.Value, graph: ir.Graph, names: Names) -> ir.Value:
    """An input that is read in place of a computed value."""
    if value.producer() is None:
        return value
    given = ir.Value(name=value.name, type=value.type, shape=value.shape)
    value.name = names.unique(f"{value.name}/computed")
    active = ir.Value(name=names.unique(f"{given.name}/given"), type=value.type, shape=value.shape)
    ir.convenience.replace_all_uses_with(value, active)
    node = ir.Node(INTERNAL, "Given", [value, given], outputs=[active], name=active.name, version=1)
    producer = value.producer()
    assert producer is not None
    graph.insert_after(producer, node)
    return given


def _active(value: ir.Value, graph: ir.Graph) -> ir.Value:
    """The value that derivatives flow through: the internal node's where a supplied one stands for it."""
    for use in value.uses():
        if use.node.domain == INTERNAL and use.idx == 1:
            return use.node.outputs[0]
    return value


def _infer(graph: ir.Graph, opset: int) -> None:
    """Infer the types that follow node by node from those that are known."""
    for node in graph:
        if not all(v.type is not None and v.shape is not None for v in node.outputs):
            infer_node(node, opset)


def infer_node(node: ir.Node, opset: int) -> None:
    """Give a node's outputs the types and shapes that follow from its inputs, where they have none."""
    if node.domain or graphs(node):
        return
    knowledge = Knowledge()
    inputs = [None if v is None else _plain_value(v, knowledge) for v in node.inputs]
    body = BodyNode("", node.op_type, inputs, [Value() for _ in node.outputs], dict(node.attributes))
    infer_types(body, find_schema(node.op_type, "", opset), opset)
    for value, found in zip(node.outputs, body.outputs, strict=True):
        if value.type is None and found.dtype is not None:
            value.type = ir.TensorType(found.dtype)
        if value.shape is None and found.shape is not None:
            value.shape = ir.Shape(found.shape)


def _plain_value(value: ir.Value, knowledge: Knowledge) -> Value:
    from gradgen.engine.contract import ir_shape

    producer = value.producer()
    const = None
    if producer is not None and producer.op_type == "Constant" and not producer.domain:
        from gradgen.engine.prepare import constant_content

        const = constant_content(producer)
    return Value(value.dtype, ir_shape(value), const)


def _check_closed(graph: ir.Graph, inputs: Sequence[ir.Value], linker: Linker) -> None:
    """Refuse a function that would need more inputs, or repeat a random draw."""
    random = [n for n in ir.traversal.RecursiveGraphIterator(graph) if linker.draws(n)]
    if random:
        listed = ", ".join(f"'{o.name}' ({n.op_type})" for n in random for o in n.outputs if o.uses())
        raise GradientError(f"the gradient needs random values, and a draw is never repeated: put {listed} into zs")
    pool = set(graph.initializers.values())
    defined = set(graph.inputs)
    graph.inputs.clear()
    missing = [v.name for v in free_values(graph) if v not in set(inputs) and v not in pool]
    graph.inputs.extend(v for v in defined if v not in set(inputs))
    if missing:
        raise GradientError(f"the gradient needs {', '.join(map(repr, missing))}: put them into xs or zs")


def _function(
    graph: ir.Graph,
    inputs: Sequence[ir.Value],
    like: onnx.FunctionProto,
    domain: str,
    name: str,
    imports: dict[str, int],
) -> onnx.FunctionProto:
    """The graph as a FunctionProto: pooled constants become Constant nodes, attribute parameters are kept."""
    first = next(iter(graph), None)
    for value in list(graph.initializers.values()):
        if not value.uses():
            continue
        assert value.const_value is not None
        node = ir.Node("", "Constant", [], [ir.AttrTensor("value", value.const_value)], num_outputs=1)
        node.outputs[0].name = value.name
        node.outputs[0].type, node.outputs[0].shape = value.type, value.shape
        value.name = f"{value.name}/initializer"
        value.replace_all_uses_with(node.outputs[0])
        assert first is not None
        graph.insert_before(first, node)
    used = {n.domain for n in ir.traversal.RecursiveGraphIterator(graph)}
    proto = onnx.FunctionProto(domain=domain, name=name)
    proto.input.extend(v.name or "" for v in inputs)
    proto.output.extend(v.name or "" for v in graph.outputs)
    proto.node.extend(ir.to_proto(n) for n in graph)
    proto.attribute.extend(like.attribute)
    proto.attribute_proto.extend(like.attribute_proto)
    proto.opset_import.extend(onnx.helper.make_opsetid(d, v) for d, v in imports.items() if d in used or d == "")
    return proto
