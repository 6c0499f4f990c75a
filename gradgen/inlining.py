"""Writes a model's own functions out where they are called."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import onnx.inliner

from gradgen.engine.protos import all_nodes


def inline_functions(
    model: onnx.ModelProto, kept: Callable[[onnx.FunctionProto], bool] | None = None
) -> onnx.ModelProto:
    """`model` without local functions but those that are `kept`; itself where it has none.

    `onnx.inliner` drops the defaults of function attributes, so each call gets them spelled out first.
    """
    if not model.functions:
        return model
    bound = onnx.ModelProto()
    bound.CopyFrom(model)
    defaults = {(f.domain, f.name): list(f.attribute_proto) for f in bound.functions}
    for owner in (bound.graph, *bound.functions):
        for node in all_nodes(owner):
            given = {a.name for a in node.attribute}
            node.attribute.extend(a for a in defaults.get((node.domain, node.op_type), ()) if a.name not in given)
    for function in bound.functions:
        del function.value_info[:]  # its dimension names are those of one call, and would be shared by all
    names = [(f.domain, f.name) for f in bound.functions if kept is not None and kept(f)]
    if names:
        return onnx.inliner.inline_selected_functions(bound, names, exclude=True)
    return onnx.inliner.inline_local_functions(bound)
