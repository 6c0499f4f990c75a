# Models whose sizes, tensors, attributes and names are wrong, huge or malicious, each with what is to be said of it.
"""More models of tests/test_hostile_models.py; run as a script, it differentiates those of one group."""

from __future__ import annotations

import json
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from hostile_models import GROUPS, NOT_VALID, RESULT, SIMPLE, add, change, model
from onnx import AttributeProto, TensorProto, helper, numpy_helper

SOFTMAX = "g (float[3,3] x) => (float[3,3] y) { y = Softmax<axis = 1>(x) }"
HUGE = 2**62
SECONDS, BYTES = 10, 1 << 30  # for one model; the bytes are those on top of what the imports take

# Sizes.


def sized(*dims: int) -> onnx.ModelProto:
    proto = model()
    for value in (*proto.graph.input, *proto.graph.output):
        value.CopyFrom(helper.make_tensor_value_info(value.name, 1, dims))
    return proto


add("sizes", "rank 10,000", "'x' has rank 10000: gradgen takes ranks up to 64", lambda: sized(*[1] * 10_000))
add("sizes", "rank 1,000,000", "rank 1000000", lambda: sized(*[1] * 1_000_000))
for dims in ([HUGE], [HUGE] * 4, [2**63 - 1, 2**63 - 1], [-5, 3], [-(2**63)]):
    add("sizes", f"shape {dims}", RESULT, lambda dims=dims: sized(*dims))
OPERATORS = {
    "ConstantOfShape": (f"int64[2] s = {{{HUGE}, 4}}", "ConstantOfShape(s)", RESULT),
    "ConstantOfShape of one axis": (f"int64[1] s = {{{HUGE}}}", "ConstantOfShape(s)", RESULT),
    "Expand": ("int64[2] s = {2147483648, 2147483648}", "Expand(x, s)", "declared|valid|result"),
    "Tile": (f"int64[1] s = {{{HUGE}}}", "Tile(x, s)", RESULT),
    "Pad": (f"int64[2] s = {{{2**63 - 1}, {2**63 - 1}}}", "Pad(x, s)", RESULT),
    "HannWindow": (f"int64 s = {{{HUGE}}}", "HannWindow(s)", RESULT),
    "Slice": (
        f"int64[1] s = {{{2**63 - 1}}}, int64[1] e = {{{-(2**63)}}}, int64[1] a = {{0}}",
        "Slice(x, s, e, a, e)",
        RESULT,
    ),
    "Slice forwards": (f"int64[1] s = {{0}}, int64[1] e = {{{2**63 - 1}}}", "Slice(x, s, e, s, e)", RESULT),
    "Softmax": ("int64 s = {0}", f"Softmax<axis = {-(2**63)}>(x)", f"axis={-(2**63)}"),
    "Transpose": ("int64 s = {0}", "Transpose<perm = [99]>(x)", "result|fit|valid"),
    "Flatten": ("int64 s = {0}", "Flatten<axis = -99>(x)", "result|fit|valid"),
    "ReduceSum": ("int64[1] s = {99}", "ReduceSum(x, s)", "result|do not fit together"),
    "Einsum": ("int64 s = {0}", f'Einsum<equation = "{"i" * 100_000}->">(x)', "equation"),
    "TopK": (f"int64[1] s = {{{HUGE}}}", "TopK(x, s)", "result|valid"),
    "Cast": ("int64 s = {0}", "Cast<to = 99>(x)", "result|valid"),
}
for operator, (constants, call, said) in OPERATORS.items():
    # What follows adds and multiplies: operators in which onnx propagates contents.
    left = "h, i" if operator == "TopK" else "h"
    add("sizes", operator, said, lambda constants=constants, call=call, left=left: model(
        f"g (float[3] x) => (float y) <{constants}> {{ {left} = {call}\n k = Mul(h, h)\n r = Add(k, h)\n"
        " s2 = ReduceSum<keepdims = 0>(r)\n m = ReduceSum<keepdims = 0>(x)\n y = Mul(m, s2) }"))  # fmt: skip
WINDOWS = {
    "stride 0": "Conv<strides = [0, 0]>(x, w)", "dilation -1": "Conv<dilations = [-1, 1]>(x, w)",
    "group 0": "Conv<group = 0>(x, w)", "kernel 0": "MaxPool<kernel_shape = [0, 0]>(x)",
    "kernel 2^62": f"AveragePool<kernel_shape = [{HUGE}, 2], pads = [{HUGE}, 2, {HUGE}, 4]>(x)",
    "transposed stride 2^62": f"ConvTranspose<strides = [{HUGE}, 3]>(x, w)", "blocks of 0": "DepthToSpace<blocksize = 0>(x)",
    "a million outputs": "Split<num_outputs = 1000000000>(x)",
}  # fmt: skip
for name, call in WINDOWS.items():
    add("sizes", name, "result|below 1|not valid|cannot be applied", lambda call=call: model(
        f"g (float[1,1,5,5] x, float[1,1,3,3] w) => (float[?,?,?,?] y) {{ y = {call} }}"))  # fmt: skip

# Tensors.


def stored(tensor: TensorProto) -> onnx.ModelProto:
    proto = model()
    proto.graph.node[0].input[1] = tensor.name = "w"
    proto.graph.initializer.append(tensor)
    return proto


def constant(tensor: TensorProto) -> onnx.ModelProto:
    proto = model()
    proto.graph.node[0].input[1] = "w"
    proto.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=tensor))
    return proto


TENSORS = {
    "too short": ({"dims": [3], "raw_data": b"12345"}, NOT_VALID), "empty": ({"dims": [3]}, NOT_VALID),
    "too long": ({"dims": [3], "raw_data": b"1234" * 9}, r"shape \[3\] takes 12 bytes and has 36"),
    "floats too few": ({"dims": [3], "float_data": [1.0]}, NOT_VALID),
    "floats too many": ({"dims": [], "float_data": [1.0, 2.0]}, r"shape \[\] has 2 entries in place of 1"),
    "integers too many": ({"data_type": 7, "dims": [2], "int64_data": [1, 2, 3]}, "has 3 entries in place of 2"),
    "halves too many": ({"data_type": 10, "dims": [3], "int32_data": [0] * 4}, "has 4 entries in place of 3"),
    "halves too few": ({"data_type": 16, "dims": [3], "int32_data": [0]}, "has 1 entries in place of 3"),
    "eights too many": ({"data_type": 17, "dims": [3], "int32_data": [0] * 4}, "has 4 entries in place of 3"),
    "bools too many": ({"data_type": 9, "dims": [3], "int32_data": [0] * 4}, "has 4 entries in place of 3"),
    "nibbles too many": ({"data_type": 22, "dims": [3], "int32_data": [0] * 3}, "has 3 entries in place of 2"),
    "unsigned too many": ({"data_type": 12, "dims": [3], "uint64_data": [0] * 4}, "has 4 entries in place of 3"),
    "complex too few": ({"data_type": 14, "dims": [3], "float_data": [0] * 3}, "has 3 entries in place of 6"),
    "strings too many": ({"data_type": 8, "dims": [3], "string_data": [b"a"] * 4}, "has 4 entries in place of 3"),
    "overflowing": ({"dims": [2**32, 2**32], "raw_data": b""}, NOT_VALID),
    "huge": ({"dims": [HUGE, 4], "raw_data": b"1234" * 3}, NOT_VALID),
    "huge and empty": ({"dims": [0, HUGE], "raw_data": b""}, NOT_VALID),
    "negative": ({"dims": [-3], "raw_data": b"1234" * 3}, NOT_VALID),
    "two contents": ({"dims": [3], "raw_data": b"1234" * 3, "float_data": [1, 2, 3]}, NOT_VALID),
    "another field": ({"dims": [3], "int64_data": [1, 2, 3]}, NOT_VALID),
    "type 0": ({"data_type": 0, "dims": [3], "raw_data": b"1234" * 3}, NOT_VALID),
    "type 99": ({"data_type": 99, "dims": [3], "raw_data": b"1234" * 3}, "unknown element type 99"),
    "type -7": ({"data_type": -7, "dims": [3], "raw_data": b"1234" * 3}, "unknown element type -7"),
    "strings": ({"data_type": 8, "dims": [3], "string_data": [b"a", b"\xff", b"c"]}, "unsupported type|not valid"),
    "rank 10,000": ({"dims": [1] * 10_000, "raw_data": b"1234"}, "rank 10000"),
}  # fmt: skip
for name, (fields, said) in TENSORS.items():
    for place in (stored, constant):
        add("tensors", f"{name}, {place.__name__}", said, lambda place=place, fields=fields: place(
            TensorProto(**{"data_type": 1, **fields})))  # fmt: skip


def sparse(values: list[float], indices: list, dims: list[int]) -> onnx.ModelProto:
    proto = model("g (float[2,3] x) => (float[2,3] y) { y = Mul(x, w) }")
    parts = numpy_helper.from_array(np.array(values, np.float32), "w"), numpy_helper.from_array(np.array(indices))
    proto.graph.sparse_initializer.append(onnx.SparseTensorProto(values=parts[0], indices=parts[1], dims=dims))
    return proto


for name, (indices, shape) in {
    "outside": ([1, 99], [2, 3]), "before": ([-1, 2], [2, 3]), "unsorted": ([3, 2], [2, 3]), "too many": ([1, 2, 3], [2, 3]),
    "negative": ([1, 2], [-2, 3]), "no shape": ([1, 2], []), "floats": ([1.0, 2.0], [2, 3]), "2^40": ([1, 2], [2**40, 3]),
    "overflowing": ([1, 2], [HUGE, HUGE, 4]), "rank 10,000": ([1, 2], [1] * 10_000),
}.items():  # fmt: skip
    add("tensors", f"sparse, {name}", "not valid|too large|rank 10000",
        lambda indices=indices, shape=shape: sparse([1, 2], indices, shape))  # fmt: skip

# Attributes, types and versions.


def attribute(name: str, edit: Callable[[AttributeProto], object], expected: str = NOT_VALID) -> None:
    change("fields", name, expected, SOFTMAX)(lambda m: edit(m.graph.node[0].attribute[0]))


attribute("another type", lambda a: a.CopyFrom(helper.make_attribute("axis", "one")))
attribute("no type", lambda a: a.ClearField("type"))
attribute("a type without content", lambda a: setattr(a, "type", AttributeProto.GRAPH))
attribute("a reference outside of a function", lambda a: setattr(a, "ref_attr_name", "foo"), "refers to the attribute")
attribute("an unknown name", lambda a: setattr(a, "name", "bogus"))
change("fields", "an attribute that is there twice", NOT_VALID, SOFTMAX)(
    lambda m: m.graph.node[0].attribute.append(m.graph.node[0].attribute[0])
)
change("fields", "a flag of 7", "keepdims=7", "g (float[3] x) => (float[1] y) { y = ReduceSum<keepdims = 7>(x) }")(
    lambda m: None
)
change(
    "fields",
    "a million numbers",
    "result|fit",
    "g (float[3,3] x) => (float[3,3] y) { y = Transpose<perm = [1, 0]>(x) }",
)(lambda m: m.graph.node[0].attribute[0].ints.extend([0] * 1_000_000))
change("fields", "a million floats", RESULT)(
    lambda m: m.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value_floats=[1.0] * 1_000_000))
)
for version in (0, -1, 10**9, 1, -(2**63)):
    change("fields", f"opset {version}", "not valid|needs opset")(
        lambda m, version=version: setattr(m.opset_import[0], "version", version)
    )
for version in (0, -1, 2, 10**9):
    change("fields", f"IR version {version}", NOT_VALID)(lambda m, version=version: setattr(m, "ir_version", version))
change("fields", "no operator set", "imports no operator set")(lambda m: m.ClearField("opset_import"))
for kind in (0, 8, 23, 99, -1, 2**31 - 1):
    change("fields", f"inputs of type {kind}", "no float input|unknown element type|declares types")(
        lambda m, kind=kind: setattr(m.graph.input[0].type.tensor_type, "elem_type", kind)
    )
change("fields", "no type of an input", NOT_VALID)(lambda m: m.graph.input[0].ClearField("type"))


@change("fields", "a map", "'x' is a map")
def _(m):
    m.graph.input[0].type.map_type.key_type = 7
    m.graph.input[0].type.map_type.value_type.tensor_type.elem_type = 1


for key in ("names", "fixed"):
    for content in ("{not json", '[["a"]]', '{"y": 3}', "[" * 100_000):
        change("fields", f"metadata {key}, {content[:9]}", f"'gradgen.{key}' is not what gradgen writes")(
            lambda m, key=key, content=content: m.metadata_props.add(key=f"gradgen.{key}", value=content)
        )

# Text and bytes.
LONG = "n" * 10_000_000
change("text", "10 MB of an inner name", RESULT)(
    lambda m: (m.graph.node[0].output.__setitem__(0, LONG), m.graph.node[1].input.__setitem__(0, LONG))
)
change("text", "10 MB of a dimension's name", RESULT)(
    lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_param", LONG)
)
change("text", "10 MB of an operator", "No Op registered")(lambda m: setattr(m.graph.node[0], "op_type", LONG))
change("text", "control characters", r"a \\x1b\[31m")(lambda m: setattr(m.graph.node[1], "op_type", "a\n\x1b[31m"))
change("text", "a zero byte", RESULT)(
    lambda m: (m.graph.node[0].output.__setitem__(0, "a\0b"), m.graph.node[1].input.__setitem__(0, "a\0b"))
)


@change("text", "10 MB of a domain", "no gradient for these nodes")
def _(m):
    m.graph.node[0].domain = LONG
    m.opset_import.append(helper.make_opsetid(LONG, 1))


def not_text(place: str) -> bytes:
    proto = model(SIMPLE.replace("h", "HIDDENHI"))
    proto.graph.node[0].name, proto.graph.doc_string, proto.producer_name = "NAMENAME", "DOCSDOCS", "PRODUCER"
    proto.metadata_props.add(key="KEYKEYKE", value="VALUEVAL")
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "DIMDIMDI"
    proto.graph.node[1].op_type = "OPERATOR" if place == "OPERATOR" else "Sin"
    content = proto.SerializeToString()
    assert place.encode() in content
    return content.replace(place.encode(), b"\xff\xfe\x80\x81\xff\xff\xff\xff")


for word in ("NAMENAME", "DOCSDOCS", "PRODUCER", "KEYKEYKE", "VALUEVAL", "DIMDIMDI", "HIDDENHI", "OPERATOR"):
    add("text", f"{word} is no UTF-8", "is not UTF-8", lambda word=word: not_text(word))
change(
    "text",
    "a string that is no UTF-8",
    "is not UTF-8",
    'g (float[3] x) => (float y) { y = Einsum<equation = "i->">(x) }',
)(lambda m: setattr(m.graph.node[0].attribute[0], "s", b"\xff\xfe"))
BROKEN = "is not an ONNX model"
add("text", "truncated", BROKEN, lambda: model().SerializeToString()[:-7])
add("text", "2 GB, it claims", BROKEN, lambda: b"\x08\x0a\x3a\xff\xff\xff\xff\x07abc")
add("text", "2^63 bytes, it claims", BROKEN, lambda: b"\x08\x0a\x3a" + b"\xff" * 8 + b"\x7fabc")
add("text", "noise", BROKEN, lambda: bytes(range(256)) * 100)
add("text", "zeros", BROKEN, lambda: bytes(1000))
add("text", "nothing", "has no graph", lambda: b"")


def outcome(content: onnx.ModelProto | bytes, path: Path) -> str:
    """ "result", or the message of the GradientError; anything else is raised."""
    import gradgen

    if isinstance(content, bytes):
        path.write_bytes(content)
    try:
        gradgen.vjp(path if isinstance(content, bytes) else content)
    except gradgen.GradientError as error:
        return str(error)
    return RESULT


def main(group: str) -> None:
    """Print name, outcome and seconds of each model of a group, as JSON a line; names before, should the process die."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        outcome(model(), path)  # imports, and what is compiled once
        for name, (make, _) in GROUPS[group].items():
            content = make()
            print(json.dumps(name), flush=True)
            before = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (before + BYTES, resource.RLIM_INFINITY))
            signal.alarm(SECONDS)
            start = time.perf_counter()
            found = outcome(content, path)
            signal.alarm(0)
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            print(json.dumps([found, time.perf_counter() - start]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
