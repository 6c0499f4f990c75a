"""Links rules as calls into the function library, for reading: `inline=False`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from gradgen.engine.link import Linker
from gradgen.engine.specialise import Template
from gradgen.engine.values import Value
from gradgen.rules.lang import DOMAIN


class CallLinker(Linker):
    """A linker that keeps each application of a rule as one node, and adds the functions to the model.

    A call's function is the rule specialised for the call's signature, so that what is read is what runs.
    """

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.functions: dict[Any, ir.Function] = {}

    def within(self, graph: ir.Graph) -> CallLinker:
        """A linker for a subgraph, which adds to the same functions."""
        linker = super().within(graph)
        assert isinstance(linker, CallLinker)
        linker.functions = self.functions
        return linker

    def clone(
        self, template: Template, actual: Sequence[ir.Value], names: Mapping[str, str], rule: str, origin: str
    ) -> dict[str, Any]:
        """Append a call of a specialised rule; the rule itself where a function cannot hold it."""
        wanted = _flat(template.outputs)
        produced = {id(v) for n in template.nodes for v in n.outputs}
        if (
            not all(id(v) in produced for v in wanted)
            or any(n.captures for n in template.nodes)
            or len(wanted) != len({id(v) for v in wanted})
        ):
            return super().clone(template, actual, names, rule, origin)
        function = self.functions.get(id(template))
        if function is None:
            same = sum(f.name == rule or f.name.startswith(f"{rule}_s") for f in self.functions.values())
            name = rule if not same else f"{rule}_s{same + 1}"
            function = self.functions[id(template)] = as_function(template, name, self.opset)
        back = {short: name for name, short in names.items()}
        outputs = [self._output(v, back, f"{origin}/{rule}" if origin else rule) for v in wanted]
        node = ir.Node(
            DOMAIN, function.name, actual, outputs=outputs, name=outputs[0].name,
            metadata_props={"gradgen.rule": rule, "gradgen.node": origin},
        )  # fmt: skip
        self.append(node)
        found = {id(v): out for v, out in zip(wanted, outputs, strict=True)}
        return {
            n: [None if v is None else found[id(v)] for v in r]
            if isinstance(r, list)
            else (None if r is None else found[id(r)])
            for n, r in template.outputs.items()
        }

    def _output(self, value: Value, back: Mapping[str, str], base: str) -> ir.Value:
        kind = None if value.dtype is None else ir.TensorType(value.dtype)
        return ir.Value(name=self.names.unique(base), shape=value.ir_shape(back), type=kind)

    def finish(self, model: ir.Model) -> None:
        """Add the functions that the calls name, and import their domain."""
        called = {n.op_type for n in ir.traversal.RecursiveGraphIterator(model.graph) if n.domain == DOMAIN}
        for function in self.functions.values():
            if function.name in called:
                model.functions[function.identifier()] = function
        if called:
            model.opset_imports[DOMAIN] = 1
        super().finish(model)


def _flat(outputs: Mapping[str, Any]) -> list[Value]:
    flat: list[Value] = []
    for result in outputs.values():
        flat.extend(v for v in (result if isinstance(result, list) else [result]) if v is not None)
    return flat


def as_function(template: Template, name: str, opset: int) -> ir.Function:
    """A specialised body as a function; its constants are Constant nodes."""
    env: dict[int, ir.Value] = {}
    inputs = []
    for k, value in enumerate(template.inputs):
        inner = ir.Value(name=f"x{k}", type=None if value.dtype is None else ir.TensorType(value.dtype))
        inputs.append(inner)
        env[id(value)] = inner
    nodes: list[ir.Node] = []

    def resolve(value: Value | None) -> ir.Value | None:
        if value is None:
            return None
        if id(value) not in env:
            assert value.peek is not None
            tensor = ir.Tensor(value.peek)
            node = ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)], num_outputs=1)
            node.outputs[0].name = f"c{len(env)}"
            nodes.append(node)
            env[id(value)] = node.outputs[0]
        return env[id(value)]

    for body in template.nodes:
        values = [resolve(v) for v in body.inputs]
        node = ir.Node(body.domain, body.op_type, values, body.attributes, num_outputs=len(body.outputs))
        for k, (value, out) in enumerate(zip(body.outputs, node.outputs, strict=True)):
            out.name = f"v{len(env)}_{k}"
            env[id(value)] = out
        nodes.append(node)
    outputs = [env[id(v)] for v in _flat(template.outputs)]
    graph = ir.Graph(inputs, outputs, nodes=nodes, opset_imports={"": opset}, name=name)
    return ir.Function(DOMAIN, name, "", graph=graph, attributes=[])
