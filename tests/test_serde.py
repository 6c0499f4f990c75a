# gradgen's reader and writer of ModelProtos against onnx_ir's: equal results, whatever a graph holds.
from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from gradgen.engine import serde


def unusual() -> onnx.ModelProto:
    """A model with everything that is not written as most nodes and values are, between nodes that are."""
    kind = TensorProto.FLOAT
    then = helper.make_graph(
        [helper.make_node("Neg", ["a"], ["negated"])],
        "then",
        [],
        [helper.make_tensor_value_info("negated", kind, ["n", 3])],
        value_info=[helper.make_tensor_value_info("a", kind, ["n", 3])],
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.ones((2, 3), np.float32))),
        helper.make_node("Dropout", ["a", "", ""], ["d", ""], name="d" * 300, doc_string="half of them"),
        helper.make_node("Dropout", ["a"], ["kept", ""]),
        helper.make_node("MaxPool", ["image"], ["", "places"], kernel_shape=[2, 2]),
        helper.make_node("If", ["flag"], ["b"], then_branch=then, else_branch=then),
        helper.make_node("Clip", ["b", "", "high"], ["e"]),
        helper.make_node("SequenceConstruct", ["e", "d"], ["s"]),
        helper.make_node("Mine", ["e"], ["f"], domain="own", overload="second", alpha=0.1, names=["ä", "b"], k=-1),
        helper.make_node("Transpose", ["f"], ["y"], perm=[1, 0]),
    ]
    nodes[0].metadata_props.add(key="z", value="ü" * 100)
    nodes[0].metadata_props.add(key="a", value="")
    described = helper.make_tensor_value_info("a", kind, ["n", 3], doc_string="after Relu")
    denoted = helper.make_tensor_value_info("b", kind, ["n", None], shape_denotation=["DATA_BATCH", ""])
    noted = helper.make_tensor_value_info("d", kind, None)
    noted.metadata_props.add(key="who", value="x")
    sequence = helper.make_tensor_sequence_value_info("s", kind, [None, 3])
    graph = helper.make_graph(
        nodes,
        "unusual",
        [helper.make_tensor_value_info("x", kind, ["n", 3]), helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
         helper.make_tensor_value_info("image", kind, [1, 1, 4, 4])],
        [helper.make_tensor_value_info("y", kind, [3, "n"]), sequence,
         helper.make_tensor_value_info("places", TensorProto.INT64, [1, 1, 3, 3])],
        [numpy_helper.from_array(np.float32(6), "high")],
        doc_string="of the graph",
        value_info=[described, denoted, noted, helper.make_tensor_value_info("e", kind, ["n", 3]),
                    helper.make_tensor_value_info("y", kind, [None, "n"])],
    )  # fmt: skip
    graph.metadata_props.add(key="graph", value="1")
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, producer_name="p", doc_string="of the model")


def with_function() -> onnx.ModelProto:
    """The same with a function."""
    model = unusual()
    body = [helper.make_node("Neg", ["p"], ["q"])]
    function = helper.make_function(
        "own", "Mine", ["p"], ["q"], body, [helper.make_opsetid("", 21)], attributes=["alpha", "names", "k"]
    )
    function.value_info.append(helper.make_tensor_value_info("q", TensorProto.FLOAT, [3]))
    model.functions.append(function)
    return model


def older() -> onnx.ModelProto:
    """The same before IR 10, where what is known of a function's values is written into the graph."""
    model = with_function()
    model.ir_version = 9
    del model.functions[0].value_info[:]
    model.graph.value_info.append(helper.make_tensor_value_info("own::Mine/q", TensorProto.FLOAT, [3]))
    return model


def annotated() -> onnx.ModelProto:
    """The same with a tensor of which it is said how it is quantised."""
    model = unusual()
    annotation = model.graph.quantization_annotation.add(tensor_name="e")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="high")
    return model


MODELS = [unusual, with_function, older, annotated]


def copy(model: onnx.ModelProto) -> onnx.ModelProto:
    found = onnx.ModelProto()
    found.CopyFrom(model)
    return found


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_what_is_written_is_what_onnx_ir_writes(make):
    model = ir.from_proto(make())
    expected = ir.to_proto(model)
    assert expected.graph.node[2].doc_string and expected.graph.value_info  # onnx_ir has kept what the model is about
    assert serde.to_proto(model).SerializeToString(deterministic=True) == expected.SerializeToString(deterministic=True)


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_what_is_read_is_what_onnx_ir_reads(make):
    model = make()
    expected = ir.to_proto(ir.from_proto(copy(model)))
    assert ir.to_proto(serde.from_proto(model)).SerializeToString() == expected.SerializeToString()


def test_values_that_are_read_share_a_shape_and_no_type():
    kind = TensorProto.FLOAT
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
             helper.make_node("Relu", ["b"], ["y"])]  # fmt: skip
    x, a, b, y = (helper.make_tensor_value_info(name, kind, [2, 3]) for name in "xaby")
    model = serde.from_proto(helper.make_model(helper.make_graph(nodes, "g", [x], [y], value_info=[a, b])))
    first, second = (node.outputs[0] for node in list(model.graph)[:2])
    assert first.shape is second.shape and first.shape is not None and first.shape.frozen
    first.dtype = ir.DataType.DOUBLE
    assert second.dtype == ir.DataType.FLOAT


def test_a_length_of_several_bytes():
    for size in (0, 127, 128, 16_383, 16_384, 3_000_000):
        info = onnx.ValueInfoProto.FromString(serde._VALUE_NAME + serde._sized(b"n" * size))
        assert info.name == "n" * size
