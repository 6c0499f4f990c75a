"""The schemas that rows of the tables describe: the standard's, or for an op without one what its body says."""

from __future__ import annotations

from dataclasses import dataclass

import onnx
import onnx.defs

from gradgen.engine.rows import Form
from gradgen.rules.lang import OPSET

FLOAT_TYPES = ("tensor(float)", "tensor(double)", "tensor(float16)", "tensor(bfloat16)")


@dataclass(frozen=True)
class SnippetFormal:
    """An input or output of an op that has no schema."""

    name: str
    option: onnx.defs.OpSchema.FormalParameterOption
    types: tuple[str, ...] = FLOAT_TYPES


class SnippetSchema:
    """What the signature of a forward body says of an op that has no schema."""

    def __init__(self, domain: str, name: str, body: Form):
        options = onnx.defs.OpSchema.FormalParameterOption
        self.domain, self.name = domain, name
        self.inputs = [SnippetFormal(n, options.Optional) for n in body.reads if n not in body.returns]
        self.outputs = [SnippetFormal(n, options.Optional if k else options.Single) for k, n in enumerate(body.returns)]
        self.attributes = dict.fromkeys(body.attributes)


def schema_of(domain: str, op_type: str, version: int | None) -> onnx.defs.OpSchema | None:
    """The schema that a row describes: the one in force at opset 21, or the first later one."""
    try:
        if version is not None:
            return onnx.defs.get_schema(op_type, version, domain)
        if domain == "":
            try:
                return onnx.defs.get_schema(op_type, OPSET, domain)
            except onnx.defs.SchemaError:
                pass
        return onnx.defs.get_schema(op_type, domain=domain)
    except onnx.defs.SchemaError:
        return None


def admits_floats(schema: onnx.defs.OpSchema, formal: onnx.defs.OpSchema.FormalParameter) -> bool:
    """Whether a formal can be a float tensor (or hold some)."""
    return any(t in FLOAT_TYPES or "float" in t or "double" in t for t in formal.types)
