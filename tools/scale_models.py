"""The large models of tools/scale.py and tools/checkpoint_memory.py: a transformer, and a graph with a wide fan-out."""

from __future__ import annotations

import numpy as np
import onnx
from make_models import FLOAT, Builder
from onnx import numpy_helper


class Transformer:
    """Encoder layers with the norm in front.

    Args:
        width, heads, inner: the sizes of a layer.
        spelled: writes LayerNormalization and Gelu as exporters did before opsets 17 and 20, in 9 and 5 nodes, and
            masks the scores: 50 nodes a layer; otherwise there are 29.
    """

    def __init__(self, width: int, heads: int, inner: int, spelled: bool):
        self.width, self.heads, self.inner, self.spelled = width, heads, inner, spelled
        self.b = Builder("transformer")
        self.count = 0

    def model(self, layers: int, batch: int | str, tokens: int) -> onnx.ModelProto:
        """x [batch, tokens, width] to the mean of the last layer's output, `loss`."""
        b = self.b
        x = b.input("x", FLOAT, [batch, tokens, self.width])
        b.constant("apart", np.array([0, 0, self.heads, self.width // self.heads], np.int64))
        b.constant("joined", np.array([0, 0, self.width], np.int64))
        b.constant("last", np.array([-1], np.int64))
        for name, value in {"half": 0.5, "one": 1, "two": 2, "epsilon": 1e-5, "root": 2**0.5,
                            "scale": (self.width / self.heads) ** -0.5}.items():  # fmt: skip
            # Constant nodes, as exporters write them: initializers are parameters.
            b.op("Constant", to=name, value=numpy_helper.from_array(np.array(value, np.float32)))
        mask = np.triu(np.full((tokens, tokens), -1e9, np.float32), 1)
        b.op("Constant", to="mask", value=numpy_helper.from_array(mask))
        for i in range(layers):
            x = self.layer(x, f"layer{i}")
        b.op("ReduceMean", x, to="loss", keepdims=0)
        return b.finish([("loss", [])], 21, 10)

    def layer(self, x: str, layer: str) -> str:
        """One layer; its output is `<layer>.out`."""
        b, width = self.b, self.width
        normed = self.norm(x, f"{layer}.norm1")
        query, key, value = (self.apart(normed, f"{layer}.{n}", turn) for n, turn in
                             (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])))  # fmt: skip
        scores = b.op("Mul", b.op("MatMul", query, key, to=f"{layer}.scores"), "scale", to=f"{layer}.scaled")
        if self.spelled:
            scores = b.op("Add", scores, "mask", to=f"{layer}.masked")
        weights = b.op("Softmax", scores, to=f"{layer}.weights", axis=-1)
        mixed = b.op("MatMul", weights, value, to=f"{layer}.mixed")
        mixed = b.op("Transpose", mixed, to=f"{layer}.back", perm=[0, 2, 1, 3])
        mixed = b.op("Reshape", mixed, "joined", to=f"{layer}.concat")
        x = b.op("Add", x, b.linear(mixed, f"{layer}.o", width, width), to=f"{layer}.attended")
        hidden = b.linear(self.norm(x, f"{layer}.norm2"), f"{layer}.ff1", width, self.inner)
        hidden = b.linear(self.gelu(hidden, f"{layer}.gelu"), f"{layer}.ff2", self.inner, width)
        return b.op("Add", x, hidden, to=f"{layer}.out")

    def apart(self, x: str, name: str, turn: list[int]) -> str:
        """A projection, split into heads."""
        shaped = self.b.op("Reshape", self.b.linear(x, name, self.width, self.width), "apart", to=f"{name}_heads")
        return self.b.op("Transpose", shaped, to=f"{name}_turned", perm=turn)

    def norm(self, x: str, name: str) -> str:
        """A layer normalisation with its parameters."""
        b = self.b
        weight, bias = (
            b.constant(f"{name}.weight", np.ones(self.width, np.float32)),
            b.normal(f"{name}.bias", self.width),
        )
        if not self.spelled:
            return b.op("LayerNormalization", x, weight, bias, to=f"{name}_out", axis=-1)
        centred = b.op("Sub", x, b.op("ReduceMean", x, "last", to=f"{name}_mean"), to=f"{name}_centred")
        squared = b.op("Pow", centred, "two", to=f"{name}_squared")
        variance = b.op("Add", b.op("ReduceMean", squared, "last", to=f"{name}_power"), "epsilon", to=f"{name}_var")
        unit = b.op("Div", centred, b.op("Sqrt", variance, to=f"{name}_std"), to=f"{name}_unit")
        return b.op("Add", b.op("Mul", unit, weight, to=f"{name}_scaled"), bias, to=f"{name}_out")

    def gelu(self, x: str, name: str) -> str:
        """The exact Gelu."""
        b = self.b
        if not self.spelled:
            return b.op("Gelu", x, to=name)
        erf = b.op("Erf", b.op("Div", x, "root", to=f"{name}_root"), to=f"{name}_erf")
        product = b.op("Mul", x, b.op("Add", erf, "one", to=f"{name}_one"), to=f"{name}_product")
        return b.op("Mul", product, "half", to=name)


def transformer(
    layers: int, batch: int | str = 2, tokens: int = 4, width: int = 8, heads: int = 2, spelled: bool = True
) -> onnx.ModelProto:
    """A transformer of 50 nodes a layer (29 where not `spelled`) and one for the loss; the hidden layer is 4 × wide."""
    return Transformer(width, heads, 4 * width, spelled).model(layers, batch, tokens)


def fan(units: int, width: int = 1_000, batch: int = 2, size: int = 8) -> onnx.ModelProto:
    """A wide graph: in each unit so many branches read one value and scale it, and their sum, squashed, is the next.

    `width` + 2 nodes a unit, output `y`.
    """
    b = Builder("fan")
    x = b.input("x", FLOAT, [batch, size])
    for i in range(units):
        branches = [b.op("Mul", x, b.normal(f"w{i}_{j}", size), to=f"branch{i}_{j}") for j in range(width)]
        x = b.op("Tanh", b.op("Sum", *branches, to=f"sum{i}"), to=f"tanh{i}" if i < units - 1 else "y")
    return b.finish([("y", [batch, size])], 21, 10)
