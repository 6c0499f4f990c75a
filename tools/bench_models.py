"""The models that tools/bench.py times, defined once in PyTorch and exported; each returns its loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

CLASSES = 10


class Mlp(nn.Module):
    """Dense layers with Relu between them, and cross-entropy."""

    def __init__(self, widths: tuple[int, ...] = (784, 512, 256, 10)) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in zip(widths[:-1], widths[1:], strict=True))

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return fn.cross_entropy(self.layers[-1](x), label)


class Cnn(nn.Module):
    """Two blocks of convolution, Relu, max pool; two dense layers; cross-entropy."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.fc1, self.fc2 = nn.Linear(32 * 7 * 7, 128), nn.Linear(128, CLASSES)

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        x = fn.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = fn.max_pool2d(torch.relu(self.conv2(x)), 2)
        x = torch.relu(self.fc1(x.flatten(1)))
        return fn.cross_entropy(self.fc2(x), label)


class Residual(nn.Module):
    """A residual block: two 3 × 3 convolutions, and a 1 × 1 one beside them where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = norm(outputs), norm(outputs)
        changes = stride != 1 or inputs != outputs
        self.beside = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x)))))
        return torch.relu(y + self.beside(x))


class ResNet(nn.Module):
    """Three residual blocks of 16, 32 and 64 channels, global average pool, a dense layer, cross-entropy."""

    def __init__(self, norm: str) -> None:
        super().__init__()
        make = nn.BatchNorm2d if norm == "batch" else lambda channels: nn.GroupNorm(8, channels)
        self.first, self.norm = nn.Conv2d(3, 16, 3, 1, 1, bias=False), make(16)
        self.blocks = nn.Sequential(
            Residual(16, 16, 1, make), Residual(16, 32, 2, make), Residual(32, 64, 2, make)
        )  # fmt: skip
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        x = self.blocks(torch.relu(self.norm(self.first(x))))
        return fn.cross_entropy(self.head(fn.adaptive_avg_pool2d(x, 1).flatten(1)), label)


class Block(nn.Module):
    """A pre-norm transformer layer with four heads."""

    def __init__(self, width: int, causal: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.causal = causal

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) * (width // 4) ** -0.5
        if self.causal:
            scores = scores + torch.full((length, length), float("-inf")).triu(1)
        mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.down(fn.gelu(self.up(self.norm2(x))))


class Encoder(nn.Module):
    """Transformer layers, the mean over the sequence, a dense layer, cross-entropy."""

    def __init__(self, width: int = 128, layers: int = 2) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, False) for _ in range(layers))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return fn.cross_entropy(self.head(x.mean(1)), label)


class Gpt(nn.Module):
    """Token and position embeddings, two causal layers, a dense layer to the vocabulary, cross-entropy."""

    def __init__(self, vocabulary: int = 512, width: int = 128, length: int = 64) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Parameter(torch.randn(length, width) * 0.1)
        self.blocks = nn.ModuleList(Block(width, True) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, token: Tensor, label: Tensor) -> Tensor:
        x = self.token(token) + self.position
        for block in self.blocks:
            x = block(x)
        return fn.cross_entropy(self.head(self.norm(x)).flatten(0, 1), label.flatten())


class Lstm(nn.Module):
    """One LSTM layer, a dense layer on the last state, cross-entropy."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(32, 64, batch_first=False), nn.Linear(64, CLASSES)

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        return fn.cross_entropy(self.head(self.lstm(x)[0][-1]), label)


class UNet(nn.Module):
    """Down by max pool, up by a transposed convolution, joined with the skip; squared error."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.up = nn.ConvTranspose2d(32, 16, 2, 2)
        self.join, self.last = nn.Conv2d(32, 16, 3, padding=1), nn.Conv2d(16, 1, 1)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        skip = torch.relu(self.down1(x))
        low = torch.relu(self.down2(fn.max_pool2d(skip, 2)))
        joined = torch.relu(self.join(torch.cat([skip, self.up(low)], 1)))
        return fn.mse_loss(self.last(joined), target)


class Gnn(nn.Module):
    """Two rounds of message passing: gather the sources, a dense layer, scatter-add to the targets; cross-entropy."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.message = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.update = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(2))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor, source: Tensor, target: Tensor, label: Tensor) -> Tensor:
        for message, update in zip(self.message, self.update, strict=True):
            sent = torch.relu(message(x[source]))
            received = torch.zeros_like(x).scatter_add(0, target[:, None].expand_as(sent), sent)
            x = torch.relu(update(torch.cat([x, received], 1)))
        return fn.cross_entropy(self.head(x), label)


@dataclass(frozen=True)
class Case:
    """A model to time: how it is made, its arguments by name, and the ratios to PyTorch eager that are aimed at.

    `inputs` is the target of the gradient to the float input, None where there is no float input.
    """

    make: Callable[[], nn.Module]
    arguments: Callable[[], dict[str, Tensor]]
    parameters: float
    inputs: float | None = 0.9
    nodes: float | None = None


def _labels(*shape: int, classes: int = CLASSES) -> Tensor:
    return torch.randint(0, classes, shape)


def images(batch: int, channels: int, size: int) -> dict[str, Tensor]:
    return {"x": torch.randn(batch, channels, size, size), "label": _labels(batch)}


def _graph(nodes: int, edges: int, width: int) -> dict[str, Tensor]:
    ends = torch.randint(0, nodes, (2, edges))
    return {"x": torch.randn(nodes, width), "source": ends[0], "target": ends[1], "label": _labels(nodes)}


CASES: dict[str, Case] = {
    "mlp": Case(Mlp, lambda: {"x": torch.randn(64, 784), "label": _labels(64)}, 0.75, nodes=4.5),
    "cnn": Case(Cnn, lambda: images(64, 1, 28), 0.8, nodes=5.0),
    "resnet_group": Case(lambda: ResNet("group"), lambda: images(16, 3, 32), 1.0),
    "resnet_batch": Case(lambda: ResNet("batch"), lambda: images(16, 3, 32), 1.0),
    "transformer": Case(Encoder, lambda: {"x": torch.randn(16, 64, 128), "label": _labels(16)}, 0.9, nodes=2.8),
    "gpt": Case(
        Gpt, lambda: {"token": _labels(8, 64, classes=512), "label": _labels(8, 64, classes=512)}, 0.95, inputs=None
    ),
    "lstm": Case(Lstm, lambda: {"x": torch.randn(40, 32, 32), "label": _labels(32)}, 1.2, inputs=1.2),
    "unet": Case(UNet, lambda: {"x": torch.randn(4, 3, 64, 64), "target": torch.randn(4, 1, 64, 64)}, 1.0),
    "gnn": Case(Gnn, lambda: _graph(2000, 8000, 32), 1.5),
}  # fmt: skip


def export(model: nn.Module, arguments: dict[str, Tensor], opset: int = 20) -> Any:
    """The ONNX model of a module, weights under the module's own names.

    The exporter's optimiser runs only after the weights have become inputs of the graph: it would fold and merge them.
    """
    import onnx
    from onnxscript import optimizer

    program = torch.onnx.export(
        model, tuple(arguments.values()), dynamo=True, opset_version=opset, optimize=False, verbose=False,
        input_names=list(arguments), output_names=["loss"],
    )  # fmt: skip
    proto = program.model_proto
    names = {name for name, _ in model.named_parameters()}
    weights = [t for t in proto.graph.initializer if t.name in names]
    for tensor in weights:
        proto.graph.initializer.remove(tensor)
        proto.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    for node in proto.graph.node:
        if node.op_type == "BatchNormalization" and model.training:
            _train_mode(node)
    simple = optimizer.optimize(proto)
    inputs = [i for i in simple.graph.input if i.name not in names]
    del simple.graph.input[:]
    simple.graph.input.extend(inputs)
    simple.graph.initializer.extend(weights)
    return simple


def _train_mode(node: Any) -> None:
    """The exporter writes batch normalization in inference mode; this makes it use the batch's statistics."""
    import onnx

    del node.output[1:]
    node.output.extend(f"{node.output[0]}/{name}" for name in ("mean", "var"))
    kept = [a for a in node.attribute if a.name != "training_mode"]
    del node.attribute[:]
    node.attribute.extend([*kept, onnx.helper.make_attribute("training_mode", 1)])
