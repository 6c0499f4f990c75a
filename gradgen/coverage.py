"""What the rule tables say of each op, in words: the rows of `gradgen coverage` and of COVERAGE.md."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import onnx.defs

from gradgen.engine.registry import Registry, registered
from gradgen.engine.rows import Row
from gradgen.errors import GradientError
from gradgen.generator.schemas import admits_floats, schema_of

# As they stand in type constraints, those of sequences and optionals included.
FLOATS = {"(float16)": "f16", "(bfloat16)": "bf16", "(float)": "f32", "(double)": "f64"}
OLDEST = 7  # the oldest opset of a model that is taken


def first_version(row: Row) -> int:
    """The first version of its domain for which a row holds: where the op begins, in a model that is taken."""
    return max(row.since, _begins().get((row.domain, row.op_type), 1), 1 if row.domain else OLDEST)


@functools.cache
def _begins() -> dict[tuple[str, str], int]:
    """The first version of each op of the standard."""
    begins: dict[tuple[str, str], int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        key = (schema.domain, schema.name)
        begins[key] = min(schema.since_version, begins.get(key, schema.since_version))
    return begins


def disposition(row: Row, index: int) -> str:
    """What an input's derivative is: `rule`, `body`, `zero`, `none (reason)`, or `not float`."""
    name, kind = row.input_name(index), row.disposition(index)
    if kind == "none":
        return f"none ({row.none[name]})" if name in row.none else "not float"
    if kind == "rule" and any(f.kind == "structural" for f in row.forms):
        # A structural rule names no inputs: the schema says which of them can be floats.
        schema = schema_of(row.domain, row.op_type, row.since if row.since > 1 else None)
        if schema is not None and index < len(schema.inputs) and not admits_floats(schema, schema.inputs[index]):
            return "not float"
    return kind


def float_types(row: Row, rows: Sequence[Row]) -> str:
    """The float types that the op's newest schema for which a row holds allows where its derivative is not zero.

    `rows` are all rows: a later one of the same op ends this one.
    """
    later = [r.since for r in rows if (r.domain, r.op_type) == (row.domain, row.op_type) and r.since > row.since]
    try:
        newest = onnx.defs.get_schema(row.op_type, domain=row.domain)
        while later and newest.since_version >= min(later):
            newest = onnx.defs.get_schema(row.op_type, newest.since_version - 1, row.domain)
    except onnx.defs.SchemaError:
        return "–"
    allowed = {
        kind
        for index, formal in enumerate(newest.inputs)
        if index < len(row.inputs) and disposition(row, index) in ("rule", "body")
        for kind in formal.types
    }
    return ", ".join(short for kind, short in FLOATS.items() if any(kind in text for text in allowed)) or "–"


def has_body(op: str) -> bool:
    """Whether an op, by type or `domain::op`, is defined by other ops in the standard."""
    domain, _, op_type = op.rpartition("::")
    try:
        schema = onnx.defs.get_schema(op_type, domain="" if domain == "ai.onnx" else domain)
    except onnx.defs.SchemaError:
        return False
    known: Any = schema  # the stubs of onnx lack both
    return bool(known.has_function or known.has_context_dependent_function)


def near_matches(op: str, known: Iterable[str]) -> str:
    """What a message says behind an op that is not known: ` (near matches: …)`, of any case, or nothing.

    Where no domain is asked for, the name alone is compared: `known` are op types, or `domain::op`.
    """
    names = {name.lower(): name for name in known}
    if "::" not in op:
        names = {**{lower.rpartition("::")[2]: name for lower, name in names.items()}, **names}
    found = difflib.get_close_matches(op.lower(), names, n=3, cutoff=0.7)
    return f" (near matches: {', '.join(dict.fromkeys(names[n] for n in found))})" if found else ""


def coverage_rows(ops: Sequence[str] = (), registry: Registry | None = None) -> list[tuple[str, str, str, str]]:
    """Op, first version, rules, and the dispositions of its inputs, for each row.

    Args:
        ops: op types, or `domain::op`; by default all.
        registry: by default the one that every call uses.

    Raises:
        GradientError: lists the ops that have no row, each with near matches.
    """
    rows = (registry or registered()).rows()
    missing = [op for op in ops if not any(_is(row, op) for row in rows)]
    if missing:
        known = [name for row in rows for name in (row.op_type, f"{row.domain or 'ai.onnx'}::{row.op_type}")]
        said = []
        for op in missing:
            if has_body(op):
                said.append(f"'{op}' (it has a body in the standard, through which it is differentiated)")
                continue
            said.append(f"'{op}'{near_matches(op, known)}")
        raise GradientError(f"no row for {', '.join(said)}")
    chosen = [row for row in rows if not ops or any(_is(row, op) for op in ops)]
    result = []
    for row in sorted(chosen, key=lambda r: (r.domain, r.op_type, r.since)):
        said = [f"{n.rstrip('*')}: {disposition(row, i)}" for i, n in enumerate(row.inputs)]
        rules = ", ".join(dict.fromkeys(f.rule for f in row.forms)) or (
            f"{row.forward.rule} (body)" if row.forward else "–"
        )
        name = f"{row.domain}::{row.op_type}" if row.domain else row.op_type
        result.append((name, str(first_version(row)), rules, "; ".join(said)))
    return result


def _is(row: Row, op: str) -> bool:
    domain, separator, op_type = op.rpartition("::")
    return row.op_type == op_type and (not separator or row.domain == ("" if domain == "ai.onnx" else domain))
