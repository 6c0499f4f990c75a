"""The internal node that reads one value and has the derivative of another; it lives only while a graph is derived."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from gradgen.engine.registry import Registry
from gradgen.engine.rows import Form, Row
from gradgen.engine.subgraphs import graphs
from gradgen.engine.surgery import remove_node
from gradgen.rules.lang import INTERNAL, RuleFunction


def given_row() -> Row:
    """The rule of `Given(computed, given)`: it is `given`, and passes its cotangent to `computed`."""

    def given_vjp(dvalue):
        return dvalue

    rule = RuleFunction(given_vjp, "traced", returns=("dcomputed",))
    form = Form("given_vjp", "traced", __name__, ("dvalue",), ("dcomputed",), function=rule)
    return Row(INTERNAL, "Given", 1, ("computed", "given"), ("value",), (form,), zero=("given",))


GIVEN = given_row()


def with_given(registry: Registry) -> Registry:
    """A registry that knows the internal node too."""
    return registry.extended(GIVEN)


def remove_given(graph: ir.Graph, same: Collection[ir.Node] = ()) -> None:
    """Let what reads the internal nodes read the given values, as well as what reads the computed ones of `same`.

    Those in subgraphs are removed too.
    """
    for node in list(graph):
        for inner in graphs(node):
            remove_given(inner, same)
        if node.domain == INTERNAL and node.op_type == "Given":
            computed, given = node.inputs
            assert computed is not None and given is not None
            ir.convenience.replace_all_uses_with(node.outputs[0], given, replace_graph_outputs=True)
            remove_node(node)
            if node in same:
                ir.convenience.replace_all_uses_with(computed, given)
