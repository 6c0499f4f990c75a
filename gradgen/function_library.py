"""All compiled rules as functions in one model file, for runtimes that link them by themselves: `gradgen.library`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import onnx.checker
import onnx_ir as ir

from gradgen.arguments import name_list
from gradgen.coverage import first_version, near_matches
from gradgen.engine.protos import all_nodes
from gradgen.engine.registry import NEWEST, Registry, form_body, registry_of
from gradgen.engine.rows import Form, Row
from gradgen.errors import GradientError
from gradgen.inlining import inline_functions
from gradgen.rules import library as shared
from gradgen.rules.lang import DOMAIN, OPSET, RuleFunction

REASONS = {
    "traced": "its rule is traced: it is written out for the types of each node, and has no general form",
    "structural": "its rule differentiates the graphs or sequences of a node: no function can do that",
    "body": "it is differentiated through its forward body, and has no rule of its own",
    "zero": "its derivative is zero",
    "none": "it has no rule",
}
IR_VERSION = 10


@dataclass(frozen=True)
class Entry:
    """What the library says of one op.

    Attributes:
        op: `Mul`, or `domain::Op`.
        since: the first version of its domain for which that holds.
        functions: names of its functions in the library; the last is the general rule.
        reason: why the library has no general rule for it; empty where it has one.
    """

    op: str
    since: int
    functions: tuple[str, ...]
    reason: str


def library(
    opset: int = OPSET, ops: Sequence[str] | str | None = None, *, registry: Registry | None = None
) -> onnx.ModelProto:
    """The compiled rules as functions of one model without nodes, each complete by itself.

    Args:
        opset: the opset that each function imports, from 21 to the newest that the installed onnx knows.
        ops: the ops whose rules to write, `Mul` or `domain::Op`; by default all.
        registry: by default the registry that every call uses.

    Returns:
        A ModelProto. A function of domain `gradgen.vjp` takes cotangents `d<output>` and values of the op, and returns
        `d<input>`; its attributes are the op's, with the op's defaults. It calls nothing but standard ops, so that it
        can be copied into a model on its own. Its metadata say which rule it is: `gradgen.op`, `gradgen.since`, and for
        a rule that holds in some cases alone `gradgen.when`, the condition, or `gradgen.forward`, the function that
        stands in for the forward node. What rules share (`sum_to`, …) is there too, with `gradgen.op` empty.

    Raises:
        GradientError: for an opset that is not known, ops without a row, and ops whose rules have no general form,
            where they are asked for by name.
    """
    return written(opset, ops, registry)[0]


def written(
    opset: int = OPSET, ops: Sequence[str] | str | None = None, registry: Registry | None = None, strict: bool = True
) -> tuple[onnx.ModelProto, list[Entry]]:
    """The library, and what it says of each op; see `library`. Unless `strict`, ops that were asked for and have no
    general form are entries with a reason, as all others are."""
    newest = onnx.defs.onnx_opset_version()
    if isinstance(opset, bool) or not isinstance(opset, int) or not OPSET <= opset <= newest:
        raise GradientError(f"opset is an int from {OPSET} to {newest}, which the installed onnx knows, not {opset!r}")
    rules = registry_of(registry)
    asked = None if ops is None else name_list("ops", ops)
    if asked == []:
        raise GradientError("ops is empty: name at least one op, or leave it out for all")
    rows = _chosen(rules.rows(), asked, opset)
    writer = _Writer(rules, opset)
    entries = [writer.entry(row) for row in rows]
    left = [e for e in entries if e.reason]
    if strict and asked is not None and left:
        raise GradientError("; ".join(f"{e.op} is not in the library: {e.reason}" for e in left))
    if asked is None:
        writer.shared()
    return writer.model(), entries


def _chosen(rows: Iterable[Row], ops: Sequence[str] | None, opset: int) -> list[Row]:
    """The rows that hold at an opset, one for each op, in alphabetical order."""
    newest: dict[tuple[str, str], Row] = {}
    for row in sorted(rows, key=lambda r: r.since):
        if row.domain or first_version(row) <= opset:
            newest[row.domain, row.op_type] = row
    names = {_name(row): row for row in newest.values()}
    if ops is None:
        return [names[n] for n in sorted(names)]
    wanted = [op.removeprefix("ai.onnx::") for op in ops]
    if unknown := [op for op in wanted if op not in names]:
        said = [f"'{op}'{near_matches(op, names)}" for op in unknown]
        raise GradientError(f"no row at opset {opset} for {', '.join(said)}")
    return [names[n] for n in dict.fromkeys(wanted)]


def _name(row: Row) -> str:
    return f"{row.domain}::{row.op_type}" if row.domain else row.op_type


class _Writer:
    """Collects functions, each flattened, checked and named once."""

    def __init__(self, rules: Registry, opset: int):
        self._rules = rules
        self._opset = opset
        self._functions: dict[str, onnx.FunctionProto] = {}
        self._domains: dict[str, int] = {}

    def entry(self, row: Row) -> Entry:
        """Add what a row has."""
        # A rule may stand in several forms of a row, under several conditions.
        compiled = {f.rule: f for f in row.forms if f.kind == "compiled"}
        names = [self._add(row, form) for form in compiled.values()]
        if row.forms:
            kind = row.forms[-1].kind
        else:
            kind = "body" if row.forward is not None else "none" if row.none and not row.zero else "zero"
        return Entry(_name(row), first_version(row), tuple(names), REASONS.get(kind, ""))

    def shared(self) -> None:
        """Add the functions that rules share."""
        for name, value in vars(shared).items():
            if isinstance(value, RuleFunction) and value.kind == "library":
                self._store(name, self._flat(self._rules.body(name)), {"gradgen.op": ""})

    def model(self) -> onnx.ModelProto:
        """The model, checked."""
        model = onnx.ModelProto(ir_version=IR_VERSION, producer_name="gradgen")
        model.graph.name = "gradgen_library"
        model.opset_import.append(onnx.helper.make_opsetid("", self._opset))
        model.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))
        model.opset_import.extend(onnx.helper.make_opsetid(d, v) for d, v in sorted(self._domains.items()))
        model.functions.extend(self._functions.values())
        onnx.checker.check_model(model, full_check=True)
        return model

    def _add(self, row: Row, form: Form) -> str:
        said = {"gradgen.op": _name(row), "gradgen.since": str(first_version(row))}
        conditions = [f.when for f in row.forms if f.rule == form.rule]
        if all(conditions):
            said["gradgen.when"] = " or ".join(f"({c})" for c in conditions) if conditions[1:] else str(form.when)
        if form.fwd:
            forward = self._rules.body(form.fwd)
            pair = {**said, "gradgen.pair": form.rule}
            said["gradgen.forward"] = self._store(form.fwd, self._flat(forward, row), pair)
        return self._store(form.rule, self._flat(form_body(form, self._rules), row), said)

    def _store(self, name: str, proto: onnx.FunctionProto, said: Mapping[str, str]) -> str:
        if name in self._functions:  # a rule that two ops share: each has its own defaults and metadata
            name = f"{said['gradgen.op'].replace('.', '_').replace('::', '_')}_{name}"
        proto.name, proto.domain = name, DOMAIN
        for key, value in said.items():
            proto.metadata_props.add(key=key, value=value)
        self._functions[name] = proto
        self._check(proto)
        return name

    def _flat(self, body: ir.Function, row: Row | None = None) -> onnx.FunctionProto:
        """A body with all calls of functions written out, the op's defaults as its own, for the opset."""
        proto = ir.serde.serialize_function(body)
        functions = self._called(proto)
        if functions:
            imports = {o.domain: o.version for f in (proto, *functions) for o in f.opset_import}
            graph = onnx.GraphProto(name=proto.name)
            graph.node.extend(proto.node)
            graph.input.extend(onnx.ValueInfoProto(name=n) for n in proto.input)
            graph.output.extend(onnx.ValueInfoProto(name=n) for n in proto.output)
            opsets = [onnx.helper.make_opsetid(d, v) for d, v in imports.items()]
            model = onnx.helper.make_model(graph, opset_imports=opsets, functions=functions)
            del proto.node[:]
            proto.node.extend(inline_functions(model).graph.node)
        if row is not None:
            _bind_defaults(proto, row, self._opset)
        for node in all_nodes(proto):
            node.ClearField("metadata_props")
        used = {n.domain for n in all_nodes(proto)} - {"", "ai.onnx"}
        del proto.opset_import[:]
        proto.opset_import.append(onnx.helper.make_opsetid("", self._opset))
        for domain in sorted(used):
            self._domains[domain] = 1
            proto.opset_import.append(onnx.helper.make_opsetid(domain, 1))
        return proto

    def _called(self, proto: onnx.FunctionProto) -> list[onnx.FunctionProto]:
        """The functions that a body calls, and those that these call."""
        found: dict[tuple[str, str], onnx.FunctionProto] = {}
        pending: list[Any] = [proto]
        while pending:
            for node in all_nodes(pending.pop()):
                key = (node.domain, node.op_type)
                if node.domain in ("", "ai.onnx") or key in found:
                    continue
                callee = self._rules.callee(*key) if node.domain != DOMAIN else None
                if node.domain != DOMAIN and callee is None:
                    continue  # an op of a runtime
                body = self._rules.body(node.op_type) if callee is None else callee[0]
                found[key] = ir.serde.serialize_function(body)
                found[key].domain, found[key].name = key
                pending.append(found[key])
        return list(found.values())

    def _check(self, proto: onnx.FunctionProto) -> None:
        context = onnx.checker.C.CheckerContext()
        context.ir_version = IR_VERSION
        context.opset_imports = {o.domain: o.version for o in proto.opset_import}
        try:
            onnx.checker.check_function(proto, context)
        except onnx.checker.ValidationError as error:
            reason = " ".join(str(error).split())[:300]
            raise GradientError(
                f"the function '{proto.name}' does not hold at opset {self._opset}: {reason}"
            ) from error


def _bind_defaults(proto: onnx.FunctionProto, row: Row, opset: int) -> None:
    """Give a function's attributes the defaults that the op's schema has."""
    try:
        schema = onnx.defs.get_schema(row.op_type, NEWEST if row.domain else opset, row.domain)
    except onnx.defs.SchemaError:
        return
    defaults = {n: a.default_value for n, a in schema.attributes.items() if a.default_value.name}
    own = {a.name: a for a in proto.attribute_proto}
    required = [n for n in proto.attribute if n not in defaults]
    bound = [defaults.get(n, own.get(n)) for n in [*proto.attribute, *own] if n in defaults or n in own]
    del proto.attribute[:], proto.attribute_proto[:]
    proto.attribute.extend(required)
    proto.attribute_proto.extend(a for a in bound if a is not None)
