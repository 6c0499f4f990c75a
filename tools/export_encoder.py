"""Writes tests/data/transformer_{static,dynamic}.onnx: PyTorch's own TransformerEncoder, exported and simplified.

Needs torch 2.13 (no dependency of gradgen): `python tools/export_encoder.py`. The exporter's metadata, which holds
stack traces, is dropped.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import torch
from onnxscript import optimizer
from torch import nn

DATA = Path(__file__).resolve().parents[1] / "tests" / "data"


class Classifier(nn.Module):
    """Two encoder layers of width 16 with two heads, mean over the sequence, a linear head, cross-entropy."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(16, 10)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return self.loss(self.head(self.encoder(x).mean(1)), label)


def bare(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without the exporter's metadata."""
    model.producer_name, model.producer_version, model.doc_string = "gradgen-tools", "", ""
    del model.metadata_props[:]
    for item in [
        *model.graph.node,
        *model.graph.value_info,
        *model.graph.initializer,
        *model.graph.input,
        *model.graph.output,
    ]:
        del item.metadata_props[:]
        item.doc_string = ""
    return model


def main() -> None:
    """Export both variants."""
    torch.manual_seed(0)
    model = Classifier().train()
    for parameter in model.parameters():  # the encoder starts with equal layers, which an exporter would merge
        nn.init.normal_(parameter, std=0.2)
    batch = torch.export.Dim("N")
    for name, shapes in (("static", None), ("dynamic", {"x": {0: batch}, "label": {0: batch}})):
        program = torch.onnx.export(
            model, (torch.randn(4, 5, 16), torch.randint(0, 10, (4,))), dynamo=True, opset_version=20, optimize=True,
            dynamic_shapes=shapes, input_names=["x", "label"], output_names=["loss"],
        )  # fmt: skip
        onnx.save(bare(optimizer.optimize(program.model_proto)), DATA / f"transformer_{name}.onnx")


if __name__ == "__main__":
    main()
