# Single-node models with samples, awkward attributes included, on which the float64 oracle meets onnxruntime.
from __future__ import annotations

import zlib

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper


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


def rand(*shape, low=-2.0, high=2.0, seed=0):
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


for name in [
    "Neg",
    "Abs",
    "Exp",
    "Sin",
    "Cos",
    "Tan",
    "Atan",
    "Sinh",
    "Cosh",
    "Tanh",
    "Asinh",
    "Erf",
    "Relu",
    "LeakyRelu",
    "Elu",
    "Selu",
    "Celu",
    "Softplus",
    "Softsign",
]:
    case(name, [rand(3, 4)])
for name in [
    "HardSigmoid",
    "HardSwish",
    "Mish",
    "Sigmoid",
    "ThresholdedRelu",
    "Shrink",
    "Floor",
    "Ceil",
    "Round",
    "Sign",
    "Identity",
]:
    case(name, [rand(3, 4)], opset=22 if name == "Mish" else 21)
for name in ["Sqrt", "Log", "Reciprocal"]:
    case(name, [rand(3, 4, low=0.2)])
for name in ["Asin", "Acos", "Atanh"]:
    case(name, [rand(3, 4, low=-0.9, high=0.9)])
case("Acosh", [rand(3, 4, low=1.1)])
for mode in ("none", "tanh"):
    case("Gelu", [rand(3, 5)], {"approximate": mode})
case("Celu", [rand(3, 4)], {"alpha": 0.4})
case("Shrink", [rand(3, 4)], {"bias": 0.3, "lambd": 0.6})
case("HardSigmoid", [rand(3, 4)], {"alpha": 0.3, "beta": 0.4})
case("PRelu", [rand(2, 3, 4), rand(3, 1)])
case("Clip", [rand(3, 4), np.float32(-0.5), np.float32(1.0)])
case("Clip", [rand(3, 4), None, np.float32(1.0)])
for name in ["Add", "Sub", "Mul", "Div"]:
    case(name, [rand(2, 1, 4), rand(3, 1)])
case("Pow", [rand(3, 4, low=0.1), rand(4)])
case("Pow", [rand(3, 4), np.array(3, dtype=np.int64)])
for name in ["Sum", "Mean", "Max", "Min"]:
    case(name, [rand(2, 1, 4), rand(3, 1), rand(4)])
case("Where", [rand(3, 4) > 0, rand(3, 1), rand(4)])
for axis in (0, 1, -1):
    for opset in (11, 21):
        for name in ("Softmax", "LogSoftmax", "Hardmax"):
            case(name, [rand(2, 3, 4)], {"axis": axis % 3 if opset == 11 else axis}, opset=opset)
for a, b in (((3, 4), (4, 2)), ((4,), (4,)), ((4,), (2, 4, 3)), ((2, 3, 4), (4,)), ((2, 1, 3, 4), (5, 4, 2))):
    case("MatMul", [rand(*a), rand(*b)])
case("Gemm", [rand(4, 3), rand(2, 4), rand(2)], {"alpha": 0.5, "beta": 2.0, "transA": 1, "transB": 1})
case("Gemm", [rand(3, 4), rand(4, 2), np.float32(0.7)], {"beta": 0.5})

# Convolutions
for attributes in (
    {},
    {"pads": [1, 0, 2, 1], "strides": [2, 1]},
    {"dilations": [2, 1], "pads": [0, 1, 1, 0]},
    {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"auto_pad": "SAME_LOWER", "strides": [2, 3]},
    {"auto_pad": "VALID", "strides": [2, 2]},
):
    case("Conv", [rand(2, 4, 7, 6), rand(6, 2, 3, 2), rand(6)], {"group": 2, **attributes})
    case("Conv", [rand(1, 3, 8, 7), rand(3, 1, 2, 3)], {"group": 3, **attributes})
case("Conv", [rand(2, 3, 9), rand(4, 3, 3)], {"strides": [2], "pads": [2, 1]})
case("Conv", [rand(1, 2, 4, 5, 6), rand(3, 2, 2, 3, 2)], {"strides": [1, 2, 3], "pads": [1, 0, 0, 0, 1, 1]})
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
    case("ConvTranspose", [rand(2, 4, 4, 3), rand(4, 3, 3, 3), rand(6)], {"group": 2, **attributes})
case("ConvTranspose", [rand(2, 3, 5), rand(3, 2, 4)], {"strides": [3], "pads": [1, 2], "output_padding": [1]})
case("ConvTranspose", [rand(1, 2, 2, 3, 2), rand(2, 1, 2, 3, 2)], {"strides": [2, 1, 2], "pads": [0, 1, 0, 1, 1, 0]})

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
    case("MaxPool", [rand(2, 3, 8, 7)], attributes, outputs=2)
    case("MaxPool", [rand(2, 3, 8, 7)], {**attributes, "storage_order": 1}, outputs=2)
    for include in (0, 1):
        case("AveragePool", [rand(2, 3, 8, 7)], {**attributes, "count_include_pad": include})
    if "ceil_mode" not in attributes:
        for p in (1, 2, 3):
            case("LpPool", [rand(2, 3, 8, 7)], {**attributes, "p": p})
for shape, kernel in (((2, 3, 9), [3]), ((1, 2, 5, 6, 4), [2, 3, 2])):
    pads = [1] * 2 * len(kernel)
    case("MaxPool", [rand(*shape)], {"kernel_shape": kernel, "pads": pads, "strides": [2] * len(kernel)}, outputs=2)
    case("AveragePool", [rand(*shape)], {"kernel_shape": kernel, "pads": pads, "strides": [2] * len(kernel)})
for shape in ((2, 3, 5), (2, 3, 4, 5), (2, 3, 2, 3, 4)):
    for name in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        case(name, [rand(*shape)])
case(
    "MaxUnpool",
    [rand(1, 2, 2, 2), np.array([[[[5, 7], [13, 15]], [[16, 19], [24, 27]]]])],
    {"kernel_shape": [2, 2], "strides": [2, 2]},
)
case("Col2Im", [rand(2, 3 * 6, 16), _ints(5, 6), _ints(2, 3)])
case(
    "Col2Im",
    [rand(1, 2 * 4, 12), _ints(5, 4), _ints(2, 2)],
    {"strides": [2, 1], "pads": [1, 0, 0, 1], "dilations": [1, 1]},
)

# Normalization
case("BatchNormalization", [rand(2, 3, 4, 5), rand(3), rand(3), rand(3), rand(3, low=0.2)], {"epsilon": 1e-3})
case("BatchNormalization", [rand(4, 3), rand(3), rand(3), rand(3), rand(3, low=0.2)], opset=9)
case(
    "BatchNormalization",
    [rand(2, 3, 4), rand(3), rand(3), rand(3), rand(3, low=0.2)],
    {"training_mode": 1, "momentum": 0.7},
    outputs=3,
)
case("LayerNormalization", [rand(2, 3, 4), rand(4), rand(4)], outputs=3)
case("LayerNormalization", [rand(2, 3, 4), rand(3, 4)], {"axis": 1, "epsilon": 1e-2})
case("GroupNormalization", [rand(2, 6, 3), rand(6), rand(6)], {"num_groups": 3})
case("GroupNormalization", [rand(2, 6, 3), rand(3), rand(3)], {"num_groups": 3}, opset=18)
case("InstanceNormalization", [rand(2, 3, 4, 5), rand(3), rand(3)])
case("MeanVarianceNormalization", [rand(2, 3, 4, 5)])
case("MeanVarianceNormalization", [rand(2, 3, 4)], {"axes": [1]})
case("LRN", [rand(2, 7, 3, 4)], {"size": 3, "alpha": 0.2, "beta": 0.6, "bias": 1.5})
for p in (1, 2):
    for axis in (0, -1, 1):
        case("LpNormalization", [rand(3, 4, 2)], {"p": p, "axis": axis})
case("RMSNormalization", [rand(2, 3, 4), rand(4)], opset=23)

# Reductions
for suffix in ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"]:
    data = rand(2, 3, 4, low=0.2) if suffix == "LogSum" else rand(2, 3, 4)
    case(f"Reduce{suffix}", [data])
    case(f"Reduce{suffix}", [data, _ints(-1, 0)], {"keepdims": 0}, fixed=(1,))
    case(f"Reduce{suffix}", [data, _ints()], {"noop_with_empty_axes": 1}, fixed=(1,))
    case(f"Reduce{suffix}", [data, _ints()], {"noop_with_empty_axes": 0}, fixed=(1,))
    case(f"Reduce{suffix}", [data], {"axes": [1], "keepdims": 0}, opset=11)

# Data movement
for mode in ("constant", "reflect", "edge", "wrap"):
    case("Pad", [rand(3, 4), _ints(1, 2, 2, 1)], {"mode": mode})
    case("Pad", [rand(4, 5), _ints(-1, 2, 1, -2)], {"mode": mode})
    case("Pad", [rand(2, 3, 4), _ints(1, 2, 2, 1), None, _ints(-1, 1)], {"mode": mode})
case("Pad", [rand(3, 4), _ints(-1, -1, 0, -2), np.float32(7)])
case("GatherElements", [rand(3, 40), np.array([[0, -1, 2], [3, 39, 33]])], {"axis": 1})
case("GatherElements", [rand(3, 4, 2), np.array([[[0, -1]], [[2, 1]]])], {"axis": 0})
for reduction in ("none", "add", "mul", "max", "min"):
    repeated = np.array([[1, 1, -1], [0, 0, 0]])
    case("ScatterElements", [rand(2, 4), repeated, rand(2, 3)], {"axis": 1, "reduction": reduction})
    case("ScatterND", [rand(4, 3), np.array([[1], [3]]), rand(2, 3)], {"reduction": reduction})
    case("ScatterND", [rand(4, 3), np.array([[1, -1], [3, 0]]), rand(2)], {"reduction": reduction})
case("Gather", [rand(3, 4), np.array([[0, -1], [1, 1]])], {"axis": 1})
case("GatherND", [rand(2, 3, 4), np.array([[[0, 1]], [[2, -1]]])], {"batch_dims": 1})
case("Slice", [rand(5, 6), _ints(4, -1), _ints(-10, 0), _ints(0, 1), _ints(-2, -2)])
case("Range", [np.float32(0.5), np.float32(4.2), np.float32(0.7)])
case("Expand", [rand(3, 1), _ints(2, 1, 4)])
case("Tile", [rand(2, 3), _ints(2, 2)])
case("Split", [rand(3, 7), _ints(2, 4, 1)], {"axis": 1}, outputs=3)
case("Concat", [rand(2, 3), rand(2, 1)], {"axis": -1})
case("CumSum", [rand(3, 4), np.array(1)], {"exclusive": 1, "reverse": 1})
case("Einsum", [rand(2, 3, 4), rand(2, 4, 5)], {"equation": "bij,bjk->bik"})

# Resize
MODES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"]
SCALES = ([1, 1, 2.0, 1.5], [1, 1, 0.6, 3.0], [1, 1, 0.5, 0.25], [1, 1, 2.3, 0.7])
for transform in MODES:
    for scales in SCALES:
        fixed = np.array(scales, dtype=np.float32)
        for nearest in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
            attributes = {"mode": "nearest", "coordinate_transformation_mode": transform, "nearest_mode": nearest}
            case("Resize", [rand(1, 2, 4, 6), None, fixed], attributes, fixed=(2,))
        for mode in ("linear", "cubic"):
            case(
                "Resize",
                [rand(1, 2, 4, 6), None, fixed],
                {"mode": mode, "coordinate_transformation_mode": transform},
                fixed=(2,),
            )
    for sizes in ([1, 2, 7, 9], [1, 2, 3, 1]):
        for mode in ("linear", "nearest", "cubic"):
            case(
                "Resize",
                [rand(1, 2, 4, 6), None, None, _ints(*sizes)],
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
    case("Resize", [rand(1, 2, 4, 6), roi, None, _ints(5, 4)], attributes, fixed=(1, 3))
for mode in ("linear", "cubic"):
    attributes = {"mode": mode, "antialias": 1}
    case("Resize", [rand(1, 2, 9, 8), None, np.array([1, 1, 0.6, 0.4], np.float32)], attributes, fixed=(2,))
case(
    "Resize",
    [rand(1, 2, 4, 6), None, np.array([1, 1, 0.8, 0.8], np.float32)],
    {"mode": "cubic", "exclude_outside": 1},
    fixed=(2,),
)
case("Resize", [rand(1, 2, 4, 6), np.array([1, 1, 2, 1.5], np.float32)], {"mode": "linear"}, opset=10, fixed=(1,))
for scales in SCALES:
    fixed = np.array(scales, np.float32)
    case("Resize", [rand(1, 2, 4, 6), fixed], {"mode": "nearest"}, opset=10, fixed=(1,))
    attributes = {"mode": "nearest", "coordinate_transformation_mode": "tf_half_pixel_for_nn"}
    case("Resize", [rand(1, 2, 4, 6), np.zeros(0, np.float32), fixed], attributes, opset=11, fixed=(1, 2))
for mode in ("nearest", "linear"):
    case("Upsample", [rand(1, 2, 4, 6), np.array([1, 1, 2, 1.5], np.float32)], {"mode": mode}, opset=9, fixed=(1,))

for mode in ("linear", "nearest", "cubic"):
    for padding in ("zeros", "border", "reflection"):
        for aligned in (0, 1):
            attributes = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
            case("GridSample", [rand(2, 3, 4, 5), rand(2, 3, 2, 2, low=-1.3, high=1.3)], attributes)
for aligned in (0, 1):
    case("AffineGrid", [rand(2, 2, 3), _ints(2, 1, 3, 4)], {"align_corners": aligned}, fixed=(1,))
    case("AffineGrid", [rand(1, 3, 4), _ints(1, 1, 2, 3, 2)], {"align_corners": aligned}, fixed=(1,))

# Losses
LABELS = np.array([[0, 2, 1, 4], [3, -1, 1, 0]])
for reduction in ("none", "mean", "sum"):
    for weight in (None, rand(5, low=0.1)):
        for name in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"):
            inputs = [rand(2, 5, 4), LABELS] + ([] if weight is None else [weight])
            outputs = 2 if name[0] == "S" else 1
            case(name, inputs, {"reduction": reduction, "ignore_index": -1}, outputs=outputs)
            flat = [rand(6, 5), _ints(0, 4, 2, 1, 3, 3)] + ([] if weight is None else [weight])
            case(name, flat, {"reduction": reduction})
case("SoftmaxCrossEntropyLoss", [rand(2, 5, 2, 3), np.array([[[0, 1, 2], [3, 4, 0]]] * 2)], {"reduction": "none"})
