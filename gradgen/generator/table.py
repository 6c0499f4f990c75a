"""Reads the rule tables `<family>.toml` and checks them against the standard and against the rules' signatures."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
import onnx.defs

from gradgen.coverage import near_matches
from gradgen.engine import conditions
from gradgen.engine.rows import Form, Row
from gradgen.errors import GradientError
from gradgen.generator.schemas import SnippetSchema, admits_floats, schema_of
from gradgen.rules.lang import OPSET, RuleFunction, parameters

KEYS = {
    "vjp",
    "forms",
    "forward",
    "straight_through",
    "zero",
    "none",
    "ignores",
    "like",
    "linear",
    "tangents",
    "defaults",
    "random",
    "selects",
    "samples",
    "range",
    "avoid",
    "tolerance",
    "second_order",
    "kernel",
    "doc",
}


@dataclass
class TableRow:
    """A row with what only the generator and the tests need.

    Attributes:
        row: what the engine reads.
        samples: the inputs on which its tests run.
        settings: `range`, `avoid`, `tolerance`, `second_order` of its samples, and `kernel`: why no kernel runs them.
        where: file and row, for messages.
    """

    row: Row
    samples: list[dict[str, Any]]
    settings: dict[str, Any]
    where: str
    dispositions: dict[str, str] = field(default_factory=dict)


class Problems:
    """Collects everything that is wrong with the tables, to say it at once."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, where: str, reason: str) -> None:
        """Record a problem of a row."""
        self.lines.append(f"{where}: {reason}")

    def raise_any(self) -> None:
        """Raise GradientError with all problems, if there are any."""
        if self.lines:
            raise GradientError("the rule tables are wrong:\n  " + "\n  ".join(self.lines))


def read_table(path: Path, module: str, functions: Mapping[str, RuleFunction], problems: Problems) -> list[TableRow]:
    """The rows of one table file."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        problems.add(path.name, f"not TOML: {error}")
        return []
    rows = []
    for key, entry in data.items():
        where = f"{path.name}, [{key}]"
        if not isinstance(entry, dict):
            problems.add(where, "a row is a table")
            continue
        row = _read_row(key, entry, where, module, functions, problems)
        if row is not None:
            rows.append(row)
    return rows


def _read_row(
    key: str, entry: dict[str, Any], where: str, module: str, functions: Mapping[str, RuleFunction], problems: Problems
) -> TableRow | None:
    name, _, version = key.partition("@")
    domain, _, op_type = name.rpartition("::")
    domain = "" if domain == "ai.onnx" else domain
    if unknown := set(entry) - KEYS:
        problems.add(where, f"unknown keys {sorted(unknown)}; known are {sorted(KEYS)}")
    schema: Any = schema_of(domain, op_type, int(version) if version else None)
    body = _read_body(entry, "forward", where, module, functions, schema, problems)
    through = _read_body(entry, "straight_through", where, module, functions, schema, problems)
    if schema is None:
        stated = body or through
        if stated is None:
            known = [s.name for s in onnx.defs.get_all_schemas_with_history() if s.domain == domain]
            near = near_matches(op_type, known)
            problems.add(where, f"there is no op '{op_type}' in domain '{domain or 'ai.onnx'}'{near}")
            return None
        schema = SnippetSchema(domain, op_type, stated)
    inputs = tuple(_formal(f) for f in schema.inputs)
    outputs = tuple(_formal(f) for f in schema.outputs)
    forms = []
    listed = list(entry.get("forms", ()))
    if "vjp" in entry:
        listed.append({"vjp": entry["vjp"]})
    for item in listed:
        form = _read_form(item, where, module, functions, schema, inputs, outputs, problems)
        if form is not None:
            forms.append(form)
    row = Row(
        domain, op_type, int(version) if version else 1, inputs, outputs, tuple(forms), tuple(entry.get("zero", ())),
        dict(entry.get("none", {})), tuple(entry.get("ignores", ())), entry.get("defaults"), module,
        entry.get("random"), dict(entry.get("like", {})), body, through, tuple(entry.get("selects", ())),
        tuple(tuple(group.split()) for group in entry.get("linear", ())),
        tuple(_read_tangents(entry, where, module, functions, schema, (inputs, outputs), problems)),
        kernel=entry.get("kernel") is not False,
    )  # fmt: skip
    kept = ("range", "avoid", "tolerance", "second_order", "kernel")
    settings: dict[str, Any] = {k: entry[k] for k in kept if k in entry}
    table_row = TableRow(row, list(entry.get("samples", ())), settings, where)
    if len(forms) == len(listed):  # else what is wrong with its rules is said already, and all else follows from it
        _check_row(table_row, schema, functions, problems)
    return table_row


def _read_body(
    entry: Mapping[str, Any],
    key: str,
    where: str,
    module: str,
    functions: Mapping[str, RuleFunction],
    schema: Any,
    problems: Problems,
) -> Form | None:
    """The forward or straight-through body that a row names; where the op has a schema its names must be that's."""
    name = entry.get(key)
    if name is None:
        return None
    function = functions.get(name)
    if function is None or function.kind not in ("compiled", "traced"):
        problems.add(where, f"the body '{name}' is not in {module}")
        return None
    ruled = key == "forward" and ("vjp" in entry or "forms" in entry)
    if ruled and schema is not None:
        problems.add(where, "an op that has a schema has a backward rule or a forward body, not both")
    if ruled and function.kind == "traced" and entry.get("kernel") is False:
        problems.add(
            where, f"the body '{name}' travels as a function: beside a rule it is written for onnxscript, not traced"
        )
    annotated = set(getattr(function.fn, "__annotations__", ())) if function.kind == "compiled" else set()
    positional, keyword = signature(function)
    reads = tuple(p for p in positional if p not in annotated)
    takes = (*(p for p in positional if p in annotated), *keyword)
    returns = returned(function)
    if schema is not None:
        for role, given, known in (
            ("input", reads, [f.name for f in (*schema.inputs, *(schema.outputs if key != "forward" else ()))]),
            ("output", returns, [f.name for f in schema.outputs]),
            ("attribute", takes, list(schema.attributes)),
        ):
            if strangers := [n for n in given if n not in known]:
                problems.add(where, f"'{name}' names {strangers}, which are no {role}s of the op: {known}")
    return Form(name, function.kind, module, reads, returns, takes)


def _formal(formal: onnx.defs.OpSchema.FormalParameter) -> str:
    variadic = formal.option == onnx.defs.OpSchema.FormalParameterOption.Variadic
    return f"{formal.name}*" if variadic else formal.name


def _read_form(item, where, module, functions, schema, inputs, outputs, problems) -> Form | None:
    name = item.get("vjp")
    function = functions.get(name)
    if function is None:
        problems.add(where, f"rule '{name}' is not in {module}")
        return None
    positional, keyword = signature(function)
    formals = [n.rstrip("*") for n in (*inputs, *outputs)]
    cotangents = {f"d{n.rstrip('*')}" for n in outputs}
    forward: dict[str, Any] = {}
    if "fwd" in item:
        pair = functions.get(item["fwd"])
        if pair is None:
            problems.add(where, f"rule '{item['fwd']}' is not in {module}")
            return None
        reads, takes = _split(signature(pair), set(formals), set(schema.attributes))
        forward = {"fwd": pair.name, "fwd_reads": reads, "fwd_returns": returned(pair), "fwd_attributes": takes}
    known = set(formals) | cotangents | set(forward.get("fwd_returns", ()))
    if function.kind == "structural":
        return Form(name, "structural", module, (), (), when=item.get("when"))
    reads, takes = _split((positional, keyword), known, set(schema.attributes))
    if strangers := [p for p in (*positional, *keyword) if p not in known and p not in schema.attributes]:
        problems.add(where, f"'{name}' takes {strangers}, which are no cotangent, input, output or attribute of the op")
    returns = returned(function)
    if "?" in returns:
        return None  # the compiler says so
    if strays := [r for r in returns if not (r.startswith("d") and r[1:] in [n.rstrip("*") for n in inputs])]:
        problems.add(where, f"'{name}' returns {strays}; results are named d<input>")
    when = item.get("when")
    _check_condition(when, where, known, schema, problems)
    return Form(name, function.kind, module, reads, returns, takes, when, linear=function.linear, **forward)


def _read_tangents(entry, where, module, functions, schema, formals, problems) -> Iterator[Form]:
    """The forms for tangents that a row lists: traced rules of `t<input>`, inputs and outputs that return `t<output>`."""
    inputs, outputs = ([n for n in names if not n.endswith("*")] for names in formals)
    known = {*inputs, *outputs, *(f"t{n}" for n in inputs)}
    for item in entry.get("tangents", ()):
        name, when = item.get("jvp"), item.get("when")
        function = functions.get(name)
        if function is None or function.kind != "traced":
            problems.add(where, f"the rule for tangents '{name}' is no traced rule of {module}")
            continue
        positional, keyword = signature(function)
        if strangers := [p for p in positional if p not in known] + [a for a in keyword if a not in schema.attributes]:
            problems.add(
                where, f"'{name}' takes {strangers}, which are no tangent, input, output or attribute of the op"
            )
        if strays := [r for r in function.returns if r not in {f"t{n}" for n in outputs}]:
            problems.add(where, f"'{name}' returns {strays}; results are named t<output>")
        _check_condition(when, where, {*inputs, *outputs}, schema, problems)
        yield Form(name, "traced", module, tuple(positional), function.returns, tuple(keyword), when)


def _check_condition(when: str | None, where: str, known: set[str], schema: Any, problems: Problems) -> None:
    """A condition names formals and attributes, in the language of conditions."""
    if when is None:
        return
    try:
        formals, attributes, given = conditions.names(when)
        of_op = set(schema.attributes)
        if strangers := sorted((formals - known) | (attributes - of_op) | (given - known - of_op)):
            problems.add(where, f"condition '{when}' names {strangers}, which are no formal or attribute")
    except GradientError as error:
        problems.add(where, str(error))


def signature(function: RuleFunction) -> tuple[list[str], list[str]]:
    """Positional and keyword-only parameters."""
    return parameters(function.fn)


def _split(
    names: tuple[list[str], list[str]], values: set[str], attributes: set[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    positional, keyword = names
    reads = tuple(p for p in positional if p in values or p not in attributes)
    return reads, tuple([p for p in positional if p not in reads] + keyword)


def returned(function: RuleFunction) -> tuple[str, ...]:
    """The names that a rule returns; `?` for an expression, which the compiler refuses."""
    if function.returns or function.kind == "structural":
        return function.returns
    import ast
    import inspect
    import textwrap

    tree = ast.parse(textwrap.dedent(inspect.getsource(function.fn)))
    value = next((n.value for n in reversed(list(ast.walk(tree))) if isinstance(n, ast.Return)), None)
    items = value.elts if isinstance(value, ast.Tuple) else [value]
    return tuple(i.id if isinstance(i, ast.Name) else "?" for i in items)


def _differentiated(form: Form) -> list[str]:
    """The inputs that a form differentiates."""
    return [name.removeprefix("d") for name in form.returns]


def _check_row(
    table_row: TableRow, schema: onnx.defs.OpSchema, functions: Mapping[str, RuleFunction], problems: Problems
) -> None:
    row, where = table_row.row, table_row.where
    names = [n.rstrip("*") for n in row.inputs]
    for listed in (*row.zero, *row.none, *row.selects):
        if listed not in names:
            problems.add(where, f"there is no input '{listed}'; the inputs are {names}")
    for result, source in row.like.items():
        if result not in row.outputs or source not in row.inputs:
            problems.add(where, f"'like' gives the output '{result}' the type of '{source}': no such output or input")
    if isinstance(row.random, str) and row.random not in names:
        problems.add(where, f"'random' names the input '{row.random}'; the inputs are {names}")
    for listed in {n.rstrip("?") for group in row.linear for n in group} - {
        n for f in row.forms for n in _differentiated(f)
    }:
        problems.add(where, f"'linear' names '{listed}', which is no input that the rule differentiates")
    for formal in schema.inputs:
        ruled = any(f.kind == "structural" or f"d{formal.name}" in f.returns for f in row.forms)
        zero, none = formal.name in row.zero, formal.name in row.none
        body = row.through_body and row.forward is not None and formal.name in row.forward.reads
        body = body and not (zero or none)
        said = [k for k, yes in (("rule", ruled), ("body", body), ("zero", zero), ("none", none)) if yes]
        if len(said) > 1:
            problems.add(where, f"input '{formal.name}' is both {' and '.join(said)}")
        if admits_floats(schema, formal) and not said:
            problems.add(where, f"input '{formal.name}' admits floats: give it a rule, or list it in zero or none")
        structural = any(f.kind == "structural" for f in row.forms)
        known = bool(said) and (admits_floats(schema, formal) or not structural)
        table_row.dispositions[formal.name] = said[0] if known else "not float"
    mentioned = {a for f in row.forms for a in (*f.attributes, *f.fwd_attributes)} | set(row.ignores)
    mentioned |= {a for body in (row.forward, row.straight_through) if body for a in body.attributes}
    for form in (*row.forms, *row.tangents):
        mentioned |= set().union(*conditions.names(form.when)[1:]) if form.when else set()
    general = [f for f in row.forms if f.when is None and f.fwd is None]
    if row.forms and (not general or row.forms[-1] is not general[-1]):
        problems.add(where, "the last form must hold without a condition and without a pair")
    if (row.forms or row.forward) and not any(f.kind == "structural" for f in row.forms):
        for attribute in schema.attributes:
            if attribute not in mentioned:
                problems.add(where, f"attribute '{attribute}' is mentioned by no rule or condition; list it in ignores")
        if not table_row.samples:
            problems.add(where, "no samples")
    for listed in row.ignores:
        if listed not in schema.attributes and not _later_attribute(schema, listed):
            problems.add(where, f"there is no attribute '{listed}'")
    if (
        row.defaults
        and row.defaults not in functions
        and not hasattr(__import__(row.module, fromlist=["x"]), row.defaults)
    ):
        problems.add(where, f"defaults '{row.defaults}' is not in {row.module}")
    allowed = set(names) | set(schema.attributes) | {n.rstrip("*") for n in row.outputs}
    begins = _begins(schema)
    if begins > OPSET and row.since == 1 and not all("@opset" in sample for sample in table_row.samples):
        later = f"'{row.op_type}' is of opset {begins}, and samples run at opset {OPSET}"
        problems.add(where, f'{later}: write ["{row.op_type}@{begins}"], or "@opset" = {begins} in each sample')
    for index, sample in enumerate(table_row.samples):
        if strangers := [k for k in sample if k not in allowed and not k.startswith("@")]:
            problems.add(where, f"sample {index} names {strangers}, which are no input or attribute")


def _begins(schema: Any) -> int:
    """The first opset that has the op of a schema; 1 for an op of another domain, whose versions are not opsets."""
    if isinstance(schema, SnippetSchema) or schema.domain or schema.since_version <= OPSET:
        return 1
    history = onnx.defs.get_all_schemas_with_history()
    return min(s.since_version for s in history if (s.domain, s.name) == ("", schema.name))


def _later_attribute(schema: Any, name: str) -> bool:
    return (
        not isinstance(schema, SnippetSchema)
        and name in onnx.defs.get_schema(schema.name, domain=schema.domain).attributes
    )


def check_duplicates(rows: Sequence[TableRow], problems: Problems) -> None:
    """One row for each op and version."""
    seen: dict[tuple[str, str, int], str] = {}
    for table_row in rows:
        row = table_row.row
        key = (row.domain, row.op_type, row.since)
        if key in seen:
            problems.add(table_row.where, f"the op has a row already: {seen[key]}")
        seen.setdefault(key, table_row.where)


def check_closed(rows: Sequence[TableRow], used: Mapping[str, set[tuple[str, str]]], problems: Problems) -> None:
    """Every op that a compiled body uses has a row, which closes the set under differentiation."""
    have = {(r.row.domain, r.row.op_type) for r in rows}
    for function, ops in used.items():
        for domain, op_type in sorted(ops - have):
            problems.add(function, f"its body uses {domain or 'ai.onnx'}::{op_type}, which has no row")
