# Models that are wrong, huge or malicious, each with what is to be said of it.
"""The models of tests/test_hostile_models.py: what graphs, subgraphs and functions can be. tests/hostile_fields.py has
more."""

from __future__ import annotations

from collections.abc import Callable

import onnx
from onnx import AttributeProto, helper, parser

RESULT = "result"  # what is valid, or nearly so, is differentiated
NOT_VALID = "the model is not valid"
GROUPS: dict[str, dict[str, tuple[Callable[[], onnx.ModelProto | bytes], str]]] = {}
SIMPLE = "g (float[3] x) => (float[3] y) { h = Mul(x, x)\n y = Sin(h) }"
BRANCH = """g (float[3] x, bool c) => (float[3] y) { y = If(c) <
    then_branch = t () => (float[3] a) { a = Sin(x) }, else_branch = e () => (float[3] b) { b = Cos(x) }> }"""
LOOP = """g (float[3] x) => (float[3] y) <int64 n = {2}, bool c = {1}> { h = Mul(x, x)\n y = Loop(n, c, h) <
    body = b (int64 i, bool d, float[3] z) => (bool d2, float[3] w) { d2 = Identity(d)\n w = Mul(z, x) }> }"""


def model(text: str = SIMPLE) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')


def add(group: str, name: str, expected: str, make: Callable[[], onnx.ModelProto | bytes]) -> None:
    GROUPS.setdefault(group, {})[name] = make, expected


def change(group: str, name: str, expected: str, text: str = SIMPLE) -> Callable:
    """Registers a function that changes a model in place, or returns what it becomes."""

    def register(edit: Callable) -> Callable:
        def make() -> onnx.ModelProto | bytes:
            proto = model(text)
            found = edit(proto)
            return found if isinstance(found, bytes | onnx.ModelProto) else proto

        add(group, name, expected, make)
        return edit

    return register


# Graphs: names, order, subgraphs.
change("graphs", "a circle", NOT_VALID)(lambda m: m.graph.node[0].input.__setitem__(1, "y"))
change("graphs", "a node that reads itself", NOT_VALID)(lambda m: m.graph.node[0].input.__setitem__(1, "h"))
change("graphs", "no order", NOT_VALID)(lambda m: m.graph.node.reverse())
change("graphs", "a name that is computed twice", "single static")(
    lambda m: m.graph.node.append(helper.make_node("Cos", ["x"], ["h"]))
)
change("graphs", "an input that is computed", "single static")(
    lambda m: m.graph.node.append(helper.make_node("Cos", ["x"], ["x"]))
)
change("graphs", "an input that is there twice", "single static")(lambda m: m.graph.input.append(m.graph.input[0]))
change("graphs", "an output that is an input", RESULT)(lambda m: m.graph.output.append(m.graph.input[0]))
change("graphs", "no operator", NOT_VALID)(lambda m: setattr(m.graph.node[0], "op_type", ""))
change("graphs", "no operand", NOT_VALID)(lambda m: m.graph.node[0].input.__setitem__(0, ""))
change("graphs", "100,000 operands", NOT_VALID)(lambda m: m.graph.node[0].input.extend(["x"] * 100_000))
change("graphs", "an unknown domain", NOT_VALID)(lambda m: setattr(m.graph.node[0], "domain", "evil"))
change("graphs", "gradgen's own domain", "No opset import")(lambda m: setattr(m.graph.node[0], "domain", "gradgen.vjp"))
change("graphs", "declarations that contradict", "declared float")(
    lambda m: m.graph.value_info.append(helper.make_tensor_value_info("h", 1, [7]))
)
change("graphs", "a branch that shadows", "single static", """g (float[3] x, bool c) => (float[3] y) { h = Mul(x, x)
    y = If(c) <then_branch = t () => (float[3] a) { h = Sin(x)\n a = Mul(h, h) },
    else_branch = e () => (float[3] b) { b = Identity(h) }> }""")(lambda m: None)  # fmt: skip
change("graphs", "a loop whose state shadows", RESULT, LOOP.replace("z)", "h)").replace("Mul(z", "Mul(h"))(
    lambda m: None
)
change("graphs", "a branch without outputs", "0 outputs where 0 and 1", BRANCH)(
    lambda m: m.graph.node[0].attribute[1].g.output.pop()
)
change("graphs", "a branch too few", "else_branch", BRANCH)(lambda m: m.graph.node[0].attribute.pop())
change("graphs", "an empty branch", NOT_VALID, BRANCH)(lambda m: m.graph.node[0].attribute[1].g.Clear())
change("graphs", "a loop whose body gives no state", "3 inputs and 1 outputs", LOOP)(
    lambda m: m.graph.node[1].attribute[0].g.output.pop()
)
change("graphs", "a loop without operands", NOT_VALID, LOOP)(lambda m: m.graph.node[1].ClearField("input"))
change("graphs", "2^63 iterations", RESULT, LOOP.replace("n = {2}", f"n = {{{2**63 - 1}}}"))(lambda m: None)
for scanned in (-1, 0, 99):
    scan = f"Scan<num_scan_inputs = {scanned}, body = b (float z) => (float w) {{ w = Neg(z) }}>(x)"
    change("graphs", f"{scanned} scanned inputs", f"num_scan_inputs={scanned}",
           f"g (float[3] x) => (float[3] y) {{ y = {scan} }}")(lambda m: None)  # fmt: skip


def nested(depth: int) -> onnx.ModelProto:
    """Branches in branches; put together field by field, as protobuf copies and writes no more than 100 levels."""
    proto = model(BRANCH)
    graph = proto.graph
    for _ in range(depth):
        node = graph.node[0]
        graph = next(a.g for a in node.attribute if a.name == "then_branch")
        output = graph.node[0].output[0]
        del graph.node[:]
        inner = graph.node.add(op_type="If", input=["c"], output=[output])
        for name in ("then_branch", "else_branch"):
            branch = inner.attribute.add(name=name, type=AttributeProto.GRAPH).g
            branch.name = name
            branch.output.append(helper.make_tensor_value_info(f"{output}{name[0]}", 1, [3]))
            branch.node.append(helper.make_node("Neg", ["x"], [f"{output}{name[0]}"]))
    return proto


add("graphs", "8 levels of branches", RESULT, lambda: nested(7))
add("graphs", "25 levels of branches", "more than 16 levels", lambda: nested(24))
add("graphs", "1,000 levels of branches", "more than 16 levels|nests|exceeds|cannot be", lambda: nested(999))

change("graphs", "3·2^60 elements", RESULT)(
    lambda m: (
        m.graph.node.extend(
            helper.make_node("Concat", [f"d{k}" if k else "x"] * 2, [f"d{k + 1}"], axis=0) for k in range(60)
        )
        or m.graph.output[0].CopyFrom(helper.make_tensor_value_info("d60", 1, None))
    )
)

# Functions.


def function(name: str, calls: list[str], domain: str = "m") -> onnx.FunctionProto:
    nodes = [
        helper.make_node(call, [f"t{i}"], [f"t{i + 1}"], domain="m" if call[0] == "F" else "")
        for i, call in enumerate(calls)
    ]
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("m", 1)]
    return helper.make_function(domain, name, ["t0"], [f"t{len(nodes)}"], nodes, imports)


def calling(*functions: onnx.FunctionProto) -> onnx.ModelProto:
    proto = model("g (float[3] x) => (float[3] y) { y = F0(x) }")
    proto.graph.node[0].domain = "m"
    proto.opset_import.append(helper.make_opsetid("m", 1))
    proto.functions.extend(functions)
    return proto


def edited(edit: Callable[[onnx.FunctionProto], object]) -> onnx.ModelProto:
    found = function("F0", ["Neg"])
    edit(found)
    return calling(found)


add("functions", "one that calls itself", "Cycle", lambda: calling(function("F0", ["Neg", "F0"])))
add("functions", "two that call each other", "Cycle",
    lambda: calling(function("F0", ["F1"]), function("F1", ["Sin", "F0"])))  # fmt: skip
add("functions", "2^60 nodes", "stand for 1152921504606846976 nodes",
    lambda: calling(*[function(f"F{i}", [f"F{i + 1}"] * 2) for i in range(60)], function("F60", ["Neg"])))  # fmt: skip
add("functions", "2^20 nodes", "stand for 1048576 nodes",
    lambda: calling(*[function(f"F{i}", [f"F{i + 1}"] * 2) for i in range(20)], function("F20", ["Neg"])))  # fmt: skip
add("functions", "3,000 deep", "depth exceeds",
    lambda: calling(*[function(f"F{i}", [f"F{i + 1}"]) for i in range(3000)], function("F3000", ["Neg"])))  # fmt: skip
add(
    "functions", "one that is there twice", NOT_VALID, lambda: calling(function("F0", ["Neg"]), function("F0", ["Sin"]))
)
add("functions", "one that is not there", "no rule for the op", lambda: calling(function("F0", ["F9"])))
add("functions", "an output that nothing computes", "does not compute its output 'z'",
    lambda: edited(lambda f: f.output.__setitem__(0, "z")))  # fmt: skip
add("functions", "an operator set of the year 10^9", "no rule for the op|needs opset",
    lambda: edited(lambda f: setattr(f.opset_import[0], "version", 10**9)))  # fmt: skip
add("functions", "no operator set", NOT_VALID, lambda: edited(lambda f: f.ClearField("opset_import")))
add("functions", "an input that is there twice", NOT_VALID, lambda: edited(lambda f: f.input.append("t0")))
change("functions", "one that redefines the standard", "in the domain of the standard")(
    lambda m: m.functions.append(function("Sin", ["Neg"], ""))
)
