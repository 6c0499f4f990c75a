# The float64 oracle: its operators against onnxruntime in float32, its precision, float64 copies, inlining.
from __future__ import annotations

import math
import zlib

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from gradgen.evaluate import Evaluator, evaluator, inline_functions, to_float64


def single(op, inputs, attributes=None, opset=21, outputs=1, dtype=TensorProto.FLOAT, fixed=()):
    """A model of one node; inputs named in `fixed` are initializers, None is an absent input."""
    names = ["" if value is None else f"x{i}" for i, value in enumerate(inputs)]
    node = helper.make_node(op, names, [f"y{i}" for i in range(outputs)], **(attributes or {}))
    graph_inputs, initializers = [], []
    for i, value in enumerate(inputs):
        if value is None:
            continue
        if i in fixed:
            initializers.append(onnx.numpy_helper.from_array(value, names[i]))
        else:
            kind = helper.np_dtype_to_tensor_dtype(value.dtype)
            graph_inputs.append(helper.make_tensor_value_info(names[i], kind, value.shape))
    results = [helper.make_empty_tensor_value_info(f"y{i}") for i in range(outputs)]
    graph = helper.make_graph([node], op, graph_inputs, results, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    inferred = onnx.shape_inference.infer_shapes(model)
    for value in inferred.graph.output:
        if not value.type.HasField("tensor_type"):
            value.type.tensor_type.elem_type = dtype
    return inferred


def _rand(*shape, low=-2.0, high=2.0, seed=0):
    rng = np.random.default_rng(zlib.crc32(repr((shape, seed)).encode()))
    return rng.uniform(low, high, shape).astype(np.float32)


def _ints(*values):
    return np.array(values, dtype=np.int64)


CASES: list = []


def case(op, inputs, attributes=None, *, opset=21, outputs=1, fixed=()):
    label = ",".join(f"{k}={v}" for k, v in (attributes or {}).items())
    shapes = "x".join(str(getattr(i, "shape", "")) for i in inputs)
    label = f"{op}{opset}-{label}-{shapes}".replace(" ", "")
    CASES.append(pytest.param(op, inputs, attributes or {}, opset, outputs, fixed, id=label))


for (
    name
) in "Neg Abs Exp Sin Cos Tan Atan Sinh Cosh Tanh Asinh Erf Relu LeakyRelu Elu Selu Celu Softplus Softsign".split():
    case(name, [_rand(3, 4)])
for name in "HardSigmoid HardSwish Mish Sigmoid ThresholdedRelu Shrink Floor Ceil Round Sign Identity".split():
    case(name, [_rand(3, 4)], opset=22 if name == "Mish" else 21)
for name in "Sqrt Log Reciprocal".split():
    case(name, [_rand(3, 4, low=0.2)])
for name in "Asin Acos Atanh".split():
    case(name, [_rand(3, 4, low=-0.9, high=0.9)])
case("Acosh", [_rand(3, 4, low=1.1)])
for mode in ("none", "tanh"):
    case("Gelu", [_rand(3, 5)], {"approximate": mode})
case("Celu", [_rand(3, 4)], {"alpha": 0.4})
case("Shrink", [_rand(3, 4)], {"bias": 0.3, "lambd": 0.6})
case("HardSigmoid", [_rand(3, 4)], {"alpha": 0.3, "beta": 0.4})
case("PRelu", [_rand(2, 3, 4), _rand(3, 1)])
case("Clip", [_rand(3, 4), np.float32(-0.5), np.float32(1.0)])
case("Clip", [_rand(3, 4), None, np.float32(1.0)])
for name in "Add Sub Mul Div".split():
    case(name, [_rand(2, 1, 4), _rand(3, 1)])
case("Pow", [_rand(3, 4, low=0.1), _rand(4)])
case("Pow", [_rand(3, 4), np.array(3, dtype=np.int64)])
for name in "Sum Mean Max Min".split():
    case(name, [_rand(2, 1, 4), _rand(3, 1), _rand(4)])
case("Where", [_rand(3, 4) > 0, _rand(3, 1), _rand(4)])
for axis in (0, 1, -1):
    for opset in (11, 21):
        for name in ("Softmax", "LogSoftmax", "Hardmax"):
            case(name, [_rand(2, 3, 4)], {"axis": axis % 3 if opset == 11 else axis}, opset=opset)
for a, b in (((3, 4), (4, 2)), ((4,), (4,)), ((4,), (2, 4, 3)), ((2, 3, 4), (4,)), ((2, 1, 3, 4), (5, 4, 2))):
    case("MatMul", [_rand(*a), _rand(*b)])
case("Gemm", [_rand(4, 3), _rand(2, 4), _rand(2)], {"alpha": 0.5, "beta": 2.0, "transA": 1, "transB": 1})
case("Gemm", [_rand(3, 4), _rand(4, 2), np.float32(0.7)], {"beta": 0.5})

# Convolutions
for attributes in (
    {},
    {"pads": [1, 0, 2, 1], "strides": [2, 1]},
    {"dilations": [2, 1], "pads": [0, 1, 1, 0]},
    {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"auto_pad": "SAME_LOWER", "strides": [2, 3]},
    {"auto_pad": "VALID", "strides": [2, 2]},
):
    case("Conv", [_rand(2, 4, 7, 6), _rand(6, 2, 3, 2), _rand(6)], {"group": 2, **attributes})
    case("Conv", [_rand(1, 3, 8, 7), _rand(3, 1, 2, 3)], {"group": 3, **attributes})
case("Conv", [_rand(2, 3, 9), _rand(4, 3, 3)], {"strides": [2], "pads": [2, 1]})
case("Conv", [_rand(1, 2, 4, 5, 6), _rand(3, 2, 2, 3, 2)], {"strides": [1, 2, 3], "pads": [1, 0, 0, 0, 1, 1]})
for attributes in (
    {},
    {"strides": [2, 3], "pads": [1, 0, 0, 1]},
    {"strides": [3, 2], "output_padding": [2, 1], "dilations": [2, 1]},
    {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"strides": [2, 3], "auto_pad": "SAME_LOWER"},
    {"strides": [2, 2], "auto_pad": "VALID"},
    {"strides": [2, 2], "output_shape": [9, 8]},
    {"strides": [3, 3], "output_shape": [10, 9], "auto_pad": "SAME_UPPER"},
):
    case("ConvTranspose", [_rand(2, 4, 4, 3), _rand(4, 3, 3, 3), _rand(6)], {"group": 2, **attributes})
case("ConvTranspose", [_rand(2, 3, 5), _rand(3, 2, 4)], {"strides": [3], "pads": [1, 2], "output_padding": [1]})
case("ConvTranspose", [_rand(1, 2, 2, 3, 2), _rand(2, 1, 2, 3, 2)], {"strides": [2, 1, 2], "pads": [0, 1, 0, 1, 1, 0]})

# Pools
for attributes in (
    {"kernel_shape": [2, 3]},
    {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 2, 1]},
    {"kernel_shape": [2, 3], "strides": [3, 2], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1},
    {"kernel_shape": [3, 2], "dilations": [2, 3], "strides": [1, 2], "pads": [1, 1, 0, 0]},
    {"kernel_shape": [3, 3], "dilations": [2, 2], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"kernel_shape": [2, 4], "strides": [3, 2], "auto_pad": "SAME_LOWER"},
    {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "VALID"},
):
    case("MaxPool", [_rand(2, 3, 8, 7)], attributes, outputs=2)
    case("MaxPool", [_rand(2, 3, 8, 7)], {**attributes, "storage_order": 1}, outputs=2)
    for include in (0, 1):
        case("AveragePool", [_rand(2, 3, 8, 7)], {**attributes, "count_include_pad": include})
    if "ceil_mode" not in attributes:
        for p in (1, 2, 3):
            case("LpPool", [_rand(2, 3, 8, 7)], {**attributes, "p": p})
for shape, kernel in (((2, 3, 9), [3]), ((1, 2, 5, 6, 4), [2, 3, 2])):
    pads = [1] * 2 * len(kernel)
    case("MaxPool", [_rand(*shape)], {"kernel_shape": kernel, "pads": pads, "strides": [2] * len(kernel)}, outputs=2)
    case("AveragePool", [_rand(*shape)], {"kernel_shape": kernel, "pads": pads, "strides": [2] * len(kernel)})
for shape in ((2, 3, 5), (2, 3, 4, 5), (2, 3, 2, 3, 4)):
    for name in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        case(name, [_rand(*shape)])
case(
    "MaxUnpool",
    [_rand(1, 2, 2, 2), np.array([[[[5, 7], [13, 15]], [[16, 19], [24, 27]]]])],
    {"kernel_shape": [2, 2], "strides": [2, 2]},
)
case("Col2Im", [_rand(2, 3 * 6, 16), _ints(5, 6), _ints(2, 3)])
case(
    "Col2Im",
    [_rand(1, 2 * 4, 12), _ints(5, 4), _ints(2, 2)],
    {"strides": [2, 1], "pads": [1, 0, 0, 1], "dilations": [1, 1]},
)

# Normalization
case("BatchNormalization", [_rand(2, 3, 4, 5), _rand(3), _rand(3), _rand(3), _rand(3, low=0.2)], {"epsilon": 1e-3})
case("BatchNormalization", [_rand(4, 3), _rand(3), _rand(3), _rand(3), _rand(3, low=0.2)], opset=9)
case(
    "BatchNormalization",
    [_rand(2, 3, 4), _rand(3), _rand(3), _rand(3), _rand(3, low=0.2)],
    {"training_mode": 1, "momentum": 0.7},
    outputs=3,
)
case("LayerNormalization", [_rand(2, 3, 4), _rand(4), _rand(4)], outputs=3)
case("LayerNormalization", [_rand(2, 3, 4), _rand(3, 4)], {"axis": 1, "epsilon": 1e-2})
case("GroupNormalization", [_rand(2, 6, 3), _rand(6), _rand(6)], {"num_groups": 3})
case("GroupNormalization", [_rand(2, 6, 3), _rand(3), _rand(3)], {"num_groups": 3}, opset=18)
case("InstanceNormalization", [_rand(2, 3, 4, 5), _rand(3), _rand(3)])
case("MeanVarianceNormalization", [_rand(2, 3, 4, 5)])
case("MeanVarianceNormalization", [_rand(2, 3, 4)], {"axes": [1]})
case("LRN", [_rand(2, 7, 3, 4)], {"size": 3, "alpha": 0.2, "beta": 0.6, "bias": 1.5})
for p in (1, 2):
    for axis in (0, -1, 1):
        case("LpNormalization", [_rand(3, 4, 2)], {"p": p, "axis": axis})
case("RMSNormalization", [_rand(2, 3, 4), _rand(4)], opset=23)

# Reductions
for suffix in "Sum Mean Max Min Prod L1 L2 LogSum LogSumExp SumSquare".split():
    data = _rand(2, 3, 4, low=0.2) if suffix == "LogSum" else _rand(2, 3, 4)
    case(f"Reduce{suffix}", [data])
    case(f"Reduce{suffix}", [data, _ints(-1, 0)], {"keepdims": 0}, fixed=(1,))
    case(f"Reduce{suffix}", [data, _ints()], {"noop_with_empty_axes": 1}, fixed=(1,))
    case(f"Reduce{suffix}", [data, _ints()], {"noop_with_empty_axes": 0}, fixed=(1,))
    case(f"Reduce{suffix}", [data], {"axes": [1], "keepdims": 0}, opset=11)

# Data movement
for mode in ("constant", "reflect", "edge", "wrap"):
    case("Pad", [_rand(3, 4), _ints(1, 2, 2, 1)], {"mode": mode})
    case("Pad", [_rand(4, 5), _ints(-1, 2, 1, -2)], {"mode": mode})
    case("Pad", [_rand(2, 3, 4), _ints(1, 2, 2, 1), None, _ints(-1, 1)], {"mode": mode})
case("Pad", [_rand(3, 4), _ints(-1, -1, 0, -2), np.float32(7)])
case("GatherElements", [_rand(3, 40), np.array([[0, -1, 2], [3, 39, 33]])], {"axis": 1})
case("GatherElements", [_rand(3, 4, 2), np.array([[[0, -1]], [[2, 1]]])], {"axis": 0})
for reduction in ("none", "add", "mul", "max", "min"):
    repeated = np.array([[1, 1, -1], [0, 0, 0]])
    case("ScatterElements", [_rand(2, 4), repeated, _rand(2, 3)], {"axis": 1, "reduction": reduction})
    case("ScatterND", [_rand(4, 3), np.array([[1], [3]]), _rand(2, 3)], {"reduction": reduction})
    case("ScatterND", [_rand(4, 3), np.array([[1, -1], [3, 0]]), _rand(2)], {"reduction": reduction})
case("Gather", [_rand(3, 4), np.array([[0, -1], [1, 1]])], {"axis": 1})
case("GatherND", [_rand(2, 3, 4), np.array([[[0, 1]], [[2, -1]]])], {"batch_dims": 1})
case("Slice", [_rand(5, 6), _ints(4, -1), _ints(-10, 0), _ints(0, 1), _ints(-2, -2)])
case("Range", [np.float32(0.5), np.float32(4.2), np.float32(0.7)])
case("Expand", [_rand(3, 1), _ints(2, 1, 4)])
case("Tile", [_rand(2, 3), _ints(2, 2)])
case("Split", [_rand(3, 7), _ints(2, 4, 1)], {"axis": 1}, outputs=3)
case("Concat", [_rand(2, 3), _rand(2, 1)], {"axis": -1})
case("CumSum", [_rand(3, 4), np.array(1)], {"exclusive": 1, "reverse": 1})
case("Einsum", [_rand(2, 3, 4), _rand(2, 4, 5)], {"equation": "bij,bjk->bik"})

# Resize
MODES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"]
SCALES = ([1, 1, 2.0, 1.5], [1, 1, 0.6, 3.0], [1, 1, 0.5, 0.25], [1, 1, 2.3, 0.7])
for transform in MODES:
    for scales in SCALES:
        fixed = np.array(scales, dtype=np.float32)
        for nearest in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
            attributes = {"mode": "nearest", "coordinate_transformation_mode": transform, "nearest_mode": nearest}
            case("Resize", [_rand(1, 2, 4, 6), None, fixed], attributes, fixed=(2,))
        for mode in ("linear", "cubic"):
            case(
                "Resize",
                [_rand(1, 2, 4, 6), None, fixed],
                {"mode": mode, "coordinate_transformation_mode": transform},
                fixed=(2,),
            )
    for sizes in ([1, 2, 7, 9], [1, 2, 3, 1]):
        for mode in ("linear", "nearest", "cubic"):
            case(
                "Resize",
                [_rand(1, 2, 4, 6), None, None, _ints(*sizes)],
                {"mode": mode, "coordinate_transformation_mode": transform},
                fixed=(3,),
            )
for mode in ("linear", "nearest"):
    roi = np.array([0.1, 0.2, 0.9, 1.3], dtype=np.float32)
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": "tf_crop_and_resize",
        "axes": [2, 3],
        "extrapolation_value": 3.0,
    }
    case("Resize", [_rand(1, 2, 4, 6), roi, None, _ints(5, 4)], attributes, fixed=(1, 3))
for mode in ("linear", "cubic"):
    attributes = {"mode": mode, "antialias": 1}
    case("Resize", [_rand(1, 2, 9, 8), None, np.array([1, 1, 0.6, 0.4], np.float32)], attributes, fixed=(2,))
case(
    "Resize",
    [_rand(1, 2, 4, 6), None, np.array([1, 1, 0.8, 0.8], np.float32)],
    {"mode": "cubic", "exclude_outside": 1},
    fixed=(2,),
)
case("Resize", [_rand(1, 2, 4, 6), np.array([1, 1, 2, 1.5], np.float32)], {"mode": "linear"}, opset=10, fixed=(1,))
for mode in ("nearest", "linear"):
    case("Upsample", [_rand(1, 2, 4, 6), np.array([1, 1, 2, 1.5], np.float32)], {"mode": mode}, opset=9, fixed=(1,))

# Losses
LABELS = np.array([[0, 2, 1, 4], [3, -1, 1, 0]])
for reduction in ("none", "mean", "sum"):
    for weight in (None, _rand(5, low=0.1)):
        for name in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"):
            inputs = [_rand(2, 5, 4), LABELS] + ([] if weight is None else [weight])
            outputs = 2 if name[0] == "S" else 1
            case(name, inputs, {"reduction": reduction, "ignore_index": -1}, outputs=outputs)
            flat = [_rand(6, 5), _ints(0, 4, 2, 1, 3, 3)] + ([] if weight is None else [weight])
            case(name, flat, {"reduction": reduction})
case("SoftmaxCrossEntropyLoss", [_rand(2, 5, 2, 3), np.array([[[0, 1, 2], [3, 4, 0]]] * 2)], {"reduction": "none"})


@pytest.mark.parametrize(("op", "inputs", "attributes", "opset", "outputs", "fixed"), CASES)
def test_float64_agrees_with_onnxruntime(op, inputs, attributes, opset, outputs, fixed):
    inputs = [None if value is None else np.asarray(value) for value in inputs]
    model = single(op, inputs, attributes, opset, outputs, fixed=fixed)
    feeds = {f"x{i}": value for i, value in enumerate(inputs) if value is not None and i not in fixed}
    expected = Evaluator(model, strict=True)(feeds)
    wide = {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in feeds.items()}
    actual = Evaluator(to_float64(model), prefer="reference", strict=True)(wide)
    for name, value in expected.items():
        assert actual[name].shape == value.shape
        assert actual[name].dtype == (np.float64 if value.dtype == np.float32 else value.dtype)
        np.testing.assert_allclose(actual[name], value, rtol=2e-5, atol=2e-6)
