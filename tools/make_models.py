"""Writes the models that the repository ships: examples/digits_cnn.onnx, and the node-count models of tests/data.

    pip install scikit-learn && python tools/make_models.py

scikit-learn gives the digits and is needed by this script alone. Everything is seeded: on one machine a second run
writes the same bytes.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parent.parent
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class Builder:
    """Collects the nodes, initializers and inputs of one model; every operator call returns the name of its output."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.name = name
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, dtype: int, shape: list[int | str]) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def constant(self, name: str, value: np.ndarray) -> str:
        self.initializers.append(numpy_helper.from_array(value, name))
        return name

    def normal(self, name: str, *shape: int, scale: float = 0.1) -> str:
        return self.constant(name, (self.rng.standard_normal(shape) * scale).astype(np.float32))

    def op(self, op_type: str, *inputs: str, to: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op_type, inputs, [to], name=f"{op_type}_{len(self.nodes)}", **attributes))
        return to

    def gemm(self, x: str, name: str, rows: int, columns: int) -> str:
        """A layer as PyTorch exports nn.Linear on a matrix: weight [out, in], transB."""
        weight = self.normal(f"{name}.weight", columns, rows, scale=(2 / rows) ** 0.5)
        return self.op("Gemm", x, weight, self.normal(f"{name}.bias", columns), to=f"{name}_out", transB=1)

    def linear(self, x: str, name: str, rows: int, columns: int) -> str:
        """A layer as PyTorch exports nn.Linear on three axes: MatMul by a weight [in, out], then Add."""
        weight = self.normal(f"{name}.weight", rows, columns, scale=rows**-0.5)
        product = self.op("MatMul", x, weight, to=f"{name}_product")
        return self.op("Add", product, self.normal(f"{name}.bias", columns), to=f"{name}_out")

    def finish(self, outputs: list[tuple[str, list[int | str]]], opset: int, ir_version: int) -> onnx.ModelProto:
        """The model with inferred shapes, checked."""
        infos = [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in outputs]
        graph = helper.make_graph(self.nodes, self.name, self.inputs, infos, self.initializers)
        imports = [helper.make_opsetid("", opset)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=ir_version, producer_name="gradgen-tools")
        model = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        onnx.checker.check_model(model, full_check=True)
        return model


def cross_entropy(b: Builder, logits: str, batch: int | str) -> str:
    return b.op("SoftmaxCrossEntropyLoss", logits, b.input("label", INT64, [batch]), to="loss", reduction="mean")


def mlp(batch: int | str) -> onnx.ModelProto:
    """Three layers with Relu between them, and cross-entropy."""
    b = Builder("mlp")
    x = b.input("x", FLOAT, [batch, 64])
    for i, (rows, columns) in enumerate([(64, 32), (32, 16), (16, 10)]):
        x = b.gemm(x if i == 0 else b.op("Relu", x, to=f"relu{i}"), f"fc{i + 1}", rows, columns)
    cross_entropy(b, x, batch)
    return b.finish([("loss", [])], 21, 10)


def cnn(batch: int | str) -> onnx.ModelProto:
    """Two blocks of Conv, Relu, MaxPool, two layers, and cross-entropy."""
    b = Builder("cnn")
    x = b.input("x", FLOAT, [batch, 1, 8, 8])
    for i, (inputs, filters) in enumerate([(1, 4), (4, 8)], start=1):
        weight = b.normal(f"conv{i}.weight", filters, inputs, 3, 3, scale=(2 / (9 * inputs)) ** 0.5)
        bias = b.normal(f"conv{i}.bias", filters)
        x = b.op("Conv", x, weight, bias, to=f"conv{i}_out", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        x = b.op("Relu", x, to=f"relu{i}")
        x = b.op("MaxPool", x, to=f"pool{i}", kernel_shape=[2, 2], strides=[2, 2])
    x = b.gemm(b.op("Flatten", x, to="flat"), "fc1", 32, 16)
    x = b.gemm(b.op("Relu", x, to="relu3"), "fc2", 16, 10)
    cross_entropy(b, x, batch)
    return b.finish([("loss", [])], 21, 10)


def encoder_layer(b: Builder, x: str, layer: str, heads: list[int], joined: list[int]) -> str:
    """One post-norm encoder layer of width 16 with 2 heads; `heads` and `joined` are the targets of its reshapes."""
    b.constant(f"{layer}.heads", np.array(heads, np.int64))
    b.constant(f"{layer}.joined", np.array(joined, np.int64))

    def split(name: str, perm: list[int]) -> str:
        projected = b.linear(x, f"{layer}.{name}", 16, 16)
        shaped = b.op("Reshape", projected, f"{layer}.heads", to=f"{layer}.{name}_heads")
        return b.op("Transpose", shaped, to=f"{layer}.{name}_turned", perm=perm)

    query, key, value = split("q", [0, 2, 1, 3]), split("k", [0, 2, 3, 1]), split("v", [0, 2, 1, 3])
    scores = b.op("MatMul", query, key, to=f"{layer}.scores")
    scale = b.constant(f"{layer}.scale", np.array(8**-0.5, np.float32))
    weights = b.op("Softmax", b.op("Mul", scores, scale, to=f"{layer}.scaled"), to=f"{layer}.weights", axis=-1)
    mixed = b.op("MatMul", weights, value, to=f"{layer}.mixed")
    mixed = b.op("Transpose", mixed, to=f"{layer}.back", perm=[0, 2, 1, 3])
    attended = b.linear(b.op("Reshape", mixed, f"{layer}.joined", to=f"{layer}.concat"), f"{layer}.out", 16, 16)
    x = normalized(b, b.op("Add", x, attended, to=f"{layer}.sum1"), f"{layer}.norm1")
    hidden = b.op("Gelu", b.linear(x, f"{layer}.ff1", 16, 32), to=f"{layer}.gelu")
    return normalized(b, b.op("Add", x, b.linear(hidden, f"{layer}.ff2", 32, 16), to=f"{layer}.sum2"), f"{layer}.norm2")


def normalized(b: Builder, x: str, name: str) -> str:
    scale = b.constant(f"{name}.weight", (1 + 0.1 * b.rng.standard_normal(16)).astype(np.float32))
    return b.op("LayerNormalization", x, scale, b.normal(f"{name}.bias", 16), to=f"{name}_out", axis=-1, epsilon=1e-5)


def encoder(batch: int | str) -> onnx.ModelProto:
    """A two-layer encoder of width 16 over 5 tokens, mean over the tokens, one layer, and cross-entropy."""
    b = Builder("encoder")
    dynamic = isinstance(batch, str)
    heads, joined = ([0, -1, 2, 8], [0, -1, 16]) if dynamic else ([int(batch), 5, 2, 8], [int(batch), 5, 16])
    x = b.input("x", FLOAT, [batch, 5, 16])
    for layer in ("layer1", "layer2"):
        x = encoder_layer(b, x, layer, heads, joined)
    axes = b.constant("token_axis", np.array([1], np.int64))
    cross_entropy(b, b.gemm(b.op("ReduceMean", x, axes, to="pooled", keepdims=0), "fc", 16, 10), batch)
    return b.finish([("loss", [])], 21, 10)


def chain(steps: int, batch: int | str = 4, width: int = 8, loss: bool = True) -> onnx.ModelProto:
    """MatMul, Add, Relu, `steps` times over: 3 * steps nodes, output y [batch, width]; `loss` adds a node, y's mean."""
    b = Builder("chain")
    x = b.input("x", FLOAT, [batch, width])
    for i in range(steps):
        product = b.op("MatMul", x, b.normal(f"w{i}", width, width, scale=(2 / width) ** 0.5), to=f"product{i}")
        shifted = b.op("Add", product, b.normal(f"b{i}", width), to=f"sum{i}")
        x = b.op("Relu", shifted, to=f"relu{i}" if i < steps - 1 else "y")
    if not loss:
        return b.finish([("y", [batch, width])], 21, 10)
    b.op("ReduceMean", x, to="loss", keepdims=0)
    return b.finish([("loss", [])], 21, 10)


def digits_cnn(weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    """The classifier of 8 x 8 digits with trained weights: image [N, 1, 8, 8], label [N] to logits [N, 10], loss."""
    b = Builder("digits_cnn")
    x = b.input("image", FLOAT, ["N", 1, 8, 8])
    label = b.input("label", INT64, ["N"])
    for name, value in weights.items():
        b.constant(name, value.astype(np.float32))
    for i in (1, 2):
        parameters = f"conv{i}.weight", f"conv{i}.bias"
        x = b.op("Conv", x, *parameters, to=f"conv{i}", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        x = b.op("MaxPool", b.op("Relu", x, to=f"relu{i}"), to=f"pool{i}", kernel_shape=[2, 2], strides=[2, 2])
    b.op("Gemm", b.op("Flatten", x, to="features"), "fc.weight", "fc.bias", to="logits", transB=1)
    b.op("SoftmaxCrossEntropyLoss", "logits", label, to="loss", reduction="mean")
    return b.finish([("logits", ["N", 10]), ("loss", [])], 17, 8)


SHIPPED: dict[str, Callable[[int | str], onnx.ModelProto]] = {
    "mlp": mlp,
    "cnn": cnn,
    "encoder": encoder,
    "chain": lambda batch: chain(20, batch),
}


def main() -> None:
    import digits_training  # beside this file; needs scikit-learn, which the builders above do not

    data = ROOT / "tests" / "data"
    for name, build in SHIPPED.items():
        onnx.save(build(4), data / f"{name}_static.onnx")
        onnx.save(build("N"), data / f"{name}_dynamic.onnx")
    examples = ROOT / "examples"
    weights, accuracy, image, label = digits_training.train()
    onnx.save(digits_cnn(weights), examples / "digits_cnn.onnx")
    np.savez_compressed(examples / "digits_sample.npz", image=image, label=label)
    print(f"digits_cnn: {accuracy:.1%} of the held-out digits are right")


if __name__ == "__main__":
    main()
