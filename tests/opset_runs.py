"""Builds one-node models at old opsets, raises them and compares the runs; what the tests of raising share."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import helper, numpy_helper

from gradgen.engine.opsets import TARGET, raise_opset

RNG = np.random.default_rng(7)
IMAGE = RNG.standard_normal((2, 6, 5, 4)).astype(np.float32)


def tensor_info(name, array, dims=None):
    shape = list(array.shape) if dims is None else dims
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape)


def make(nodes, opset, inputs, outputs, inits=None, dims=None, ir_version=None):
    """A model at an opset; `dims` replaces the shapes of some inputs, by names or None, or the rank by "unknown"."""
    infos = []
    for name, array in inputs.items():
        infos.append(tensor_info(name, array, (dims or {}).get(name)))
        if (dims or {}).get(name) == "unknown":
            infos[-1] = helper.make_tensor_value_info(name, infos[-1].type.tensor_type.elem_type, None)
    graph = helper.make_graph(
        nodes,
        "g",
        infos,
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (inits or {}).items()],
    )
    ir_version = ir_version or (3 if opset < 9 else 4)
    if ir_version < 4:
        graph.input.extend(tensor_info(name, np.asarray(array)) for name, array in (inits or {}).items())
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    results = None
    for index, info in enumerate(inferred.graph.output):
        if not info.type.tensor_type.HasField("shape"):  # what inference leaves open, the run at the old opset says
            results = results or run(model, inputs)
            info = tensor_info(info.name, results[index], [None] * results[index].ndim)
        model.graph.output[index].CopyFrom(info)
    return model


def run(model, feeds):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # the kernels of that very version
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def raised(model):
    """The raised model, checked: names of outputs and of nodes stay, and it is well formed."""
    ir_model = ir.from_proto(model)
    assert raise_opset(ir_model) is None
    new = ir.to_proto(ir_model)
    if all(info.type.tensor_type.HasField("shape") for info in new.graph.input):
        onnx.checker.check_model(new, full_check=True)
    else:  # the checker wants a rank of every input, onnxruntime does not
        onnx.shape_inference.infer_shapes(new, check_type=True, strict_mode=True)
    assert [o.name for o in new.graph.output] == [o.name for o in model.graph.output]
    assert [i.name for i in new.graph.input] == [i.name for i in model.graph.input]
    assert {i.domain: i.version for i in new.opset_import}[""] == TARGET
    names = {node.name for node in model.graph.node}
    assert names <= {node.name for node in new.graph.node}
    written = {name for node in model.graph.node for name in node.output}
    assert written <= {name for node in new.graph.node for name in node.output} | {""}
    return new


def compare(model, feeds, ulp=0):
    """Run, raise, run again; returns the raised model's operators."""
    new = raised(model)
    for old_value, new_value in zip(run(model, feeds), run(new, feeds), strict=True):
        assert old_value.dtype == new_value.dtype and old_value.shape == new_value.shape
        if ulp and old_value.dtype.kind == "f":
            finite = np.isfinite(old_value)
            np.testing.assert_array_equal(old_value[~finite], new_value[~finite])
            np.testing.assert_array_max_ulp(old_value[finite], new_value[finite], maxulp=ulp)
        else:
            np.testing.assert_array_equal(old_value, new_value)
    return [node.op_type for node in new.graph.node]


def check(op, opset, inputs, inits=None, outputs=1, order=None, dims=None, ulp=0, ir_version=None, **attrs):
    """`compare` for a model of one node; outputs that are None are left out."""
    names = [f"out{i}" for i in range(outputs)] if isinstance(outputs, int) else outputs
    node = helper.make_node(op, order or [*inputs, *(inits or {})], names, name="the_node", **attrs)
    model = make([node], opset, inputs, [name for name in names if name], inits, dims, ir_version)
    return compare(model, inputs, ulp)
